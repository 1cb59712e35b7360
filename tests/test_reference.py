"""The reference pages are those that the code defines."""

import pytest

from tools import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    written = (reference.FOLDER / name).read_text()
    assert written == reference.PAGES[name](), "run `make reference`"
