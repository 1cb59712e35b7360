"""Replies with fragments of a replay buffer."""

from collections.abc import Callable

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.codec.replay_sample import fragment_reply, fragments_reply
from app.api.http.bodies.content_budget import ContentBudget, ContentShare
from app.api.http.connection.client_connection import ClientConnection, connection_of
from app.store.replay.entries import FragmentRecord
from tests.api.conftest import served_to_one
from tests.waiting import wait_until

MIB = 1024 * 1024
RECORD = FragmentRecord("f", 1, 64 * MIB, "", "w", 1, 0, 0, '{"tensors": {}}')


@pytest.mark.parametrize(
    "reply",
    [
        lambda share: fragment_reply(RECORD, bytes(64 * MIB), share),
        lambda share: fragments_reply([(RECORD, bytes(64 * MIB))] * 3, share),
    ],
    ids=["one fragment", "a frame"],
)
async def test_a_client_that_takes_nothing_of_a_reply_is_dropped(
    reply: Callable[[ContentShare], Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection would keep all of the fragments in memory."""
    monkeypatch.setattr("app.api.http.replies.SLOW_S", 0.05)
    budget = ContentBudget()
    share = budget.share()
    await share.claim(64 * MIB)
    connections: list[ClientConnection | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connections.append(connection_of(scope))
        await reply(share)(scope, receive, send)

    def is_dropped() -> bool:
        return bool(connections) and connections[0] is not None and connections[0].broken

    async with served_to_one(app):
        await wait_until(is_dropped)
        await wait_until(lambda: not budget.held_bytes)


async def test_a_repeated_fragment_is_held_once() -> None:
    budget = ContentBudget()
    share = budget.share()
    await share.claim(MIB)
    reply = fragments_reply([(RECORD, bytes(MIB))] * 20, share)
    assert int(reply.headers["content-length"]) > 20 * MIB
    assert budget.held_bytes == MIB
