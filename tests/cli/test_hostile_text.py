"""Names and reasons of others cannot forge lines, reach the terminal or run as markup, wherever they are shown."""

import json

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.logs import TextLines
from tests.api.conftest import Start, start
from tests.cli.test_main import status

__all__ = ["start"]  # the fixture

CONTROL = "\n\r\x1b[2J\x1b]0;title\x07\x9b31m\u2028\u202e\u2066\u200b"
HOSTILE = f'[red]x[/red]<script>alert(1)</script>{CONTROL}"\\'
LONG = "n" * 4000 + HOSTILE
MARKUP = "[red]x[/red]<script>alert(1)</script>"
RUN = {"name": "r", "batch_size": 1}


async def populated(start: Start) -> httpx.AsyncClient:
    """Start a service and plant hostile text wherever a client may choose one."""
    service = await start(allowed_hosts="*")
    run = RUN | {"atropos": {"wandb_group": HOSTILE, "wandb_project": HOSTILE}}
    (await service.post("/v1/runs", json=run)).raise_for_status()
    environments = [
        (await service.post("/v1/runs/r/environments", json={"name": name})).raise_for_status().json()
        for name in (HOSTILE, LONG)
    ]
    await service.post("/v1/runs/r/batches?wait_s=0.01", json={"trainer": HOSTILE})
    sequence = [[1, 2]]
    group = {"tokens": sequence, "masks": sequence, "scores": [0], "environment": environments[0]["id"]}
    (await service.post("/v1/runs/r/groups", json=group)).raise_for_status()
    batch = (await service.post("/v1/runs/r/batches", json={"trainer": HOSTILE})).raise_for_status().json()
    end = {"lease": batch["lease"], "reason": HOSTILE}
    (await service.post(f"/v1/runs/r/batches/{batch['batch']}/nack", json=end)).raise_for_status()
    (await service.put("/v1/runs/r/curricula/c", json={})).raise_for_status()
    await service.post("/v1/runs/r/curricula/c/items", json={"items": [HOSTILE]})
    return service


@pytest.mark.parametrize("terminal", ["0", "1"])
async def test_the_status_shows_them_escaped(start: Start, terminal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)  # whether rich takes its output for a terminal
    monkeypatch.setenv("COLUMNS", "400")
    service = await populated(start)
    code, out, _ = await status(service, "r")
    assert code == 0
    assert MARKUP in out
    assert r"\x1b[2J" in out
    assert "n" * 201 not in out
    assert [line for line in out.splitlines() if not line.isprintable()] == []


async def test_the_json_of_the_status_is_the_reply_without_what_a_terminal_interprets(start: Start) -> None:
    service = await populated(start)
    _, out, _ = await status(service, "r", "--json")
    assert [line for line in out.splitlines() if not line.isprintable()] == []
    found = json.loads(out)["environments"]
    assert [one["name"] for one in found] == [HOSTILE, LONG]


async def test_errors_show_them_escaped(start: Start) -> None:
    service = await populated(start)
    answers = [
        await service.get("/v1/runs/r/curricula/c/items/" + "%1B%5B2J%C2%9B%E2%80%AE"),
        await service.get("/%1B%5B2J%C2%9B%E2%80%AE"),
        await service.post("/v1/runs/r/environments", json={"name": HOSTILE, "group_size": 7}),
        await service.post("/v1/runs/r/groups", json={CONTROL: 1}),
    ]
    for answer in answers:
        assert answer.is_client_error, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"].isprintable()


async def test_log_lines_are_single_and_printable(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "lachesis")
    await populated(start)
    lines = [TextLines().format(record) for record in caplog.records]
    assert any(MARKUP in line for line in lines)
    assert [line for line in lines if not line.isprintable()] == []
    assert max(map(len, lines)) < 4000


async def test_metrics_have_them_as_values_of_labels_alone(start: Start) -> None:
    service = await populated(start)
    page = (await service.get("/metrics")).text
    names = {
        sample.labels["environment"]
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if "environment" in sample.labels
    }
    assert HOSTILE in names
