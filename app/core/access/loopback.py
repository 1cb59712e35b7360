"""Tell addresses that only this machine can reach from those that need authentication."""

import ipaddress
from functools import lru_cache

TWO_WAYS = "create a token with `python -m app token create --role operator`, or set LACHESIS_INSECURE=1"
"""What to do about a service without authentication on an address that is not a loopback address."""


@lru_cache(maxsize=256)  # the addresses of this machine: parsing one takes 3 us
def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address. Names are not looked up: only `localhost` is known."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
