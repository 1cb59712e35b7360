"""Who counts as one sender, by its address."""

import pytest

from app.core.access.addresses import sender_of_address


@pytest.mark.parametrize(
    ("address", "sender"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("unix socket", "unix socket"),
        ("", ""),
    ],
)
def test_a_sender_is_an_ipv4_address_or_an_ipv6_network_of_64_bits(address: str, sender: str) -> None:
    assert sender_of_address(address) == sender
