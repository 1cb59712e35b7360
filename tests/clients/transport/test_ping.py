"""``python -m lachesis ping``."""

import json
from pathlib import Path

import pytest

from lachesis import Settings
from tests.clients.another_server import another_server
from tests.clients.command_line.terminal import piped
from tests.clients.proxy import CuttingProxy


async def ping(*arguments: str, **variables: str) -> tuple[int, str, str]:
    return await piped("ping", *arguments, **variables)


async def test_a_service_that_is_well_is_said_to_be(proxy: CuttingProxy) -> None:
    code, out, err = await ping(proxy.url)
    assert (code, err) == (0, "")
    assert out.startswith(f"Lachesis 0.1.0 at {proxy.url} answered in ")
    assert "\nready: Redis answers\n" in out


async def test_a_run_that_is_not_there_is_said_not_to_be(proxy: CuttingProxy) -> None:
    code, _, err = await ping(proxy.url, "--run", "none")
    assert code == 1
    assert err.startswith("not well: ")


async def test_what_is_not_given_is_read_from_the_environment(run: Settings) -> None:
    code, out, err = await ping(LACHESIS_URL=run.url, LACHESIS_RUN=run.run)
    assert (code, err) == (0, "")
    assert f"at {run.url} answered" in out
    assert "\nrun math: step 0, batches of 2" in out
    assert "\nrun " not in (await ping(LACHESIS_URL=run.url))[1]
    code, _, err = await ping(run.url, "--run", "none", LACHESIS_URL="http://127.0.0.1:1", LACHESIS_RUN=run.run)
    assert (code, err.split(".")[0]) == (1, "not well: there is no run none")


async def test_the_answer_as_json_has_the_same_facts(run: Settings) -> None:
    code, out, err = await ping(run.url, "--run", "math", "--json")
    found = json.loads(out)
    assert (code, err, found["url"], found["ready"], found["error"]) == (0, "", run.url, True, None)
    assert found["version"] == "0.1.0"
    assert found["answered_ms"] > 0
    assert found["run"]["batch_size"] == 2
    code, out, err = await ping(run.url, "--run", "none", "--json")
    assert (code, err, json.loads(out)["run"]) == (1, "", None)
    assert "there is no run none" in json.loads(out)["error"]
    code, out, _ = await ping("http://127.0.0.1:1", "--json")
    assert (code, json.loads(out)["ready"]) == (3, False)


async def test_nobody_there_is_said_to_be_nobody(proxy: CuttingProxy) -> None:
    proxy.upstream = None
    code, out, err = await ping(proxy.url)
    assert (code, out) == (3, "")
    assert err.startswith(f"no Lachesis answers at {proxy.url}: GET ")


async def test_a_url_that_is_none_is_a_wrong_command_line() -> None:
    code, _, err = await ping("localhost:8000")
    assert code == 2
    assert "url: should start with http:// or https://" in err
    code, _, err = await ping(LACHESIS_URL="localhost:8000")
    assert code == 2
    assert "LACHESIS_URL: should start with http:// or https://" in err


async def test_a_file_of_the_token_that_is_missing_is_wrong_use(tmp_path: Path) -> None:
    missing = str(tmp_path / "token")
    code, out, err = await ping("http://127.0.0.1:1", LACHESIS_TOKEN_FILE=missing)
    assert (code, out, missing in err, "Traceback" in err) == (2, "", True, False), err


@pytest.mark.parametrize("body", ["{}", "[]", "null", '{"version": 1}'])
async def test_another_program_that_answers_json_is_reported(body: str) -> None:
    async with another_server("HTTP/1.1 200 OK", body=body) as url:
        code, out, err = await ping(url)
    assert (code, out) == (1, "")
    assert err.startswith(f"{url} answered with an error: the answer to GET /version cannot be read")
