"""The requests about a replay buffer, without I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lachesis._transport.bodies import checked
from lachesis._transport.protocol import (
    Call,
    LeaseCalls,
    NothingYet,
    Reply,
    checked_wait,
    json_body,
    model_reader,
    nothing_yet,
    path_of,
    read_body,
    read_nothing,
)
from lachesis.errors import ReplayBlocked
from lachesis.wire import fragments, frame, replay, samples
from lachesis.wire.blob import Buffer, DamagedBlob
from lachesis.wire.groups import SAFETENSORS
from lachesis.wire.snapshots import ReplaySnapshot, RestoreSnapshot, Snapshots, TakeSnapshot


@dataclass(frozen=True, slots=True)
class TakenSample:
    """A sample as the service handed it out: its description, and the blob of each of its records."""

    info: samples.SampleInfo
    blobs: list[memoryview]


@dataclass(frozen=True, slots=True)
class ReplayCalls:
    """The requests about the replay buffer of one run, by what they do."""

    run: str

    def set_up(self, settings: replay.ReplaySettings) -> Call[replay.ReplayState]:
        read = model_reader(replay.ReplayState)
        return Call("PUT", self._path(), read, {"if_absent": "true"}, **json_body(settings))

    def change(self, change: replay.ReplayChange) -> Call[replay.ReplayState]:
        return Call("PATCH", self._path(), model_reader(replay.ReplayState), **json_body(change))

    def state(self) -> Call[replay.ReplayState]:
        return Call("GET", self._path(), model_reader(replay.ReplayState))

    def begin_session(self, session: int) -> Call[replay.SessionSet]:
        body = checked(replay.SessionStart, session=session)
        return Call("PUT", self._path("session"), model_reader(replay.SessionSet), **json_body(body))

    def set_priorities(self, priorities: replay.Priorities) -> Call[replay.PrioritiesSet]:
        return Call("PATCH", self._path("priorities"), model_reader(replay.PrioritiesSet), **json_body(priorities))

    def chunks(self, query: Mapping[str, str]) -> Call[replay.Chunks]:
        return Call("GET", self._path("chunks"), model_reader(replay.Chunks), query)

    def delete_chunks(self, query: Mapping[str, str]) -> Call[replay.ChunksDeleted]:
        return Call("DELETE", self._path("chunks"), model_reader(replay.ChunksDeleted), query)

    def snapshot(self, take: TakeSnapshot) -> Call[ReplaySnapshot]:
        return Call("POST", self._path("snapshots"), model_reader(ReplaySnapshot), **json_body(take))

    def snapshots(self) -> Call[Snapshots]:
        return Call("GET", self._path("snapshots"), model_reader(Snapshots))

    def restore(self, restore: RestoreSnapshot) -> Call[replay.ReplayState]:
        return Call("POST", self._path("restore"), model_reader(replay.ReplayState), **json_body(restore))

    def delete_snapshot(self, name: str) -> Call[None]:
        return Call("DELETE", self._path("snapshots", name), read_nothing)

    def delete(self) -> Call[None]:
        return Call("DELETE", self._path(), read_nothing)

    def insert(self, blobs: Sequence[Buffer], wait_s: float) -> Call[list[fragments.FragmentReceipt]]:
        """Build the request that sends fragments of one worker; the sender waits while it gets `ReplayBlocked`."""
        body = blobs[0] if len(blobs) == 1 else frame.frame(blobs, "fragments")
        path, params = self._path("fragments"), {"wait_s": f"{wait_s:g}"}
        return Call("POST", path, _receipts, params, body, SAFETENSORS, wait_s=wait_s, not_yet=ReplayBlocked)

    def fetch(self, fragment: str) -> Call[Buffer]:
        return Call("GET", self._path("fragments", fragment), read_body, accept=SAFETENSORS)

    def take(self, take: samples.TakeSample, wait_s: float) -> Call[TakenSample | NothingYet]:
        """Build the request for a sample; ``take`` has a ``request_id``.

        Raises:
            InvalidField: ``wait_s`` is longer than the service waits, or below 0.
        """
        path, params = self._path("samples"), checked_wait(wait_s)
        return Call("POST", path, _taken, params, accept=SAFETENSORS, wait_s=wait_s, **json_body(take))

    def show(self, sample: str) -> Call[TakenSample]:
        return Call("GET", self._path("samples", sample), _sample, accept=SAFETENSORS)

    def lease(self, sample: str, lease: str) -> LeaseCalls:
        return LeaseCalls(self._path("samples", sample), lease)

    def _path(self, *parts: str) -> str:
        return path_of(self.run, "replay", *parts)


def _receipts(reply: Reply) -> list[fragments.FragmentReceipt]:
    return fragments.FragmentReceipts.model_validate_json(bytes(reply.body)).fragments


def _taken(reply: Reply) -> TakenSample | NothingYet:
    if reply.status == 204:
        return nothing_yet(reply)
    return _sample(reply)


def _sample(reply: Reply) -> TakenSample:
    metadata, blobs = frame.split(reply.body, len(reply.body))
    info = samples.SampleInfo.model_validate_json(metadata["sample"], extra="ignore")
    if len(info.records) != len(blobs):
        raise DamagedBlob(f"{len(info.records)} fragments are described and {len(blobs)} are there")
    return TakenSample(info, blobs)
