"""The lines of a saved curriculum, which are written by hand, against the models that declare them."""

import json
from collections.abc import AsyncIterator, Sequence

import pytest
from starlette.requests import Request

from app.api.codec.curriculum_state import lines_of, read_lines
from app.core.curriculum.estimates import Estimate
from app.core.curriculum.state import CurriculumHeader, estimate_dict, load_state_dict
from app.services.curriculum.states import CurriculumDocument
from app.store.curriculum.state import SavedItem
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.curriculum_state import LastLine, SavedItemLine
from lachesis.wire.errors import RequestTimeout
from tests.api.http.bodies.test_body import Sender

FULL = SavedItem("a", "algebra", '{"level":3}', Estimate(0.25, 4, 1.0, 3.0, 0.5, 0.5, 7, 0.75), (0.0, 0.5), 1500)
BARE = SavedItem("b", "", "", Estimate(), (), 0)
HEADER = CurriculumHeader(CurriculumSettings(strategy="plr", seed=3), 3, 4, 5, {"category:algebra": 0.5})


async def lines() -> list[bytes]:
    async def items() -> AsyncIterator[Sequence[SavedItem]]:
        yield [FULL, BARE]

    document = CurriculumDocument(HEADER, ("algebra",), items())
    return b"".join([part async for part in lines_of(document)]).splitlines()


async def test_every_line_of_an_item_is_what_its_model_declares() -> None:
    _, full, bare, _ = await lines()
    line = SavedItemLine.model_validate_json(full, strict=True)
    assert line.model_fields_set == SavedItemLine.model_fields.keys()
    assert line == SavedItemLine(
        key="a",
        category="algebra",
        metadata={"level": 3},
        estimate=estimate_dict(FULL.estimate),
        history=[0.0, 0.5],
        in_flight_ms=1500,
    )
    assert SavedItemLine.model_validate_json(bare, strict=True) == SavedItemLine(key="b")


async def test_the_first_and_the_last_line_are_what_is_read_again() -> None:
    first, *_, last = await lines()
    header = json.loads(first)
    assert header.pop("categories") == ["algebra"]
    assert load_state_dict(header) == HEADER
    assert LastLine.model_validate_json(last, strict=True) == LastLine(items=2)


@pytest.mark.parametrize("stalls", [False, True])
async def test_a_document_that_drips_or_stops_is_given_up(stalls: bool) -> None:
    """Each byte is progress, but at this rate an upload would last for days."""
    few = 3 if stalls else 500
    sender = Sender([b"x"] * few, stalls=stalls, pause_s=0.02)
    request = Request({"type": "http", "method": "PUT", "headers": []}, sender)
    with pytest.raises(RequestTimeout, match=r"after \d+ bytes"):
        await read_lines(request, timeout_s=0.2)
