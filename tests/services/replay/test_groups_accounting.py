"""A payload with two holders, the run and its replay buffer, under any calls to either, over real Redis."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from redis.asyncio import Redis

from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest, OutgoingBatch
from app.services.replay.request import ReplaySample, ReplaySampleRequest
from app.store.batches.store import BatchStore
from lachesis.wire.errors import BatchInUse, BatchNotFound, InvalidField, LeaseLost, RewindImpossible, SampleNotFound
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded
from tests.services.replay.moves import KEYS, Buffer, buffer_of, fragment, swept

MAX_REUSE = 2
BATCH_SIZE = 6
POLICY = Policy(keep_batches=4, keep_bytes=1024**2, max_deliveries=1, max_staleness=4)


@dataclass
class Crowd:
    """Environments, workers, trainers and an operator who do this and that at random, through several API processes."""

    buffers: list[Buffer]
    dice: random.Random
    version: int = 0
    submitted: int = 0
    sent: int = 0
    trained: set[str] = field(default_factory=set)
    used: set[tuple[str, str]] = field(default_factory=set)  # by a batch or sample, a group
    replayed: int = 0

    @property
    def somewhere(self) -> Buffer:
        return self.dice.choice(self.buffers)

    async def submit(self, rounds: int) -> None:
        """Groups of versions old and new, some of none; and now and then fragments, which have one holder."""
        for _ in range(rounds):
            services = self.somewhere.process[0]
            self.submitted += 1
            version = self.dice.choice((None, max(0, self.version - self.dice.choice((0, 0, 1, 3)))))
            group = encoded(2, self.submitted)._replace(given_id=f"g{self.submitted}", policy_version=version)
            await services.groups.native.submit(RUN, [group])
            if self.dice.random() < 0.2:
                await services.replay.insertion.insert(RUN, [fragment(self.sent, version=0)])
                self.sent += 1

    async def train(self, rounds: int) -> None:
        """Take batches and samples, end them in all ways, and be seen to be able to read what is held."""
        for _ in range(rounds):
            services = self.somewhere.process[0]
            answer = await services.batches.dispatch.take(RUN, BatchRequest(lease_s=self.dice.choice((0.001, 60, 60))))
            if answer.batch is not None:
                await self._end(answer.batch)
            sample = await services.replay.samples.take(RUN, ReplaySampleRequest(num_chunks=self.dice.randint(1, 3)))
            if isinstance(sample, ReplaySample):
                await self._use(sample)
            await asyncio.sleep(0)

    async def _end(self, batch: OutgoingBatch) -> None:
        services = self.somewhere.process[0]
        lease = batch.lease
        for group, payload in zip(batch.groups, batch.payloads, strict=True):
            assert f"g{payload.split(b'|')[0].decode()}" == group.given_id
        assert sum(group.size for group in batch.groups) == BATCH_SIZE
        assert len({group.group_id for group in batch.groups}) == len(batch.groups), "a group twice in a batch"
        try:
            match self.dice.choice(("ack", "ack", "ack", "dies", "nack", "never")):
                case "ack":
                    await services.batches.leases.acknowledge(RUN, lease.batch_id, lease.lease_id)
                    self._note_trained(batch)
                case "dies":  # between the acknowledgement and what follows it
                    store = BatchStore(services.connection)
                    if (await store.acknowledge(RUN, [lease], keep=True, remembered_ms=Policy().remembered_ms)).batches:
                        self._note_trained(batch)
                case "nack":
                    await services.batches.leases.give_back(RUN, lease.batch_id, lease.lease_id, None)
        except (LeaseLost, BatchNotFound):
            pass  # it ran out, or was rewound

    def _note_trained(self, batch: OutgoingBatch) -> None:
        """A batch that is rewound uses what it has from the buffer once."""
        replayed = {(batch.lease.batch_id, group.group_id) for group in batch.groups if group.replayed}
        self.replayed += len(replayed)
        self.used |= replayed
        self.trained |= {group.group_id for group in batch.groups}

    async def _use(self, sample: ReplaySample) -> None:
        ids = [record.fragment.fragment_id for record in sample.records]
        read = await self.somewhere.process[0].replay.buffers.fragments(RUN, ids)
        assert len(read) == len(ids), "what is held can be read"
        try:
            if self.dice.random() < 0.7:
                await self.somewhere.ack(sample)
                self.used |= {(sample.lease.batch_id, fragment_id) for fragment_id in ids}
            else:
                await self.somewhere.nack(sample)
        except SampleNotFound:
            pass

    async def operate(self, rounds: int) -> None:
        """Rewinds and snapshots, quarantined batches dropped or given back, other settings, time that passes."""
        for _ in range(rounds):
            buffer = self.somewhere
            services = buffer.process[0]
            view = await services.runs.atropos.view(RUN)
            match self.dice.randint(0, 11):
                case 0 | 1:
                    await self._rewind(buffer, max(0, view.step - self.dice.randint(0, 4)))
                case 2:
                    await services.batches.retention.checkpoint(RUN, max(0, view.step - self.dice.randint(0, 3)))
                case 3 | 4:
                    await self._see_to_quarantined(buffer)
                case 5:
                    await services.runs.administration.change(RUN, {"keep_batches": self.dice.choice((0, 2, 4))})
                case 10 | 11:
                    with suppress(InvalidField):  # while the buffer takes no groups
                        await services.runs.administration.change(
                            RUN, {"fresh_fraction": self.dice.choice((0.2, 0.5, 1.0))}
                        )
                case 6:
                    self.version += 1
                    await buffer.set_version(self.version)
                case 7:
                    with suppress(InvalidField):  # while batches are filled up from it
                        await buffer.configure(max_chunks=self.dice.choice((4, 8, 16)), groups=self.dice.random() < 0.8)
                case 8:
                    await services.replay.buffers.delete_chunks(RUN, version=self.dice.randint(0, self.version))
                case _:
                    await buffer.pass_time(self.dice.choice((100, 3000)))
            await asyncio.sleep(0.002)

    async def _rewind(self, buffer: Buffer, step: int) -> None:
        """Rewind to a step. Leased batches up to that step count as trained on."""
        services = buffer.process[0]
        store = BatchStore(services.connection)
        for lease in (await services.runs.atropos.view(RUN)).leases:
            if lease.step <= step:
                self.trained |= {group.group_id for group in await store.groups_of(RUN, lease.batch_id) or ()}
        with suppress(RewindImpossible):
            await services.batches.retention.rewind(RUN, step)

    async def go_home(self) -> None:
        """Give up whatever is in anybody's hands, and empty the buffer."""
        buffer = self.buffers[0]
        services = buffer.process[0]
        await buffer.pass_time(3_700_000)
        await services.batches.retention.rewind(RUN, (await services.runs.atropos.view(RUN)).step)
        while (view := await services.runs.atropos.view(RUN)).leases:
            await self._see_to_quarantined(buffer)
            if any(lease.state == "returned" for lease in view.leases):
                batch = (await services.batches.dispatch.take(RUN, BatchRequest())).batch
                assert batch is not None
                await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
        await services.replay.buffers.delete_chunks(RUN)
        await buffer.pass_time(0)

    async def _see_to_quarantined(self, buffer: Buffer) -> None:
        services = buffer.process[0]
        for lease in (await services.runs.atropos.view(RUN)).leases:
            try:
                if self.dice.random() < 0.5:
                    await services.batches.leases.discard(RUN, lease.batch_id)
                else:
                    await services.batches.leases.give_back(RUN, lease.batch_id, None, None)
            except (BatchInUse, BatchNotFound, LeaseLost):
                pass


