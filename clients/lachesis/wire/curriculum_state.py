"""A curriculum's state (`GET …/curricula/{curriculum}/state`): JSON lines. A header, a line per item, a last line."""

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
    estimate: dict[str, Any] = Field(default={}, description="Its estimate, without values that equal their defaults.")
    history: list[Reward] = Field(default=[], max_length=50, description="Mean rewards of its last groups.")
    in_flight_ms: Annotated[int, Field(ge=0, le=1000 * YEAR_S)] = Field(
        default=0, description="How long others do not get it, milliseconds."
    )


class LastLine(Body):
    """The last line of a document."""

    items: int = Field(ge=0, le=MAX_INTEGER, description="Lines between the first line and this one.")
