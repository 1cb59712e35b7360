"""Each HTTP status that a page or a description names is that of the error beside it."""

import re
from pathlib import Path

from lachesis._transport.retry import PASSING
from lachesis.wire.errors import BY_CODE

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "reference"
COPIED = (ROOT / ".gitignore").read_text().split()  # `make docs` copies these pages
FORMER = ROOT / "docs" / "design" / "earlier-builds.md"  # also answers that no build gives any more
PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in ROOT.glob("docs/**/*.md")
        if page != FORMER and not page.is_relative_to(GENERATED) and str(page.relative_to(ROOT)) not in COPIED
    ),
]
SOURCES = [*ROOT.glob("app/**/*.py"), *ROOT.glob("clients/**/*.py")]
PAIR = re.compile(r'\b([45]\d\d)[\s"]+`(\w+)`')
ALONE = re.compile(r"(?:\b(?:answers|answer is|ends? with|gets?|got) [45]\d\d\b(?!\s+`)|\([45]\d\d\)(?=[.,:;])).*")


def test_a_status_is_that_of_the_error_after_it() -> None:
    pairs = [(path.name, status, code) for path in PAGES + SOURCES for status, code in PAIR.findall(path.read_text())]
    assert len(pairs) > 40
    assert [(name, status, code) for name, status, code in pairs if int(status) != BY_CODE[code].status] == []


def test_no_status_stands_without_its_error() -> None:
    alone = [(path.name, found) for path in PAGES + SOURCES for found in ALONE.findall(path.read_text())]
    assert alone == []


def test_the_page_of_the_sdk_lists_the_statuses_that_it_repeats() -> None:
    (listed,) = re.findall(r"one of ([45][^.]+)\.", (ROOT / "docs/how-to/python-sdk.md").read_text())
    assert sorted(map(int, re.findall(r"\d+", listed))) == sorted(PASSING)
