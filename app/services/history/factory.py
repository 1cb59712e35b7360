"""Build the use cases of histories."""

from dataclasses import dataclass

from app.services.batches.diagnostics import Diagnostics
from app.services.history.reading import Histories
from app.services.history.recorder import HistoryRecorder
from app.services.history.sampling import HistorySampler
from app.services.history.writer import HistoryWriter
from app.services.stores import Stores


@dataclass(frozen=True, slots=True)
class HistoryServices:
    """The use cases of histories."""

    reading: Histories
    writer: HistoryWriter

    @classmethod
    def create(cls, stores: Stores, recorder: HistoryRecorder, diagnostics: Diagnostics) -> "HistoryServices":
        """Build the use cases; ``recorder`` counts groups for this process."""
        sampler = HistorySampler(diagnostics, stores.batch_records, stores.replay, stores.curricula, stores.histories)
        writer = HistoryWriter(stores.histories, recorder, sampler)
        return cls(reading=Histories(stores.runs, stores.histories, writer), writer=writer)
