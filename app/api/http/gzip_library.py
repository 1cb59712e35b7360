"""The library for gzip: ISA-L, which is several times as fast as Python's own."""

try:
    from isal import isal_zlib as zlib
except ImportError:  # no wheel for this Python
    import zlib  # type: ignore[no-redef]

__all__ = ["GZIP", "zlib"]

GZIP = 31
"""The window bits that stand for the header and trailer of gzip."""
