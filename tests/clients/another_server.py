"""An HTTP server that is no Lachesis, or answers as one that is not well."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.clients.proxy import CuttingProxy


@asynccontextmanager
async def another_server(
    *answer: str,
    body: str = "{}",
    refusals: Mapping[str, tuple[str, str]] | None = None,
    asked: list[str] | None = None,
) -> AsyncIterator[str]:
    """Run a server that gives one answer to everything, but these status lines and bodies by path; its URL.

    ``asked`` gets the path of each request.
    """

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if length := re.search(rb"content-length: (\d+)", request, re.IGNORECASE):
            await reader.readexactly(int(length[1]))
        path = request.split()[1].decode()
        if asked is not None:
            asked.append(path)
        start, sent = answer, body
        if refusal := (refusals or {}).get(path):
            start, sent = refusal[:1], refusal[1]
        writer.write("\r\n".join([*start, f"content-length: {len(sent)}", "connection: close", "", sent]).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def gateway(proxy: CuttingProxy, status: str) -> AsyncIterator[list[str]]:
    """Let a proxy lead to a gateway that answers in place of the service until the block ends. Return what it got."""
    asked: list[str] = []
    upstream = proxy.upstream
    async with another_server(f"HTTP/1.1 {status}", body="no such page", asked=asked) as url:
        proxy.upstream = urlsplit(url).port
        await proxy.drop_all()
        yield asked
        proxy.upstream = upstream
        await proxy.drop_all()
