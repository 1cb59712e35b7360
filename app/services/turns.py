"""Let API processes take turns in serving a run, so that they do not plan the same batch again and again.

Correctness does not depend on turns: a commit fails if the run has changed. A process asks for the turn only while it
meets others there. It has the turn until others want it and it has served all who waited when the turn began. Then the
next process has it, in the order in which they asked. So every trainer gets a batch in each round of the processes.

What each event does to the turn of a process:

event       | not asked           | asked                  | held                 | held, others want it
------------|---------------------|------------------------|----------------------|-------------------------------
enter       | asks: held or asked | refused; may ask again | uses it              | uses it once, then is refused
keep        | asks: held or asked | refused; may ask again | goes on              | goes on
leave, last |                     |                        |                      | passes on: not asked, or asked
granted     |                     | held                   |                      |
wanted      |                     |                        | others want it       |
end         |                     | not asked              | passes on: not asked | passes on: not asked
expired     |                     |                        | not asked            | not asked

The table is about a process with requests. Without any, it passes the turn on as soon as it is granted or wanted.
A turn that was used and is wanted ends when the next request enters: the process passes it on, and asks again.

A process asks again while it passes the turn on if requests still wait in it. A process that holds the turn renews it
at half time. If no task in it listens for news, the last one to leave passes the turn on in any case.

New requests enter and leave (`app.services.long_poll`). Those that wait enter, keep and leave through `QueueTurn`. The
task that serves them hears the news. `app.services.batches.dispatch` notes when another process took a batch, and looks
whether another one has the turn.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from app.store.runs.turns import GRANTED, GRANTED_AND_WANTED, NEWS, TURN_MS, WANTED, TurnStore

_TURN_S = TURN_MS / 1000
_CROWDED_S = 5.0  # how long a process expects others after it met one
_LOOK_EACH_S = 0.25  # trainers that are slower hardly ever meet
_LOOK_IN_TURN_S = 0.02  # a process that serves one after the other does not hear that it is wanted
_ASK_AGAIN_S = 0.5  # the message that gives the turn to this process may be lost
_FORGOTTEN_S = 60.0
_GRANTS = frozenset({GRANTED, GRANTED_AND_WANTED})
_WANTS = frozenset({WANTED, GRANTED_AND_WANTED})


@dataclass(slots=True)
class _Turn:
    """What this process knows about the turn in a run. Times are those of the event loop, seconds.

    Attributes:
        crowded_until: When this process stops expecting others.
        held_until: When the turn ends unless it is renewed; in the past: this process does not have it.
        users: Requests and queues of this process that use the turn now.
        was_used: Whether any did since the process got it.
        is_wanted: Whether other processes wait for it.
        is_asked: Whether this process waits for it.
        asked_at: When it asked last.
        unanswered: How many questions have no answer yet.
        grants: How many grants came.
        planned_at: When it planned last.
        looked_at: When it looked last whether another process has the turn.
    """

    crowded_until: float = 0.0
    held_until: float = 0.0
    users: int = 0
    was_used: bool = False
    is_wanted: bool = False
    is_asked: bool = False
    asked_at: float = 0.0
    unanswered: int = 0
    grants: int = 0
    planned_at: float = 0.0
    looked_at: float = 0.0

    @property
    def is_held(self) -> bool:
        return _now() < self.held_until

    @property
    def is_in_use(self) -> bool:
        """Whether requests use it, or may enter. Trainers of Atropos meet other processes without a `Turns.look`."""
        return bool(self.users or self.unanswered) or _now() < max(self.crowded_until, self.planned_at + _FORGOTTEN_S)

    @property
    def is_coming(self) -> bool:
        return self.is_asked and _now() < self.asked_at + _ASK_AGAIN_S


class Turns:
    """The turns of this process.

    Args:
        store: Hands the turn from process to process.
        worker: The name of this process.
    """

    def __init__(self, store: "TurnStore | _NoOthers", worker: str) -> None:
        self._store = store
        self._worker = worker
        self._turns: dict[str, _Turn] = {}

    @classmethod
    def alone(cls) -> "Turns":
        """Return the turns of a process that serves its requests at any time, whatever others do."""
        return cls(_NoOthers(), "")

    def note_others(self, run: str) -> None:
        """Note that another process serves the same run now."""
        self._turn(run).crowded_until = _now() + _CROWDED_S

    async def look(self, run: str) -> None:
        """Look now and then whether another process has the turn, while this one is busy with the run.

        A process that always wins never learns that others want the turn. So it must ask.
        """
        turn, now = self._turn(run), _now()
        is_busy = now < turn.planned_at + _LOOK_EACH_S
        turn.planned_at = now
        if is_busy and not turn.is_held and now >= turn.looked_at + _LOOK_EACH_S:
            turn.looked_at = now
            if await self._has_another(run, turn):
                self.note_others(run)

    def is_crowded(self, run: str) -> bool:
        """Return whether other processes serve the same run."""
        turn = self._turns.get(run)
        return turn is not None and _now() < turn.crowded_until

    def is_held(self, run: str) -> bool:
        """Return whether this process has the turn."""
        turn = self._turns.get(run)
        return turn is not None and turn.is_held

    def is_coming(self, run: str) -> bool:
        """Return whether this process has asked for the turn, and word of it should come soon."""
        turn = self._turns.get(run)
        return turn is not None and turn.is_coming

    def is_ending(self, run: str) -> bool:
        """Return whether others wait for the turn of this process. Requests that come now wait for the next turn."""
        turn = self._turns.get(run)
        return turn is not None and turn.is_wanted

    async def enter(self, run: str) -> bool:
        """Begin to use the turn; end it with `leave`. False: this process does not have it, and waits for it."""
        turn = self._turn(run)
        is_over = turn.is_held and turn.is_wanted and turn.was_used
        if is_over and (turn.users > 0 or await self._pass_on(run, turn, again=True)):
            return False
        if not await self._renew(run, turn):
            return False
        turn.was_used = True
        turn.users += 1
        return True

    async def keep(self, run: str) -> bool:
        """Keep using the turn; False if this process has lost it. Then it is left."""
        turn = self._turns[run]
        has_turn = await self._renew(run, turn)
        if not has_turn:
            turn.users -= 1
        return has_turn

    async def leave(self, run: str, *, listens: bool, again: bool) -> None:
        """Stop using the turn. The last user passes it on if others wait, or if this process cannot hear it.

        Args:
            run: The run's name.
            listens: Whether this process listens for changes of the run, and so hears that others wait.
            again: Whether requests of this process wait for its next turn.
        """
        turn = self._turns[run]
        turn.users -= 1
        if turn.users == 0 and turn.is_held and (turn.is_wanted or not listens):
            await self._pass_on(run, turn, again=again)

    async def end(self, run: str) -> None:
        """Stop listening for changes of a run, and waiting for its turn."""
        turn = self._turns.get(run)
        if turn is not None and turn.users == 0 and (turn.is_held or turn.is_asked):
            await self._pass_on(run, turn, again=False)

    async def handle_news(self, run: str, news: Collection[bytes], *, needed: bool) -> None:
        """Note who wants or gives the turn; ``needed`` says whether any request waits in this process."""
        if not NEWS.isdisjoint(news):
            self.note_others(run)
        turn = self._turns.get(run)
        if turn is None:
            return
        was_asked, is_granted = turn.is_asked or turn.unanswered > 0, not _GRANTS.isdisjoint(news)
        if is_granted and was_asked:
            self._grant(turn)
        elif not news:  # a grant may be lost, or came before this process listened
            turn.asked_at = 0.0
        turn.is_wanted |= turn.is_held and not _WANTS.isdisjoint(news)
        if not needed and not was_asked and turn.users == 0 and (turn.is_wanted or is_granted):
            await self._pass_on(run, turn, again=False)

    def _turn(self, run: str) -> _Turn:
        turn = self._turns.get(run)
        if turn is None:
            self._turns = {name: turn for name, turn in self._turns.items() if turn.is_in_use}
            turn = self._turns[run] = _Turn(looked_at=_now())
        return turn

    @staticmethod
    def _grant(turn: _Turn) -> None:
        """Begin a turn that another process has passed on. If it came late, a look or a lost batch ends it soon."""
        now = _now()
        turn.held_until, turn.looked_at = now + _TURN_S, now
        turn.is_asked, turn.was_used, turn.is_wanted = False, False, False
        turn.grants += 1

    async def _renew(self, run: str, turn: _Turn) -> bool:
        """Ask for the turn, if it has ended or ends soon. Return whether this process has it."""
        if await self._has_time(run, turn):
            return True
        return not turn.is_coming and await self._ask(run, turn)

    async def _has_time(self, run: str, turn: _Turn) -> bool:
        """Return whether this process has the turn for some time to come. It looks now and then whether that holds."""
        now = _now()
        if turn.held_until - now <= _TURN_S / 2:
            return False
        if turn.is_wanted or now < turn.looked_at + _LOOK_IN_TURN_S:
            return True
        turn.looked_at = now
        if not await self._has_another(run, turn):
            return True
        turn.held_until = 0.0
        return False

    async def _ask(self, run: str, turn: _Turn) -> bool:
        now, had_turn, grants = _now(), turn.is_held, turn.grants
        turn.asked_at = now
        turn.unanswered += 1
        try:
            has_turn, is_wanted = await self._store.ask(run, self._worker)
        finally:
            turn.unanswered -= 1
        if not has_turn and turn.grants != grants:
            return turn.is_held  # the grant came after this answer was given, and overtook it
        turn.held_until, turn.is_asked, turn.is_wanted = (now + _TURN_S if has_turn else 0.0), not has_turn, is_wanted
        turn.was_used = turn.was_used and had_turn
        if turn.is_asked or turn.is_wanted:
            self.note_others(run)
        return has_turn

    async def _has_another(self, run: str, turn: _Turn) -> bool:
        """Return whether another process has the turn. Note whether others wait for it."""
        holder, turn.is_wanted = await self._store.look(run)
        return holder not in (None, self._worker)

    async def _pass_on(self, run: str, turn: _Turn, *, again: bool) -> bool:
        turn.held_until, turn.is_wanted, turn.is_asked, turn.asked_at = 0.0, False, again, _now()
        is_passed = await self._store.pass_on(run, self._worker, again=again)
        if again and not is_passed:  # no other waits; or another has it already
            turn.is_asked, turn.asked_at = False, 0.0
            return not await self._renew(run, turn)
        return is_passed


class QueueTurn:
    """The turn of this process, as far as the requests that wait in a run use it.

    Args:
        turns: The turns of this process.
        run: The run's name.
        waiters: The requests that wait now, the first one first. Others change this collection.

    Attributes:
        is_used: Whether the requests use the turn.
    """

    def __init__(self, turns: Turns, run: str, waiters: Collection[object]) -> None:
        self._turns = turns
        self._run = run
        self._waiters = waiters
        self._admitted: frozenset[object] = frozenset()  # who waited when the turn began: others wait for the next one
        self.is_used = False

    @property
    def may_have_come(self) -> bool:
        """Return whether this process may have the turn now, although it got no news of that."""
        return self._turns.is_crowded(self._run) and not self._turns.is_coming(self._run)

    async def may_serve(self) -> bool:
        """Begin the turn, or go on with it. Return whether this process may try the first request now.

        If other processes want the turn, it ends after those who waited when it began. So no request is served twice in
        a turn while other processes wait.
        """
        if not self.is_used and not self._turns.is_crowded(self._run):
            return True
        if self.is_used and self._turns.is_ending(self._run) and next(iter(self._waiters)) not in self._admitted:
            await self.leave()
        if self.is_used:
            self.is_used = await self._turns.keep(self._run)
        else:
            self.is_used = await self._turns.enter(self._run)
            self._admitted = frozenset(self._waiters)
        return self.is_used

    async def leave(self) -> None:
        """Stop using the turn."""
        if self.is_used:
            self.is_used = False
            await self._turns.leave(self._run, listens=True, again=bool(self._waiters))

    async def handle_news(self, news: Collection[bytes]) -> None:
        """Note who wants or gives the turn."""
        await self._turns.handle_news(self._run, news, needed=bool(self._waiters))

    async def end(self) -> None:
        """Stop listening for changes of the run, and waiting for the turn."""
        await self.leave()
        await self._turns.end(self._run)


class _NoOthers:
    """Replaces `TurnStore` where processes take no turns. The turn is always free."""

    async def ask(self, *_: object) -> tuple[bool, bool]:
        return True, False

    async def look(self, *_: object) -> tuple[str | None, bool]:
        return None, False

    async def pass_on(self, *_: object, **__: object) -> bool:
        return False


def _now() -> float:
    return asyncio.get_running_loop().time()
