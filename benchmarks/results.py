"""What was measured: every value of every round, and what is made of them."""

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

US = "lachesis"


@dataclass(frozen=True, slots=True)
class Table:
    """One comparison.

    Attributes:
        key: Its name in the JSON file.
        title: Its heading.
        unit: Of its values.
        more_is_better: Whether a larger value is the better one.
        versus: Contestants that this service is set in proportion to; above 1 means that this service is better.
        note: What a reader must know to trust it.
    """

    key: str
    title: str
    unit: str
    more_is_better: bool
    versus: tuple[str, ...]
    note: str

    def saying(self, more: str) -> "Table":
        """Return it with more in its note."""
        return replace(self, note=self.note + more)


@dataclass
class Results:
    """Values by table, case and contestant, in the order measured."""

    tables: dict[str, Table] = field(default_factory=dict)
    values: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)

    def add(self, table: Table, case: str, contestant: str, value: float) -> None:
        """Take down one value of one round."""
        self.tables[table.key] = table
        cases = self.values.setdefault(table.key, {})
        cases.setdefault(case, {}).setdefault(contestant, []).append(value)

    def median(self, table: str, case: str, contestant: str) -> float | None:
        """Return the middle value over the rounds, or None if it was not measured."""
        values = self.values[table][case].get(contestant)
        return statistics.median(values) if values else None

    def extremes(self, table: str, case: str, contestant: str) -> tuple[float, float] | None:
        """Return the lowest and the highest value of the rounds, or None if there were fewer than two."""
        values = self.values[table][case].get(contestant, [])
        return (min(values), max(values)) if len(values) > 1 else None

    def ratio(self, table: str, case: str, other: str) -> float | None:
        """Return how many times better this service is than another; below 1 it is worse."""
        ours, theirs = self.median(table, case, US), self.median(table, case, other)
        if ours is None or theirs is None or not ours or not theirs:
            return None
        return ours / theirs if self.tables[table].more_is_better else theirs / ours

    def contestants(self, table: str) -> list[str]:
        """Return all who took part, in order of appearance."""
        return list(dict.fromkeys(who for case in self.values[table].values() for who in case))

    def save(self, path: Path, machine: Mapping[str, Any]) -> None:
        """Write every round into a file, as JSON."""
        tables = [self._table_as_json(table) for table in self.tables.values()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": dict(machine), "tables": tables}, indent=1) + "\n")

    def _table_as_json(self, table: Table) -> dict[str, Any]:
        cases = [
            {
                "case": case,
                "medians": {who: self.median(table.key, case, who) for who in rounds},
                "rounds": rounds,
                "ratios": {other: self.ratio(table.key, case, other) for other in table.versus},
            }
            for case, rounds in self.values[table.key].items()
        ]
        head = {"key": table.key, "title": table.title, "unit": table.unit, "more_is_better": table.more_is_better}
        return head | {"note": table.note, "cases": cases}
