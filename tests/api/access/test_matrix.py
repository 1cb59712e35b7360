"""The matrix: every route, every role, own and foreign runs.

`TABLE` is written by hand, and not derived from the permissions that routes declare. A route that is missing in it
makes a test fail.
"""

import json
import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from app.main import create_app
from app.settings import ServiceSettings
from tests.api.access.conftest import Tokens, bearer
from tests.api.conftest import Start

# Roles: E environment, T trainer, V viewer, C viewer with contents, O operator, A operator of all runs, M metrics.
EVERYONE = "anyone without credentials"
TABLE = """
of the service
    GET     /healthz                                              anyone without credentials
    GET     /readyz                                               anyone without credentials
    GET     /about                                                anyone without credentials
    GET     /audit                                                anyone without credentials
    GET     /tokens                                               anyone without credentials
    GET     /runs/{run}                                           anyone without credentials
    GET     /runs/{run}/{tab}                                     anyone without credentials
    GET     /runs/{run}/{view}                                    anyone without credentials
    GET     /runs/{run}/atropos                                   anyone without credentials
    GET     /pages/{version}/{file}                               anyone without credentials
    GET     /                                                     ETVCOA
    GET     /runs/{run}/atropos/                                  ETVCOA
    GET     /docs                                                 ETVCOA
    GET     /docs/{file}                                          ETVCOA
    GET     /openapi.json                                         ETVCOA
    GET     /version                                              ETVCOA
    GET     /metrics                                              TVCOAM
    GET     /v1/runs                                              TVCOA
    POST    /v1/runs                                              TOA
    POST    /v1/shards/plan                                       TOA
    GET     /v1/audit                                             OA
    GET     /v1/identity                                          ETVCOA
    GET     /v1/tokens                                            A
    POST    /v1/tokens                                            A
    DELETE  /v1/tokens/{token}                                    A
    POST    /v1/tokens/{token}/rotate                             A
of a run
    POST    /register                                             TOA
    POST    /register-env                                         EOA
    POST    /disconnect-env                                       EOA
    GET     /wandb_info                                           ETVCOA
    GET     /info                                                 ETVCOA
    GET     /batch                                                TOA
    GET     /latest_example                                       TCOA
    POST    /scored_data                                          EOA
    POST    /scored_data_list                                     EOA
    GET     /status                                               TVCOA
    GET     /status-env                                           EOA
    GET     /reset_data                                           TOA
    POST    /runs/{run}/atropos/register                          TOA
    POST    /runs/{run}/atropos/register-env                      EOA
    POST    /runs/{run}/atropos/disconnect-env                    EOA
    GET     /runs/{run}/atropos/wandb_info                        ETVCOA
    GET     /runs/{run}/atropos/info                              ETVCOA
    GET     /runs/{run}/atropos/batch                             TOA
    GET     /runs/{run}/atropos/latest_example                    TCOA
    POST    /runs/{run}/atropos/scored_data                       EOA
    POST    /runs/{run}/atropos/scored_data_list                  EOA
    GET     /runs/{run}/atropos/status                            TVCOA
    GET     /runs/{run}/atropos/status-env                        EOA
    GET     /runs/{run}/atropos/reset_data                        TOA
    GET     /v1/runs/{run}                                        TVCOA
    PATCH   /v1/runs/{run}                                        OA
    GET     /v1/runs/{run}/status                                 TVCOA
    GET     /v1/runs/{run}/events                                 TVCOA
    PUT     /v1/runs/{run}/policy-version                         TOA
    POST    /v1/runs/{run}/checkpoints                            TOA
    POST    /v1/runs/{run}/rewind                                 TOA
    GET     /v1/runs/{run}/environments                           TVCOA
    POST    /v1/runs/{run}/environments                           EOA
    GET     /v1/runs/{run}/environments/{environment}             TVCOA
    PATCH   /v1/runs/{run}/environments/{environment}             OA
    DELETE  /v1/runs/{run}/environments/{environment}             EOA
    GET     /v1/runs/{run}/environments/{environment}/members     TVCOA
    GET     /v1/runs/{run}/environments/{environment}/credits     EOA
    POST    /v1/runs/{run}/environments/{environment}/heartbeat   EOA
    GET     /v1/runs/{run}/groups                                 TVCOA
    POST    /v1/runs/{run}/groups                                 EOA
    DELETE  /v1/runs/{run}/groups                                 OA
    GET     /v1/runs/{run}/groups/{group}                         TVCOA
    DELETE  /v1/runs/{run}/groups/{group}                         OA
    GET     /v1/runs/{run}/groups/{group}/content                 TCOA
    POST    /v1/runs/{run}/groups/{group}/annotations             TOA
    GET     /v1/runs/{run}/groups/{group}/annotations             TCOA
    GET     /v1/runs/{run}/history                                TVCOA
    GET     /v1/runs/{run}/history/histograms                     TVCOA
    GET     /v1/runs/{run}/history/shares                         TVCOA
    POST    /v1/runs/{run}/batches                                TOA
    GET     /v1/runs/{run}/batches                                TVCOA
    GET     /v1/runs/{run}/batches/explain                        TVCOA
    GET     /v1/runs/{run}/batches/recent                         TVCOA
    GET     /v1/runs/{run}/batches/{batch}                        TVCOA
    POST    /v1/runs/{run}/batches/{batch}/ack                    TOA
    POST    /v1/runs/{run}/batches/{batch}/nack                   TOA
    POST    /v1/runs/{run}/batches/{batch}/extend                 TOA
    DELETE  /v1/runs/{run}/batches/{batch}                        OA
    PUT     /v1/runs/{run}/replay                                 TOA
    PATCH   /v1/runs/{run}/replay                                 TOA
    GET     /v1/runs/{run}/replay                                 TVCOA
    DELETE  /v1/runs/{run}/replay                                 OA
    POST    /v1/runs/{run}/replay/fragments                       EOA
    GET     /v1/runs/{run}/replay/fragments/{fragment}            TCOA
    POST    /v1/runs/{run}/replay/fragments/fetch                 TCOA
    POST    /v1/runs/{run}/replay/samples                         TOA
    GET     /v1/runs/{run}/replay/samples/{sample}                TOA
    POST    /v1/runs/{run}/replay/samples/{sample}/ack            TOA
    POST    /v1/runs/{run}/replay/samples/{sample}/nack           TOA
    POST    /v1/runs/{run}/replay/samples/{sample}/extend         TOA
    PUT     /v1/runs/{run}/replay/session                         TOA
    PATCH   /v1/runs/{run}/replay/priorities                      TOA
    GET     /v1/runs/{run}/replay/grid                            TVCOA
    GET     /v1/runs/{run}/replay/chunks                          TVCOA
    DELETE  /v1/runs/{run}/replay/chunks                          OA
    POST    /v1/runs/{run}/replay/snapshots                       TOA
    GET     /v1/runs/{run}/replay/snapshots                       TVCOA
    POST    /v1/runs/{run}/replay/restore                         TOA
    DELETE  /v1/runs/{run}/replay/snapshots/{snapshot}            OA
    GET     /v1/runs/{run}/curricula                              TVCOA
    PUT     /v1/runs/{run}/curricula/{curriculum}                 TOA
    PATCH   /v1/runs/{run}/curricula/{curriculum}                 TOA
    GET     /v1/runs/{run}/curricula/{curriculum}                 TVCOA
    DELETE  /v1/runs/{run}/curricula/{curriculum}                 OA
    POST    /v1/runs/{run}/curricula/{curriculum}/items           TOA
    GET     /v1/runs/{run}/curricula/{curriculum}/items           TVCOA
    GET     /v1/runs/{run}/curricula/{curriculum}/items/{key}     TVCOA
    PATCH   /v1/runs/{run}/curricula/{curriculum}/items/{key}     TOA
    DELETE  /v1/runs/{run}/curricula/{curriculum}/items/{key}     OA
    POST    /v1/runs/{run}/curricula/{curriculum}/observations    ETOA
    POST    /v1/runs/{run}/curricula/{curriculum}/samples         ETOA
    POST    /v1/runs/{run}/curricula/{curriculum}/samples/{sample}/release  ETOA
    GET     /v1/runs/{run}/curricula/{curriculum}/metrics         TVCOA
    POST    /v1/runs/{run}/curricula/{curriculum}/what-if         TVCOA
    GET     /v1/runs/{run}/curricula/{curriculum}/state           TVCOA
    PUT     /v1/runs/{run}/curricula/{curriculum}/state           TOA
    DELETE  /v1/runs/{run}                                        OA
"""
PLACES = {
    "run": "math-1",
    "tab": "now",
    "file": "docs.js",
    "environment": "0",
    "token": "0" * 12,
    "batch": "ab",
    "curriculum": "c",
}
Route = tuple[str, str]


