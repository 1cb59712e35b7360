"""Several groups or fragments in one body: a safetensors file whose tensors are their blobs, in order.

A sender puts a header before its blobs, and a reader cuts the body into blobs. Both leave the blobs unread and
uncopied. Any safetensors reader can open the file. Each of its tensors is a safetensors file, too. A batch has another
layout: see `lachesis.wire.batch_file`.
"""

from collections.abc import Mapping, Sequence

from lachesis.wire.blob import MAX_HEADER_BYTES, Buffer, DamagedBlob, Header, header_of, read_header

FORMAT = "lachesis"
"""Key of the metadata that distinguishes frames and batches from blobs. All three are safetensors files.

The value is ``groups``, ``fragments``, ``sample`` or ``batch``.
"""


def frame_header(sizes: Sequence[int], kind: str, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the header of a frame of blobs.

    Args:
        sizes: Bytes of each blob.
        kind: The kind of the blobs: ``groups``, ``fragments`` or ``sample``.
        metadata: Further metadata.
    """
    return header_of(
        ((str(position), "U8", (size,), size) for position, size in enumerate(sizes)),
        {FORMAT: kind, **(metadata or {})},
    )


def frame(blobs: Sequence[Buffer], kind: str) -> bytes:
    """Return one body with these blobs; see `frame_header`."""
    return b"".join([frame_header([len(blob) for blob in blobs], kind), *blobs])


def split(body: Buffer, most_header_bytes: int = MAX_HEADER_BYTES) -> tuple[Mapping[str, str], list[memoryview]]:
    """Cut a frame into its blobs.

    Args:
        body: The frame.
        most_header_bytes: Maximum length of the header. A frame of many blobs with long metadata needs more than the
            default.

    Returns:
        The metadata of the frame, and its blobs in order, as views of ``body``.

    Raises:
        DamagedBlob: ``body`` is not a frame, or is not complete.
    """
    header = read_header(body, most_header_bytes)
    return header.metadata, cut(body, header)


def cut(body: Buffer, header: Header) -> list[memoryview]:
    """Return the blobs of a frame whose header was read; see `split`."""
    if FORMAT not in header.metadata:
        raise DamagedBlob(f"this is not a frame: its metadata has no key {FORMAT!r}")
    if any(info.dtype != "U8" for info in header.tensors.values()):
        raise DamagedBlob("this is not a frame: its tensors should be blobs, of dtype U8")
    view = memoryview(body)
    return [view[info.start : info.end] for info in header.tensors.values()]
