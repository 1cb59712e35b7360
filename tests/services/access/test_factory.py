"""The sources that settings name, and the messages about wrong settings."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.api.http.access.issuer_client import IssuerClient
from app.services.access.factory import configured_sources
from app.services.access.jwt import JwtSource
from app.settings import ServiceSettings
from lachesis.wire.errors import StoreMisconfigured

ROOT = Path(__file__).parents[3]
RULE = '[[rule]]\nclaim = "sub"\nvalue = "*"\nrole = "operator"\n'


def sources(folder: Path, rules: str | bytes | None, **changed: Any) -> list[Any]:
    file = folder / "rules.toml"
    if rules is not None:
        file.write_bytes(rules if isinstance(rules, bytes) else rules.encode())
    named = {"jwt_issuer": "https://issuer.example.org", "jwt_audience": "lachesis", "jwt_rules": file} | changed
    settings = ServiceSettings(**named)
    return configured_sources(settings, IssuerClient(settings), lambda: 0.0)


def test_an_issuer_is_a_source(tmp_path: Path) -> None:
    (source,) = sources(tmp_path, RULE)
    assert isinstance(source, JwtSource)


def test_a_service_without_an_issuer_loads_neither_pyjwt_nor_httpx() -> None:
    """They would take 16 MiB in each process."""
    code = "import sys, app.main; print({'jwt', 'cryptography.hazmat', 'httpx'} & sys.modules.keys())"
    environment = os.environ | {"PYTHONPATH": "clients"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, check=True)
    assert run.stdout == b"set()\n"


@pytest.mark.parametrize(
    ("rules", "changed", "complaint"),
    [
        (RULE.replace("role", "rol"), {}, r"LACHESIS_JWT_RULES=.*rules.toml: line 4: rule 1: rol: unknown field"),
        ("[[rule]\n", {}, r"LACHESIS_JWT_RULES=.*: .*line 1, column"),
        (b"\xff", {}, "LACHESIS_JWT_RULES=.*: .*utf-8"),
        (None, {}, "LACHESIS_JWT_RULES=.*rules.toml: No such file"),
        (RULE, {"jwt_audience": None}, "JWTs need LACHESIS_JWT_ISSUER, LACHESIS_JWT_AUDIENCE and LACHESIS_JWT_RULES"),
        (RULE, {"jwt_rules": None}, "JWTs need"),
        (RULE, {"jwt_issuer": None}, "JWTs need"),
        (
            RULE,
            {"jwt_issuer": None, "jwt_audience": None, "jwt_rules": None, "jwt_jwks_url": "https://a.example.org/keys"},
            "JWTs need",
        ),
    ],
)
def test_wrong_settings_are_no_open_service(
    tmp_path: Path, rules: str | bytes | None, changed: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(StoreMisconfigured, match=complaint):
        sources(tmp_path, rules, **changed)