@pytest.mark.parametrize("seed", range(3))
async def test_no_payload_leaks_or_is_freed_early_or_used_too_often(
    process: Callable[..., Process], redis_client: Redis, seed: int
) -> None:
    first = process()
    await first[0].runs.administration.create(RUN, config(BATCH_SIZE), POLICY)
    settings = {"groups": True, "max_chunks": 12, "max_staleness": 2, "max_reuse": MAX_REUSE}
    buffers = [await buffer_of(one, redis_client, **settings) for one in (first, process(), process())]
    crowd = Crowd(buffers, random.Random(seed))
    for turn in range(40):  # mostly three; which calls meet depends on the machine
        await asyncio.gather(crowd.submit(30), crowd.submit(30), crowd.train(12), crowd.train(12), crowd.operate(12))
        await books_of(redis_client, RUN)
        await buffers[0].books()
        books = await swept(buffers[0])
        gone = books.total("retired:used_up") + books.total("retired:evicted")
        if turn >= 2 and books.total("entered_groups") > 20 and len(crowd.used) > 5 and crowd.replayed and gone:
            break
    else:
        pytest.fail("hardly anything has happened")
    assert books.total("entered_groups") <= len(crowd.trained), "a group entered twice"
    assert max(Counter(group for _, group in crowd.used).values()) <= MAX_REUSE

    await crowd.go_home()
    books = await swept(buffers[0])
    assert (books.chunks, books.fragments, books.samples) == ({}, {}, {})
    await buffers[0].process[0].runs.administration.delete(RUN)
    assert [key async for key in redis_client.scan_iter(KEYS.payload("*"))] == []
