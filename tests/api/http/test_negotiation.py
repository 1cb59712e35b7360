"""Headers of the Accept family."""

import pytest

from app.api.http.negotiation import weights


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("", {}),
        (" , ,", {}),
        ("gzip", {"gzip": 1.0}),
        ("GZip;Q=0.5, *;q=0", {"gzip": 0.5, "*": 0.0}),
        ("text/html;level=1; q = 0.2", {"text/html": 0.2}),
        ("a;q=x, b;q=", {"a": 0.0, "b": 0.0}),
        ("a;q=0, a", {"a": 0.0}),
    ],
)
def test_what_is_named_has_its_weight(header: str, named: dict[str, float]) -> None:
    assert weights(header) == named
