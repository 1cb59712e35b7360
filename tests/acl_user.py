"""The ACL user of docs/security.md on a Redis of the tests."""

import re
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from redis import Redis

_PAGE = Path(__file__).parents[1] / "docs" / "security.md"
_PASSWORD = "of-the-tests"


def documented_rules() -> list[str]:
    """Return the rules of the user, as the documentation has them."""
    (block,) = re.findall(r"```\nACL SETUSER lachesis (.*?)```", _PAGE.read_text(), re.S)
    return block.replace("\\\n", " ").replace("PASSWORD", _PASSWORD).split()


def restricted_url(url: str) -> str:
    """Create the user on the Redis at ``url``, and return the URL for it."""
    with Redis.from_url(url) as admin:
        admin.execute_command("ACL", "SETUSER", "lachesis", "reset", *documented_rules())
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"lachesis:{_PASSWORD}@{parts.netloc}"))


def unrestricted_url(url: str) -> str:
    """Return the URL for the default user, who may do everything."""
    return re.sub("//[^/]*@", "//", url)
