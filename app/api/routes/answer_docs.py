"""What OpenAPI says of answers under ``/v1``: the problems an operation can have, by status, and headers."""

from collections import defaultdict
from typing import Any

from app.api.http.problem_json import MEDIA_TYPE
from app.api.http.problems import RETRY_AFTER_S, STATUS
from app.core import errors

Raised = type[errors.LachesisError]
Answers = dict[int | str, dict[str, Any]]

_INTERNAL = (500, "internal_error", "This is a bug of ours; the server's log has the details.")
_STORE = (errors.StoreUnavailable, errors.StoreRefused, errors.UnreadableRecord)
_ANY = (errors.CrossSiteRequest, errors.ForeignHost, *_STORE)
BODY = (errors.MalformedBody, errors.RequestTimeout, errors.BodyTooLarge, errors.UnsupportedEncoding)
"""Problems of whatever takes a body."""


def problems(*raised: Raised) -> Answers:
    """Describe these problems, and a bug of ours."""
    meanings: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for cls in sorted(raised, key=lambda cls: cls.code):
        meanings[STATUS[cls]][cls.code] = (cls.__doc__ or "").partition("\n")[0]
    status, code, meaning = _INTERNAL
    meanings[status][code] = meaning
    return {status: _problem(status, by_code) for status, by_code in sorted(meanings.items())}


def reading(*raised: Raised) -> Answers:
    """Describe the problems of an operation that reads: those of all operations, and ``raised``."""
    return problems(errors.InvalidField, *_ANY, *raised)


def writing(*raised: Raised) -> Answers:
    """Describe the problems of an operation that writes and takes no body."""
    return reading(errors.StoreFull, *raised)


def sending(*raised: Raised) -> Answers:
    """Describe the problems of an operation that takes a body."""
    return writing(*BODY, *raised)


def with_headers(status: int, **meanings: str) -> Answers:
    """Describe headers of an answer, by name with underscores for dashes."""
    named = {name.replace("_", "-"): _header(meaning) for name, meaning in meanings.items()}
    return {status: {"headers": named}}


def _header(meaning: str) -> dict[str, Any]:
    return {"description": meaning, "schema": {"type": "string"}}


def _problem(status: int, by_code: dict[str, str]) -> dict[str, Any]:
    codes = {"properties": {"code": {"enum": list(by_code)}}}
    answer: dict[str, Any] = {
        "description": "\n".join(f"`{code}`: {meaning}" for code, meaning in by_code.items()),
        "content": {MEDIA_TYPE: {"schema": {"allOf": [{"$ref": "#/components/schemas/Problem"}, codes]}}},
    }
    if status in (STATUS[errors.QueueFull], *RETRY_AFTER_S):
        answer["headers"] = {"Retry-After": _header("Seconds after which to ask again.")}
    return answer
