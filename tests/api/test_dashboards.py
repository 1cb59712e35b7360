"""The dashboard and the alert rules in docs/grafana ask for what a service in use has, and for nothing else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser as promql
import pytest
import yaml

from app.telemetry import METRICS
from tests.api.test_metrics import Scraped, busy, scrape

FOLDER = Path(__file__).parents[2] / "docs" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
GROUPS = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [target["expr"] for target in TARGETS] + [rule["expr"] for rule in RULES]

OF_TARGETS = {"job", "instance"}
"""Labels that Prometheus adds to every sample."""
MADE_BY_PROMETHEUS = {"up": OF_TARGETS}
ABSENT = {("status", "5..")}
"""Label and pattern that only a failing service has."""


def parse(expression: str) -> promql.Expr:
    """Parse an expression as Grafana sends it."""
    return promql.parse(expression.replace("$run", "run"))


def parts(expression: Any) -> Iterator[Any]:
    """Yield an expression and all its parts."""
    yield expression
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        if isinstance(part := getattr(expression, name, None), promql.Expr):
            yield from parts(part)
    for argument in getattr(expression, "args", []):
        yield from parts(argument)


def selectors(expression: str) -> list[Any]:
    return [part for part in parts(parse(expression)) if isinstance(part, promql.VectorSelector)]


def labels_named(expression: str) -> set[str]:
    """The labels that an expression groups and joins by."""
    modifiers = [part.modifier for part in parts(parse(expression)) if getattr(part, "modifier", None)]
    joins = [modifier.matching for modifier in modifiers if isinstance(modifier, promql.BinModifier)]
    of_joins = {label for matching in joins if matching is not None for label in matching.labels}
    return of_joins | {label for one in modifiers if isinstance(one, promql.AggModifier) for label in one.labels}


@pytest.fixture
async def page(client: httpx.AsyncClient) -> Scraped:
    """A scrape of a service in use."""
    await busy(client)
    return await scrape(client)


def labels_of(page: Scraped, name: str) -> dict[str, set[str]]:
    """The labels of a metric, with their values."""
    found: dict[str, set[str]] = {label: set() for label in MADE_BY_PROMETHEUS.get(name, set())}
    for having in (having for sample, having in page.samples if sample == name):
        for label, value in having:
            found.setdefault(label, set()).add(value)
    return found


async def test_every_metric_label_and_value_is_in_a_live_scrape(page: Scraped) -> None:
    for expression in EXPRESSIONS:
        known = set(OF_TARGETS)
        for selector in selectors(expression):
            labels = labels_of(page, selector.name)
            assert labels, f"{selector.name} is no metric: {expression}"
            known |= labels.keys()
            for matcher in selector.matchers.matchers:
                assert matcher.name in labels, f"{selector.name} has no label {matcher.name}: {expression}"
                if selector.name in MADE_BY_PROMETHEUS or (matcher.name, matcher.value) in ABSENT:
                    continue
                exact = matcher.op in (promql.MatchOp.Equal, promql.MatchOp.NotEqual)
                pattern = re.escape(matcher.value) if exact else matcher.value
                assert any(re.fullmatch(pattern, value) for value in labels[matcher.name]), expression
        assert labels_named(expression) <= known, expression


async def test_every_metric_is_on_the_dashboard(page: Scraped) -> None:
    """A new metric needs a place there."""
    shown = {selector.name for target in TARGETS for selector in selectors(target["expr"])}
    suffixes = ("", "_bucket", "_sum", "_count")
    missing = {metric.name for metric in METRICS if not shown & {metric.name + suffix for suffix in suffixes}}
    assert missing == set()


def test_legends_and_messages_name_labels_that_the_expression_keeps() -> None:
    texts = [(target["expr"], re.findall(r"{{(\w+)}}", target["legendFormat"])) for target in TARGETS]
    for rule in RULES:
        words = " ".join(rule["annotations"].values())
        texts.append((rule["expr"], re.findall(r"{{ \$labels\.(\w+) }}", words)))
    assert sum(map(len, (named for _, named in texts))) > 20
    for expression, named in texts:
        if any(isinstance(part, promql.AggregateExpr) for part in parts(parse(expression))):
            assert set(named) <= labels_named(expression), expression
        else:
            (name,) = {selector.name for selector in selectors(expression)}
            of_metrics = {metric.name: set(metric.labels) for metric in METRICS}
            assert set(named) <= (of_metrics | MADE_BY_PROMETHEUS)[name], expression


def test_runs_are_read_as_all_processes_report_them() -> None:
    """Every API process reports each run. A sum would count a run once for each process."""
    of_runs = {metric.name for metric in METRICS if metric.labels[0] == "run"}
    for expression in EXPRESSIONS:
        for part in parts(parse(expression)):
            if isinstance(part, promql.AggregateExpr) and "sum" in str(part.op):
                inner = parts(part.expr)
                if not any(isinstance(one, promql.AggregateExpr) for one in inner):
                    assert not {s.name for s in selectors(part.expr.prettify())} & of_runs, expression


def test_alerts_fire_whichever_process_a_scrape_reaches() -> None:
    """Behind a shared port a scrape reaches one process. The samples of the others end until their next turn."""
    of_processes = {metric.name for metric in METRICS if metric.labels[0] == "process"}
    seen_by_all = {"lachesis_store_up"}
    of_the_panel = [expression for expression in EXPRESSIONS if "lachesis_upkeep_failing" in expression]
    assert len(of_the_panel) == 2
    for expression in [rule["expr"] for rule in RULES] + of_the_panel:
        whole = list(parts(parse(expression)))
        over_time = {part.vector_selector.name for part in whole if isinstance(part, promql.MatrixSelector)}
        used = {selector.name for selector in selectors(expression)} & of_processes
        assert used - over_time <= seen_by_all, expression
        if used:
            assert any(isinstance(part, promql.AggregateExpr) for part in whole), expression
            assert "process" not in labels_named(expression), expression


def test_the_dashboard_is_what_grafana_imports() -> None:
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("lachesis", "Lachesis")
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used == variables == {"datasource", "run"}
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        covered = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & covered, f"{panel['title']} lies over another panel"
        cells |= covered
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references))


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    for rule in RULES:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        comparison = parse(rule["expr"])
        assert isinstance(comparison, promql.BinaryExpr), rule["alert"]
