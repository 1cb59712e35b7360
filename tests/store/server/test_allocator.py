"""The memory of the server of our own: the allocator of its C library gives it back for other values."""

from pathlib import Path

from redis import Redis

from app.store.server.embedded import EmbeddedRedis


def test_a_server_uses_the_memory_of_deleted_values_for_values_of_other_sizes(tmp_path: Path) -> None:
    """An allocator that keeps many freed pieces of each size apart grows for hours, with the same data."""
    keys = [f"value-{number}" for number in range(2000)]
    with EmbeddedRedis.start(tmp_path) as server, Redis.from_url(server.url) as client:
        before = client.info("memory")["used_memory_rss"]
        for size in range(64, 1024, 16):
            client.mset(dict.fromkeys(keys, b"x" * size))
            client.delete(*keys)
        grown = client.info("memory")["used_memory_rss"] - before
    assert grown < 32 * 1024 * 1024
