"""Several groups, or fragments, in one body: a safetensors file whose tensors are their blobs, in order.

A sender puts a header before blobs it has, and a reader cuts them apart again; neither looks into them, and nothing is
copied on the way. Any safetensors reader can open the file; each of its tensors is a file again. A batch is none: see
`lachesis.wire.batch_file`.
"""

from collections.abc import Mapping, Sequence

from lachesis.wire.blob import MAX_HEADER_BYTES, Buffer, DamagedBlob, Header, header_of, read_header
from lachesis.wire.kind import FORMAT


def frame_header(sizes: Sequence[int], kind: str, metadata: Mapping[str, str] | None = None) -> bytes:
    """Write what goes before blobs of ``sizes`` bytes.

    Args:
        sizes: Bytes of each blob.
        kind: What this is: ``groups``, ``fragments`` or ``sample``.
        metadata: What else to say.
    """
    return header_of(
        ((str(position), "U8", (size,), size) for position, size in enumerate(sizes)),
        {FORMAT: kind, **(metadata or {})},
    )


def frame(blobs: Sequence[Buffer], kind: str) -> bytes:
    """Put blobs into one body; see `frame_header`."""
    return b"".join([frame_header([len(blob) for blob in blobs], kind), *blobs])


def split(body: Buffer, most_header_bytes: int = MAX_HEADER_BYTES) -> tuple[dict[str, str], list[memoryview]]:
    """Cut a frame apart.

    Args:
        body: The frame.
        most_header_bytes: Longest header that is read: more than by default of a frame of many that each say much.

    Returns:
        Its metadata, and the blobs in order, as views of ``body``.

    Raises:
        DamagedBlob: It is not a frame, or not a whole one.
    """
    header = read_header(body, most_header_bytes)
    return header.metadata, cut(body, header)


def cut(body: Buffer, header: Header) -> list[memoryview]:
    """Return the blobs of a frame whose header was read; see `split`."""
    if FORMAT not in header.metadata:
        raise DamagedBlob(f"a frame says so in its metadata, under {FORMAT!r}")
    if any(info.dtype != "U8" for info in header.tensors.values()):
        raise DamagedBlob("a frame's tensors are blobs, of dtype U8")
    view = memoryview(body)
    return [view[info.start : info.end] for info in header.tensors.values()]
