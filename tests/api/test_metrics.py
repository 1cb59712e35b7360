"""What Prometheus reads from `GET /metrics`, read with its own parser."""

import asyncio
import os
import signal
from dataclasses import dataclass

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis
from starlette.types import Message, Receive, Scope, Send

from app.api.http.request_metrics import RequestMetrics
from app.main import create_app
from app.settings import ServiceSettings
from app.store.redis.keys import RunKeys
from app.store.server.embedded import EmbeddedRedis
from app.telemetry import METRICS
from lachesis.wire.limits import RateLimitSettings
from tests.api.access.conftest import Tokens, bearer
from tests.api.atropos_calls import group as atropos_group
from tests.api.atropos_calls import post, register, register_env
from tests.api.conftest import Start, running_service
from tests.api.log_capture import LogLines
from tests.scenarios.native_calls import RUN, end, group, make_run, set_version, status, submit, take, taken, trained
from tests.waiting import wait_until

OF_A_PROCESS = {metric.name for metric in METRICS if metric.labels[0] == "process"}


@dataclass(frozen=True)
class Scraped:
    """A page as Prometheus understands it."""

    kinds: dict[str, str]
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float:
        """The value of the only sample of this name that has these labels, among others."""
        (value,) = self.values(name, **labels)
        return value

    def values(self, name: str, **labels: str) -> list[float]:
        wanted = labels.items()
        return [value for (found, having), value in self.samples.items() if found == name and wanted <= having]

    def named(self, label: str) -> set[str]:
        return {value for _, having in self.samples for name, value in having if name == label}


def read(text: str) -> Scraped:
    families = list(text_string_to_metric_families(text))
    samples = [(one.name, frozenset(one.labels.items()), one.value) for family in families for one in family.samples]
    assert len(samples) == len({(name, labels) for name, labels, _ in samples}), "a series is there twice"
    kinds = {family.name + ("_total" if family.type == "counter" else ""): family.type for family in families}
    return Scraped(kinds, {(name, labels): value for name, labels, value in samples})


async def scrape(client: httpx.AsyncClient) -> Scraped:
    reply = await client.get("/metrics")
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(reply.text)


async def busy(client: httpx.AsyncClient) -> None:
    """A run with groups in every place, batches in every state but those of Atropos, a buffer and a curriculum."""
    await make_run(client, batch_size=4, max_staleness=3, keep_batches=1)
    await client.post(f"{RUN}/environments", json={"name": "math", "group_size": 2})
    await submit(client, *(group(f"g{number}", 2, environment=0) for number in range(9)), group("large", 5))
    await client.post(f"{RUN}/batches", params={"rank": 0, "world_size": 2})
    await trained(client)
    await taken(client)
    await client.put(f"{RUN}/replay", json={"limiter": {"samples_per_insert": 1, "min_diff": 0, "max_diff": 2}})
    await client.put(f"{RUN}/curricula/math", json={})
    await client.post(f"{RUN}/curricula/math/items", json={"items": [{"key": "q1", "prior": 0.5}]})


async def test_every_declared_metric_is_there_with_its_kind_and_labels_and_no_other(client: httpx.AsyncClient) -> None:
    await busy(client)
    page = await scrape(client)
    assert page.kinds == {metric.name: metric.kind.value for metric in METRICS}
    suffixes = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
    expected = {
        name: {*metric.labels} | ({"le"} if name.endswith("_bucket") else set())
        for metric in METRICS
        for name in (metric.name + suffix for suffix in suffixes.get(metric.kind, ("",)))
    }
    assert {name: {label for label, _ in labels} for name, labels in page.samples} == expected


