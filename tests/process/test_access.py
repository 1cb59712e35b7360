"""Tokens, as an operator makes them on the server, and where they must not show."""

import base64
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import command_line, wait_until
from tests.forked import environment, run_module
from tests.ports import free_port
from tests.process.test_serve import Serve, serve

__all__ = ["serve"]  # a fixture
pytestmark = pytest.mark.long

SERVE = ["app", "serve"]
PATHS = ("/v1/runs", "/v1/runs/r/status", "/v1/runs/r/events", "/v1/audit", "/v1/identity", "/metrics", "/status")


def run(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m app token`."""
    return run_module("app", "token", *arguments, env=environment(LACHESIS_DATA_DIR=str(data_dir)))


def made(data_dir: Path, *arguments: str) -> str:
    done = run(data_dir, "create", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def get(url: str, token: str | None = None, path: str = "/v1/runs") -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.get(url + path, headers=headers, timeout=30, trust_env=False)


def test_tokens_are_made_beside_a_running_service_and_without_one(serve: Serve, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    before = made(data_dir, "--role", "operator", "--name", "first", "--max-queued-groups", "5")
    service = serve(SERVE, LACHESIS_DATA_DIR=str(data_dir), LACHESIS_WORKERS="2", LACHESIS_HOST="0.0.0.0")
    url = f"http://127.0.0.1:{httpx.URL(service.url).port}"
    assert [get(url).status_code, get(url, before).status_code] == [401, 200]
    beside = made(data_dir, "--role", "viewer", "--run", "math-*", "--expires", "30d")
    assert get(url, beside).status_code == 200
    listed = run(data_dir, "list")
    assert re.search(r"first +operator +\* +active +never", listed.stdout)
    assert re.search(r"viewer +math-\* +active +in 30 d", listed.stdout)
    shown = [json.loads(line) for line in run(data_dir, "list", "--json").stdout.splitlines()]
    assert {(one["role"], one["max_queued_groups"]) for one in shown} == {("operator", 5), ("viewer", None)}

    rotated = run(data_dir, "rotate", beside.split("_")[2], "--overlap", "1h").stdout.strip()
    assert rotated != beside
    wait_until("both secrets are valid", lambda: get(url, rotated).status_code == 200)
    assert get(url, beside).status_code == 200
    assert run(data_dir, "revoke", beside.split("_")[2]).returncode == 0

    def all_refused() -> bool:
        return {get(url, one).status_code for one in [beside, rotated] * 6} == {401}  # each process answers some

    wait_until("every process refuses them", all_refused)


def test_a_token_whose_text_is_not_printed_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app", "token", "create", "--role", "metrics"]
    env = environment(LACHESIS_DATA_DIR=str(tmp_path / "data"))
    with Path("/dev/full").open("w") as full:
        refused = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    (token,) = [json.loads(line) for line in run(tmp_path / "data", "list", "--json").stdout.splitlines()]
    said = f"token {token['id']} is valid, but its text was not printed: No space left on device."
    assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr


def test_the_audit_trail_has_the_commands_that_change_tokens(serve: Serve, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    operator = made(data_dir, "--role", "operator", "--name", "first one")
    token_id = operator.split("_")[2]
    service = serve(SERVE, LACHESIS_DATA_DIR=str(data_dir))
    rotated = run(data_dir, "rotate", token_id).stdout.strip()
    run(data_dir, "list")
    assert run(data_dir, "revoke", "0f3a5c7e9b1d").returncode == 1
    other = made(data_dir, "--role", "metrics")
    assert run(data_dir, "revoke", other.split("_")[2]).returncode == 0
    listed = get(service.url, rotated, "/v1/audit")
    shown = [(e["method"], e["path"], e["status"], e["code"], len(e["changes"])) for e in listed.json()["entries"]]
    assert shown == [
        ("CLI", f"token revoke {other.split('_')[2]}", 200, None, 1),
        ("CLI", "token create --role metrics", 200, None, 1),
        ("CLI", f"token rotate {token_id}", 200, None, 1),
        ("CLI", "token create --role operator --name 'first one'", 200, None, 1),
    ]
    user = pwd.getpwuid(os.getuid()).pw_name
    assert {entry["caller"] for entry in listed.json()["entries"]} == {f"{user}@{socket.gethostname()}"}
    assert [secret for secret in (operator, rotated, other) if secret.split("_", 3)[3] in listed.text] == []


def test_a_service_that_was_closed_opens_only_on_purpose(serve: Serve, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    token_id = made(data_dir, "--role", "operator").split("_")[2]
    refused = run(data_dir, "reopen")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"1 tokens have not ended, such as {token_id}" in refused.stderr
    assert run(data_dir, "revoke", token_id).returncode == 0
    service = serve(SERVE, LACHESIS_DATA_DIR=str(data_dir))
    assert run(data_dir, "reopen").returncode == 0
    assert get(service.url).status_code == 401, "not while it runs"
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(20) == 0
    assert get(serve(SERVE, LACHESIS_DATA_DIR=str(data_dir)).url).status_code == 200


def test_a_command_in_the_wrong_directory_makes_no_data(tmp_path: Path) -> None:

    def token(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_module("app", "token", *arguments, env=environment(), cwd=tmp_path)

    create = ("create", "--role", "operator")
    for arguments in (create, ("list",), ("revoke", "0f3a5c7e9b1d"), ("rotate", "0f3a5c7e9b1d")):
        refused = token(*arguments)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"lachesis: there is no data in {tmp_path}/data/")
    assert list(tmp_path.iterdir()) == []
    made = token(*create, "--new-data")
    assert made.returncode == 0, made.stderr
    assert f"used the tokens in {tmp_path}/data/" in made.stderr
    assert token("list").returncode == 0, "now there is data"


def test_only_create_makes_data_at_a_place_that_a_setting_names(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    for arguments in (("list",), ("revoke", "0f3a5c7e9b1d"), ("rotate", "0f3a5c7e9b1d"), ("reopen",)):
        refused = run(data_dir, *arguments)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"lachesis: there is no data in {data_dir}/")
    assert not data_dir.exists()
    assert made(data_dir, "--role", "operator")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create", "--role", "environment"), "needs runs: names, patterns such as 'math-*', or '*' for all"),
        (("create", "--role", "boss", "--run", "x"), "'--role': 'boss' is not one of"),
        (("create", "--role", "trainer", "--run", "x", "--expires", "3w"), "'--expires': '3w' is not a time"),
        (("create", "--role", "trainer", "--run", "x/y"), "--run: String should match pattern"),
        (("create", "--role", "operator", "--max-groups-per-s", "-1"), "--max-groups-per-s: Input should be"),
        (("rotate", "0f3a5c7e9b1d", "--overlap", "soon"), "'--overlap': 'soon' is not a time"),
        (("rotate", "0f3a5c7e9b1d", "--overlap", "900d"), "--overlap: Input should be"),
        (("revoke", "zz"), "'token': the id has 12 hexadecimal digits"),
    ],
)
def test_wrong_use_exits_with_2_and_names_the_option(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = run(tmp_path / "data", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"python -m app token {arguments[0]} --help" in done.stderr
    assert complaint in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == [], "nothing was started"


def test_a_token_that_is_not_there_is_a_refusal_in_one_line(tmp_path: Path) -> None:
    made(tmp_path / "data", "--role", "operator")
    done = run(tmp_path / "data", "revoke", "0f3a5c7e9b1d")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.startswith("lachesis: there is no token 0f3a5c7e9b1d")) == (1, True)


def test_no_command_shows_a_secret(tmp_path: Path) -> None:
    """Neither in a wrong file of settings, nor for a service that does not answer."""
    canary = "canary0123456789canary0123456789"
    port = str(free_port())

    def said(*words: str, **settings: str) -> str:
        done = run_module("app", *words, env=environment(LACHESIS_PORT=port, **settings), cwd=tmp_path)
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1
        return done.stdout + done.stderr

    password = f"http://u:{canary}@127.0.0.1:{port}"
    shown = [said("status", LACHESIS_TOKEN=canary), said("status", LACHESIS_URL=password)]
    assert [text for text in shown if "127.0.0.1" not in text] == []
    (tmp_path / ".env").write_text(f"LACHESIS_TOKEN {canary}")
    in_file = [said("status"), said("serve"), said("token", "list")]
    assert [text for text in in_file if ".env, line 1 begins with LACHESIS_TOKEN" not in text] == []
    shown += in_file
    assert [text for text in shown if canary in text] == []


def test_no_secret_shows_anywhere(serve: Serve, tmp_path: Path) -> None:
    """The canaries are a token, the token of a file, and what senders of wrong credentials sent."""
    data_dir, file = tmp_path / "data", tmp_path / "token"
    file.write_text("canary-of-the-administrator-0123456789")
    token = made(data_dir, "--role", "operator")
    settings = {"LACHESIS_ADMIN_TOKEN_FILE": str(file), "LACHESIS_LOG_LEVEL": "debug"}
    service = serve(SERVE, LACHESIS_DATA_DIR=str(data_dir), **settings)
    secrets = [token.split("_", 3)[3], file.read_text(), "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ryc4n4ryc4n4ryc4n4"]
    wrong = [token[:-1] + ("A" if token[-1] != "A" else "B"), secrets[2], "lch_ops_0f3a5c7e9b1d_" + secrets[2][:43]]
    shown = []
    for sent in wrong:
        reply = get(service.url, sent)
        assert reply.status_code == 401
        shown.append(f"{reply.text} {reply.headers}")
    for sent in (token, file.read_text()):
        for path in (*PATHS, "/v1/tokens", "/docs", "/openapi.json", "/nothing"):
            reply = get(service.url, sent, path)
            shown.append(f"{reply.text} {reply.headers}")
        made_run = httpx.post(
            f"{service.url}/v1/runs",
            json={"name": "r", "batch_size": 4},
            headers={"Authorization": f"Bearer {sent}"},
            trust_env=False,
        )
        assert made_run.is_success
    for sent in (*wrong, token, file.read_text()):
        basic = base64.b64encode(f"name:{sent}".encode()).decode()
        for path in PATHS:
            reply = httpx.get(service.url + path, headers={"Authorization": f"Basic {basic}"}, trust_env=False)
            assert (reply.status_code == 401) == (sent in wrong)
            shown.append(f"{reply.text} {reply.headers}")
        secrets.append(basic.rstrip("="))
    shown += [command_line(pid) for pid in [service.process.pid, *service.descendants]]
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(20) == 0
    shown += [service.said, service.complained]
    shown += [path.read_bytes().decode("latin-1") for path in data_dir.rglob("*") if path.is_file()]
    everything = "\n".join(shown)
    assert "run created" in everything
    assert token.split("_")[2] in everything, "the id is no secret"
    assert [secret for secret in secrets if secret in everything] == []
