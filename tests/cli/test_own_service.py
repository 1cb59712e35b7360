"""What ``python -m app`` sends to the service of its machine, and to nothing else."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.cli.own_service import own_url
from app.settings import ServiceSettings
from tests.authority import Authority
from tests.ports import free_port

TOKEN = "canary-of-the-operator-0123456789abcdef"
ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

pytestmark = pytest.mark.long


class Listener:
    """Notes the head of each request, and serves none."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.heads: list[str] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(ANSWER)
        writer.close()


@asynccontextmanager
async def listening(shown: tuple[Path, Path] | None = None, host: str = "127.0.0.1") -> AsyncIterator[Listener]:
    """Listen, over TLS if there is a certificate to show."""
    listener, context = Listener(), None
    if shown is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*shown)
    async with await asyncio.start_server(listener.take, host, 0, ssl=context) as server:
        listener.port = server.sockets[0].getsockname()[1]
        yield listener


async def status(*words: str, **settings: object) -> tuple[int, str]:
    """Run ``status`` with a token; its exit code, and its complaint."""
    given = {f"LACHESIS_{name.upper()}": str(value) for name, value in settings.items()} | {"LACHESIS_TOKEN": TOKEN}
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["status", *words], env=given)
    return done.exit_code, done.stderr


@pytest.mark.parametrize("ours", [True, False])
async def test_only_the_first_certificate_of_a_chain_is_the_service(tmp_path: Path, *, ours: bool) -> None:
    """The intermediate authority after it signs the certificates of others, too."""
    intermediate = Authority(tmp_path, "intermediate", by=Authority(tmp_path))
    own, foreign = intermediate.issue("own", "own.example.org"), intermediate.issue("foreign", "else.example.org")
    for cert, _ in (own, foreign):
        cert.write_bytes(cert.read_bytes() + intermediate.file.read_bytes())
    async with listening(own if ours else foreign) as listener:
        code, complaint = await status(port=listener.port, tls_cert=own[0], tls_key=own[1])
    if ours:
        assert f"authorization: Bearer {TOKEN}" in "".join(listener.heads).replace("Authorization", "authorization")
    else:
        assert (code, "CERTIFICATE_VERIFY_FAILED" in complaint, listener.heads) == (3, True, [])


async def test_a_file_without_a_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "service.pem").write_text("no certificate")
    code, complaint = await status(port=free_port(), tls_cert=tmp_path / "service.pem")
    assert (code, complaint) == (2, f"lachesis: LACHESIS_TLS_CERT={tmp_path}/service.pem: it has no certificate\n")


@pytest.mark.parametrize("encrypted", [True, False])
async def test_no_proxy_is_between_a_command_and_the_service_of_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, encrypted: bool
) -> None:
    own = Authority(tmp_path).issue("own", "own.example.org") if encrypted else None
    tls = {"tls_cert": own[0], "tls_key": own[1]} if own else {}
    async with listening() as proxy, listening(own) as service:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        await status(port=service.port, **tls)
    assert (proxy.connections, len(service.heads)) == (0, 1)


@pytest.mark.parametrize("host", ["evil.example.com", "192.0.2.1", "2001:db8::1", "224.0.0.1", "no host", "[::1]"])
async def test_another_machine_is_not_asked_unless_the_user_names_it(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of others may have a ``.env`` file."""
    (tmp_path / ".env").write_text(f"LACHESIS_HOST={host}\nLACHESIS_PORT=1\n")
    monkeypatch.chdir(tmp_path)
    said = f"lachesis: LACHESIS_HOST={host} is not an address of this machine; --url asks another service\n"
    assert await status() == (2, said)
    async with listening() as listener:
        await status("--url", f"http://127.0.0.1:{listener.port}")
    assert listener.connections == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0", "0", "localhost"])
async def test_loopback_and_all_addresses_are_of_this_machine(host: str) -> None:
    async with listening(host="0.0.0.0") as listener:
        await status(host=host, port=listener.port)
    assert len(listener.heads) == 1


@pytest.mark.parametrize("host", ["::", "::1", "0:0::0"])
def test_addresses_of_version_6_are_of_this_machine(host: str) -> None:
    assert own_url(ServiceSettings(host=host)) == "http://[::1]:8000"


async def test_a_token_goes_unencrypted_only_to_loopback_addresses(tmp_path: Path) -> None:
    address = address_of_this_machine()
    cert = Authority(tmp_path).issue("own", "own.example.org")
    async with listening(host=address) as listener, listening(cert, address) as encrypted:
        url = f"http://{address}:{listener.port}"
        said = f"lachesis: everyone between here and {url} could read the token: to send it, give --url\n"
        assert await status(host=address, port=listener.port) == (2, said)
        assert listener.connections == 0
        await status("--url", url, host=address, port=listener.port)
        await status(host=address, port=encrypted.port, tls_cert=cert[0], tls_key=cert[1])
    assert [len(listener.heads), len(encrypted.heads)] == [1, 1]


def address_of_this_machine() -> str:
    """Return an address that is not of the loopback interface; skip if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(probe.getsockname()[0])
