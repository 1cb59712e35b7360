"""Ports nobody listens on."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """Pick a TCP port that is free on ``host`` now; for servers that cannot be told to pick one themselves."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
