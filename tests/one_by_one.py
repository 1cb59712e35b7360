"""A connection that runs something else between the commands of one submission."""

from collections.abc import Awaitable, Callable, Sequence

from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Command


class OneByOne(RedisClient):
    """Sends commands that go together one by one, if they write, and does something else before one of them."""

    between: Callable[[], Awaitable[object]]
    before: int
    sent: int

    def __init__(self, url: str, patience_s: float) -> None:
        super().__init__(url, patience_s)
        self.transacts = False

    async def pipeline(self, commands: Sequence[Command]) -> list[object]:
        return await self._apart(commands) if _writes(commands) else await super().pipeline(commands)

    async def _apart(self, commands: Sequence[Command]) -> list[object]:
        self.sent = len(commands)
        replies = []
        for number, (name, *arguments) in enumerate(commands):
            if number == self.before:
                await self.between()
            replies.append(await self.call(str(name), *arguments))
        return replies


def _writes(commands: Sequence[Command]) -> bool:
    return len(commands) > 1 and any(name == "EVALSHA" for name, *_ in commands)
