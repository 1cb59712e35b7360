"""What is sent: the same groups for everyone, as Atropos environments send them."""

import gzip
import json
import random
import struct
from dataclasses import dataclass
from functools import cache

VOCABULARY = 128_256
VARIANTS = 8
PROMPT_FRACTION = 0.2


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a group: sequences, and tokens in each."""

    sequences: int
    tokens: int

    @property
    def tokens_per_group(self) -> int:
        """Tokens in all sequences of a group."""
        return self.sequences * self.tokens

    def __str__(self) -> str:
        return f"{self.sequences} x {self.tokens}"


def float32(value: float) -> float:
    """Round to the nearest float32."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def group(shape: Shape, rng: random.Random, env_id: int | None = None) -> dict[str, object]:
    """Make up a group with tokens, masks, scores and the sampler's logprobs."""
    prompt = int(shape.tokens * PROMPT_FRACTION)
    tokens = [[rng.randrange(VOCABULARY) for _ in range(shape.tokens)] for _ in range(shape.sequences)]
    return {
        "tokens": tokens,
        "masks": [[-100] * prompt + row[prompt:] for row in tokens],
        "scores": [rng.random() for _ in range(shape.sequences)],
        "inference_logprobs": logprobs(shape, rng),
        "env_id": env_id,
    }


def logprobs(shape: Shape, rng: random.Random) -> list[list[float]]:
    """Make up logprobs: float32 values, as models give them, spelled as the doubles that Python makes of them.

    They are 1.0 on the prompt.
    """
    prompt = int(shape.tokens * PROMPT_FRACTION)
    return [
        [1.0] * prompt + [float32(-rng.expovariate(1.0)) for _ in range(shape.tokens - prompt)]
        for _ in range(shape.sequences)
    ]


@cache
def bodies(shape: Shape, compressed: bool = False) -> list[bytes]:
    """Serialize a few different groups of one shape, exactly as Atropos's client does (``json.dumps``, ``gzip``)."""
    rng = random.Random(shape.tokens)
    plain = [json.dumps(group(shape, rng)).encode() for _ in range(VARIANTS)]
    return [gzip.compress(body) for body in plain] if compressed else plain


def http_post(path: str, body: bytes, *, gzipped: bool = False, close: bool = False) -> bytes:
    """Prepare a whole POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    head += "Content-Encoding: gzip\r\n" * gzipped + "Connection: close\r\n" * close
    return head.encode() + b"\r\n" + body


def http_get(path: str, *, accept_gzip: bool = False) -> bytes:
    """Prepare a whole GET request."""
    accept = "Accept-Encoding: gzip\r\n" * accept_gzip
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{accept}\r\n".encode()


def redis_set(key: bytes, value: bytes) -> bytes:
    """Prepare a whole SET command."""
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)
