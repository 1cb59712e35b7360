"""The generated pages of docs/reference are complete. `tests/test_reference.py` holds them to the code."""

import re
from pathlib import Path
from typing import get_args

import lachesis
from app import events
from app.settings import ServiceSettings
from app.telemetry import METRICS
from lachesis import errors, loader
from lachesis.wire.batches import Explanation
from lachesis.wire.blockers import Blocker
from lachesis.wire.curricula import CurriculumStrategy
from lachesis.wire.curriculum_items import SampledItem
from lachesis.wire.groups import ListedGroup
from lachesis.wire.replay import ReplayState
from lachesis.wire.runs import RetentionState, Rewound
from lachesis.wire.samples import Record
from tools.reference import FOLDER
from tools.reference import PAGES as WRITERS
from tools.sdk_reference import RESULTS

PAGES = {name: (FOLDER / name).read_text() for name in WRITERS}


def test_the_tables_have_a_row_for_each_setting_metric_and_event() -> None:
    def rows(name: str) -> set[str]:
        return set(re.findall(r"^\| `([^`]+)` \|", PAGES[name], re.M))

    kinds = [one for one in vars(events).values() if isinstance(one, type) and issubclass(one, events.Event)]
    assert rows("service-settings.md") == {f"LACHESIS_{name.upper()}" for name in ServiceSettings.model_fields}
    assert rows("metrics.md") == {metric.name for metric in METRICS}
    assert len(rows("log.md")) == len(kinds) - 1
    assert {"leases[].delivery_count", "environments[].alive", "blocked.reason"} <= rows("status.md")


def test_every_endpoint_is_on_the_page_of_its_noun() -> None:
    index = re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", PAGES["http-api.md"], re.M)
    nouns = "".join(text for name, text in PAGES.items() if name.startswith("http/"))
    assert len(index) > 60
    assert [one for one in index if f"`{one}`" not in nouns] == []


def test_the_page_of_curricula_names_every_strategy() -> None:
    (types,) = set(re.findall(r"^\| `strategy` \| (`.+?`) (?:or null )?\|", PAGES["http/curricula.md"], re.M))
    assert types == ", ".join(f"`{each}`" for each in get_args(CurriculumStrategy))


def test_the_page_of_the_sdk_has_each_public_class_and_function() -> None:
    public = {*lachesis.__all__, *loader.__all__} - {name for name in lachesis.__all__ if name.startswith("Async")}
    shown = set(re.findall(r"^### `(\w+)`$", PAGES["sdk.md"], re.M))
    assert public - {"errors", *vars(errors)} == shown - {"BinarySubmission"} - {model.__name__ for model in RESULTS}
    assert {"`Trainer()`", "`Trainer.take`", "`Batch.ack`"} <= set(re.findall(r"^#### (.+)$", PAGES["sdk.md"], re.M))
    fields = {"groups[].size", "groups[].replayed.chunk", "shard.balance.bound", "items_seen", "rewindable_to"}
    assert fields <= set(re.findall(r"^\| `([^`]+)` \|", PAGES["sdk.md"], re.M))
    assert "def batches(\n    prefetch: int" in PAGES["sdk.md"]


def test_the_page_of_the_sdk_has_the_fields_of_what_programs_meet() -> None:
    for model in (Explanation, ListedGroup, Record, ReplayState, RetentionState, Rewound, SampledItem):
        table = PAGES["sdk.md"].partition(f"### `{model.__name__}`\n")[2].partition("\n### ")[0]
        assert set(model.model_fields) <= set(re.findall(r"^\| `([^`]+)` \|", table, re.M)), model


def test_no_page_is_left_over() -> None:
    written = {str(path.relative_to(FOLDER)) for path in Path(FOLDER).rglob("*.md")}
    assert written == set(PAGES)


def test_every_reason_for_no_batch_is_documented() -> None:
    """The rows are in the order of `Blocker`, because the first reason that applies counts."""
    table = (FOLDER.parent / "how-to" / "no-batch.md").read_text().partition("## A slow environment")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(Blocker)


def test_every_curriculum_strategy_is_documented() -> None:
    page = (FOLDER.parent / "how-to" / "curriculum.md").read_text()
    table, _, rest = page.partition("## Strategies")[2].partition("- **`temperature`**")
    temperature = rest.partition("- **Switching.**")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.M)) == set(get_args(CurriculumStrategy))
    assert set(re.findall(r"`(\w+)`", temperature)) >= set(get_args(CurriculumStrategy))
