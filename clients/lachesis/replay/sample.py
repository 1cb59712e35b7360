"""A sample of a replay buffer: its data, and, for asyncio, its lease."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lachesis._prefetch.leased import AsyncLeased, HeldLease
from lachesis._public import Shown
from lachesis.loader.nested import Nested, decode
from lachesis.loader.stacking import Ragged, stack
from lachesis.wire.blob import Buffer, read_header
from lachesis.wire.samples import Record, SampleInfo


class Records(Shown):
    """The fragments of a sample. Fragments of one chunk are adjacent."""

    def __init__(self, info: SampleInfo, blobs: Sequence[Buffer]) -> None:
        """Show a sample.

        Args:
            info: Its description by the service.
            blobs: The blobs of its fragments, in the order of its records.
        """
        self.info = info
        self.blobs = blobs

    def _facts(self) -> dict[str, object]:
        return {"sample": self.info.sample, "chunks": len(self.chunks), "fragments": len(self.blobs)}

    @property
    def records(self) -> list[Record]:
        """The origin of each fragment, and how its chunk was drawn."""
        return self.info.records

    @property
    def chunks(self) -> list[int]:
        """The chunks, in order: the keys of `set_priorities`."""
        return list(dict.fromkeys(record.chunk for record in self.records))

    @property
    def importance_weights(self) -> NDArray[np.float64]:
        """Importance weights: f64 [fragments]."""
        return np.array([record.importance_weight for record in self.records], np.float64)

    @property
    def staleness(self) -> NDArray[np.int64]:
        """Policy versions between the chunk of each fragment and the time the sample was taken: i64 [fragments]."""
        return np.array([record.staleness for record in self.records], np.int64)

    def fragments(self) -> list[Nested]:
        """Return the arrays of each fragment, nested, as views of the reply. bf16 comes as its bits; see `dtypes`.

        Raises:
            ValueError: The names in a fragment do not nest, such as ``obs`` and ``obs/x``. The message names the
                fragment. Its blob in ``blobs`` has the arrays.
        """
        return [_arrays(record, blob) for record, blob in zip(self.records, self.blobs, strict=True)]

    def dtypes(self) -> list[dict[str, str]]:
        """Return the dtypes of the arrays of each fragment by flat name, as safetensors names them."""
        headers = map(read_header, self.blobs)
        return [{name: info.dtype for name, info in header.tensors.items()} for header in headers]

    def stacked(self, ragged: Ragged = None) -> Nested:
        """Return the arrays of all fragments stacked, nested as in each one: [fragments, …].

        Args:
            ragged: Which arrays have unequal lengths, and how to stack these arrays; see `lachesis.loader.stack`.

        Raises:
            ValueError, KeyError: The arrays cannot be stacked.
        """
        return stack(self.fragments(), ragged, [record.fragment for record in self.records])


def _arrays(record: Record, blob: Buffer) -> Nested:
    try:
        return decode(blob)
    except ValueError as error:
        raise ValueError(f"fragment {record.fragment}: {error}. Its blob in `blobs` has the arrays") from error


class AsyncSample(AsyncLeased, Records):
    """A sample that this trainer holds until it is acknowledged or given back.

    An acknowledged sample counts as a use of its chunks. Its lease is extended in the background. As a context manager
    it is acknowledged at the end of the block, unless the block gave it back. It is given back if the block raises.
    """

    def __init__(self, info: SampleInfo, blobs: Sequence[Buffer], lease: HeldLease) -> None:
        super().__init__(info, blobs)
        self._lease = lease
