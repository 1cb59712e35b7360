"""The reference page of the SDK: signatures and docstrings of its public names, as the source has them."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache, cached_property
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

from pydantic import BaseModel

import lachesis
from lachesis import atropos, loader
from lachesis.wire.batches import BatchInfo, Explanation
from lachesis.wire.curricula import CurriculumInfo
from lachesis.wire.curriculum_items import SampledItem
from lachesis.wire.groups import ListedGroup
from lachesis.wire.replay import ReplayState
from lachesis.wire.runs import RetentionState, Rewound
from lachesis.wire.samples import Record
from tools.pages import field_table, heading

RESULTS: dict[type[BaseModel], str] = {
    BatchInfo: "`batch.info` is one. In it, an entry of `groups` is a `BatchGroup`: the `info` of a `GroupView`.\n"
    "Its `replayed` is a `ReplayedGroup`, and `shard` is a `ShardInfo`.",
    CurriculumInfo: "`Curriculum.info`, `set_up` and `change` return one.",
    Explanation: "`Trainer.explain` returns one.",
    ListedGroup: "An entry of `Trainer.list_groups(...).groups`.",
    Record: "An entry of `Sample.records`: a fragment, or a group that the buffer keeps.",
    ReplayState: "`Replay.state`, `set_up`, `change` and `restore` return one.",
    RetentionState: "`Trainer.checkpoint` returns one.",
    Rewound: "`Trainer.rewind` returns one.",
    SampledItem: "An item of `Curriculum.items`, or an entry of `Curriculum.sample(...).items`.",
}
"""Models that the page shows, and where a program meets each."""

_LISTS = ("Args", "Attributes", "Raises")
_PART = re.compile(rf"^({'|'.join(_LISTS)}|Returns|Source):(?: (.+))?$")
_ENTRY = re.compile(r"^([*\w.]+(?:, [*\w.]+)*): ")
_SELF = re.compile(r"(?<=\(\n) *(?:self|cls),\n|\b(?:self|cls)(?:, |(?=\)))")
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def sdk_page() -> str:
    """Return the page of the SDK: its public classes and functions."""
    return "\n".join(
        [
            heading("Python SDK", "the docstrings and models in `clients/lachesis`"),
            "[Use the Python SDK](../how-to/python-sdk.md) is the page to read first.",
            "Each class that sends requests exists twice: `Trainer` is synchronous, and `AsyncTrainer` is for asyncio.",
            "Both have the same methods.",
            "[Errors](errors.md) has every error with its code and what to do.",
            "",
            *_module(lachesis, [name for name in lachesis.__all__ if not name.startswith("Async")]),
            *_module(loader, loader.__all__),
            *_module(atropos, ["BinarySubmission"]),
            "## `lachesis.wire`",
            "",
            "What the service returns. Lists are marked by `[]`.",
            "[Status](status.md) has the fields of `Trainer.status`.",
            "",
            *_results(),
        ]
    )


def _results() -> Iterator[str]:
    """Yield the models that methods return, with the module that defines each."""
    for model, origin in RESULTS.items():
        text = f"Defined in `{model.__module__}`.\n{origin}"
        yield from (f"### `{model.__name__}`", "", text, "", *field_table(model))


def _module(module: ModuleType, names: list[str]) -> Iterator[str]:
    yield from (f"## `{module.__name__}`", "")
    for name in names:
        thing = getattr(module, name)
        if isinstance(thing, type) and not issubclass(thing, Exception):
            yield from _class(name, thing)
        elif isinstance(thing, FunctionType):
            yield from (f"### `{name}`", "", "```python", _signature(*_parsed(thing)), "```", "")
            yield from _text(thing)


def _class(name: str, cls: type) -> Iterator[str]:
    """Yield a class, then what it defines and inherits from this package, in the order of the source."""
    yield from (f"### `{name}`", "")
    if is_dataclass(cls):
        source, tree = _parsed(cls)
        fields = (ast.get_source_segment(source, one) or "" for one in tree.body if isinstance(one, ast.AnnAssign))
        yield from ("```python", *fields, "```", "")
    yield from _text(cls)
    seen = set()
    for owner in (one for one in cls.__mro__ if one.__module__.startswith("lachesis.")):
        source, tree = _parsed(owner)
        for node in tree.body:
            is_public = isinstance(node, _FUNCTIONS) and (node.name == "__init__" or not node.name.startswith("_"))
            if not is_public or node.name in seen or not ast.get_docstring(node):
                continue
            seen.add(node.name)
            shown = f"{name}()" if node.name == "__init__" else f"{name}.{node.name}"
            is_property = isinstance(inspect.getattr_static(owner, node.name), property | cached_property)
            signature = f"{node.name}: {ast.unparse(node.returns)}" if is_property else _signature(source, node)
            if node.name == "__init__":
                signature = signature.replace("def __init__", name).removesuffix(" -> None")
            yield from (f"#### `{shown}`", "", "```python", signature, "```", "")
            yield from _lines(ast.get_docstring(node) or "")


@cache
def _parsed(thing: Any) -> tuple[str, Any]:
    """Return the source of a class or function, and its tree."""
    source = dedent(inspect.getsource(thing))
    return source, ast.parse(source).body[0]


def _signature(source: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return how to call a function: the lines of its `def`, without `self`."""
    lines = dedent("\n".join(source.splitlines()[node.lineno - 1 : node.body[0].lineno - 1]))
    return _SELF.sub("", lines.rstrip().removesuffix(":"))


def _text(thing: Any) -> Iterator[str]:
    yield from _lines(ast.get_docstring(_parsed(thing)[1]) or "")


def _lines(docstring: str) -> Iterator[str]:
    """Yield a docstring as Markdown: the parts below `Args:` and the like as lists."""
    part = None
    for line in docstring.splitlines():
        found = _PART.match(line)
        if found:
            part = found[1]
            yield from (f"**{part}**", "", *([found[2]] if found[2] else []))
        elif part is None or not line.startswith("    "):
            part = None if line else part
            yield line
        else:
            inner = line[4:]
            entry = part in _LISTS and _ENTRY.match(inner)
            if entry:
                yield f"- `{entry[1]}`: {inner[entry.end() :]}"
            else:
                yield f"  {inner.strip()}" if part in _LISTS else inner
    yield ""
