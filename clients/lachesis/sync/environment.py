"""An environment for code without an event loop: its own runs in a thread beside it."""

import contextlib
from collections import Counter
from types import TracebackType

from typing_extensions import Self, Unpack

from lachesis._public import ForThreads, ShownAsync
from lachesis._transport.bridge import Portal
from lachesis._transport.settings import Settings
from lachesis.environments.environment import Environment, EnvironmentOptions
from lachesis.environments.permits import Permit
from lachesis.errors import LachesisError
from lachesis.groups.group import Group
from lachesis.sync.curriculum import SyncCurriculum, shared
from lachesis.wire.environments import Credits
from lachesis.wire.groups import GroupOutcome


class SyncPermit(contextlib.AbstractContextManager[Credits], ForThreads):
    """Waits for a permit when entered, and holds it until the block ends; made by `SyncEnvironment.permit`."""

    _twin = "Environment.permit"

    def __init__(self, permit: Permit, portal: Portal) -> None:
        self._async = permit
        self._portal = portal

    def __enter__(self) -> Credits:
        return self._portal.run(self._async.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.run(self._async.__aexit__(kind, error, trace))


class SyncEnvironment(ShownAsync, ForThreads):
    """A producer of groups; see `lachesis.Environment`, whose methods wait here. It may be used by several threads."""

    _twin = "Environment"
    _async: Environment

    def __init__(
        self, name: str, settings: Settings | str | None = None, **options: Unpack[EnvironmentOptions]
    ) -> None:
        """Set up, without a word to the service: ``SyncEnvironment("gsm8k", "http://lachesis:8000", run="math")``.

        Args:
            name: Its name, unique in the run. All processes that join under it are one environment.
            settings: The service's URL, or all `Settings`; None: as the environment variables say.
            options: ``group_size``, ``min_share`` and the others that `Environment` takes by name.

        Raises:
            InvalidField: What the run is told is wrong: the name, group size, weight or shares.
            ValueError, TypeError: Another argument or a variable is wrong; the message names it.
        """
        self._async = Environment(name, settings, **options)
        self._async._shown_as = "SyncEnvironment"
        self._portal = Portal()

    @property
    def id(self) -> int:
        """Its id in the run. `RuntimeError`: it has not joined."""
        return self._async.id

    @property
    def member(self) -> str:
        """Id of this process among the members of the environment."""
        return self._async.member

    @property
    def settings(self) -> Settings:
        """Where the service is and which run is meant."""
        return self._async.settings

    @property
    def running_groups(self) -> int:
        """Groups that were started and have not arrived: permits that are held, and groups that wait to be sent."""
        return self._async.running_groups

    @property
    def trouble(self) -> LachesisError | None:
        """Why groups wait to be sent, if the last attempt failed."""
        return self._async.trouble

    @property
    def outcomes(self) -> Counter[GroupOutcome]:
        """What became of groups that were sent: how many were accepted, stale, refused, or found by which filter."""
        return self._async.outcomes

    def submit(self, group: Group) -> str:
        """Put a group into the buffer, to be sent with others, and return its id; waits for room there.

        Raises:
            InvalidField: A value of ``group`` is wrong; ``errors`` says where.
            NotSent: Groups submitted before were refused. This one was not taken yet: submit it again.
            EnvironmentNotFound, RunNotFound: The environment was removed meanwhile.
        """
        return self._portal.run(self._async.submit(group))

    def flush(self) -> None:
        """Wait until all groups have arrived. `NotSent`: groups were refused."""
        self._portal.run(self._async.flush())

    def curriculum(self, name: str | None = None) -> SyncCurriculum:
        """Return the run's curriculum of this name, over these connections; leaving sends what it observed.

        Args:
            name: It need not be there yet; None: the environment's name.
        """
        return shared(self._async.curriculum(name), self._portal)

    def credits(self) -> Credits:
        """Ask how many more groups all members may start now; to start one, use `permit`."""
        return self._portal.run(self._async.credits())

    def permit(self, wait_s: float | None = None) -> SyncPermit:
        """Wait until another group is wanted, and count it as running until the block ends. Submit it in the block.

        A long wait is logged, with its reason. The block gets what the service said: ``policy_version`` is the one to
        sample with.

        Args:
            wait_s: How long to wait, ``> 0``; None: for ever.

        Raises:
            NoPermit: No group was wanted in time; the message says why.
        """
        return SyncPermit(self._async.permit(wait_s), self._portal)

    def __enter__(self) -> Self:
        try:
            self._portal.run(self._async.__aenter__())
        except BaseException:
            self._portal.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._portal.run(self._async.__aexit__(kind, error, trace))
        finally:
            self._portal.close()
