"""What is generated from the definitions is up to date."""

import pytest

from tools import generate_options, reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    written = (reference.FOLDER / name).read_text()
    assert written == reference.PAGES[name](), "run `make reference`"


def test_the_types_of_settings_are_those_of_the_models() -> None:
    assert generate_options.TARGET.read_text() == generate_options.options_module(), "run `make sync`"
