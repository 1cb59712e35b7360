"""Ways to spoil the text of a JSON body: each takes a seeded generator and the text, and returns another one."""

import re
from random import Random

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_STRING = re.compile(rb'"[a-z_]+"')
_ODD_NUMBERS = (
    *b"NaN Infinity -Infinity nan 1e999 -1e999 1e-999 -0 -0.0 01 +1 .5 1. 1e --1 0x10 1_000 true null [1] {}".split(),
    *b'18446744073709551616 -9223372036854775809 9007199254740993 2147483648 1.0 3.5 "7" "1.5" "1e999" "x"'.split(),
    *(b"9" * 400, b"-" + b"9" * 5000, b'" 8 "'),
)
_ODD_STRINGS = (
    *rb"""  "\ud800" "\udc00\ud800" "\u0000" "\u005b" "\x" 'tokens' " "" null 1 [] """.split(),
    *(
        b'"\xff\xfe"',
        b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
        b'"\x00"',
        b'"\n"',
        b'"\xe2\x80\xae"',
        b'"%b"' % (b"k" * 10_000),
    ),
)
_ODD_BYTES = (b"\xef\xbb\xbf", b"\xff", b"\x00", b"\x1f\x8b", b"\xc3", b" \r\n\t", *b', [ ] { } : " \\ /**/'.split())


def _at(rnd: Random, pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    return pattern.search(text, rnd.randrange(len(text) + 1)) or pattern.search(text)


def odd_number(rnd: Random, text: bytes) -> bytes:
    found = _at(rnd, _NUMBER, text)
    return text[: found.start()] + rnd.choice(_ODD_NUMBERS) + text[found.end() :] if found else text


def odd_string(rnd: Random, text: bytes) -> bytes:
    found = _at(rnd, _STRING, text)
    return text[: found.start()] + rnd.choice(_ODD_STRINGS) + text[found.end() :] if found else text


def key_twice(rnd: Random, text: bytes) -> bytes:
    found = _at(rnd, re.compile(rb"\{"), text)
    key = rnd.choice((b"tokens", b"env_id", b"batch_size", b"desired_name", b"role", b"x"))
    return text[: found.end()] + b'"%b":[[1]],"%b":1,' % (key, key) + text[found.end() :] if found else text


def nested(rnd: Random, text: bytes) -> bytes:
    found = _at(rnd, _NUMBER, text)
    depth = rnd.choice((3, 127, 128, 129, 1_030, 100_000))
    left, right = rnd.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")))
    nest = left * depth + b"1" + right * depth
    return text[: found.start()] + nest + text[found.end() :] if found else nest


def flipped_bits(rnd: Random, text: bytes) -> bytes:
    flipped = bytearray(text)
    for _ in range(min(len(text), rnd.choice((1, 1, 2, 8)))):
        flipped[rnd.randrange(len(text))] ^= 1 << rnd.randrange(8)
    return bytes(flipped)


def cut_out(rnd: Random, text: bytes) -> bytes:
    start = rnd.randrange(len(text) + 1)
    return text[:start] + text[start + rnd.choice((1, 5, 50, len(text))) :]


def repeated(rnd: Random, text: bytes) -> bytes:
    start = rnd.randrange(len(text) + 1)
    return text[:start] + text[start : start + rnd.choice((1, 5, 50))] * 2 + text[start:]


def odd_bytes(rnd: Random, text: bytes) -> bytes:
    start = rnd.choice((0, rnd.randrange(len(text) + 1), len(text)))
    return text[:start] + rnd.choice((*_ODD_BYTES, rnd.randbytes(20))) + text[start:]


TEXT_CHANGES = (
    *(odd_number, odd_number, odd_string, key_twice, nested),
    *(flipped_bits, cut_out, repeated, odd_bytes),
)
