"""The methods of a trainer about the groups of its run, for asyncio."""

from collections.abc import Iterable, Mapping

from typing_extensions import Unpack

from lachesis._transport.bodies import checked
from lachesis._transport.http import Sender
from lachesis._transport.run_calls import RunCalls, checked_criteria
from lachesis.errors import InvalidField
from lachesis.wire.groups import GROUPS_SHOWN, Annotate, GroupContent, GroupHistory, ListedGroups
from lachesis.wire.options import CriteriaOptions


class RunGroups:
    """The part of `AsyncTrainer` about groups: find, list, read, annotate and delete those of its run."""

    _calls: RunCalls
    _sender: Sender

    async def find_group(self, group: str) -> GroupHistory:
        """Return where the ``group`` with this id is, and what happened to it.

        Raises:
            GroupNotFound: The run does not know it.
        """
        return await self._sender.send(self._calls.find_group(group))

    async def list_groups(
        self, *, limit: int = GROUPS_SHOWN, cursor: str | None = None, **criteria: Unpack[CriteriaOptions]
    ) -> ListedGroups:
        """Return a page of the groups that match every given criterion, newest first.

        Args:
            limit: Maximum number of groups on the page, 1 to 1,000.
            cursor: The ``cursor`` of the page before.
            criteria: See `lachesis.wire.criteria.GroupCriteria`.

        Returns:
            The page. If its ``cursor`` is not None, there may be more groups, even after an empty page.

        Raises:
            InvalidField: A criterion is wrong or unknown.
            EnvironmentNotFound: No environment has this name.
        """
        given = checked_criteria(criteria) | {"limit": limit, "cursor": cursor}
        return await self._sender.send(self._calls.list_groups(given))

    async def read_group(
        self, group: str, *, sequence: int | None = None, first_token: int = 0, tokens: int | None = None
    ) -> GroupContent:
        """Return the contents of the ``group`` with this id, whole or a part of a sequence.

        Args:
            group: Its id.
            sequence: Read this sequence only, counted from 0.
            first_token: Skip so many of its tokens.
            tokens: Maximum number of its tokens. None means all.

        Raises:
            GroupNotFound: The run does not know it.
            GroupGone: It has left, and the run no longer keeps its contents.
            InvalidField: It has no such sequence. Or ``first_token`` or ``tokens`` comes without ``sequence``.
        """
        if sequence is None and (first_token or tokens is not None):
            raise InvalidField("is required with first_token and tokens", ("sequence",))
        given = {} if sequence is None else {"sequence": sequence, "from": first_token, "tokens": tokens}
        return await self._sender.send(self._calls.read_group(group, given))

    async def annotate_group(self, group: str, annotations: Mapping[str, Iterable[Iterable[float]]]) -> list[str]:
        """Add values per token to the ``group`` with this id, for instance their entropy. Repeating it is safe.

        Args:
            group: Its id. The run must still keep its contents.
            annotations: By name, a row of finite values per sequence, one per token; at most 8 names in all. Values
                are stored in 32 bits.

        Returns:
            The names of all its annotations.

        Raises:
            GroupGone: It has left, and the run no longer keeps its contents.
            InvalidField: The values do not fit its tokens. Nothing was stored.
            AnnotationsFull: The run has too many annotations. Nothing was stored.
        """
        rows = {name: [list(map(float, row)) for row in values] for name, values in annotations.items()}
        values = checked(Annotate, annotations=rows)
        return (await self._sender.send(self._calls.annotate_group(group, values))).annotations

    async def group_annotations(self, group: str) -> dict[str, list[list[float]]]:
        """Return the annotations of the ``group`` with this id, as long as the run remembers the group."""
        return (await self._sender.send(self._calls.group_annotations(group))).annotations

    async def delete_group(self, group: str) -> None:
        """Delete the waiting ``group`` with this id. A repetition changes nothing.

        Raises:
            GroupNotFound: The run does not know it.
            GroupNotWaiting: The group is in a batch, or has left the run.
        """
        await self._sender.send(self._calls.delete_group(group))

    async def delete_groups(self, **criteria: Unpack[CriteriaOptions]) -> int:
        """Delete all waiting groups that match every given criterion. At least one is required.

        Args:
            criteria: See `lachesis.wire.criteria.GroupCriteria`. Waiting groups have no step and no reason for a
                drop, so these criteria match none.

        Returns:
            The number of deleted groups. It is too low if an answer was lost.

        Raises:
            InvalidField: There is no criterion, or one is wrong, unknown or None.
            EnvironmentNotFound: No environment has this name.
        """
        given = checked_criteria(criteria, with_values=True)
        deleted = 0
        cursor: str | None = None
        while True:
            answer = await self._sender.send(self._calls.delete_groups(given | {"cursor": cursor}))
            deleted += answer.deleted_groups
            if answer.cursor is None:
                return deleted
            cursor = answer.cursor
