"""A connection on which something else happens between the commands of one submission."""

from collections.abc import Awaitable, Callable

from app.store.connection import Argument, Connection


class OneByOne(Connection):
    """Sends the commands of a pipeline that writes one by one, and does something else before one of them."""

    between: Callable[[], Awaitable[object]]
    before: int
    sent: int

    async def pipeline(self, fill: Callable[[object], object]) -> list[object]:
        commands: list[tuple[Argument, ...]] = []

        class Recorder:
            def __getattr__(self, command: str) -> Callable[..., None]:
                return lambda *arguments, **_: commands.append((command.upper(), *arguments))

        fill(Recorder())
        if not any(name == "EVALSHA" for name, *_ in commands):
            return await super().pipeline(fill)
        self.sent = len(commands)
        replies = []
        for number, (name, *arguments) in enumerate(commands):
            if number == self.before:
                await self.between()
            replies.append(await self.call(str(name), *arguments))
        return replies
