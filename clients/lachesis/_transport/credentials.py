"""The token that each request carries, and where it comes from."""

import os
from base64 import b64encode
from pathlib import Path

import httpx

from lachesis._transport.settings import Settings, wrong_token

_Mark = tuple[int, int, int]


class Credentials:
    """The token of one client: given, kept in a file, or in the URL of the service.

    A file is read again after each change, so a rotated token needs no restart.
    """

    def __init__(self, settings: Settings) -> None:
        """Read the token.

        Raises:
            ValueError: The file cannot be read or holds no token. The message names the file, not the token.
        """
        self._given = settings.token
        self._file = Path(settings.token_file) if settings.token is None and settings.token_file else None
        url = httpx.URL(settings.url)
        self._basic = b64encode(f"{url.username}:{url.password}".encode()).decode() if url.userinfo else None
        self._kept = ""
        self._mark: _Mark | None = None
        if self._file is not None:
            self._read(self._file)

    @property
    def given(self) -> bool:
        """Whether requests carry any credentials."""
        return self._given is not None or self._file is not None or self._basic is not None

    def headers(self) -> dict[str, str]:
        """Return the header with the token; nothing if there is none."""
        if self._given is not None:
            return {"Authorization": f"Bearer {self._given}"}
        if self._file is not None:
            self.look_again()
            return {"Authorization": f"Bearer {self._kept}"}
        return {} if self._basic is None else {"Authorization": f"Basic {self._basic}"}

    def look_again(self) -> bool:
        """Read the file if it has changed. Return whether there is another token now.

        While the file is missing or empty, the last token stays.
        """
        if self._file is None:
            return False
        before = self._kept
        try:
            if _mark_of(self._file) != self._mark:
                self._read(self._file)
        except (OSError, ValueError):
            return False
        return self._kept != before

    def described(self) -> str:
        """Say where the token is from, without the token."""
        if self._given is not None:
            same = os.environ.get("LACHESIS_TOKEN") == self._given
            return "the token of LACHESIS_TOKEN" if same else "the token given as `token`"
        if self._file is not None:
            return f"the token in {self._file}"
        if self._basic is not None:
            return "the password in the URL"
        return "no token: set LACHESIS_TOKEN or LACHESIS_TOKEN_FILE, or pass `token`"

    def _read(self, file: Path) -> None:
        try:
            mark, text = _mark_of(file), file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise ValueError(f"token_file: cannot read {file}: {reason}") from None
        if wrong := wrong_token(text):
            raise ValueError(f"token_file: {file} {wrong}")
        self._kept, self._mark = text, mark


def _mark_of(file: Path) -> _Mark:
    """Return what changes if the file is written or replaced, also behind a symbolic link."""
    found = file.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
