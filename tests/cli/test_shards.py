"""`python -m app shards plan` as people run it: what it prints, writes, and refuses to write."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lachesis.wire.shards import ShardPlanInfo
from tests.datasets.writers import lerobot_v2, lerobot_v3, write_lines
from tests.forked import environment, run_module

pytestmark = pytest.mark.long
LENGTHS = [*range(10, 410, 10)]  # growing, as where a policy learns to live longer


def command(*arguments: Any, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run it as a process; ``before`` is Python that runs in the process first."""
    words = ("shards", "plan", *map(str, arguments))
    if not before:
        return run_module("app", *words, env=environment())
    program = [sys.executable, "-c", f"{before}\nfrom app.cli.main import main; main()", *words]
    return subprocess.run(program, env=environment(), capture_output=True, text=True, timeout=60, check=False)


def done(*arguments: Any) -> str:
    """Run it; gives what it printed."""
    ran = command(*arguments)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout


def refused(*arguments: Any, code: int = 1, before: str = "") -> str:
    """Run a command that fails. Return its message, which has one line."""
    ran = command(*arguments, before=before)
    assert ran.returncode == code, ran.stdout
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("\n") == 1
    return ran.stderr


def manifests(folder: Path) -> list[list[dict[str, Any]]]:
    """What each rank was given, by rank."""
    files = sorted(folder.glob("rank-*.jsonl"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def test_the_report_says_what_people_want_to_know(tmp_path: Path) -> None:
    printed = done(lerobot_v3(tmp_path / "set", LENGTHS), "--ranks", 4, "--cost", "frames*action_dim*cameras")
    for said in (
        "LeRobot v3.0 · 3 files read · robot so100 · 30 fps (0.08 h) · actions of 7",
        "cameras: observation.images.top, observation.images.wrist",
        "tasks: pick the cube (20), fold the towel (20)",
        "40 episodes, 8,200 frames",
        "length: min 10 · mean 205.0 · max 400 · variation (std/mean) 0.563",
        "p5 30 · p25 108 · p50 205 · p75 302 · p95 380 · p99 396",
        "cost frames*action_dim*cameras",
    ):
        assert said in printed, printed
    rows = [line.split() for line in printed.splitlines()]
    loads = {row[0]: row[1:] for row in rows if len(row) == 5 and row[0].isdigit()}
    assert sum(int(row[0]) for row in loads.values()) == 40
    assert [float(row[3]) for row in loads.values()] == pytest.approx([1] * 4, abs=0.01)
    naive = next(line for line in printed.splitlines() if line.startswith("contiguous"))
    assert "73.1707%" in naive
    assert "1.7317" in naive


def test_ranks_without_an_episode_are_counted(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [5, 6, 7])
    assert "\nwarning: 2 of 5 ranks get no episode\n" in done(path, "--ranks", 5)
    assert "warning" not in done(path, "--ranks", 3)


def test_a_pass_is_shown_in_seconds_where_the_pace_is_known(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", LENGTHS)
    printed = done(path, "--ranks", 4, "--cost-per-s", 100)
    assert "estimated pass at 100 cost/s a rank: 20.5 s, contiguous 35.5 s" in printed


def test_the_summary_as_json_is_that_of_the_api(tmp_path: Path) -> None:
    path = lerobot_v2(tmp_path / "set", LENGTHS)
    found = ShardPlanInfo.model_validate_json(done(path, "--ranks", 4, "--json", "--equal-episodes"))
    assert (found.ranks, found.equal_episodes, found.lengths.episodes) == (4, True, 40)
    assert {shard.count for shard in found.shards} == {10}
    assert found.speed_up == pytest.approx(found.contiguous_pass_time / found.pass_time)
    assert found.dataset is not None
    assert found.dataset.fps == 30


def test_manifests_hold_every_episode_once_with_its_length_and_cost(tmp_path: Path) -> None:
    rows = [{"id": f"e{n}", "length": length, "price": length / 8} for n, length in enumerate(LENGTHS)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    done(path, "--ranks", 3, "--cost", "column:price", "--out", tmp_path / "out" / "plan")
    ranks = manifests(tmp_path / "out" / "plan")
    expected = {row["id"]: {"episode": row["id"], "length": row["length"], "cost": row["price"]} for row in rows}
    assert {row["episode"]: row for rank in ranks for row in rank} == expected
    assert sum(map(len, ranks)) == len(rows)
    summary = ShardPlanInfo.model_validate_json((tmp_path / "out" / "plan" / "summary.json").read_text())
    assert [shard.cost for shard in summary.shards] == [sum(row["cost"] for row in rank) for rank in ranks]
    for rank in ranks:
        assert [row["length"] for row in rank] == sorted(row["length"] for row in rank), "the order of the dataset"
    assert os.listdir(tmp_path / "out") == ["plan"], "nothing is left beside it"


def test_a_manifest_is_a_dataset_that_can_be_planned_again(tmp_path: Path) -> None:
    done(lerobot_v2(tmp_path / "set", LENGTHS), "--ranks", 2, "--out", tmp_path / "plan")
    done(tmp_path / "plan" / "rank-00001-of-00002.jsonl", "--ranks", 2, "--out", tmp_path / "again")
    first = manifests(tmp_path / "plan")[1]
    assert sorted((row for rank in manifests(tmp_path / "again") for row in rank), key=lambda r: r["episode"]) == first


def test_a_plan_is_replaced_only_by_force_and_nothing_else_ever_is(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", LENGTHS)
    out = tmp_path / "plan"
    out.mkdir()
    done(path, "--ranks", 4, "--out", out)
    assert "already has a plan; --force replaces it" in refused(path, "--ranks", 2, "--out", out, code=2)
    assert len(manifests(out)) == 4
    done(path, "--ranks", 2, "--out", out, "--force")
    assert len(manifests(out)) == 2
    (out / "notes.txt").write_text("mine")
    again = (path, "--ranks", 3, "--force", "--out")
    assert "holds 'notes.txt', which is not part of a plan" in refused(*again, out, code=2)
    assert (out / "notes.txt").read_text() == "mine"
    assert "exists and is not a folder" in refused(*again, path, code=2)


RENAME = """
from pathlib import Path
renamed = Path.rename
def fail(path, target):
    if path.name == "new":
        {before}
        raise OSError(5, "Input/output error")
    return renamed(path, target)
Path.rename = fail
"""


def test_a_plan_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    path, out = write_lines(tmp_path / "a.jsonl", LENGTHS), tmp_path / "plan"
    done(path, "--ranks", 4, "--out", out)
    again = (path, "--ranks", 2, "--out", out, "--force")
    assert "Input/output error" in refused(*again, before=RENAME.format(before="pass"))
    assert len(manifests(out)) == 4
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "plan"]
    complaint = refused(*again, code=2, before=RENAME.format(before="(Path(target) / 'x').mkdir(parents=True)"))
    assert "another program has made" in complaint
    assert os.listdir(out) == ["x"]
    assert len(manifests(Path(complaint.strip().rpartition(" is in ")[2]))) == 4


def test_nothing_is_written_of_a_dataset_that_is_broken(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [5, -5])
    complaint = refused(path, "--ranks", 2, "--out", tmp_path / "plan", "--plot", tmp_path / "plot.png")
    assert complaint.startswith("lachesis: ")
    assert "a.jsonl, line 2: length is -5" in complaint
    assert os.listdir(tmp_path) == ["a.jsonl"]


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_plot_is_of_the_kind_that_its_name_says(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = write_lines(tmp_path / "a.jsonl", LENGTHS)
    done(path, "--ranks", 4, "--plot", tmp_path / f"plot.{suffix}")
    assert (tmp_path / f"plot.{suffix}").read_bytes().startswith(magic)


def test_a_plot_says_what_is_in_it(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", LENGTHS)
    before = "import matplotlib; matplotlib.rcParams['svg.fonttype'] = 'none'"
    assert command(path, "--ranks", 4, "--plot", tmp_path / "plot.svg", before=before).returncode == 0
    drawn = (tmp_path / "plot.svg").read_text()
    for text in ("40 episodes, variation 0.56", "mean 205", "contiguous: +73.2%", "load of each rank, 1.73x faster"):
        assert text in drawn


@pytest.mark.parametrize(
    ("plot", "said"), [("plot.bmp", "a plot is written as .png, .svg, .pdf"), ("none/plot.png", "there is no folder")]
)
def test_a_plot_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, plot: str, said: str) -> None:
    assert said in refused(tmp_path / "nothing", "--ranks", 4, "--plot", tmp_path / plot, code=2)


@pytest.mark.parametrize(("module", "option", "code"), [("matplotlib", ["--plot", "plot.png"], 2), ("pyarrow", [], 1)])
def test_a_library_that_is_missing_is_named_with_how_to_get_it(
    tmp_path: Path, module: str, option: list[str], code: int
) -> None:
    path = lerobot_v3(tmp_path / "set", LENGTHS)
    said = refused(path, "--ranks", 4, *option, code=code, before=f"import sys; sys.modules[{module!r}] = None")
    assert f"python -m pip install {module} (the extra `shards`)" in said


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--cost", "cubic=1"], "'cubic=1' is not a cost: expected", 2),
        (["--cost", "frames*action_dim*cameras"], "needs action_dims and cameras", 2),
        (["--cost", "column:price"], "a.jsonl, line 1: no column 'price'", 1),
        (["--length", "size"], "a.jsonl, line 1: no column 'size'; there are ['length']", 1),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(tmp_path: Path, arguments: list[str], said: str, code: int) -> None:
    assert said in refused(write_lines(tmp_path / "a.jsonl", [{"length": 10}]), "--ranks", 2, *arguments, code=code)


@pytest.mark.parametrize("arguments", [[], ["a.jsonl"], ["a.jsonl", "--ranks", 0], ["a.jsonl", "--rank", 2]])
def test_a_command_that_makes_no_sense_exits_with_2(arguments: list[Any]) -> None:
    ran = command(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--help" in ran.stderr


def test_names_of_a_dataset_cannot_move_the_cursor(tmp_path: Path) -> None:
    path = lerobot_v2(tmp_path / "set", LENGTHS, robot_type="\x1b[2J[red]robot")
    assert "robot \\x1b[2J[red]robot" in done(path, "--ranks", 2)


def test_of_very_many_ranks_some_are_shown(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", LENGTHS * 4)
    assert "… and 36 more; --json and --out have them all" in done(path, "--ranks", 100)
