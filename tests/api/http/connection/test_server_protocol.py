"""Connections that dawdle, flood or break off. Raw sockets against uvicorn on uvloop, as in the service."""

import asyncio
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from app.api.http.connection.certificates import TlsContexts, TlsFiles
from app.api.http.connection.header_limits import MAX_HEADER_BYTES
from app.api.http.connection.protocol_factory import missing_state, protocol_unless
from app.api.http.connection.refusals import MAX_PIPELINED
from lachesis.wire.errors import BY_CODE
from tests.api.http.raw_service import (
    GET,
    HEADER_TIMEOUT_S,
    Service,
    read_replies,
    read_reply,
    read_until_closed,
)
from tests.authority import Authority

POST = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


@pytest.fixture(scope="module", params=["plain", "tls"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Every test here holds over TLS, too."""
    if request.param == "plain":
        service = Service()
    else:
        authority = Authority(tmp_path_factory.mktemp("tls"))
        files = TlsFiles(*authority.issue("service", "localhost"), None)
        service = Service(TlsContexts(files), authority.client_context())
    yield service
    service.stop()


@pytest.fixture
def service(running: Service) -> Service:
    running.broken, running.answered = queue.Queue(), queue.Queue()
    running.bodies, running.arrived, running.headers = queue.Queue(), queue.Queue(), queue.Queue()
    running.released = threading.Event()
    return running


# Headers: time


@pytest.mark.slow
@pytest.mark.parametrize("drip", [b"", b"GET / HTTP/1.1\r\nx-slow: " + b"y" * 200], ids=["silent", "byte by byte"])
def test_a_new_connection_that_does_not_send_its_headers_in_time_is_closed(service: Service, drip: bytes) -> None:
    started = time.monotonic()  # the service counts from before the client knows that it is connected
    with service.connect() as client:
        read_until_closed(client, drip)
    assert time.monotonic() - started > HEADER_TIMEOUT_S * 0.9


@pytest.mark.slow
@pytest.mark.parametrize("drip", [b"GET / HTTP/1.1\r\nx-slow: " + b"y" * 200, b"\r\n"], ids=["headers", "empty lines"])
def test_slow_headers_on_a_used_connection_are_cut_off(service: Service, drip: bytes) -> None:
    with service.connect() as client:
        client.sendall(GET % b"/")
        read_reply(client)
        read_until_closed(client, drip)


@pytest.mark.slow
def test_the_header_deadline_spares_slow_bodies_and_idle_connections(service: Service) -> None:
    with service.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n")
        for _ in range(2):
            service.outlast_header_deadline()
            client.sendall(b"xx")
        assert read_reply(client).startswith(b"HTTP/1.1 200")
        service.outlast_header_deadline()
        client.sendall(GET % b"/")
        assert read_reply(client).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_a_body_that_stops_after_its_reply_does_not_keep_the_connection() -> None:
    service = Service(keep_alive_s=1)
    try:
        with service.connect() as client:
            client.sendall(POST % (b"/ping", 2))
            assert read_reply(client).startswith(b"HTTP/1.1 200")
            client.sendall(b"x")
            read_until_closed(client)
    finally:
        service.stop()


@pytest.mark.slow
def test_half_a_next_request_does_not_cut_off_the_reply_under_way(service: Service) -> None:
    with service.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n")
        service.outlast_header_deadline()
        client.sendall(b"x" + (GET % b"/")[:10])
        assert read_reply(client).startswith(b"HTTP/1.1 200")


# Headers: size


def test_headers_just_under_the_limit_are_read(service: Service) -> None:
    with service.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx-big: " + b"y" * (MAX_HEADER_BYTES - 100) + b"\r\n\r\n")
        assert read_reply(client).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET / HTTP/1.1\r\nx-big: " + b"y" * MAX_HEADER_BYTES + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
        b"GET /" + b"y" * MAX_HEADER_BYTES + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nx-endless: " + b"y" * (MAX_HEADER_BYTES + 1),
    ],
    ids=["one long header", "many headers", "long path", "a header that does not end"],
)
def test_headers_over_the_limit_are_refused_with_431_and_the_connection_closed(
    service: Service, request_head: bytes
) -> None:
    with service.connect() as client:
        client.sendall(request_head)
        reply = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert reply.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert problem_of(reply) == (431, "request_header_fields_too_large", "the headers are over 32768 bytes")
    assert b"\r\nx-content-type-options: nosniff\r\n" in reply
    assert service.answered.empty()


def test_endless_headers_are_refused_after_a_request_in_progress(service: Service) -> None:
    with service.connect() as client:
        client.sendall((GET % b"/unwatched") + b"GET / HTTP/1.1\r\nx-endless: ")
        service.let_read()
        client.sendall(b"y" * (MAX_HEADER_BYTES + 1))
        service.release()
        answer, refusal = replies_until_closed(client)
    assert (answer[:12], problem_of(refusal)[0]) == (b"HTTP/1.1 200", 431)


def test_header_sizes_of_requests_do_not_add_up(service: Service) -> None:
    part, body = b"y" * (MAX_HEADER_BYTES // 3), b"y" * (2 * MAX_HEADER_BYTES)
    begin = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\nx: " % len(body) + part
    with service.connect() as client:
        client.sendall(begin)
        for _ in range(4):
            service.let_read()  # so that it arrives in two pieces, and the first is held back
            client.sendall(part + b"\r\n\r\n" + body + begin)
            assert read_reply(client).startswith(b"HTTP/1.1 200")


def test_a_large_body_does_not_count_as_headers(service: Service) -> None:
    verify = service.trust or False
    assert httpx.post(service.url, verify=verify, content=b"y" * (1 << 20), trust_env=False).status_code == 200


def test_pieces_of_a_body_that_come_at_once_are_one_body(service: Service) -> None:
    chunks = b"".join(b"%x\r\n%b\r\n" % (size, bytes([size]) * size) for size in range(1, 200))
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with service.connect() as client:
        client.sendall(2 * (head + chunks + b"0\r\n\r\n"))
        read_reply(client, 2)
        whole = b"".join(bytes([size]) * size for size in range(1, 200))
        assert [service.bodies.get(timeout=60) for _ in range(2)] == 2 * [whole]


@pytest.mark.parametrize("held_back_bytes", [0, 1])
def test_a_request_is_known_to_have_arrived_when_its_last_byte_has(service: Service, held_back_bytes: int) -> None:
    request = POST % (b"/", 4) + b"body"
    with service.connect() as client:
        client.sendall(request[: len(request) - held_back_bytes])
        assert service.arrived.get(timeout=60) == (not held_back_bytes)
        client.sendall(request[len(request) - held_back_bytes :])
        assert read_reply(client).startswith(b"HTTP/1.1 200")


# What is not HTTP


def problem_of(reply: bytes) -> tuple[int, str, str]:
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"\r\ncontent-type: application/problem+json\r\n" in head
    assert b"\r\nconnection: close" in head
    problem = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d %b\r\n" % (problem["status"], problem["title"].encode()))
    assert problem["remedy"] == BY_CODE[problem["code"]].remedy
    return problem["status"], problem["code"], problem["detail"]


def replies_until_closed(client: socket.socket) -> list[bytes]:
    received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    return [b"HTTP/1.1 " + reply for reply in received.split(b"HTTP/1.1 ")[1:]]


def test_what_is_not_http_gets_400(service: Service) -> None:
    with service.connect() as client:
        client.sendall(b"nonsense\r\n\r\n")
        (reply,) = replies_until_closed(client)
    assert problem_of(reply) == (400, "bad_request", "not an HTTP request")


def test_not_every_refusal_of_what_is_not_http_is_logged(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        with service.connect() as client:
            client.sendall(b"nonsense\r\n\r\n")
            replies_until_closed(client)
    assert caplog.text.count("what is not HTTP") < 5, "a line after 0, 10, 30, 70, 150 s"


@pytest.mark.parametrize("stray", [b"x", b"GET / HTTP/1.1\r\nx: " + b"y" * MAX_HEADER_BYTES + b"\r\n\r\n"])
@pytest.mark.parametrize("requests", [1, 3])
def test_what_follows_a_request_is_refused_after_the_answer(service: Service, requests: int, stray: bytes) -> None:
    """The request came whole and may have changed something; its sender must hear of that."""
    with service.connect() as client:
        client.sendall(POST % (b"/stored", 4) + b"body" + (GET % b"/ahead") * (requests - 1) + stray)
        *answers, refusal = replies_until_closed(client)
    assert [reply[:12] for reply in answers] == [b"HTTP/1.1 200"] * requests
    assert problem_of(refusal)[0] == (400 if stray == b"x" else 431)
    assert service.answered.get(timeout=60) == "/stored"


@pytest.mark.parametrize("before", [b"", GET % b"/ahead?100"])
def test_a_broken_body_is_refused_after_the_replies_before_it(service: Service, before: bytes) -> None:
    with service.connect() as client:
        client.sendall(before + b"POST /broken HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\nnonsense")
        *answers, refusal = replies_until_closed(client)
    assert len(answers) == (1 if before else 0)
    assert problem_of(refusal)[0] == 400


def test_trailers_of_a_body_are_no_headers(service: Service) -> None:
    """A proxy and the check of tokens look at the headers before these come."""
    chunks = b"4\r\nbody\r\n0\r\nauthorization: Bearer x\r\n\r\n"
    with service.connect() as client:
        client.sendall(b"POST /chunked HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
        assert read_reply(client).startswith(b"HTTP/1.1 200")
        client.sendall(GET % b"/next")
        assert read_reply(client).startswith(b"HTTP/1.1 200")
    assert service.bodies.get(timeout=60) == b"body"
    assert service.headers.get(timeout=60) == {b"host": b"x", b"transfer-encoding": b"chunked"}


def test_requests_far_ahead_of_their_replies_are_not_parsed(service: Service) -> None:
    """A request of 18 bytes becomes an object of 3 kB, and refused ones may wait for 20 s each."""
    with service.connect() as client:
        client.sendall((GET % b"/unwatched") * 5000)
        service.release()
        *answers, refusal = replies_until_closed(client)
    assert [reply[:12] for reply in answers] == [b"HTTP/1.1 200"] * (1 + MAX_PIPELINED)
    assert problem_of(refusal)[:2] == (400, "bad_request")
    assert service.answered.qsize() == 1 + MAX_PIPELINED


@pytest.mark.parametrize("at_once", [1 + MAX_PIPELINED, 3])
def test_a_client_may_send_requests_ahead_of_their_replies_again_and_again(service: Service, at_once: int) -> None:
    with service.connect() as client:
        for _ in range(10):
            client.sendall((GET % b"/ahead") * at_once)
            read_replies(client, at_once)


def test_upgrade_is_ignored_and_the_body_is_read(service: Service) -> None:
    """The parser would stop behind the headers, and take the body for the next request."""
    head = POST % (b"/h2c", 4)
    head = head[:-2] + b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n"
    asked = head + b"body"
    for cut in (0, 30, len(head) - 1, len(head), len(asked) - 1):
        with service.connect() as client:
            for part in (asked[:cut], asked[cut:] + GET % b"/next"):
                client.sendall(part)
                service.let_read()
            read_replies(client, 2)
        assert (service.answered.get(timeout=60), service.bodies.get(timeout=60)) == ("/h2c", b"body")
        assert (service.answered.get(timeout=60), service.bodies.get(timeout=60)) == ("/next", b"")


def test_a_websocket_upgrade_gets_the_answer_of_a_plain_request(service: Service) -> None:
    upgrade = (
        b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n\r\n"
    )
    for asked in (1, MAX_PIPELINED):
        with service.connect() as client:
            client.sendall(((GET % b"/")[:-2] + upgrade) * asked + GET % b"/last")
            read_replies(client, asked + 1)


@pytest.mark.parametrize(
    "connection",
    [
        b"close, Upgrade",
        b"UPGRADE, Close",
        b"upgrade,close",
        b"x,close\r\nCONNECTION: y, upgrade",
        b"keep-alive, upgrade",
    ],
)
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_an_upgrade_in_a_list_of_options_is_ignored_too(service: Service, connection: bytes, version: bytes) -> None:
    """The parser ignores all that follows `close`, so such a request stayed unanswered, without a deadline."""
    head = (POST % (b"/listed", 4)).replace(b"HTTP/1.1", b"HTTP/" + version)
    for upgrade in (b"h2c", b"websocket"):
        with service.connect() as client:
            client.sendall(head[:-2] + b"Connection: " + connection + b"\r\nUpgrade: " + upgrade + b"\r\n\r\nbo")
            service.let_read()
            client.sendall(b"dy")
            read_replies(client, 1)
            if b"lose" in connection or version == b"1.0":
                assert client.recv(1) == b"", "it closes, as the client asked"
        assert (service.answered.get(timeout=60), service.bodies.get(timeout=60)) == ("/listed", b"body")


# Replies that break off


@pytest.mark.parametrize("body_bytes", [100, 200_000, 40_000_000])
def test_a_client_that_dies_with_the_reply_unread_is_noticed(service: Service, body_bytes: int) -> None:
    """Also when the last byte had long left: a small reply waits in the client's kernel, and its end resets."""
    with service.connect() as client:
        client.sendall(GET % b"/batch?%d" % body_bytes)
        if body_bytes <= 200_000:
            assert service.answered.get(timeout=60) == "/batch"
        assert client.recv(1, socket.MSG_PEEK), "the reply arrives, and stays unread"
    assert service.broken.get(timeout=60) == "/batch"


@pytest.mark.parametrize("body_bytes", [100, 40_000_000])
def test_a_client_that_reads_all_and_leaves_has_read_the_reply(service: Service, body_bytes: int) -> None:
    with service.connect() as client:
        client.sendall(GET % b"/read?%d" % body_bytes)
        read_reply(client, body_bytes)
    with service.connect() as other:  # by the time it breaks off, the first one's end has been seen
        other.sendall(GET % b"/unread?100")
        assert other.recv(1, socket.MSG_PEEK)
    assert service.broken.get(timeout=60) == "/unread"


def test_a_next_request_proves_that_the_reply_was_read(service: Service) -> None:
    with service.connect() as client:
        client.sendall(GET % b"/first?100")
        read_reply(client, 100)
        client.sendall(GET % b"/second?100")
        assert client.recv(1, socket.MSG_PEEK)
    assert service.broken.get(timeout=60) == "/second"
    assert service.broken.empty()


def test_a_pipelined_request_proves_nothing_about_the_reply(service: Service) -> None:
    with service.connect() as client:
        client.sendall(GET % b"/unfinished?100" + GET % b"/ahead?100")
        assert client.recv(1, socket.MSG_PEEK)
    assert service.broken.get(timeout=60) == "/unfinished"


def test_a_client_that_leaves_before_the_reply_is_complete_is_noticed(service: Service) -> None:
    with service.connect() as client:
        client.sendall(GET % b"/unfinished?100")
        read_reply(client, 50)  # all there is: it leaves with nothing unread
    assert service.broken.get(timeout=60) == "/unfinished"


def test_a_client_that_leaves_before_an_unwatched_reply_makes_no_error(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with service.connect() as client:
        client.sendall(GET % b"/unwatched")
        assert service.arrived.get(timeout=10)
    service.release()
    assert service.answered.get(timeout=10) == "/unwatched"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("requests", [1, 2])
def test_a_client_that_half_closes_gets_an_unwatched_reply(service: Service, requests: int) -> None:
    with service.connect() as client:
        client.sendall(b"".join([POST % (b"/unwatched", 4) + b"body"] * requests))
        client.shutdown(socket.SHUT_WR)
        service.release()
        replies = replies_until_closed(client)
    assert [reply.endswith(b"xx") for reply in replies] == [True] * requests


def test_a_client_that_half_closes_gets_no_watched_reply(service: Service) -> None:
    with service.connect() as client:
        client.sendall(GET % b"/late?100")
        client.shutdown(socket.SHUT_WR)
        service.release()
        assert replies_until_closed(client) == []
        assert service.broken.get(timeout=60) == "/late"


def test_a_client_that_half_closes_within_a_request_gets_nothing(service: Service) -> None:
    with service.connect() as client:
        client.sendall(POST % (b"/unwatched", 5) + b"body")
        client.shutdown(socket.SHUT_WR)
        service.release()
        assert replies_until_closed(client) == []


def test_a_late_watcher_is_called_at_once(service: Service) -> None:
    with service.connect() as client:
        client.sendall(GET % b"/late?100")
    service.release()
    assert service.broken.get(timeout=60) == "/late"


def test_a_reply_to_a_gone_client_does_not_count_as_sent(service: Service) -> None:
    """It would acknowledge the batch before it."""
    with service.connect() as client:
        client.sendall(GET % b"/watched")
    service.release()
    assert service.broken.get(timeout=60) == "/watched"
    assert service.answered.empty()
    with service.connect() as client:
        client.sendall(GET % b"/watched")
        assert read_reply(client).startswith(b"HTTP/1.1 200")
    assert service.answered.get(timeout=60) == "/watched"


# The version of uvicorn


def test_the_protocol_finds_all_of_the_state_that_it_uses() -> None:
    assert missing_state() == []


def test_another_uvicorn_is_used_without_the_additions(caplog: pytest.LogCaptureFixture) -> None:
    """Its own protocol is public; what a new version renamed is named in the log."""

    class Renamed(asyncio.Protocol):
        def __init__(self) -> None:
            self.exchange = None

    missing = missing_state(protocol=Renamed)
    assert "Renamed.cycle" in missing
    assert "Renamed.connection_made" not in missing
    assert protocol_unless(missing, HEADER_TIMEOUT_S) == "httptools"
    assert "Renamed.cycle" in caplog.text
