"""Replies to a request for a batch, as the service writes them."""

from collections.abc import Sequence

from lachesis._transport.protocol import Call, NothingYet, Reply, read_reply
from lachesis._transport.run_calls import RunCalls, Taken
from lachesis.batches.columns import Columns
from lachesis.wire.batch_file import parts_of
from lachesis.wire.batches import BatchGroup, BatchInfo, TakeBatch
from lachesis.wire.blob import Buffer, read_header

TAKE: Call[Taken | NothingYet] = RunCalls("math").take(TakeBatch(request_id="1"), 0)


def info_of(blobs: Sequence[Buffer]) -> BatchInfo:
    """What the service would say of a batch of these groups."""
    groups = []
    for position, blob in enumerate(blobs):
        header = read_header(blob)
        version = header.metadata.get("policy_version")
        groups.append(
            BatchGroup(
                id=header.metadata.get("id", str(position)),
                environment=position,
                size=header.tensors["scores"].shape[0],
                policy_version=None if version is None else int(version),
                staleness=None if version is None else 9 - int(version),
                received_age_s=1.5,
            )
        )
    return BatchInfo(
        batch="b1",
        run="math",
        step=4,
        lease="l1",
        lease_s=600,
        delivery_count=1,
        relaxed=False,
        batch_size=sum(group.size for group in groups),
        policy_version=9,
        groups=groups,
    )


def body_of(blobs: Sequence[Buffer]) -> bytearray:
    """The body of the reply with these groups."""
    info = info_of(blobs)
    sizes = [group.size for group in info.groups]
    return bytearray().join(parts_of(blobs, sizes, {"batch": info.model_dump_json()}))


def columns_of(blobs: Sequence[Buffer], body: bytearray | None = None) -> Columns:
    """The same as a client reads it."""
    taken = read_reply(TAKE, Reply(201, {}, body_of(blobs) if body is None else body))
    assert isinstance(taken, Taken)
    return Columns(taken.info, taken.file)
