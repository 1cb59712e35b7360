"""``lachesis top`` against a real service, with the pilot of textual."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from app.store.redis.keys import RunKeys
from lachesis import AsyncEnvironment, AsyncTrainer, Settings
from lachesis._cli.top import Top
from lachesis._transport.http import Sender
from tests.clients.command_line.terminal import on_screen, piped
from tests.clients.proxy import CuttingProxy
from tests.clients.run import group, submitted
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]

HOSTILE = "[red]x[/red]\x1b[2J\u202e"


def rows(app: Top) -> list[list[str]]:
    table: DataTable[Any] = app.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(place)] for place in range(table.row_count)]


def below(app: Top) -> str:
    """The text under the table, as the terminal gets it."""
    status = app.query_one("#status", Static)
    return "\n".join("".join(part.text for part in status.render_line(y)) for y in range(status.size.height))


@asynccontextmanager
async def shown(run: Settings, columns: int) -> AsyncIterator[tuple[Top, Pilot[None]]]:
    """Show it on a terminal of so many columns, with the runs `math` and `stuck`."""
    async with AsyncTrainer(run, run="stuck") as other:
        await other.create_run(batch_size=2)
        async with AsyncEnvironment(HOSTILE, run), AsyncEnvironment("large", run, run="stuck", group_size=3):

            async def is_warned() -> bool:
                return bool((await other.status()).warnings)

            await wait_until(is_warned)
            async with Sender(run) as sender:
                app = Top(sender, run.url)
                async with app.run_test(size=(columns, 40)) as pilot:
                    await wait_until(lambda: len(rows(app)) == 2)
                    yield app, pilot


@pytest.mark.parametrize("columns", [80, 200])
async def test_it_shows_all_runs_live_and_the_chosen_one(run: Settings, columns: int) -> None:
    async with shown(run, columns) as (app, pilot):
        assert [row[0] for row in rows(app)] == ["math", "stuck"]
        await wait_until(lambda: r"[red]x[/red]\x1b[2J" in below(app))
        assert "run math: " in below(app)
        assert "\x1b" not in below(app)
        async with AsyncEnvironment("live", run) as environment:
            await submitted(environment, [group(1), group(2)])
        await wait_until(lambda: rows(app)[0][4] == "2")
        assert rows(app)[0][1] == rows(app)[0][-1] == "ready"
        await pilot.press("down")
        await wait_until(lambda: "run stuck: " in below(app))


async def test_keys_sort_pause_refresh_and_quit(run: Settings) -> None:
    async with shown(run, 120) as (app, pilot):
        await pilot.press("t")
        assert [row[0] for row in rows(app)] == ["stuck", "math"]
        assert rows(app)[0][1] == "troubled"
        assert rows(app)[0][-1].startswith("warning: ")
        await pilot.press("p")
        assert app.title == "Lachesis · paused: p continues"
        async with AsyncEnvironment("live", run) as environment:
            await submitted(environment, [group(1)])
        await pilot.press("r")  # asks once
        await wait_until(lambda: rows(app)[1][4] == "1")
        assert app.title == "Lachesis · paused: p continues"
        await pilot.press("q")
        await wait_until(lambda: not app.is_running)


async def test_what_the_reader_scrolled_to_stays_in_sight(run: Settings) -> None:
    async with shown(run, 60) as (app, pilot):
        table: DataTable[Any] = app.query_one(DataTable)
        table.scroll_to(x=30, animate=False)
        await wait_until(lambda: table.scroll_x == 30)
        async with AsyncEnvironment("live", run) as environment:
            await submitted(environment, [group(1)])
        await pilot.press("r")
        await wait_until(lambda: rows(app)[0][4] == "1")
        await pilot.pause()
        assert table.scroll_x == 30


async def test_a_lost_service_is_shown_and_the_last_numbers_stay(run: Settings, proxy: CuttingProxy) -> None:
    async with Sender(Settings(run.url, retry_budget_s=0, timeout_s=5)) as sender:
        app = Top(sender, run.url)
        async with app.run_test(size=(120, 40)):
            await wait_until(lambda: len(rows(app)) == 1)
            service, proxy.upstream = proxy.upstream, None
            await proxy.drop_all()
            await wait_until(lambda: "GET " in app.title)
            assert len(rows(app)) == 1
            proxy.upstream = service
            await wait_until(lambda: app.title == "Lachesis")


async def test_runs_without_a_status_are_named_with_the_reason(run: Settings, redis_client: Redis) -> None:
    keys = RunKeys("math")
    async with Sender(run) as sender:
        app = Top(sender, run.url)
        async with app.run_test(size=(120, 40)):
            await wait_until(lambda: len(rows(app)) == 1)
            config = await redis_client.hget(keys.run, "config")
            await redis_client.hset(keys.run, "config", "x")
            await wait_until(lambda: rows(app) == [] and "run math cannot be read: " in below(app))
            assert "run math cannot be read: " in app.title
            await redis_client.hset(keys.run, "config", config)
            await wait_until(lambda: len(rows(app)) == 1 and app.title == "Lachesis")


@pytest.mark.parametrize("columns", [80, 200])
async def test_it_starts_on_a_terminal_and_q_leaves_it(run: Settings, columns: int) -> None:
    code, written = await on_screen(columns, "top", until=("math", "Troubled first"), keys="q", LACHESIS_URL=run.url)
    assert code == 0
    assert "Traceback" not in written
    assert written.count("\x1b[?1049h") == written.count("\x1b[?1049l") == 1, "the screen is as it was before"
    assert "troubled" not in written


async def test_wrong_use_is_refused_before_the_screen_changes() -> None:
    code, out, err = await piped("top", "--url", "localhost:8000")
    assert (code, out) == (2, "")
    assert "should start with http" in err
    code, out, err = await piped("top")
    assert (code, out) == (2, "")
    assert "top needs a terminal" in err


async def test_without_a_service_the_whole_reason_is_on_the_screen() -> None:
    settings = Settings(url=f"http://127.0.0.1:{free_port()}", retry_budget_s=0)
    async with Sender(settings) as sender:
        app = Top(sender, settings.url)
        async with app.run_test(size=(80, 24)):
            await wait_until(lambda: settings.url in below(app).replace("\n", ""))
