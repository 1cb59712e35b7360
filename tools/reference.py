"""Write the reference pages that the code defines: `make reference`. A test compares them with the code."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from lachesis import errors

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
_NOTICE = "<!-- `make reference` writes this page. Edit {source} instead. -->\n"


def errors_page() -> str:
    """Return the page of errors: one row for each code."""
    rows = sorted(errors.BY_CODE.values(), key=lambda cls: (cls.status, cls.code))
    return "\n".join(
        [
            "# Errors",
            "",
            _NOTICE.format(source="`clients/lachesis/wire/errors.py`"),
            "The service answers an error as problem details (RFC 9457, `application/problem+json`).",
            "`code` names the error, `detail` says what is wrong, and `remedy` says what to do.",
            "For wrong values, `errors` lists the place (`loc`) of each and what is wrong with it (`msg`).",
            "A reply that is worth repeating has a `Retry-After` header.",
            "",
            "The SDK raises the class named here. All classes are in `lachesis.errors`.",
            "",
            "| Status | `code` | Class | Meaning | What to do |",
            "|---|---|---|---|---|",
            *map(_error_row, rows),
            "",
            "A path that does not exist is 404 `not_found`.",
            "A method that a path does not take is 405 `method_not_allowed`, with an `Allow` header.",
            "",
            "## The tree of classes",
            "",
            "Catch a class to catch all below it. A code that the SDK does not know is a plain `ServiceError`.",
            "",
            "```text",
            *_tree(errors.LachesisError),
            "```",
            "",
        ]
    )


def _error_row(cls: type[errors.ServiceError]) -> str:
    return f"| {cls.status} | `{cls.code}` | `{cls.__name__}` | {errors.meaning(cls)} | {cls.remedy} |"


def _tree(cls: type[Exception], indent: str = "") -> Iterator[str]:
    yield f"{indent}{cls.__name__}"
    for sub in cls.__subclasses__():
        yield from _tree(sub, f"{indent}    ")


PAGES: Mapping[str, Callable[[], str]] = {"errors.md": errors_page}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
