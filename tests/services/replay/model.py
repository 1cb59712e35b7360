"""What a replay buffer is, said in the plainest way: workers' lines, chunks, samples, and the rules.

It answers each call as the service must, from lists and dicts alone, and looks everything over after each change. What
a sample of a random strategy holds is the service's to choose, and so are the ids of samples.
"""

import math
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from app.core.replay import buffer as rule
from lachesis.wire.replay import ReplaySettings
from tests.core.replay.retention import make_room
from tests.services.replay.values import (
    FRAGMENT_TTL_S,
    REORDER_WINDOW_S,
    Chunk,
    Contents,
    Draft,
    Held,
    Limiter,
    Refused,
    Rules,
    Sent,
    Worker,
)

MAX_WAITING = 3
DEMAND_S = 100
LIVE = ("sampleable", "reserved")
KEPT = (*LIVE, "archived")


class ReplayModel:
    """One buffer. Times are on the run's clock, seconds."""

    def __init__(self, rules: Rules) -> None:
        self.now = 0.0
        self.version = 0
        self.arrivals = 0
        self.it = Contents(rules)
        self.saved: Contents | None = None
        self.ended: dict[str, str] = {}

    # Fragments

    def insert(self, name: str, fragments: Sequence[Sent]) -> list[str]:
        draft = self._opened(name)
        told = [self._arrive(draft, sent) for sent in fragments]
        self._drop_surplus(draft)
        before = self.it.workers.get(name)
        changed = before is None or replace(draft.worker, heard=0) != replace(before, heard=0)
        if changed or draft.dropped or draft.counts:
            try:
                self._commit(name, draft)
            except Refused:
                if before is not None and self.now - before.heard >= FRAGMENT_TTL_S / 4:
                    before.heard = self.now  # it is there, and held back
                raise
        return [draft.dropped.get(sent, word) if sent else word for word, sent in told]

    def _opened(self, name: str) -> Draft:
        """A worker as time and the session have left it."""
        draft = Draft(deepcopy(self.it.workers.get(name, Worker(self.it.session, self.now))))
        worker = draft.worker
        if worker.session < self.it.session:
            draft.dropped |= dict.fromkeys(worker.unchunked.values(), "old_session")
            draft.worker = Worker(self.it.session, worker.heard)
            return draft
        silent = self.now - worker.heard >= FRAGMENT_TTL_S
        while worker.waiting and (
            silent or self.now - min(since for _, since in worker.waiting.values()) >= REORDER_WINDOW_S
        ):
            self._give_up_gap(draft)
        if silent:
            draft.dropped |= dict.fromkeys(worker.line, "expired")
            worker.line = []
        return draft

    def _arrive(self, draft: Draft, sent: Sent) -> tuple[str, Sent | None]:
        """What a fragment is answered, and, if it waits for a chunk, which one it is."""
        worker = draft.worker
        fault = self._fault([sent], self.now, 0)
        if fault in ("old_session", "future_session", "future_version", "too_large"):
            draft.counts[f"refused:{fault}"] += 1
            return fault, None
        here = worker.unchunked.get(sent.number)
        known = here or worker.chunked.get(sent.number)
        if known is not None and not known.is_again(sent):
            raise Refused("fragment_exists")
        worker.heard = self.now
        if known is not None:
            return "repeated", here
        if sent.number < worker.next:
            late = sent.number in worker.missed
            draft.counts += Counter({"refused:late": int(late)})
            return "late" if late else "repeated", None
        worker.waiting[sent.number] = sent, self.now
        draft.counts["accepted_fragments"] += 1
        self._line_up(draft)
        while len(worker.waiting) > MAX_WAITING:
            self._give_up_gap(draft)
        return "stored", sent

    def _give_up_gap(self, draft: Draft) -> None:
        worker = draft.worker
        draft.dropped |= dict.fromkeys(worker.line, "gap")
        draft.counts["gaps"] += 1
        first = min(worker.waiting)
        worker.missed |= set(range(worker.next, first))
        worker.next, worker.line = first, []
        self._line_up(draft)

    def _drop_head(self, draft: Draft) -> None:
        """What is of a version that no chunk may have goes, with what is before it."""
        line = draft.worker.line
        faults = [self._fault([part], self.now, 0) for part in line]
        for n, fault in enumerate(faults):
            if fault in ("stale", "future_version"):
                draft.dropped |= {part: "gap" for part in line[:n] if part not in draft.dropped} | {line[n]: fault}
        draft.worker.line = [part for part in line if part not in draft.dropped]

    def _line_up(self, draft: Draft) -> None:
        worker = draft.worker
        self._drop_head(draft)
        while worker.next in worker.waiting:
            worker.line.append(worker.waiting.pop(worker.next)[0])
            worker.next += 1
            self._drop_head(draft)
            if len(worker.line) == self.it.rules.fragments_per_chunk:
                worker.chunked |= {part.number: part for part in worker.line}
                fault = self._fault(worker.line, self.now, 0)
                if fault:
                    draft.dropped |= dict.fromkeys(worker.line, fault)
                else:
                    draft.chunks.append(worker.line)
                worker.line = []

    def _drop_surplus(self, draft: Draft) -> None:
        """Those of many new chunks go that the last of them have no room beside."""
        rules, kept = self.it.rules, list[list[Sent]]()
        for parts in reversed(draft.chunks):
            size = sum(part.size for chunk in (parts, *kept) for part in chunk)
            if len(kept) == rules.max_chunks or (rules.max_bytes is not None and size > rules.max_bytes):
                break
            kept.insert(0, parts)
        for parts in draft.chunks[: len(draft.chunks) - len(kept)]:
            draft.dropped |= dict.fromkeys(parts, "evicted")
        draft.chunks = kept

    def _commit(self, name: str, draft: Draft) -> None:
        if draft.chunks and not self._may_insert(len(draft.chunks)):
            raise Refused("replay_blocked")
        size = sum(part.size for parts in draft.chunks for part in parts)
        self._make_room(len(draft.chunks), size)
        self.it.workers[name] = draft.worker
        self.it.counts += draft.counts + Counter(f"dropped:{why}" for why in draft.dropped.values())
        self.it.counts["inserts"] += len(draft.chunks)
        for parts in draft.chunks:
            self.arrivals += 1
            priority = max((part.priority for part in parts if part.priority is not None), default=1.0)
            self.it.chunks[self.arrivals] = Chunk(self.arrivals, parts, self.now, priority)

    def _may_insert(self, chunks: int) -> bool:
        limiter = self.it.rules.limiter
        if limiter is None:
            return True
        demand = self.it.demand[0] if self.now < self.it.demand[1] else 0
        too_few = len(self.sampleable()) < max(self.it.rules.min_size_to_sample, demand)
        if too_few or self.error(limiter) - demand < limiter.min_diff:
            return True
        most = (limiter.max_diff - limiter.min_diff - 1) // limiter.samples_per_insert
        return self.error(limiter) + min(chunks, most) * limiter.samples_per_insert <= limiter.max_diff

    # Chunks

    def sampleable(self) -> list[int]:
        return [chunk.id for chunk in self.it.chunks.values() if chunk.place == "sampleable"]

    def error(self, limiter: Limiter) -> float:
        counts = self.it.counts
        return counts["inserts"] * limiter.samples_per_insert - counts["samples"] + self.it.offset

    def _fault(self, parts: list[Sent], inserted: float, uses: int) -> str | None:
        """Why a chunk of these may not be in the buffer, or not any more."""
        rules, session = self.it.rules, parts[0].session
        faults = {
            "old_session": session < self.it.session,
            "future_session": session > self.it.session,
            "future_version": any(part.version > self.version for part in parts),
            "stale": rules.max_staleness is not None
            and any(self.version - part.version > rules.max_staleness for part in parts),
            "expired": rules.max_age_s is not None and self.now - inserted > rules.max_age_s,
            "used_up": rules.max_reuse is not None and uses >= rules.max_reuse,
            "too_large": rules.max_bytes is not None and sum(part.size for part in parts) > rules.max_bytes,
        }
        return next((name for name, is_so in faults.items() if is_so), None)

    def _retire(self, chunk: Chunk, reason: str) -> None:
        """Past ones have been retired by the session that began."""
        if chunk.place != "archived":
            self._count_retired(chunk, reason)
        chunk.place = reason
        self._forget(chunk)

    def _count_retired(self, chunk: Chunk, reason: str) -> None:
        self.it.counts[f"retired:{reason}"] += 1
        self.it.counts["retired_chunks"] += 1
        self.it.counts["retired_uses"] += chunk.uses

    def _forget(self, chunk: Chunk) -> None:
        if not chunk.held and chunk.place not in KEPT:
            del self.it.chunks[chunk.id]

    def _look_over(self) -> None:
        """Retire the chunks that have a drop reason by now, and those that have no room."""
        for chunk in list(self.it.chunks.values()):
            fault = self._fault(chunk.parts, chunk.inserted, chunk.uses) if chunk.place in LIVE else None
            if fault == "old_session":
                self._count_retired(chunk, fault)
                chunk.place = "archived"
            elif fault:
                self._retire(chunk, fault)
            else:
                self._place(chunk)
        self._make_room(0, 0)

    def _is_spent(self, chunk: Chunk) -> bool:
        most = self.it.rules.max_reuse
        return most is not None and chunk.uses + chunk.held >= most

    def _place(self, chunk: Chunk) -> None:
        """A chunk is reserved while samples hold all its uses that are left."""
        if chunk.place in LIVE:
            chunk.place = "reserved" if self._is_spent(chunk) else "sampleable"

    def _make_room(self, chunks: int, size: int) -> None:
        """The rule says who goes; it has an oracle of its own."""
        rules = self.it.rules
        kept = {chunk.id: chunk for chunk in self.it.chunks.values() if chunk.place in KEPT}
        held = rule.Occupancy(len(kept) + chunks - 1, sum(chunk.size for chunk in kept.values()))
        limits = ReplaySettings.model_validate(
            {"max_chunks": rules.max_chunks, "max_bytes": rules.max_bytes, "eviction": rules.eviction}
        )
        newcomer = replace(as_the_rule_sees(Chunk(0, [], 0.0, 0.0)), payload_bytes=size)
        archived = {chunk.id for chunk in kept.values() if chunk.place == "archived"}
        room = make_room(newcomer, held, map(as_the_rule_sees, kept.values()), limits, archived)
        assert room.enough
        for gone in room.evicted:
            self._retire(kept[gone.chunk_id], "old_session" if gone.chunk_id in archived else "evicted")

    # Samples

    def sample(self, wanted: int, strategy: str, request: str | None, lease_s: float) -> tuple[str | None, list[int]]:
        """The sample that this request has, if any; and in which chunks, in order if it is one, another one may find.

        There are none if it must wait.
        """
        for sample, held in self.it.samples.items():
            if request and held.request == request:
                held.until = self.now + lease_s
                return sample, held.chunks
        rules, limiter, there = self.it.rules, self.it.rules.limiter, self.sampleable()
        if wanted > rules.max_chunks:
            raise Refused("invalid_field")
        if limiter and wanted > limiter.max_diff - limiter.min_diff - limiter.samples_per_insert:
            raise Refused("invalid_field")
        blocked = limiter is not None and self.error(limiter) - wanted < limiter.min_diff
        open_ = [id_ for id_ in there if not self._is_spent(self.it.chunks[id_])]
        if len(there) < rules.min_size_to_sample or len(open_) < wanted or blocked:
            if limiter:
                self._demand(wanted)
            return None, []
        chunks = sorted(open_, reverse=strategy == "lifo")
        return None, chunks[:wanted] if strategy in ("fifo", "lifo") else chunks

    def _demand(self, wanted: int) -> None:
        """Samples that must wait free inserts for a while; the largest one counts."""
        chunks, until = self.it.demand
        if until <= self.now or chunks < wanted or (chunks == wanted and until - self.now <= DEMAND_S / 2):
            self.it.demand = wanted, self.now + DEMAND_S

    def hand_out(self, sample: str, held: Held) -> None:
        if len(held.chunks) >= self.it.demand[0]:
            self.it.demand = 0, 0.0
        self.it.samples[sample] = held
        self.it.counts["samples"] += len(held.chunks)
        self.it.counts["sampled_chunks"] += len(held.chunks)
        for id_ in held.chunks:
            self.it.chunks[id_].held += 1
            self._place(self.it.chunks[id_])

    def held(self, sample: str, lease: str) -> Held:
        found = self.it.samples.get(sample)
        if found is None or found.lease != lease:
            raise Refused("lease_lost")
        return found

    def end(self, sample: str, lease: str, outcome: str) -> None:
        if self.ended.get(sample) == outcome:
            return
        self.held(sample, lease)
        self._end(sample, outcome)

    def _end(self, sample: str, outcome: str) -> None:
        self.ended[sample] = outcome
        self._release(self.it.samples.pop(sample), outcome)

    def _release(self, held: Held, outcome: str) -> None:
        used = outcome == "acknowledged"
        self.it.counts[f"{outcome}_samples"] += 1
        self.it.counts["samples"] -= 0 if used else len(held.chunks)
        for id_ in held.chunks:
            chunk = self.it.chunks[id_]
            chunk.held -= 1
            chunk.uses += used
            most = self.it.rules.max_reuse
            if chunk.place not in LIVE:
                self.it.counts["retired_uses"] += used
                self._forget(chunk)
            elif most is not None and chunk.uses >= most:
                self._retire(chunk, "used_up")
            else:
                self._place(chunk)

    # Owners, and time

    def prioritise(self, priorities: dict[int, float]) -> None:
        for id_, priority in priorities.items():
            if id_ in self.it.chunks:
                self.it.chunks[id_].priority = priority

    def set_version(self, version: int) -> None:
        self.version = version
        self._look_over()

    def set_session(self, session: int) -> None:
        if session < self.it.session:
            raise Refused("invalid_field")
        self._put(self.it.rules, session)
        self._look_over()
        self._maintain_workers(math.inf)

    def change(self, **changes: Any) -> None:
        rules = replace(self.it.rules, **changes)
        if rules.limiter and rules.max_reuse is not None and rules.limiter.samples_per_insert > rules.max_reuse:
            raise Refused("invalid_field")
        self._put(rules, self.it.session)
        self._look_over()

    def _put(self, rules: Rules, session: int) -> None:
        """The error stays what it was; that of another limiter is moved into the band, with no chunk sampled yet."""
        if (rules, session) == (self.it.rules, self.it.session):
            return
        old, new = self.it.rules.limiter, rules.limiter
        before = self.error(old) if old else len(self.sampleable()) * (new.samples_per_insert if new else 0)
        self.it.rules, self.it.session = rules, session
        if new == old:
            return
        self.it.offset = 0.0
        if new:
            self.it.offset = min(max(before, new.min_diff), new.max_diff) - self.error(new)

    def delete(self, **of: Any) -> None:
        for chunk in list(self.it.chunks.values()):
            about = {"worker": chunk.parts[0].worker, "session": chunk.parts[0].session, "version": chunk.version}
            if chunk.place in KEPT and all(about[name] == value for name, value in of.items()):
                self._retire(chunk, "deleted")

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for sample in [sample for sample, held in self.it.samples.items() if held.until <= self.now]:
            self._end(sample, "expired")
        self._maintain_workers(self.now)
        self._look_over()

    def _maintain_workers(self, until: float) -> None:
        due = sorted((worker.due, name) for name, worker in self.it.workers.items() if worker.due <= until)
        for _, name in due:
            draft = self._opened(name)
            self._drop_surplus(draft)
            try:
                self._commit(name, draft)
            except Refused:
                continue  # the limiter holds it up

    def snapshot(self) -> None:
        self.saved = deepcopy(self.it)

    def restore(self) -> None:
        """What was held then counts as given back, and what is held now has ended."""
        if self.saved is None:
            raise Refused("snapshot_not_found")
        self.ended |= dict.fromkeys(self.it.samples, "overtaken")
        self.it = deepcopy(self.saved)
        for held in self.it.samples.values():
            self._release(held, "given_back")
        self.it.samples = {}
        self._look_over()


def as_the_rule_sees(chunk: Chunk) -> rule.ChunkRecord:
    """Return a chunk as the rules of retention know it."""
    return rule.ChunkRecord(
        chunk_id=chunk.id,
        worker="",
        session=0,
        first=0,
        fragments=len(chunk.parts),
        versions=rule.Versions(0, 0.0, 0),
        payload_bytes=chunk.size,
        inserted_ms=0,
        priority=chunk.priority,
        uses=chunk.uses,
        reserved=chunk.held,
    )
