"""The requests about a run, its environments, groups and batches, without I/O."""

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
    query_of,
    read_body,
    read_nothing,
)
from lachesis._transport.tracing import TraceHeaders
from lachesis.rank import Rank
from lachesis.wire import batches, curricula, environments, events, frame, groups, runs
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.blob import Buffer, DamagedBlob
from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.errors import InvalidField
from lachesis.wire.status import RunStatus

_LONGEST_SILENCE_S = 30.0  # of a stream of events: the service sends something every 15 s


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch as the service handed it out: its description, and the reply that holds its columns."""

    info: batches.BatchInfo
    file: BatchFile

    def is_stale(self, version: int, oldest: int) -> bool:
        """Return whether it was formed under an older policy version, and has a group from before version ``oldest``.

        Replayed groups may be older. A batch that a rewind brought back is never too old: it is trained on unchanged.
        """
        if self.info.rewound or self.info.policy_version >= version:
            return False
        versions = (group.policy_version for group in self.info.groups if group.replayed is None)
        return any(group_version is not None and group_version < oldest for group_version in versions)


@dataclass(frozen=True, slots=True)
class RunCalls:
    """The requests about one run, by what they do."""

    run: str

    def create(self, new: runs.RunCreate) -> Call[runs.Run]:
        return Call("POST", "/v1/runs", model_reader(runs.Run), **json_body(new))

    def show(self) -> Call[runs.Run]:
        return Call("GET", path_of(self.run), model_reader(runs.Run))

    def change(self, change: runs.RunChange) -> Call[runs.Run]:
        return Call("PATCH", path_of(self.run), model_reader(runs.Run), **json_body(change))

    def delete(self) -> Call[None]:
        return Call("DELETE", path_of(self.run), read_nothing)

    def status(self) -> Call[RunStatus]:
        return Call("GET", path_of(self.run, "status"), model_reader(RunStatus))

    def events(self, after: str | None, limit: int) -> Call[events.RunEvents]:
        query = {"limit": str(limit)} | ({} if after is None else {"after": after})
        return Call("GET", path_of(self.run, "events"), model_reader(events.RunEvents, None), query)

    def event_stream(self, after: str | None) -> Call[None]:
        query = {} if after is None else {"after": after}
        path = path_of(self.run, "events")
        return Call("GET", path, read_nothing, query, accept=events.EVENT_STREAM, wait_s=_LONGEST_SILENCE_S)

    def list_environments(self) -> Call[environments.Environments]:
        return Call("GET", path_of(self.run, "environments"), model_reader(environments.Environments))

    def join(self, new: environments.EnvironmentCreate) -> Call[environments.Joined]:
        return Call("POST", path_of(self.run, "environments"), model_reader(environments.Joined), **json_body(new))

    def leave(self, environment: int, member: str) -> Call[None]:
        return Call("DELETE", path_of(self.run, "environments", environment), read_nothing, {"member": member})

    def heartbeat(
        self, environment: int, name: str, member: str, running_groups: int, start_groups: int, retries: int
    ) -> Call[environments.Credits]:
        beat = checked(
            environments.Heartbeat,
            member=member,
            running_groups=running_groups,
            start_groups=start_groups,
            retries=min(retries, environments.MOST_RETRIES),
        )
        path = path_of(self.run, "environments", environment, "heartbeat")
        return Call("POST", path, model_reader(environments.Credits), query_of(name=name), **json_body(beat))

    def submit(
        self, blobs: Sequence[Buffer], trace: TraceHeaders | None = None, environment: str | None = None
    ) -> Call[groups.Receipts]:
        """Build the submission of groups, each with an id of its own, in one request.

        Args:
            blobs: The groups.
            trace: As in `Call`.
            environment: Name of the environment that the groups name by id. None means that the id alone counts.
        """
        body = blobs[0] if len(blobs) == 1 else frame.frame(blobs, "groups")
        return Call(
            "POST",
            path_of(self.run, "groups"),
            model_reader(groups.Receipts),
            query_of(environment=environment),
            body=body,
            content_type=groups.SAFETENSORS,
            trace=trace,
        )

    def find_group(self, group: str) -> Call[groups.GroupHistory]:
        return Call("GET", path_of(self.run, "groups", group), model_reader(groups.GroupHistory))

    def list_groups(self, query: Mapping[str, object]) -> Call[groups.ListedGroups]:
        return Call("GET", path_of(self.run, "groups"), model_reader(groups.ListedGroups), query_of(**query))

    def read_group(self, group: str, query: Mapping[str, object]) -> Call[groups.GroupContent]:
        path = path_of(self.run, "groups", group, "content")
        return Call("GET", path, model_reader(groups.GroupContent), query_of(**query))

    def read_blob(self, group: str) -> Call[Buffer]:
        return Call("GET", path_of(self.run, "groups", group, "content"), read_body, accept=groups.SAFETENSORS)

    def annotate_group(self, group: str, values: groups.Annotate) -> Call[groups.GroupAnnotated]:
        path = path_of(self.run, "groups", group, "annotations")
        return Call("POST", path, model_reader(groups.GroupAnnotated), **json_body(values))

    def group_annotations(self, group: str) -> Call[groups.GroupAnnotations]:
        return Call("GET", path_of(self.run, "groups", group, "annotations"), model_reader(groups.GroupAnnotations))

    def delete_group(self, group: str) -> Call[None]:
        return Call("DELETE", path_of(self.run, "groups", group), read_nothing)

    def delete_groups(self, query: Mapping[str, object]) -> Call[groups.DeletedGroups]:
        return Call("DELETE", path_of(self.run, "groups"), model_reader(groups.DeletedGroups), query_of(**query))

    def take(self, take: batches.TakeBatch, wait_s: float) -> Call[Taken | NothingYet]:
        """Build the request for the next batch; ``take`` has a ``request_id``.

        Raises:
            InvalidField: ``wait_s`` is longer than the service waits, or below 0.
        """
        return self._take(take, wait_s, {})

    def take_shard(
        self, take: batches.TakeBatch, wait_s: float, rank: Rank, after: int | None
    ) -> Call[Taken | NothingYet]:
        """Build the request of a rank for its shard of the batch after step ``after``, or of its oldest.

        Raises:
            InvalidField: ``wait_s`` is longer than the service waits, or below 0.
        """
        query = rank.query() | ({} if after is None else {"after": after})
        return self._take(take, wait_s, {name: str(value) for name, value in query.items()})

    def _take(self, take: batches.TakeBatch, wait_s: float, query: dict[str, str]) -> Call[Taken | NothingYet]:
        return Call(
            "POST",
            path_of(self.run, "batches"),
            _taken,
            checked_wait(wait_s) | query,
            accept=groups.COMPACT_SAFETENSORS,
            wait_s=wait_s,
            **json_body(take),
        )

    def leased(self) -> Call[batches.LeasedBatches]:
        return Call("GET", path_of(self.run, "batches"), model_reader(batches.LeasedBatches))

    def explain(self) -> Call[batches.Explanation]:
        return Call("GET", path_of(self.run, "batches", "explain"), model_reader(batches.Explanation))

    def list_batches(self, query: Mapping[str, object]) -> Call[batches.ListedBatches]:
        return Call(
            "GET", path_of(self.run, "batches", "recent"), model_reader(batches.ListedBatches), query_of(**query)
        )

    def find_batch(self, batch: str) -> Call[batches.BatchDetails]:
        return Call("GET", path_of(self.run, "batches", batch), model_reader(batches.BatchDetails))

    def curricula(self) -> Call[curricula.Curricula]:
        return Call("GET", path_of(self.run, "curricula"), model_reader(curricula.Curricula))

    def lease(self, batch: str, lease: str | None, rank: int | None = None) -> LeaseCalls:
        return LeaseCalls(path_of(self.run, "batches", batch), lease, rank)

    def discard(self, batch: str) -> Call[None]:
        return Call("DELETE", path_of(self.run, "batches", batch), read_nothing)

    def set_policy_version(self, version: int, rewinds: int | None) -> Call[runs.PolicyVersionReply]:
        given = {} if rewinds is None else {"rewinds": rewinds}
        body = checked(runs.PolicyVersion, policy_version=version, **given)
        return Call(
            "PUT", path_of(self.run, "policy-version"), model_reader(runs.PolicyVersionReply), **json_body(body)
        )

    def checkpoint(self, step: int, policy_version: int | None, rewinds: int | None) -> Call[runs.RetentionState]:
        optional = {"policy_version": policy_version, "rewinds": rewinds}
        given = {name: value for name, value in optional.items() if value is not None}
        body = checked(runs.Checkpoint, step=step, **given)
        return Call("POST", path_of(self.run, "checkpoints"), model_reader(runs.RetentionState), **json_body(body))

    def rewind(self, step: int, request_id: str) -> Call[runs.Rewound]:
        return Call(
            "POST",
            path_of(self.run, "rewind"),
            model_reader(runs.Rewound),
            **json_body(checked(runs.Rewind, step=step, request_id=request_id)),
        )


def list_runs(limit: int) -> Call[runs.Runs]:
    """Build the request for the first runs by name."""
    return Call("GET", "/v1/runs", model_reader(runs.Runs), {"limit": str(limit)})


def checked_criteria(given: Mapping[str, object], *, with_values: bool = False) -> dict[str, object]:
    """Return criteria of groups; the service would not mind a wrong name, and find other groups.

    Args:
        given: The criteria by name.
        with_values: Whether None is refused. It stands for any value, so it would find more groups than are meant.

    Raises:
        InvalidField: There is no such criterion, or a value is refused.
    """
    known = GroupCriteria.model_fields
    for name in given:
        if name not in known:
            raise InvalidField(f"is an unknown criterion; known are {', '.join(sorted(known))}", ("query", name))
        if with_values and given[name] is None:
            raise InvalidField("is None: give a value, or leave the criterion out", ("query", name))
    return dict(given)


def _taken(reply: Reply) -> Taken | NothingYet:
    if reply.status == 204:
        return nothing_yet(reply)
    file = BatchFile(reply.body)
    info = batches.BatchInfo.model_validate_json(file.metadata["batch"])
    if len(info.groups) != file.group_count:
        raise DamagedBlob(f"{len(info.groups)} groups are described and {file.group_count} are there")
    return Taken(info, file)
