"""Web pages that a browser on this machine shows cannot use the service; programs can."""

import asyncio
import socket

import httpx
import pytest

from app.main import create_app
from app.settings import ServiceSettings
from tests.api.atropos_calls import register
from tests.api.conftest import Start
from tests.api.log_capture import LogLines
from tests.scenarios.native_calls import make_run

EVIL_PAGE = [
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "anything new"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"host": "evil.example"},
    {"host": "evil.example:8000"},
    {"host": "localhost.evil.example"},
    {"host": "127.0.0.1.evil.example:8000"},
    {"host": "127.0.0.1@evil.example"},
    {"host": "evil.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"},
    {"host": "[::1]evil.example"},
    {"host": "\xff"},
]


async def runs(client: httpx.AsyncClient) -> list[str]:
    return [run["name"] for run in (await client.get("/v1/runs")).json()["runs"]]


@pytest.mark.parametrize("headers", EVIL_PAGE, ids=str)
async def test_a_web_page_cannot_delete_a_run(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    await register(client)
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for path in ("/reset_data", "/runs/default/atropos/reset_data"):
        reply = await client.get(path, headers=encoded)
        assert reply.status_code == 403
        assert reply.json()["code"] in ("cross_site_request", "foreign_host")
    assert (await client.delete("/v1/runs/default", headers=encoded)).status_code == 403
    assert await runs(client) == ["default"]


@pytest.mark.parametrize(
    "headers", [EVIL_PAGE[0], {"origin": "https://evil.example"}, {"host": "evil.example"}], ids=str
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/scored_data"),
        ("POST", "/v1/runs/default/groups"),
        ("POST", "/v1/runs/default/batches"),
        ("GET", "/batch"),
        ("OPTIONS", "/v1/runs"),
        ("GET", "/healthz"),
        ("GET", "/metrics"),
        ("GET", "/no/such/path"),
    ],
)
async def test_no_way_in_leads_past_the_guard(
    client: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]
) -> None:
    """The routes that are called most go past the router."""
    reply = await client.request(method, path, headers=headers)
    assert reply.status_code == 403
    assert not any(name.startswith("access-control-") for name in reply.headers)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8000",
        "api.localhost",
        "localhost.",
        "127.0.0.1:8000",
        "127.9.9.9",
        "[::1]:8000",
        "10.0.0.7",
        "[fe80::1]:8000",
        socket.gethostname(),
        f"{socket.gethostname().partition('.')[0]}.:8000",
    ],
)
async def test_addresses_loopback_names_and_this_machines_name_are_answered(
    client: httpx.AsyncClient, host: str
) -> None:
    """An address cannot be rebound by a DNS server, only a name can."""
    assert (await client.get("/healthz", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "none"}, {"sec-fetch-site": "same-origin"}], ids=str)
async def test_a_person_who_types_the_address_and_our_own_pages_are_answered(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    host = httpx.URL(str(client.base_url)).netloc.decode()
    for origin in ({}, {"origin": f"http://{host}"}, {"origin": f"https://{host}"}):
        assert (await client.get("/v1/runs", headers=headers | origin)).status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/about", "/runs/default/now"])
async def test_a_link_on_another_page_leads_to_pages_and_to_nothing_else(client: httpx.AsyncClient, path: str) -> None:
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert (await client.get(path, headers=followed)).status_code == 200
    assert (await client.get(path, headers=followed | {"sec-fetch-dest": "iframe"})).status_code == 403
    assert (await client.get("/reset_data", headers=followed)).status_code == 403


MOZILLA = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"}


@pytest.mark.parametrize("path", ["/reset_data", "/batch", "/status-env", "/runs/default/atropos/reset_data"])
async def test_a_browser_cannot_change_anything_by_get(client: httpx.AsyncClient, path: str) -> None:
    """Over plain HTTP to another machine, browsers send neither `Sec-Fetch-Site` nor, for an image, `Origin`.

    A link in a mail counts as typed. The browser would add a password that it knows.
    """
    await register(client)
    joined = (await client.post("/v1/runs/default/environments", json={"name": "e", "group_size": 2})).json()
    if path == "/status-env":
        path = f"/status-env?env_id={joined['id']}"
    for browser in (
        MOZILLA,
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"} | MOZILLA,
        {"sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"},
    ):
        reply = await client.get(path, headers={"host": "10.0.0.7:8000"} | browser)
        assert (reply.status_code, reply.json()["code"]) == (403, "cross_site_request")
    assert await runs(client) == ["default"]
    for own in (
        {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"} | MOZILLA,
        {"host": "10.0.0.7:8000", "origin": "http://10.0.0.7:8000"} | MOZILLA,
        {"user-agent": "curl/8.5.0"},
        {"user-agent": "Python/3.11 aiohttp/3.9.5"},
        {"user-agent": "node", "sec-fetch-mode": "cors"},
        {"user-agent": ""},
    ):
        assert (await client.get(path, headers=own)).status_code in (200, 404), "404 after a reset"


async def test_the_refusal_names_the_variable_and_its_value(start: Start) -> None:
    fresh, listed = await start(), await start(allowed_hosts="a.example")
    name = {"host": "gpu-7.lan:8000"}
    assert "set LACHESIS_ALLOWED_HOSTS=gpu-7.lan" in (await fresh.get("/", headers=name)).json()["detail"]
    assert "add gpu-7.lan to LACHESIS_ALLOWED_HOSTS" in (await listed.get("/", headers=name)).json()["detail"]


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("gpu-7.lan", "gpu-7.lan:8000", 200),
        (" GPU-7.lan , other ", "gpu-7.LAN", 200),
        ("gpu-7.lan", "a.gpu-7.lan", 403),
        ("*.svc.cluster.local", "lachesis.rl.svc.cluster.local:8000", 200),
        ("*.svc.cluster.local", "svc.cluster.local", 403),
        ("*.svc.cluster.local", "xsvc.cluster.local", 403),
        ("*", "evil.example", 200),
    ],
)
async def test_other_names_are_answered_if_they_are_listed(start: Start, allowed: str, host: str, status: int) -> None:
    client = await start(allowed_hosts=allowed)
    assert (await client.get("/healthz", headers={"host": host})).status_code == status
    assert (await client.get("/healthz", headers={"host": host, "origin": "http://x.example"})).status_code == 403


