"""Tokens as text: what was encoded is read again, and no id or file does harm."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

import app.services.groups.token_text as module
from app.services.groups.token_text import TokenText
from lachesis.wire.columns import Ragged
from lachesis.wire.errors import InvalidField, StoreMisconfigured
from tests.tokenizers import END, make_tokenizer

HOSTILE = [-1, -(2**63), 2**63 - 1, 2**32, 2**31, 100_000]


def ragged(*rows: list[int]) -> Ragged:
    return Ragged(np.array([one for row in rows for one in row], np.int64), (np.array(list(map(len, rows))),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_tokenizer(tmp_path, longest=1000)


def loaded(path: Path) -> TokenText:
    text = TokenText.load(path)
    assert text is not None
    return text


@pytest.mark.parametrize("text", ["hello world", " two  spaces\n\ttab", f"<b>{END}", "\x1b[2J\x00"])
def test_what_was_encoded_is_read_again(file: Path, text: str) -> None:
    ids = Tokenizer.from_file(str(file)).encode(text).ids
    assert "".join(one or "" for one in loaded(file).rows(ragged(ids))[0]) == text


def test_ids_that_are_no_tokens_have_no_text_and_the_others_keep_their_places(file: Path) -> None:
    ids = Tokenizer.from_file(str(file)).encode("hello world").ids
    rows = loaded(file).rows(ragged([*HOSTILE, *ids], [0], HOSTILE))
    assert rows[0][: len(HOSTILE)] == [None] * len(HOSTILE)
    assert "".join(map(str, rows[0][len(HOSTILE) :])) == "hello world"
    assert rows[1:] == [[END], [None] * len(HOSTILE)]


def test_a_part_of_a_character_is_the_replacement_character(file: Path) -> None:
    ids = Tokenizer.from_file(str(file)).encode("\u65e5").ids
    assert len(ids) == 3
    assert loaded(file).rows(ragged(ids)) == [["\ufffd"] * 3]


def test_the_space_before_a_word_stays_although_decoders_strip_it_from_a_text(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"\u2581one": 0, "\u2581two": 1, "s": 2}, unk_token="s"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(tmp_path / "words.json"))
    assert loaded(tmp_path / "words.json").rows(ragged([0, 2, 1])) == [[" one", "s", " two"]]


def test_too_much_text_is_refused_before_it_is_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = loaded(file)
    longest = Tokenizer.from_file(str(file)).token_to_id("x" * 1000)
    with pytest.raises(InvalidField, match="would be 20000000 bytes"):
        text.rows(ragged([longest] * 20_000))
    monkeypatch.setattr(module, "MAX_TOKENS", 3)
    assert text.rows(ragged([0, 0], [0])) == [[END, END], [END]]
    with pytest.raises(InvalidField, match="at most 3 tokens"):
        text.rows(ragged([0, 0], [0, 0]))


def test_without_a_setting_there_is_no_text() -> None:
    assert TokenText.load(None) is None


def test_a_wrong_file_stops_the_start_and_is_named(tmp_path: Path) -> None:
    for name, content, why in (
        ("broken.json", b'{"model": 1', "is not a tokenizer file"),
        ("other.json", b'{"a": 1}', "is not a tokenizer file"),
        ("binary.json", b"\xff\xfe", "is not a tokenizer file"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(StoreMisconfigured, match=f"LACHESIS_TOKENIZER_FILE=.*{name} {why}"):
            TokenText.load(path)
    for path, why in ((tmp_path / "missing.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(StoreMisconfigured, match=f"LACHESIS_TOKENIZER_FILE={path}: {why}"):
            TokenText.load(path)


def test_without_the_library_the_start_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(StoreMisconfigured, match=r"\.venv/bin/python -m pip install tokenizers"):
        TokenText.load(file)
