"""Each column has its place in every form of a group."""

from dataclasses import fields
from pathlib import Path

from lachesis.groups.group import Group
from lachesis.groups.views import SequenceView
from lachesis.wire.columns import NATIVE_COLUMNS
from lachesis.wire.groups import GroupContents

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "http-api.md"
NAMES = {column.name for column in NATIVE_COLUMNS}


def test_a_group_in_json_and_one_of_the_sdk_have_each_column() -> None:
    assert NAMES - GroupContents.model_fields.keys() == set()
    assert NAMES - {field.name for field in fields(Group)} == set()


def test_a_sequence_has_each_column_with_a_value_per_token() -> None:
    per_token = {column.name for column in NATIVE_COLUMNS if column.depth == 2}
    assert {name for name in per_token if not isinstance(getattr(SequenceView, name, None), property)} == set()


def test_the_table_of_tensors_names_each_column() -> None:
    page = PAGE.read_text()
    assert {name for name in NAMES if f"`{name}`" not in page} == set()
