"""Tell which addresses belong to one sender."""

import ipaddress
from functools import lru_cache

_SITE_BITS = 64
"""The prefix of an IPv6 network that one machine gets. It may use any address in it."""


@lru_cache(maxsize=4096)  # parsing one takes 3 us
def sender_of_address(address: str) -> str:
    """Return the sender that limits count for an address.

    An IPv4 address is a sender. So is the /64 network of an IPv6 address, because one machine has all of it. A mapped
    IPv4 address is the IPv4 address. Other text is returned unchanged.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, ipaddress.IPv6Address) or parsed.is_loopback:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _SITE_BITS), strict=False))