async def test_the_name_that_the_service_is_bound_to_is_answered(start: Start) -> None:
    client = await start(host="node-3.cluster.example")
    assert (await client.get("/healthz", headers={"host": "node-3.cluster.example:8000"})).status_code == 200


@pytest.mark.parametrize("wrong", ["http://a.example", "a.example:8000", "a*.example", "a b", "*.", "."])
def test_what_cannot_be_a_host_name_is_no_setting(wrong: str) -> None:
    with pytest.raises(ValueError, match="allowed_hosts"):
        create_app(ServiceSettings.model_validate({"allowed_hosts": wrong}))


async def test_requests_without_a_host_are_answered(client: httpx.AsyncClient) -> None:
    """No browser sends one; health checks of HTTP/1.0 do."""
    url = httpx.URL(str(client.base_url))
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await loop.sock_recv(connection, 100)).startswith(b"HTTP/1.1 200")


async def test_a_refusal_is_logged_but_not_each_one(start: Start, log_lines: LogLines) -> None:
    client = await start(allowed_hosts=("lachesis.example",))  # another application: the usual one may be silent still
    for number in range(50):
        await client.get("/reset_data", headers={"host": f"evil{number}.example"})
    (line,) = log_lines.of("request refused")
    assert (line["path"], line["caller"]) == ("/reset_data", "127.0.0.1")
    assert "evil0.example" in line["reason"]


async def test_a_reset_by_atropos_leaves_runs_of_the_native_api_alone(
    client: httpx.AsyncClient, log_lines: LogLines
) -> None:
    await make_run(client, name="mine")
    await make_run(client, name="default")
    for path in ("/reset_data", "/runs/mine/atropos/reset_data"):
        reply = await client.get(path)
        assert (reply.status_code, reply.json()["code"]) == (409, "not_an_atropos_run")
        assert "DELETE /v1/runs/" in reply.json()["detail"]
    assert await runs(client) == ["default", "mine"]
    assert log_lines.of("run reset") == []


@pytest.mark.parametrize("base", ["", "/runs/theirs/atropos"])
async def test_a_run_that_a_trainer_of_atropos_registered_is_reset_as_before(
    client: httpx.AsyncClient, base: str
) -> None:
    async with httpx.AsyncClient(base_url=str(client.base_url).rstrip("/") + base) as trainer:
        await register(trainer)
    name = "theirs" if base else "default"
    same = {"name": name, "batch_size": 8}
    assert (await client.post("/v1/runs", json=same)).status_code == 200, "it was there"
    assert (await client.patch(f"/v1/runs/{name}", json={"batch_size": 16})).status_code == 200
    reply = await client.get(f"{base}/reset_data")
    assert (reply.status_code, reply.text) == (200, "Reset successful")
    assert await runs(client) == []
    assert (await client.get(f"{base}/reset_data")).status_code == 200, "also when it is gone"
