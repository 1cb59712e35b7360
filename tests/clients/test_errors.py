"""The errors of the SDK against those of the service."""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.http import problems
from app.core import errors as ours
from lachesis import errors
from lachesis._transport.protocol import Reply, get_json, read_reply
from lachesis.errors import BY_CODE, LachesisError, ServiceError

API_PAGE = Path(__file__).parents[2] / "docs/how-to/http-api.md"


def below(cls: type) -> Iterator[type]:
    for sub in cls.__subclasses__():
        yield sub
        yield from below(sub)


def problem_of(error: ours.LachesisError) -> Reply:
    answer = problems.problem(problems.status_of(error), error.code, str(error))
    return Reply(answer.status_code, dict(answer.headers), bytes(answer.body))


def test_every_code_of_the_service_has_a_class_here_and_no_other_has() -> None:
    """But for the root, which is never answered."""
    theirs = {cls.code: cls.__name__ for cls in below(ours.LachesisError) if issubclass(cls, ours.LachesisError)}
    assert {code: cls.__name__ for code, cls in BY_CODE.items()} == theirs


def test_every_code_of_the_page_has_a_class_here() -> None:
    table = API_PAGE.read_text().partition("## Errors")[2]
    codes = {code for row in re.findall(r"^\| \d.*$", table, re.M) for code in re.findall(r"`([a-z_]+)`", row)}
    assert "lease_lost" in codes
    assert codes - set(BY_CODE) == {"internal_error"}, "a bug of the service is no kind of error of its own"


@pytest.mark.parametrize("cls", sorted(below(ours.LachesisError), key=lambda cls: cls.__name__))
def test_what_the_service_raises_is_raised_here(cls: type[ours.LachesisError]) -> None:
    with pytest.raises(BY_CODE[cls.code]) as raised:
        read_reply(get_json("/"), problem_of(cls("three were short")))
    assert type(raised.value).__name__ == cls.__name__
    assert raised.value.status == problems.status_of(cls(""))
    assert raised.value.detail == "three were short"


@pytest.mark.parametrize("cls", [ServiceError, *BY_CODE.values()], ids=lambda cls: cls.__name__)
def test_an_error_of_the_service_can_leave_a_process(cls: type[ServiceError]) -> None:
    """As multiprocessing sends it."""
    wrong = [{"loc": ["tokens", 3], "msg": "is empty"}]
    error = cls("no", status=409, code=cls.known_code or "teapot", errors=wrong, retry_after_s=2.5)
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is cls
    assert (str(there), vars(there)) == (str(error), vars(error))


def test_groups_that_were_not_sent_can_leave_a_process() -> None:
    reason = errors.QueueFull("no room", status=429, code="queue_full", retry_after_s=1.0)
    there = pickle.loads(pickle.dumps(errors.NotSent({"g1": reason, "g2": LachesisError("no")})))
    assert str(there) == "group g1 was not sent: no room, and 1 more"
    assert [type(failure) for failure in there.failures.values()] == [errors.QueueFull, LachesisError]
    assert there.failures["g1"].retry_after_s == 1.0


def test_the_tree_is_drawn_as_it_is() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for indent, name in re.findall(r"^ {4}([│├└─ ]*)([A-Z]\w+)", errors.__doc__ or "", re.M):
        depth = len(indent) // 4
        path[depth:] = [name]
        if depth:
            drawn[name] = path[depth - 1]
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in below(LachesisError)}


def test_the_statuses_that_are_drawn_are_the_services() -> None:
    drawn = re.findall(r"─ (\w+) .* (\d{3})$", errors.__doc__ or "", re.M)
    assert len(drawn) > 10
    for name, status in drawn:
        assert problems.status_of(getattr(ours, name)("")) == int(status), name


def test_places_of_wrong_values_come_along() -> None:
    wrong = [{"loc": ["tokens", 3], "msg": "a sequence without tokens"}]
    answer = problems.problem(422, "invalid_field", "tokens[3]: a sequence without tokens", wrong)
    with pytest.raises(errors.InvalidField, match=r"tokens\[3\]") as raised:
        read_reply(get_json("/"), Reply(422, {}, bytes(answer.body)))
    assert raised.value.errors == tuple(wrong)


def test_the_pause_that_the_service_suggests_is_known() -> None:
    with pytest.raises(errors.StoreFull) as raised:
        read_reply(get_json("/"), problem_of(ours.StoreFull("no room")))
    assert raised.value.retry_after_s == 10


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (502, b"<html>bad gateway</html>"),
        (302, b""),
        (500, b'{"detail": "no code"}'),
        (500, b"[]"),
        (500, b"\xff\xfe"),
        (418, b'{"code": "teapot", "detail": "short and stout"}'),
    ],
)
def test_answers_of_others_than_the_service_are_errors_too(status: int, body: bytes) -> None:
    with pytest.raises(ServiceError) as raised:
        read_reply(get_json("/"), Reply(status, {}, body))
    assert type(raised.value) is ServiceError
    assert raised.value.status == status


def test_an_answer_that_cannot_be_read_is_no_answer() -> None:
    with pytest.raises(ServiceError, match="cannot be read") as raised:
        read_reply(get_json("/version"), Reply(200, {}, b"hello"))
    assert raised.value.code == "unreadable_reply"
