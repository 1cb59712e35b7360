"""Tune an API process: Python's garbage collector, the allocator of glibc, and the limit of open files."""

import ctypes
import gc
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_M_TRIM_THRESHOLD = -1  # from glibc's malloc.h
_M_MMAP_THRESHOLD = -3
_OTHER_FILES = 100  # besides connections: logs, Redis, datasets
_MANY_FILES = 65_536
_KEPT_BYTES = 256 * 1024 * 1024
_MAPPED_FROM_BYTES = 32 * 1024 * 1024  # the largest that glibc takes
_NEW_OBJECTS = 10_000  # between two collections of garbage. With Python's 700, they are 3 % of a submission


@contextmanager
def no_collection() -> Iterator[None]:
    """Import modules or build the application without garbage collection, which finds little and costs CPU time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def tune_process() -> None:
    """Keep freed memory in the process, and the objects of start-up out of garbage collection.

    A submission allocates and frees up to some megabytes. By default glibc returns them to the kernel each time. To get
    them back is 620 page faults for a submission of 8 x 2048 tokens, which then takes 4.8 ms of CPU instead of 3.3. So
    glibc keeps up to 256 MiB here. The price: after a burst of large bodies the process stays larger (133 MB
    instead of 54 MB after 30 groups of 16 x 8192 tokens). Other C libraries stay as they are.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)


def connections_possible() -> int:
    """Raise the limit of open files as far as the system allows. Return how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(soft, _MANY_FILES) if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return _connections_with(files)


def lack_of_files(connections: int) -> tuple[str, str] | None:
    """Say what is wrong, and what to do, if this process may not open enough files for so many connections."""
    needed, (_, hard) = connections + _OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return None
    return (
        f"a process may open {hard} files, enough for {_connections_with(hard)} connections; "
        f"LACHESIS_MAX_CONNECTIONS={connections} needs {needed} files",
        f"ulimit -Hn {needed}, LimitNOFILE={needed} in the unit of systemd, or docker run --ulimit nofile={needed}",
    )


def _connections_with(files: int) -> int:
    return max(1, files - _OTHER_FILES)


def return_memory() -> None:
    """Return all freed memory to the kernel, some milliseconds for each 100 MB. Call it in a thread, and rarely."""
    malloc_trim = _of_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _of_glibc(function: str) -> Callable[..., Any] | None:
    try:
        found: Callable[..., Any] = getattr(ctypes.CDLL(None), function)
    except (AttributeError, OSError):
        return None
    return found