def expectations() -> Iterator[tuple[bool, Route, str]]:
    """Read the table: whether a route is of a run, its method and path, and who may use it."""
    in_a_run = False
    for line in filter(None, TABLE.splitlines()):
        if not line.startswith(" "):
            in_a_run = line == "of a run"
            continue
        method, path, who = line.split(maxsplit=2)
        yield in_a_run, (method, path), who


OF_A_RUN = {route: who for in_a_run, route, who in expectations() if in_a_run}
OF_THE_SERVICE = {route: who for in_a_run, route, who in expectations() if not in_a_run}


def routes() -> set[Route]:
    found = iter_route_contexts(create_app(ServiceSettings()).routes)
    return {(method, one.path_format or "") for one in found for method in one.methods or ()}


def test_the_table_has_every_route() -> None:
    assert set(OF_A_RUN) | set(OF_THE_SERVICE) == routes()


def path_of(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda place: PLACES.get(place[1], "x"), path)


async def send(client: httpx.AsyncClient, route: Route, token: str | None) -> httpx.Response:
    method, path = route
    body = {"name": "math-1", "batch_size": 4} if route == ("POST", "/v1/runs") else {}
    content = json.dumps(body) if method in ("POST", "PUT", "PATCH") else None
    headers = {"Content-Type": "application/json"} | ({} if token is None else bearer(token))
    return await client.request(method, path_of(path), content=content, headers=headers)


