"""The errors of the SDK: those that the service answers, raised again, and its own."""

import json
import pickle
from typing import Any

import pytest

from app.api.http.problems import problem
from lachesis import errors
from lachesis._transport.protocol import Call, Reply, get_json, read_reply
from lachesis._transport.retry import is_mendable
from lachesis._transport.run_calls import RunCalls
from lachesis.errors import BY_CODE, LachesisError, ServiceError


def answer(error: ServiceError) -> Reply:
    """Answer an error as the service does."""
    reply = problem(error)
    return Reply(reply.status_code, dict(reply.headers), bytes(reply.body))


def received(reply: Reply) -> ServiceError:
    """Read a reply as the SDK does."""
    with pytest.raises(ServiceError) as raised:
        read_reply(get_json("/"), reply)
    return raised.value


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=BY_CODE)
def test_what_the_service_raises_is_raised_here(cls: type[ServiceError]) -> None:
    sent = cls("three were short")
    error = received(answer(sent))
    assert type(error) is cls
    assert (error.status, error.code, error.detail, error.remedy) == (cls.status, cls.code, sent.detail, cls.remedy)
    assert error.retry_after_s == cls.retry_after_s


def test_an_error_of_a_newer_service_has_the_remedy_that_came_with_it() -> None:
    problem_json = {"code": "new_one", "detail": "the moon is full", "remedy": "Wait a week."}
    error = received(Reply(409, {}, json.dumps(problem_json).encode()))
    assert (type(error), error.code, str(error)) == (ServiceError, "new_one", "the moon is full. Wait a week.")


def test_a_message_says_what_is_wrong_and_what_to_do() -> None:
    assert str(errors.MemberNotFound("no member m")) == "no member m. Join the environment again."
    assert str(errors.MemberNotFound("Is it gone?")) == "Is it gone? Join the environment again."
    assert str(errors.InvalidField("is 3", ("tokens", 1))) == "tokens[1]: is 3"


def test_places_of_wrong_values_come_along() -> None:
    sent = errors.InvalidField("a sequence without tokens", ("tokens", 3))
    error = received(answer(sent))
    assert isinstance(error, errors.InvalidField)
    assert str(error) == "tokens[3]: a sequence without tokens"
    assert error.errors == ({"loc": ["tokens", 3], "msg": "a sequence without tokens"},)
    assert (error.message, error.location) == ("a sequence without tokens", ("tokens", 3))


def test_what_the_service_has_cut_comes_along_as_it_is() -> None:
    sent = errors.InvalidField("is " + "y" * 5000, ("groups", 3, "x" * 5000))
    error = received(answer(sent))
    assert isinstance(error, errors.InvalidField)
    assert (error.detail, error.errors, error.location) == (sent.detail, sent.errors, sent.location)


@pytest.mark.parametrize(
    "error",
    [
        received(answer(errors.SequenceTooLong("has 9 tokens", ("groups", 0), "g1"))),
        received(answer(errors.ReplayBlocked("the limiter holds back"))),
        received(Reply(502, {}, b"<html>bad gateway</html>")),
        errors.NotSent({"a": errors.GroupExists("group a is there"), "b": errors.Unreachable("no reply")}),
        errors.FetchFailed(("shard", 3), "no such file"),
        *(cls("as it is") for cls in (*BY_CODE.values(), errors.Unreachable, errors.NoBatch)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_to_another_process(error: LachesisError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), repr(there)) == (type(error), str(error), repr(error))
    assert {name: repr(value) for name, value in vars(there).items()} == {
        name: repr(value) for name, value in vars(error).items()
    }


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (502, b"<html>bad gateway</html>"),
        (302, b""),
        (500, b'{"detail": "no code"}'),
        (500, b"[]"),
        (500, b"\xff\xfe"),
        (500, b"[" * 200_000 + b"]" * 200_000),
        (418, b'{"code": "teapot", "detail": "short and stout"}'),
    ],
)
def test_answers_of_others_than_the_service_are_errors_too(status: int, body: bytes) -> None:
    with pytest.raises(ServiceError) as raised:
        read_reply(get_json("/"), Reply(status, {}, body))
    assert type(raised.value) is ServiceError
    assert raised.value.status == status


def test_a_web_page_of_another_program_is_not_shown() -> None:
    error = received(Reply(404, {"content-type": "text/html;charset=utf-8"}, b"<html><h1>Not found</h1></html>"))
    assert "which Lachesis does not send: check the address" in str(error)
    assert "<" not in str(error)


@pytest.mark.parametrize("call", [get_json("/version"), RunCalls("math").delete()], ids=["JSON", "nothing"])
def test_a_web_page_with_status_200_is_the_answer_of_a_gateway(call: Call[Any]) -> None:
    """Such as a page that asks to sign in. Groups wait for the service."""
    with pytest.raises(ServiceError, match="status 200 with a web page") as raised:
        read_reply(call, Reply(200, {"content-type": "text/html; charset=utf-8"}, b"<html>Sign in</html>"))
    assert is_mendable(raised.value)


@pytest.mark.parametrize("body", [b"hello", b"[" * 200_000 + b"]" * 200_000], ids=["text", "nested"])
def test_an_answer_that_cannot_be_read_is_no_answer(body: bytes) -> None:
    with pytest.raises(ServiceError, match="cannot be read") as raised:
        read_reply(get_json("/version"), Reply(200, {}, body))
    assert raised.value.code == "unreadable_reply"
