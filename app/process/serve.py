"""Run the service: start Redis, then the API processes on one socket. Stop them in reverse order."""

import asyncio
import errno
import ipaddress
import logging
import logging.config
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from app.core.errors import StoreUnavailable
from app.logs import log_config
from app.process.workers import BACKLOG, heed_signals, run_workers
from app.settings import Settings
from app.store.server.embedded import EmbeddedRedis
from app.store.server.probe import StoreFacts, place_of, probe_patiently
from app.version import lachesis_version

log = logging.getLogger("lachesis.serve")


@dataclass(frozen=True, slots=True)
class _Store:
    url: str
    name: str
    facts: StoreFacts


def serve(settings: Settings, app: str = "app.main:app") -> int:
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
    heed_signals()
    try:
        return _serve(settings, app)
    except KeyboardInterrupt:
        return 0
    except StoreUnavailable as error:
        return _fail(str(error))


def _serve(settings: Settings, app: str) -> int:
    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        return _fail(
            f"cannot listen on {settings.host}:{settings.port}: "
            f"{'the address is in use (LACHESIS_PORT sets another)' if used else error.strerror or error}"
        )
    with listener:
        if not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
            who = "anyone who can reach it can use it: there is no authentication yet"
            log.warning("listening on %s: %s", settings.host, who)
        with _store(settings) as store:
            for warning in store.facts.warnings:
                log.warning(warning)
            os.environ["LACHESIS_REDIS_URL"] = store.url
            line = _announcement(settings, listener, store)
            code = run_workers(settings, app, listener, lambda: print(line, flush=True))
    if code == 0:
        with suppress(OSError):  # the same Ctrl-C may have ended the reader
            print(f"Lachesis has stopped · {store.name} · {store.facts.promise}", flush=True)
    return code


def _fail(message: str) -> int:
    log.error(message)
    return 1


def _listen(host: str, port: int) -> socket.socket:
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(addresses, key=lambda found: found[0] != socket.AF_INET)
    # Listening, not only bound: otherwise two services could both hold the port.
    return socket.create_server(address[:2], family=family, backlog=BACKLOG)


def _announcement(settings: Settings, listener: socket.socket, store: _Store) -> str:
    address, port = listener.getsockname()[:2]
    host = f"[{address}]" if ":" in address else address
    workers = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
    where = f"Lachesis {lachesis_version()} listening on http://{host}:{port}"
    return f"{where} · {workers} · {store.name} · {store.facts.promise}"


# Redis


@contextmanager
def _store(settings: Settings) -> Iterator[_Store]:
    url = settings.redis_url.get_secret_value() if settings.redis_url else ""
    if url:
        facts = asyncio.run(probe_patiently(url, settings.store_patience_s))
        yield _Store(url, f"{facts.engine} {facts.version} at {place_of(url)}", facts)
        return
    with EmbeddedRedis.start(
        settings.data_dir,
        binary=settings.redis_bin,
        maxmemory_bytes=settings.redis_maxmemory_bytes,
        max_value_bytes=4 * settings.max_body_bytes,  # "0," in JSON has 2 bytes, as a float it has 8
    ) as redis:
        facts = asyncio.run(probe_patiently(redis.url, settings.store_patience_s))
        yield _Store(redis.url, f"embedded {facts.engine} {facts.version} in {settings.data_dir}/", facts)