def code_of(reply: httpx.Response) -> str:
    return reply.json()["code"] if reply.headers.get("content-type") == "application/problem+json" else ""


@pytest.fixture
async def service(start: Start, tokens: Tokens) -> httpx.AsyncClient:
    """A service with the run of the table."""
    operator = await tokens.make("operator")
    client = await start()
    await client.post("/v1/runs", json={"name": "math-1", "batch_size": 4}, headers=bearer(operator))
    return client


async def roles(tokens: Tokens, *runs: str) -> dict[str, str]:
    """Make a token of each role for these runs."""
    return {
        "E": await tokens.make("environment", *runs),
        "T": await tokens.make("trainer", *runs),
        "V": await tokens.make("viewer", *runs),
        "C": await tokens.make("viewer", *runs, contents=True),
        "O": await tokens.make("operator", *runs),
        "M": await tokens.make("metrics", *runs),
    }


async def test_each_role_may_do_in_its_own_runs_what_the_table_says(service: httpx.AsyncClient, tokens: Tokens) -> None:
    own = await roles(tokens, "math-*", "default") | {"A": await tokens.make("operator")}
    wrong = []
    for route, who in (OF_THE_SERVICE | OF_A_RUN).items():  # the run is deleted last
        for role in "AOMCVTE":
            reply = await send(service, route, own[role])
            allowed = code_of(reply) not in ("unauthorized", "permission_denied")
            if allowed != (who == EVERYONE or role in who):
                wrong.append(f"{role} {route}: {reply.status_code} {code_of(reply)}")
    assert wrong == []


async def test_a_foreign_run_is_like_one_that_does_not_exist_for_each_role(
    service: httpx.AsyncClient, tokens: Tokens
) -> None:
    foreign = await roles(tokens, "other", "math")
    operator = await tokens.make("operator")
    missing = await service.get("/v1/runs/none", headers=bearer(operator))
    wrong = []
    for route in OF_A_RUN:
        expected = missing.text.replace("none", "math-1" if "{run}" in route[1] else "default")
        for role, token in foreign.items():
            reply = await send(service, route, token)
            if (reply.status_code, reply.text) != (404, expected):
                wrong.append(f"{role} {route}: {reply.status_code} {reply.text}")
    assert wrong == []
    assert (await service.get("/v1/runs/math-1", headers=bearer(operator))).status_code == 200


async def test_without_credentials_only_the_probes_and_pages_without_data_answer(service: httpx.AsyncClient) -> None:
    open_routes = []
    for route, who in (OF_THE_SERVICE | OF_A_RUN).items():
        reply = await send(service, route, None)
        if reply.status_code != 401:
            open_routes.append(route)
            assert who == EVERYONE, route
    assert len(open_routes) == 9
    for method, path in (("GET", "/nothing"), ("HEAD", "/docs"), ("OPTIONS", "/v1/runs"), ("GET", "/healthz/")):
        assert (await service.request(method, path)).status_code == 401


async def test_a_trainer_creates_no_foreign_run(service: httpx.AsyncClient, tokens: Tokens) -> None:
    trainer = bearer(await tokens.make("trainer", "math-*"))
    for name, status in (("math-2", 201), ("code", 404)):
        reply = await service.post("/v1/runs", json={"name": name, "batch_size": 4}, headers=trainer)
        assert reply.status_code == status
