"""Who may follow a run, and until when."""

from tests.api.access.conftest import Tokens, bearer, id_of
from tests.api.conftest import Start
from tests.api.events.streams import EVENTS, following
from tests.scenarios.native_calls import RUN, make_run


async def test_a_run_that_is_not_there_or_foreign_is_not_found(start: Start, tokens: Tokens) -> None:
    operator, other = await tokens.make("operator"), await tokens.make("viewer", "mine")
    client = await start()
    client.headers.update(bearer(operator))
    await make_run(client)
    missing = await client.get("/v1/runs/none/events")
    foreign = await client.get(EVENTS, headers=bearer(other))
    assert (missing.status_code, foreign.status_code) == (404, 404)
    assert missing.json()["detail"].replace("none", "run") == foreign.json()["detail"]


async def test_a_stream_ends_when_its_token_is_revoked(start: Start, tokens: Tokens) -> None:
    operator, viewer = await tokens.make("operator"), await tokens.make("viewer", "run")
    client = await start()
    client.headers.update(bearer(operator))
    await make_run(client)
    async with following(client, **bearer(viewer)) as stream, following(client) as other:
        await tokens.administration.revoke(id_of(viewer))
        while await stream.event() is not None:
            pass
        (await client.post(f"{RUN}/environments", json={"name": "e", "member": "m"})).raise_for_status()
        await other.until("member joined")
