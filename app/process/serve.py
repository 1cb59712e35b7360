"""Run the service: start Redis, then the API processes on one port. Stop them in reverse order."""

import asyncio
import errno
import logging
import logging.config
import math
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

from pydantic import SecretStr

from app.api.http.access.issuer_client import IssuerClient
from app.api.http.connection.certificates import TlsContexts, TlsFiles
from app.core.access.loopback import TWO_WAYS, is_loopback
from app.logs import log_config
from app.process.signals import raise_on_stop_signals
from app.process.store import Store, open_store
from app.process.workers import BACKLOG, run_workers
from app.services.access.factory import configured_sources
from app.services.groups.token_text import TokenText
from app.settings import ServiceSettings
from app.store.access.store import is_closed
from app.tuning import lack_of_files
from app.version import lachesis_version
from lachesis.wire.errors import StoreUnavailable
from lachesis.wire.printable import counted

log = logging.getLogger("lachesis.serve")


def serve(settings: ServiceSettings, app: str = "app.main:create_app") -> int:
    """Run the service until a signal ends it.

    Prints one line to stdout once it is listening, another when it has stopped; the log goes to stderr. SIGTERM, SIGINT
    or SIGHUP finishes requests in flight, then stops Redis. A second SIGTERM or SIGINT does not wait for them.

    Args:
        settings: The settings of the service and of its API processes.
        app: What makes the ASGI application from settings, as ``module:function``.

    Returns:
        The exit code: 0 after a signal, 1 if it could not start (one line on stderr says why).
    """
    logging.config.dictConfig(log_config(settings.log_level, settings.log_format))
    raise_on_stop_signals()
    try:
        return _serve(settings, app)
    except KeyboardInterrupt:
        return 0
    except StoreUnavailable as error:
        return _fail(str(error))


def _serve(settings: ServiceSettings, app: str) -> int:
    has_sources, tls = checked_files(settings)
    try:
        listeners = one_each(listen(settings.host, settings.port), settings.workers)
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        return _fail(
            f"cannot listen on {settings.host}:{settings.port}: "
            f"{'the address is in use (LACHESIS_PORT sets another)' if used else error.strerror or error}"
        )
    address = listeners[0].getsockname()[0]
    with ExitStack() as until_the_end:
        for listener in listeners:
            until_the_end.enter_context(listener)
        store = until_the_end.enter_context(open_store(settings))
        may_listen = has_sources or needs_no_tokens(settings, address)
        if not (may_listen or asyncio.run(is_closed(store.url, settings.store_patience_s))):
            return _fail(
                f"LACHESIS_HOST={settings.host} is not a loopback address, and the service has no authentication: "
                f"{TWO_WAYS}"
            )
        for warning in _warnings(settings, store, listeners[0], has_sources=has_sources):
            log.warning(warning)
        line = _announcement(settings, listeners[0], store)
        with_store = settings.model_copy(update={"redis_url": SecretStr(store.url)})
        code = run_workers(with_store, app, listeners, tls, lambda: _say(line))
    if code == 0:
        _say(f"Lachesis has stopped · {store.name} · {store.facts.promise}")
    return code


def checked_files(settings: ServiceSettings) -> tuple[bool, TlsContexts | None]:
    """Check the files that the settings name, before anything starts.

    Returns:
        Whether the service has credentials other than tokens, and its certificates; None for plain HTTP.

    Raises:
        StoreMisconfigured: A file is missing or wrong, or a setting that belongs to it is missing.
    """
    TokenText.load(settings.tokenizer_file)
    has_sources = bool(configured_sources(settings, IssuerClient(settings), now_ms=lambda: math.nan))
    files = TlsFiles.of(settings)
    return has_sources, None if files is None else TlsContexts(files)


def needs_no_tokens(settings: ServiceSettings, address: str) -> bool:
    """Return whether a service may answer everyone who reaches this address.

    It may if only this machine reaches it, or if LACHESIS_INSECURE is set.
    """
    return settings.insecure or is_loopback(address) or is_loopback(settings.published_on or address)


def _warnings(settings: ServiceSettings, store: Store, listener: socket.socket, *, has_sources: bool) -> Iterator[str]:
    """Yield what an operator should know about a service that is about to answer."""
    yield from store.facts.warnings
    if lack := lack_of_files(settings.max_connections):
        yield ": ".join(lack)
    address, port = listener.getsockname()[:2]
    published_on = settings.published_on
    if not (has_sources or is_loopback(address)) and published_on and is_loopback(published_on):
        yield (
            f"as long as there is no token, anyone who reaches {address}:{port} may do everything: "
            f"publish the port on {published_on} alone (LACHESIS_PUBLISHED_ON says that it is)"
        )


def _say(line: str) -> None:
    """Print a line to stdout. Give up stdout if it is closed, or if its disk is full."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again when it exits


def _fail(message: str) -> int:
    log.error(message)
    return 1


def listen(host: str, port: int) -> socket.socket:
    """Listen on the address of a host.

    Raises:
        OSError: The host has no address, or the address cannot be used.
    """
    family, address = resolve(host, port)
    # Listening, not only bound: otherwise two services could both hold the port.
    return socket.create_server((address, port), family=family, backlog=BACKLOG)


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """Return the address to listen on. Of a name that has several, an IPv4 address is preferred.

    Raises:
        OSError: The host has none.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:  # such as `a..b`
        raise socket.gaierror(socket.EAI_NONAME, "this is not a host name") from error
    family, _, _, _, place = min(addresses, key=lambda found: found[0] != socket.AF_INET)
    return family, str(place[0])


def one_each(listener: socket.socket, processes: int) -> list[socket.socket]:
    """Exchange a listening socket for one per process, so that Linux spreads connections over the processes evenly.

    If processes share a socket, the one that wakes first takes most connections of a burst. Other systems do not spread
    connections, so there they share it.

    Raises:
        OSError: Another program took the address in between.
    """
    if processes == 1 or sys.platform != "linux":
        return [listener]
    family, address = listener.family, listener.getsockname()[:2]
    listener.close()  # it was bound alone: no other service has the port
    return [socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=True) for _ in range(processes)]


def _announcement(settings: ServiceSettings, listener: socket.socket, store: Store) -> str:
    address, port = listener.getsockname()[:2]
    host = f"[{address}]" if ":" in address else address
    scheme = "https" if settings.tls_cert else "http"
    where = f"Lachesis {lachesis_version()} listening on {scheme}://{host}:{port}"
    return (
        f"{where} · {counted(settings.workers, 'API process', 'API processes')} · {store.name} · {store.facts.promise}"
    )
