"""An HTTP server that is no Lachesis, or answers as one that is not well."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager


@asynccontextmanager
async def another_server(
    *answer: str, body: str = "{}", refusals: Mapping[str, tuple[str, str]] | None = None
) -> AsyncIterator[str]:
    """Run a server that gives one answer to everything, but these status lines and bodies by path; its URL."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        start, sent = answer, body
        if refusal := (refusals or {}).get(request.split()[1].decode()):
            start, sent = refusal[:1], refusal[1]
        writer.write("\r\n".join([*start, f"content-length: {len(sent)}", "connection: close", "", sent]).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
