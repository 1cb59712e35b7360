"""Each import contract of `pyproject.toml` rejects an import that it forbids."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Of each contract: a module, and an import that it must not have (of a module that imports little, which is fast).
FORBIDDEN = {
    "imports point down": ("app/logs.py", "app.version"),
    "the core is pure": ("app/core/model.py", "asyncio"),
    "the nouns of the core point down": ("app/core/curriculum/bins.py", "app.core.runs.counters"),
    "no other noun of the core knows curricula": ("app/core/history/causes.py", "app.core.curriculum.rewards"),
    "ranks know batches alone, and datasets know ranks alone": ("app/core/ranks/costs.py", "app.core.groups.length"),
    "the replay buffer knows neither ranks nor runs": ("app/core/replay/grid.py", "app.core.runs.counters"),
    "a noun of the core knows only these modules of others": ("app/core/groups/length.py", "app.core.batches.heads"),
    "the nouns of the store point down": ("app/store/runs/turns.py", "app.store.replay.view"),
    "the nouns of the services point down": ("app/services/replay/grid.py", "app.services.batches.leases"),
    "the folders of the API point down": ("app/api/codec/json_columns.py", "app.api.wire.time_query"),
    "the folders of HTTP point down": ("app/api/http/connection/transport.py", "app.api.http.bodies.inflate"),
    "the routes of nouns do not know each other": ("app/api/routes/runs.py", "app.api.routes.groups"),
    "nor do the replies of nouns": ("app/api/wire/groups.py", "app.api.wire.replay"),
    "the core shares definitions with the SDK, and nothing else": ("app/core/model.py", "lachesis.wire.blob"),
    "services return values, and the API maps them to the models of replies": (
        "app/services/status.py",
        "lachesis.wire.status",
    ),
    "only the store knows Redis": ("app/services/status.py", "redis"),
    "the readers of datasets know files alone": ("app/datasets/files.py", "typer"),
    "the SDK never imports the server": ("clients/lachesis/rank.py", "app.core.model"),
    "the SDK's imports point down": ("clients/lachesis/wire/body.py", "lachesis.rank"),
    "the SDK's core does no I/O": ("clients/lachesis/wire/body.py", "socket"),
}

LINT = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"


@pytest.mark.slow
def test_each_contract_rejects_an_import_that_it_forbids(tmp_path: Path) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {one["name"] for one in contracts} == FORBIDDEN.keys()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("app", "clients"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "static"))
    for module, imported in FORBIDDEN.values():
        with (tmp_path / module).open("a") as file:
            file.write(f"\nimport {imported}\n")
    environment = {"NO_COLOR": "1", "PYTHONPATH": f"{tmp_path}:{tmp_path / 'clients'}"}
    command = [sys.executable, "-c", LINT]
    lint = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert set(re.findall(r"^(.+) BROKEN", lint.stdout, re.M)) == FORBIDDEN.keys(), lint.stdout + lint.stderr
