"""What an API process asks of Python and of the C library, so that a request does not pay for housekeeping."""

import ctypes
import gc

_M_TRIM_THRESHOLD = -1  # from glibc's malloc.h
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 256 * 1024 * 1024
_MAPPED_FROM_BYTES = 32 * 1024 * 1024  # the largest that glibc takes


def tune_process() -> None:
    """Keep freed memory at hand, and the objects of start-up out of garbage collection.

    A submission allocates and frees a few hundred kilobytes. By default glibc gives them back to the kernel each
    time, and the page faults of getting them again made up more than half of decoding 8 x 512 tokens. Other C
    libraries are left as they are.
    """
    gc.collect()
    gc.freeze()
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