async def test_the_books_of_a_run_add_up_and_agree_with_its_status(client: httpx.AsyncClient) -> None:
    await busy(client)
    page, told = await scrape(client), await status(client)
    groups = told["groups"]
    accepted = page.value("lachesis_groups_accepted_total", run="run")
    assert accepted == groups["accepted"] == 10
    in_places = sum(page.values("lachesis_groups", run="run"))
    assert accepted == in_places + sum(page.values("lachesis_groups_dropped_total", run="run"))
    for state in ("buffered", "leased", "delivered", "oversized"):
        assert page.value("lachesis_groups", state=state) == groups[state]
    assert page.value("lachesis_groups", state="queued") == groups["queued"] - groups["oversized"] == 3
    assert page.value("lachesis_groups", state="oversized") == 1
    for state, held in told["bytes"].items():
        assert page.value("lachesis_payload_bytes", state=state) == held
    ledger = told["ledger"]
    assert page.value("lachesis_tokens_generated_total", run="run") == ledger.pop("generated_tokens") > 0
    assert ledger.pop("cost") is None
    assert (
        sum(ledger.values())
        == sum(page.values("lachesis_tokens", run="run"))
        == page.value("lachesis_tokens_generated_total")
    )
    for name, tokens in ledger.items():
        assert page.value("lachesis_tokens", state=name.removesuffix("_tokens")) == tokens
    assert page.value("lachesis_step", run="run") == told["current_step"] == 3
    assert page.value("lachesis_leases", state="held") == len(told["leases"]) == 2
    assert page.value("lachesis_served_sequences", environment="math") == 12
    assert page.value("lachesis_batches_kept") == told["kept_batches"] == 1


async def test_groups_that_are_dropped_are_counted_by_reason(client: httpx.AsyncClient) -> None:
    await make_run(client, max_staleness=1)
    await submit(client, group("old", policy_version=0))
    await set_version(client, 3)
    await submit(client, group("new", policy_version=3))
    page = await scrape(client)
    assert page.value("lachesis_groups_dropped_total", reason="stale") == 1
    assert sum(page.values("lachesis_groups_dropped_total")) == 1
    assert page.value("lachesis_groups", state="queued") == 1
    assert page.value("lachesis_policy_version", run="run") == 3


async def test_environments_are_alive_silent_or_disconnected(start: Start, redis_client: Redis) -> None:
    client = await start(environment_ttl_s=0.2)
    await register(client, 8)
    for name in ("gone", "quiet", "speaks"):
        await register_env(client, name)
    await client.post("/disconnect-env", json={"env_id": 0})

    async def quiet() -> bool:
        await client.get("/status-env", params={"env_id": 2})
        page = await scrape(client)
        states = {state: page.value("lachesis_environments", state=state) for state in ("alive", "silent")}
        assert page.value("lachesis_environments", state="disconnected") == 1
        return states == {"alive": 1, "silent": 1}

    await wait_until(quiet)


async def test_mean_imbalance_is_sum_over_count(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4)
    await submit(client, *(group(f"g{number}", 1) for number in range(8)))
    for _ in range(2):
        reply = await client.post(f"{RUN}/batches", params={"rank": 0, "world_size": 2, "ended_by": "rank_0"})
        await end(client, reply.json(), rank=0)
    page, told = await scrape(client), (await status(client))["ranks"]
    for division, name in {"chosen": "imbalance", "contiguous": "contiguous", "bound": "bound"}.items():
        assert page.value("lachesis_rank_imbalance_ratio_count", division=division) == told["batches"] == 2
        sum_ = page.value("lachesis_rank_imbalance_ratio_sum", division=division)
        assert sum_ / 2 == pytest.approx(told[f"mean_{name}"])
        assert page.value("lachesis_rank_last_imbalance_ratio", division=division) == told["last"][name]
    assert page.value("lachesis_rank_last_imbalance_ratio", division="strided") == told["last"]["strided"]


@pytest.mark.parametrize(
    "name",
    ['"} 1\nlachesis_step{run="x', "back\\slash\\n", "\\", "a\r\n# HELP b\n", "\x00\x85\u2028", "数学 🎲", "{}=,"],
)
async def test_no_name_of_an_environment_can_be_taken_for_anything_else(client: httpx.AsyncClient, name: str) -> None:
    await make_run(client)
    reply = await client.post(f"{RUN}/environments", json={"name": name})
    assert reply.status_code == 201, reply.text
    page = await scrape(client)
    assert page.value("lachesis_served_sequences", environment=name) == 0
    assert page.named("run") == {"run"}


