"""A service that accepts requests and answers none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.clients.proxy import CuttingProxy


@asynccontextmanager
async def silent_service(proxy: CuttingProxy) -> AsyncIterator[None]:
    """Let a proxy lead to it, also the clients that were connected, until the block ends."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    upstream, proxy.upstream = proxy.upstream, server.sockets[0].getsockname()[1]
    async with server:
        await proxy.drop_all()
        yield
        await proxy.drop_all()
    proxy.upstream = upstream
