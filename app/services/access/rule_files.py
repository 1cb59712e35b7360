"""Read files of rules that map claims to roles."""

from pathlib import Path

from app.core.access.claim_rules import MAX_FILE_BYTES, parse_rules
from app.core.access.claims import ClaimRule
from lachesis.wire.errors import StoreMisconfigured


def read_rules(setting: str, path: Path) -> tuple[ClaimRule, ...]:
    """Read the file of rules that a setting names.

    Raises:
        StoreMisconfigured: The file is missing or wrong. The message names the setting.
    """
    try:
        with path.open("rb") as file:
            return parse_rules(file.read(MAX_FILE_BYTES + 1).decode())
    except OSError as error:
        raise StoreMisconfigured(f"{setting}={path}: {error.strerror or error}") from error
    except ValueError as error:
        raise StoreMisconfigured(f"{setting}={path}: {error}") from error
