"""Where settings come from: the environment, and below it a `.env` file in the working directory."""

import difflib
import os
import sys
from pathlib import Path

from dotenv.parser import parse_stream
from pydantic import ValidationError

from app.settings import Settings
from lachesis.wire.problems import format_validation_error

PREFIX = "LACHESIS_"
_OF_COMPOSE = {"LACHESIS_API_REPLICAS", "LACHESIS_STORE_MAXMEMORY", "LACHESIS_STORE_MEMORY_LIMIT"}
_OF_SDK = {f"LACHESIS_{name}" for name in ("URL", "RUN", "CONNECT_TIMEOUT_S", "TIMEOUT_S", "RETRY_BUDGET_S")}


class InvalidSettings(Exception):
    """Settings that cannot be used: one line of text for each thing that is wrong."""


def load_settings(env_file: Path = Path(".env")) -> Settings:
    """Read the settings, and put what ``env_file`` adds into the environment, for API processes to find.

    Raises:
        InvalidSettings: A line of the file is no setting, or a value is wrong.
    """
    for name, value in _lines(env_file).items():
        os.environ.setdefault(name, value)
    for typo in sorted(_unknown(set(os.environ))):
        print(f"lachesis: warning: {typo} is not a setting{_hint(typo)}", file=sys.stderr)
    try:
        return Settings()
    except ValidationError as error:
        wrong = [
            f"{_variable(problem['loc'])}={problem['input']}: {format_validation_error(problem)}"
            for problem in error.errors(include_url=False)
        ]
        raise InvalidSettings("\n".join(wrong)) from error


def _variable(location: tuple[int | str, ...]) -> str:
    return f"{PREFIX}{'_'.join(map(str, location)).upper()}"


def _lines(env_file: Path) -> dict[str, str]:
    if not env_file.is_file():
        return {}
    found = {}
    with env_file.open() as stream:
        for binding in parse_stream(stream):
            if binding.error:
                line = binding.original.string.strip()
                raise InvalidSettings(f"{env_file}, line {binding.original.line}: {line!r} is not NAME=value")
            if binding.key is not None:
                found[binding.key] = binding.value or ""
    return found


def _known() -> set[str]:
    return {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | _OF_COMPOSE | _OF_SDK


def _unknown(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith(PREFIX)} - _known()


def _hint(typo: str) -> str:
    near = difflib.get_close_matches(typo, _known(), n=1)
    return f"; did you mean {near[0]}?" if near else ""
