"""Remember the records of environments, so that a view reads and parses only those that changed."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.environments.live import EnvironmentsById
from app.core.environments.record import EnvironmentRecord
from app.core.environments.reused_readings import reuse_for_s
from app.store.environments import scripts
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.runs.view import parse_environment, reading


@dataclass(slots=True)
class _KnownRecords:
    """The records of a run in an epoch; `used` since the last sweep."""

    epoch: int
    records: Mapping[int, EnvironmentRecord]
    used: bool = True


@dataclass(frozen=True, slots=True)
class SharedEnvironments:
    """The environments of a run as they were read, shared by the views of a short time.

    Attributes:
        records: Their records.
        environments: The same with their activity.
        began_s: When their activity was read, on the clock of the event loop.
    """

    records: Mapping[int, EnvironmentRecord]
    environments: EnvironmentsById
    began_s: float

    @property
    def are_many(self) -> bool:
        """Whether views share them at all."""
        return reuse_for_s(len(self.records)) > 0

    def is_old(self, now_s: float) -> bool:
        """Return whether their activity must be read again."""
        return now_s - self.began_s >= reuse_for_s(len(self.records))


class EnvironmentRecords:
    """The records of environments by run, without activity.

    Each process has its own. They are valid for one epoch: every script that writes a record begins a new epoch and
    notes it beside the record. Forgotten environments show in the number of environments.

    Attributes:
        parsed: Records parsed so far.
    """

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._known: dict[str, _KnownRecords] = {}
        self.parsed = 0

    async def of(self, run: str, epoch: int, count: int) -> Mapping[int, EnvironmentRecord]:
        """Return the records of a run by id, in id order. Read what changed if the epoch is new.

        Args:
            run: The run's name.
            epoch: The epoch of the run, just read.
            count: The number of its environments, just read.

        Returns:
            The records in this epoch, or in a later one that began in the meantime.

        Raises:
            UnreadableRecord: A record cannot be parsed.
        """
        known = self._known.get(run)
        if known is not None and known.epoch == epoch and len(known.records) == count:
            known.used = True
            return known.records
        if count == 0:
            self._known.pop(run, None)
            return {}
        return await self._read(run, known)

    async def _read(self, run: str, known: _KnownRecords | None) -> Mapping[int, EnvironmentRecord]:
        command = scripts.read_environments(RunKeys(run), since=None if known is None else known.epoch)
        epoch, count, ids, texts = await self._connection.run(command)
        if known is not None and int(epoch) < known.epoch:  # the run was made again after the clock of Redis went back
            return await self._read(run, None)
        if known is not None and not ids and count == len(known.records):  # something else began the epoch
            self._known[run] = _KnownRecords(int(epoch), known.records)
            return known.records
        records = {} if known is None else dict(known.records)
        with reading(run):
            for key, text in sorted((int(key), text) for key, text in zip(ids, texts, strict=True)):
                records[key] = parse_environment(text)
                self.parsed += 1
        if len(records) != count and known is not None:  # some were forgotten
            return await self._read(run, None)
        self._known[run] = _KnownRecords(int(epoch), records)
        return records

    def has_name(self, run: str, name: str) -> bool:
        """Return whether a remembered environment of a run has this name. Another process may have made one since."""
        known = self._known.get(run)
        return known is not None and any(record.name == name for record in known.records.values())

    def knows(self, run: str) -> bool:
        """Return whether the records of a run are remembered."""
        return run in self._known

    def forget_unused(self) -> None:
        """Forget the records of runs without a request since the last call."""
        self._known = {run: known for run, known in self._known.items() if known.used}
        for known in self._known.values():
            known.used = False
