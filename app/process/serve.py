"""Run the service: start Redis, then the API processes on one port. Stop them in reverse order."""

import asyncio
import errno
import logging
import logging.config
import math
import os
import socket
import sys
from contextlib import ExitStack

from app.api.http.certificates import TlsContexts, TlsFiles
from app.api.http.issuer_client import IssuerClient
from app.core.access.loopback import TWO_WAYS, is_loopback
from app.logs import log_config
from app.process.store import Store, open_store
from app.process.workers import BACKLOG, raise_on_stop_signals, run_workers
from app.services.access.factory import configured_sources
from app.services.groups.token_text import TokenText
from app.settings import ServiceSettings
from app.store.access.store import is_closed
from app.version import lachesis_version
from lachesis.wire.errors import StoreUnavailable

log = logging.getLogger("lachesis.serve")


def serve(settings: ServiceSettings, app: str = "app.main:app") -> int:
    """Run the service until a signal ends it.

    Prints one line to stdout once it is listening, another when it has stopped; the log goes to stderr. SIGTERM or
    SIGINT finishes requests in flight, then stops Redis; a second one does not wait for them.

    Args:
        settings: The settings. The API processes read the same ones from the environment and the file.
        app: The ASGI application as ``module:attribute``.

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
    # These are not used. Building them checks their files before anything starts.
    TokenText.load(settings.tokenizer_file)
    has_sources = bool(configured_sources(settings, IssuerClient(settings), now_ms=lambda: math.nan))
    files = TlsFiles.of(settings)
    tls = None if files is None else TlsContexts(files)
    try:
        listeners = one_each(listen(settings.host, settings.port), settings.workers)
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        return _fail(
            f"cannot listen on {settings.host}:{settings.port}: "
            f"{'the address is in use (LACHESIS_PORT sets another)' if used else error.strerror or error}"
        )
    address, port = listeners[0].getsockname()[:2]
    with ExitStack() as until_the_end:
        for listener in listeners:
            until_the_end.enter_context(listener)
        store = until_the_end.enter_context(open_store(settings))
        if not (has_sources or _may_listen(settings, address, store.url)):
            return _fail(
                f"LACHESIS_HOST={settings.host} is not a loopback address, and the service has no authentication: "
                f"{TWO_WAYS}"
            )
        for warning in store.facts.warnings:
            log.warning(warning)
        if not (has_sources or is_loopback(address)) and settings.published_on and is_loopback(settings.published_on):
            log.warning(
                "as long as there is no token, anyone who reaches %s:%d may do everything: "
                "publish the port on %s alone (LACHESIS_PUBLISHED_ON says that it is)",
                address,
                port,
                settings.published_on,
            )
        os.environ["LACHESIS_REDIS_URL"] = store.url
        line = _announcement(settings, listeners[0], store)
        code = run_workers(settings, app, listeners, tls, lambda: print(line, flush=True))
    if code == 0:
        try:
            print(f"Lachesis has stopped · {store.name} · {store.facts.promise}", flush=True)
        except OSError:  # the same Ctrl-C may have ended the reader; Python would try again when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _may_listen(settings: ServiceSettings, address: str, store_url: str) -> bool:
    """Return whether a service without sources may listen on an address: it has tokens, or the address is loopback."""
    published_on = settings.published_on or address
    if is_loopback(address) or is_loopback(published_on) or settings.insecure:
        return True
    return asyncio.run(is_closed(store_url, settings.store_patience_s))


def _fail(message: str) -> int:
    log.error(message)
    return 1


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address; of a name that has several, an IPv4 address is preferred."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(addresses, key=lambda found: found[0] != socket.AF_INET)
    # Listening, not only bound: otherwise two services could both hold the port.
    return socket.create_server(address[:2], family=family, backlog=BACKLOG)


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
    workers = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
    scheme = "https" if settings.tls_cert else "http"
    where = f"Lachesis {lachesis_version()} listening on {scheme}://{host}:{port}"
    return f"{where} · {workers} · {store.name} · {store.facts.promise}"