async def test_thousands_of_environments_make_few_short_series(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=4)
    for number in range(102):
        reply = await client.post(f"{RUN}/environments", json={"name": f"{number:03}" + "x" * 4000})
        assert reply.status_code == 201, reply.text
    await submit(client, *(group(f"g{number}", 1, environment=number) for number in (0, 99, 100, 101)))
    await taken(client)
    page = await scrape(client)
    served = "lachesis_served_sequences"
    assert len(page.values(served)) == 101
    assert page.value(served, environment="099" + "x" * 197) == 1
    assert page.value(served, environment="") == 2
    assert sum(page.values(served)) == 4


async def test_an_empty_service_tells_of_itself_and_of_no_run(client: httpx.AsyncClient) -> None:
    page = await scrape(client)
    assert page.value("lachesis_store_up") == 1
    assert page.value("lachesis_long_polls_waiting") == 0
    assert page.named("run") == set()
    assert page.kinds.keys() == {metric.name for metric in METRICS}, "dashboards find every name from the start"


async def test_every_process_tells_the_same_of_runs_and_each_its_own_of_itself(start: Start) -> None:
    one, other = await start(), await start()
    await busy(one)

    async def of_runs(client: httpx.AsyncClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        page = await scrape(client)
        return {key: value for key, value in page.samples.items() if "run" in dict(key[1])}

    assert await of_runs(one) == await of_runs(other) != {}
    handed_out = "lachesis_batches_handed_out_total"
    assert (await scrape(one)).value(handed_out) == 3
    assert (await scrape(other)).value(handed_out) == 0


async def test_more_runs_than_are_read_at_once_are_all_there(client: httpx.AsyncClient) -> None:
    names = {f"run{number}" for number in range(120)}
    for name in names:
        await make_run(client, name=name)
    page = await scrape(client)
    assert page.named("run") == names


async def test_requests_are_counted_by_template_method_and_status(client: httpx.AsyncClient) -> None:
    await post(client, atropos_group(4))
    await client.post("/runs/other/atropos/scored_data", json=atropos_group(4))
    await client.post("/scored_data", content=b"no")
    await client.get("/v1/runs/a")
    await client.get("/v1/runs/b")
    await client.put("/v1/runs/b/groups")
    await client.get("/no/such/path")
    page = await scrape(client)
    counted = {
        (having["method"], having["route"], having["status"]): value
        for (name, labels), value in page.samples.items()
        if name == "lachesis_http_requests_total" and (having := dict(labels))
    }
    assert counted == {
        ("POST", "/scored_data", "200"): 2,
        ("POST", "/scored_data", "400"): 1,
        ("GET", "/v1/runs/{run}", "404"): 2,
        ("PUT", "/v1/runs/{run}/groups", "405"): 1,
        ("GET", "none", "404"): 1,
    }
    durations = "lachesis_http_request_duration_seconds"
    assert page.value(f"{durations}_count", route="/scored_data") == 3
    assert page.value(f"{durations}_bucket", route="/scored_data", le="+Inf") == 3
    assert 0 < page.value(f"{durations}_sum", route="/scored_data") < 30


@pytest.mark.parametrize("fails", [True, False])
async def test_requests_that_end_without_an_answer_are_counted(redis_url: str, fails: bool) -> None:
    async def unanswering(scope: Scope, receive: Receive, send: Send) -> None:
        if fails:
            raise RuntimeError("a bug")

    async def nobody(message: Message | None = None) -> Message:
        raise AssertionError

    app = create_app(ServiceSettings(redis_url=redis_url))  # type: ignore[arg-type]
    async with app.router.lifespan_context(app) as state:
        scope = {"type": "http", "method": "GET", "path": "/", "state": state}
        call = RequestMetrics(unanswering)(scope, nobody, nobody)  # type: ignore[arg-type]
        answered = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(answered[0], RuntimeError) == fails
        page = read((await state["services"].metrics.page()).decode())
    assert page.value("lachesis_http_requests_total", method="GET", route="none", status="none") == 1


async def test_long_polls_are_counted_while_they_wait(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    waiting = [asyncio.create_task(take(client, wait_s=20)) for _ in range(2)]

    async def both() -> bool:
        return (await scrape(client)).value("lachesis_long_polls_waiting") == 2

    await wait_until(both)
    await submit(client, "a", "b")
    assert all(await asyncio.gather(*waiting))
    page = await scrape(client)
    assert page.value("lachesis_long_polls_waiting") == 0
    assert page.value("lachesis_batches_handed_out_total") == 2


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_a_page_is_compressed_for_clients_that_ask(client: httpx.AsyncClient, encoding: str) -> None:
    await make_run(client)
    reply = await client.get("/metrics", headers={"Accept-Encoding": encoding})
    assert reply.headers.get("content-encoding", "identity") == encoding
    assert read(reply.text).named("run") == {"run"}


def assert_without_runs(page: Scraped) -> None:
    assert page.value("lachesis_store_up") == 0
    assert page.named("run") == set()
    assert {name for name, _ in page.samples} >= {"lachesis_store_up", "lachesis_http_requests_total"}


@pytest.mark.slow
async def test_without_redis_the_process_tells_of_itself(
    own_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_service(own_server.url, store_patience_s=0.5) as client:
        await make_run(client)
        own_server.stop()
        assert (await client.post("/scored_data", json=atropos_group(4))).status_code == 503
        page = await scrape(client)
        assert_without_runs(page)
        assert page.value("lachesis_http_requests_total", route="/scored_data", status="503") == 1
        assert "metrics are without runs" in caplog.text


@pytest.mark.slow
async def test_a_scrape_waits_less_for_a_stalled_redis_than_requests_do(own_server: EmbeddedRedis) -> None:
    async with running_service(own_server.url, store_patience_s=60) as client:
        await make_run(client)
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(50):
                assert_without_runs(await scrape(client))
        finally:
            os.kill(own_server.pid, signal.SIGCONT)

        async def back() -> bool:
            return (await scrape(client)).value("lachesis_store_up") == 1

        await wait_until(back)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [None, RateLimitSettings(max_requests_per_s=100)], ids=["no limit", "a limit"])
async def test_a_token_that_the_process_knows_reads_metrics_also_without_redis(
    own_server: EmbeddedRedis, limits: RateLimitSettings | None
) -> None:
    tokens = Tokens(own_server.url)
    operator, unseen = await tokens.make("operator", limits=limits), await tokens.make("metrics")
    await tokens.connection.aclose()
    async with running_service(own_server.url, store_patience_s=60) as client:
        client.headers.update(bearer(operator))
        await make_run(client)
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(50):
                for _ in range(2):  # before and after what the process knows of tokens is too old for other requests
                    assert_without_runs(await scrape(client))
                refused = await client.get("/metrics", headers=bearer(unseen))
                assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
                wrong = await client.get("/metrics", headers={"Authorization": "Bearer wrong"})
                assert wrong.status_code == 401
        finally:
            os.kill(own_server.pid, signal.SIGCONT)

        async def back() -> bool:
            return (await scrape(client)).value("lachesis_store_up") == 1

        await wait_until(back)
        assert "run" in (await scrape(client)).named("run")


async def test_what_redis_refuses_to_tell_is_not_passed_over_in_silence(
    client: httpx.AsyncClient, redis_client: Redis, log_lines: LogLines
) -> None:
    await make_run(client)
    await redis_client.set(RunKeys("run").served, "not a hash")
    page = await scrape(client)
    assert (page.value("lachesis_store_up"), page.value("lachesis_run_readable", run="run")) == (1, 0)
    (line,) = log_lines.of("reading the metrics of a run fails")
    assert line["run"] == "run"
    assert "WRONGTYPE" in line["detail"]
