"""Write tokens as text, by a tokenizer file that the operator names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lachesis.wire.columns import Ragged
from lachesis.wire.errors import InvalidField, StoreMisconfigured

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SETTING = "LACHESIS_TOKENIZER_FILE"
MAX_TOKENS = 1_000_000
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Most text of one answer: a hostile group may repeat the longest token of the vocabulary."""

_TEXT = ("query", "text")
_NOT_IN_VOCABULARY = -1


class TokenText:
    """Writes token ids as text. It may be used by several threads.

    Attributes:
        name: The name of its file.
    """

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        ids = np.array(sorted(tokenizer.get_vocab(with_added_tokens=True).values()), np.int64)
        self._ids = np.append(ids, _NOT_IN_VOCABULARY)  # so that every place that is searched for exists

    @classmethod
    def load(cls, path: Path | None) -> TokenText | None:
        """Read a tokenizer file (`tokenizer.json`); None without a path. Nothing is fetched.

        Raises:
            StoreMisconfigured: The file is missing or wrong, or the library is not installed.
        """
        if path is None:
            return None
        try:
            from tokenizers import Tokenizer  # late: an optional extra
        except ImportError as error:
            raise StoreMisconfigured(
                f"{SETTING}={path} needs the package tokenizers: .venv/bin/python -m pip install tokenizers"
            ) from error
        try:
            return cls(Tokenizer.from_str(path.read_text("utf-8")), path.name)
        except OSError as error:
            raise StoreMisconfigured(f"{SETTING}={path}: {error.strerror or error}") from error
        except Exception as error:
            raise StoreMisconfigured(f"{SETTING}={path} is not a tokenizer file (tokenizer.json): {error}") from error

    def rows(self, tokens: Ragged) -> list[list[str | None]]:
        """Return the text of each token, as it reads after another token; None for ids that are not in the vocabulary.

        Bytes that are not text alone, such as a part of a character, are U+FFFD.

        Raises:
            InvalidField: That would be too much text. Ask for a part.
        """
        if len(tokens.values) > MAX_TOKENS:
            raise InvalidField(f"is for at most {MAX_TOKENS} tokens: ask for a part with sequence, from, tokens", _TEXT)
        ids = tokens.values.astype(np.int64)
        places = np.searchsorted(self._ids[:-1], ids)
        known = self._ids[places] == ids
        used, which = np.unique(np.where(known, ids, _NOT_IN_VOCABULARY), return_inverse=True)
        texts = [None if one == _NOT_IN_VOCABULARY else self._text(one) for one in used.tolist()]
        sizes = np.array([0 if text is None else len(text.encode()) for text in texts], np.int64)
        size = int((sizes * np.bincount(which, minlength=len(sizes))).sum())
        if size > MAX_TEXT_BYTES:
            raise InvalidField(
                f"would be {size} bytes, of at most {MAX_TEXT_BYTES}: ask for a part with sequence, from, tokens", _TEXT
            )
        written: list[Any] = np.array(texts, object)[which].tolist()
        ends = np.cumsum(tokens.lengths[0]).tolist()
        return [written[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def _text(self, token: int) -> str:
        """Write a token without what decoders take from the start of a text, such as its space."""
        once = self._tokenizer.decode([token], skip_special_tokens=False)
        return self._tokenizer.decode([token, token], skip_special_tokens=False)[len(once) :]
