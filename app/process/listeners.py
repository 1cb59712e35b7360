"""Listen on the address of the service, with one socket or with one for each API process.

Linux spreads connections evenly over processes that have a socket each. If processes share a socket, the one that wakes
first takes most connections of a burst. Other systems do not spread connections, so there they share it.
"""

import socket
import sys

BACKLOG = 2048


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
    """Exchange a listening socket for one per process, where the system spreads connections over them.

    Raises:
        OSError: Another program took the address in between.
    """
    if processes == 1 or sys.platform != "linux":
        return [listener]
    family, address = listener.family, listener.getsockname()[:2]
    listener.close()  # it was bound alone: no other service has the port
    return [socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=True) for _ in range(processes)]


def handed_over(listeners: list[socket.socket]) -> list[socket.socket]:
    """Leave listening sockets to the processes that have them: close them here, and keep their address.

    The socket of a process that dies then closes with it, and new connections go to the others. A socket that processes
    share stays open.

    Returns:
        Sockets for `own_listener` in processes that start later.
    """
    if len(listeners) == 1:
        return listeners
    kept = _bound_like(listeners[0])
    for listener in listeners:
        listener.close()
    return [kept]


def own_listener(given: socket.socket) -> socket.socket:
    """Return the socket that a process listens on: a given one that listens, or a new one of the same address.

    The new one listens when its server starts, so that no connection waits for a process that is not ready.

    Raises:
        OSError: Another program took the address while no process listened.
    """
    if given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return given
    with given:
        return _bound_like(given)


def _bound_like(other: socket.socket) -> socket.socket:
    bound = socket.socket(other.family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if other.family == socket.AF_INET6:
        only_v6 = other.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_v6)
    bound.bind(other.getsockname())
    return bound
