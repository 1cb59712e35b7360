"""Refuse a Redis that takes no writes, or loses them: when the service starts, and later, as it may change."""

from lachesis.wire.errors import StoreMisconfigured


def refuse_unusable(role: str | None, maxmemory_policy: str | None) -> None:
    """Refuse a replica, and a Redis that evicts keys.

    Args:
        role: What INFO says.
        maxmemory_policy: What INFO says, or CONFIG; None if both are silent, as on some managed servers.

    Raises:
        StoreMisconfigured: The service cannot use it.
    """
    if role != "master":
        raise StoreMisconfigured(
            "this Redis is a replica, which takes no writes", remedy="Name its primary in LACHESIS_REDIS_URL."
        )
    if maxmemory_policy not in ("noeviction", None):
        raise StoreMisconfigured(
            f"this Redis drops data when its memory is full (maxmemory-policy {maxmemory_policy})",
            remedy="Set maxmemory-policy to noeviction.",
        )
