"""Open the Redis of the service, for the service itself and for commands that work without one."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.settings import ServiceSettings
from app.store.redis.address import store_url
from app.store.server.embedded import EmbeddedRedis
from app.store.server.probe import StoreFacts, place_of, probe_patiently
from lachesis.wire.errors import StoreMisconfigured


@dataclass(frozen=True, slots=True)
class Store:
    """The Redis of the service: its URL, its name for people, and what it promises."""

    url: str
    name: str
    facts: StoreFacts


@contextmanager
def open_store(settings: ServiceSettings) -> Iterator[Store]:
    """Connect to the Redis that the settings name, or run the embedded one until the block ends.

    Raises:
        StoreMisconfigured: It cannot keep the promises or start, or another service has the data.
        StoreUnavailable: It does not answer.
    """
    url = store_url(settings)
    if url:
        facts = asyncio.run(probe_patiently(url, settings.store_patience_s))
        yield Store(url, f"{facts.engine} {facts.version} at {place_of(url)}", facts)
        return
    try:
        started = EmbeddedRedis.start(
            settings.data_dir,
            binary=settings.redis_bin,
            fsync=settings.fsync,
            maxmemory_bytes=settings.redis_maxmemory_bytes,
            max_value_bytes=4 * settings.max_body_bytes,  # "0," in JSON has 2 bytes, as a float it has 8
        )
    except OSError as error:  # such as a full disk
        raise StoreMisconfigured(f"cannot start a server in LACHESIS_DATA_DIR={settings.data_dir}: {error}") from error
    with started as redis:
        facts = asyncio.run(probe_patiently(redis.url, settings.store_patience_s))
        yield Store(redis.url, f"embedded {facts.engine} {facts.version} in {settings.data_dir}/", facts)
