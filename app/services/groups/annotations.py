"""Add values per token to groups: what trainers find out about them later."""

from collections.abc import Awaitable, Callable, Mapping

from app.core.groups.annotations import ANNOTATIONS, Rows, checked_annotations, tensor_of
from app.services.groups.contents import GroupContentReader
from app.services.groups.history import GroupFacts, GroupHistories
from app.store.groups.annotations import MAX_BYTES, Annotations, AnnotationStore
from lachesis.wire.columns import Ragged, unpack
from lachesis.wire.errors import AnnotationsFull, GroupGone, GroupNotFound, InvalidField
from lachesis.wire.limits import MAX_ANNOTATIONS


class GroupAnnotator:
    """Stores annotations of groups, and reads them as long as the run remembers the groups."""

    def __init__(self, store: AnnotationStore, contents: GroupContentReader, histories: GroupHistories) -> None:
        self._store = store
        self._contents = contents
        self._histories = histories

    async def put(
        self,
        run: str,
        given_id: str,
        given: Mapping[str, Rows],
        admit: Callable[[GroupFacts], Awaitable[None]] | None = None,
    ) -> list[str]:
        """Add annotations to a group whose contents are kept. Safe to repeat; the same names are replaced.

        Args:
            run: The run's name.
            given_id: The group's id.
            given: A row of values per sequence, by the name of the annotation.
            admit: Awaited before its contents are read, maybe several times. An error of it is raised.

        Returns:
            The names of all its annotations.

        Raises:
            RunNotFound, GroupNotFound: There is no such run or group.
            GroupGone: Its contents are not kept, so the values cannot be checked against them.
            InvalidField: The values do not fit its tokens, a tensor of its sender has the name, or it would have too
                many annotations. Nothing was stored.
            AnnotationsFull: The annotations of the run would be too large. Nothing was stored.
        """
        kept = await self._contents.of(run, given_id, admit)
        try:
            group = unpack(kept.payload)
            (lengths,) = group.columns["tokens"].lengths
        except (KeyError, ValueError) as error:
            raise GroupGone(f"the contents of group {given_id} are damaged in Redis: {error}") from error
        for name in given:
            if (tensor := tensor_of(name)) in group.tensors:
                taken = f"the sender of the group has a tensor {tensor}: choose another name"
                raise InvalidField(taken, (ANNOTATIONS, name))
        values = checked_annotations(given, lengths)
        outcome = await self._store.put(run, given_id, kept.facts.group.group_id, lengths, values)
        if outcome == "unknown":
            raise GroupNotFound(f"run {run} knows no group {given_id}")
        if outcome == "names":
            raise InvalidField(f"a group has at most {MAX_ANNOTATIONS} of them, with those that it has", (ANNOTATIONS,))
        if outcome == "bytes":
            raise AnnotationsFull(f"the annotations of run {run} would take more than {MAX_BYTES} bytes")
        return await self._store.names(run, given_id)

    async def names(self, run: str, given_id: str) -> list[str]:
        """Return the names of the annotations of a group."""
        return await self._store.names(run, given_id)

    async def of(self, run: str, given_id: str, admit: Callable[[int], Awaitable[None]]) -> Annotations:
        """Return the annotations of a group, also after it has left.

        Args:
            run: The run's name.
            given_id: An id that finds the group.
            admit: Awaited with the bytes of the values before they are read. An error of it is raised.

        Raises:
            RunNotFound, GroupNotFound: There is no such run or group.
        """
        await self._histories.of(run, given_id)
        return await self._store.read(run, given_id, admit)

    async def held(self, run: str, given_id: str) -> Mapping[str, Ragged]:
        """Return the annotations of a group that was found just now."""
        return (await self._store.read(run, given_id)).values
