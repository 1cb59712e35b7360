"""Encode what happened in a span of time: JSON, compressed.

What a reader may leave out is text inside of the JSON: environments, and of these their sketches. To read a number is
slow, and to skip a text is fast. The facts of the run come first, in a stream of their own.
"""

import zlib
from collections.abc import Collection, Sequence
from itertools import chain

import orjson

from app.core.history.series import Facts, HistorySpan
from app.core.history.sketch import Bins, Sketch
from app.core.history.wanted import EVERYTHING, WantedHistory

_LEVEL = 1  # higher levels take three times as long and save a tenth


def encode_span(span: HistorySpan) -> bytes:
    """Encode a span for `decode_span`."""
    environments = {name: _facts(facts) for name, facts in span.environments.items()}
    return zlib.compress(_facts(span.run).encode(), _LEVEL) + zlib.compress(orjson.dumps(environments), _LEVEL)


def decode_span(text: bytes, wanted: WantedHistory = EVERYTHING) -> HistorySpan:
    """Decode a span, or what of it is wanted. The facts of the run are whole.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: The text was not written by `encode_span`.
    """
    try:
        inflater = zlib.decompressobj()
        run = _parse_facts(inflater.decompress(text), None)
        environments = orjson.loads(zlib.decompress(inflater.unused_data)) if wanted.has_environments else {}
    except zlib.error as error:
        raise ValueError(f"a span of history is damaged: {error}") from error
    if wanted.environment is not None:
        environments = {name: facts for name, facts in environments.items() if name == wanted.environment}
    return HistorySpan(run, {name: _parse_facts(facts, wanted.environments) for name, facts in environments.items()})


def _facts(facts: Facts) -> str:
    sketches = {name: _sketch(sketch) for name, sketch in facts.sketches.items()}
    return orjson.dumps([facts.counts, facts.means, facts.lasts, sketches, facts.texts]).decode()


def _parse_facts(text: str | bytes, wanted: Collection[str] | None) -> Facts:
    """Parse facts, with all sketches (None) or those that are wanted."""
    counts, means, lasts, sketches, *texts = orjson.loads(text)  # earlier builds wrote no texts
    return Facts(
        counts,
        {name: (total, times) for name, (total, times) in means.items()},
        lasts,
        {name: _parse_sketch(sketch) for name, sketch in sketches.items() if wanted is None or name in wanted},
        *texts,
    )


def _sketch(sketch: Sketch) -> str:
    bins = [list(chain.from_iterable(bins.items())) for bins in (sketch.above, sketch.below)]
    words = [sketch.count, sketch.total, sketch.least, sketch.most, sketch.level, sketch.zeros, *bins]
    return orjson.dumps(words).decode()


def _parse_sketch(text: str) -> Sketch:
    count, total, least, most, level, zeros, above, below = orjson.loads(text)
    return Sketch(count, total, least, most, level, zeros, _bins(above), _bins(below))


def _bins(words: Sequence[int]) -> Bins:
    return dict(zip(words[::2], words[1::2], strict=True))
