"""A curriculum's state (`GET …/curricula/{curriculum}/state`): lines of JSON, a header, one an item, a last one."""

from typing import Annotated, Any

from pydantic import Field

from lachesis.wire.body import MAX_INTEGER, Body
from lachesis.wire.curricula import ItemMetadata
from lachesis.wire.curriculum_items import Category, ItemKey, Reward
from lachesis.wire.runs import YEAR_S


class SavedItemLine(Body):
    """An item."""

    key: ItemKey
    category: Category = None
    metadata: ItemMetadata = None
    estimate: dict[str, Any] = Field(default={}, description="What is known of it; what has its default is left out.")
    history: list[Reward] = Field(default=[], max_length=50, description="Mean rewards of its last groups.")
    in_flight_ms: Annotated[int, Field(ge=0, le=1000 * YEAR_S)] = Field(
        default=0, description="For how long it is not handed out to others."
    )


class LastLine(Body):
    """What ends a document."""

    items: int = Field(ge=0, le=MAX_INTEGER, description="Lines between the first and this.")
