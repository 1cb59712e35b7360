"""The first operator token: the text of a file that the administrator of the machine made."""

import asyncio
import hmac
import logging
import math
from pathlib import Path

from app.core.access.identity import Identity
from app.core.access.tokens import digest_of
from app.services.access.credentials import GivenCredentials
from lachesis.wire.access import ALL_RUNS
from lachesis.wire.errors import StoreMisconfigured

_LOOK_AGAIN_S = 1.0
_MIN_CHARACTERS = 32
_MOST_BYTES = 4096
_NAME = "admin"

log = logging.getLogger("lachesis.access")


class AdminTokenFile:
    """Identifies clients by the token in a file. It is read again every second, so another token needs no restart.

    Args:
        path: The file. Its text without surrounding blanks is the token.

    Raises:
        StoreMisconfigured: The file cannot be read, or its text is not a valid token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked_s = -math.inf
        self._failed = ""
        self._digest: str | None = _read(path)
        self._identity = _identity(self._digest)

    async def start(self) -> None:
        """Do nothing: nothing runs in the background."""

    async def stop(self) -> None:
        """Do nothing."""

    async def identify(self, credentials: GivenCredentials) -> Identity | None:
        """Return the operator if the credentials are the token of the file, else None."""
        self._refresh()
        if self._digest is None or not hmac.compare_digest(self._digest, credentials.digest):
            return None
        return self._identity

    async def is_valid(self, identity: Identity) -> bool | None:
        """Return whether the token is still that of the file; None for identities of other sources."""
        if identity.digest is None or identity.token_id is not None:
            return None
        self._refresh()
        return identity == self._identity

    def _refresh(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s < _LOOK_AGAIN_S:
            return
        self._looked_s = now_s
        try:
            digest: str | None = _read(self._path)
            self._failed = ""
        except StoreMisconfigured as error:
            digest = None
            if str(error) != self._failed:
                log.warning("no operator token: %s", error.detail)
            self._failed = str(error)
        if digest != self._digest:
            self._digest = digest
            self._identity = _identity(digest)


def _identity(digest: str | None) -> Identity:
    return Identity(_NAME, "file", "operator", (ALL_RUNS,), contents=True, digest=digest)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1).strip()
    except OSError as error:
        raise StoreMisconfigured(f"LACHESIS_ADMIN_TOKEN_FILE={path}: {error.strerror or error}") from error
    if not _MIN_CHARACTERS <= len(text) <= _MOST_BYTES or not text.isascii() or len(text.split()) != 1:
        raise StoreMisconfigured(
            f"LACHESIS_ADMIN_TOKEN_FILE={path}: the file needs one line of {_MIN_CHARACTERS} or more characters "
            "without blanks, such as the output of `openssl rand -hex 32`"
        )
    return digest_of(text)
