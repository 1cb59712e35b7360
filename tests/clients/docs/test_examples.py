"""The programs in `examples/` run as they are, against a real service."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lachesis import AsyncReplay, AsyncTrainer, Settings
from tests.clients.docs.test_cartpole import load_cartpole
from tests.clients.proxy import CuttingProxy
from tests.e2e.processes import descendants, is_running
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]


async def start(
    program: str, settings: Settings, *arguments: str, folder: Path | None = None
) -> asyncio.subprocess.Process:
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "clients"),
        "LACHESIS_URL": settings.url,
        "LACHESIS_RUN": settings.run,
    }
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, str(ROOT / "examples" / program), *arguments]
    return await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=environ, cwd=folder
    )


async def output(process: asyncio.subprocess.Process, code: int = 0, within_s: float = 90) -> str:
    async with asyncio.timeout(within_s):
        out, _ = await process.communicate()
    assert process.returncode == code, out.decode()
    return out.decode()


async def round_of_both(settings: Settings, proxy: CuttingProxy, first: str, second: str) -> dict[str, list[str]]:
    """Start one program and, once it has been answered, the other; the lines of each."""
    before = proxy.passed["reply"]
    running = {first: await start(first, settings)}
    await wait_until(lambda: proxy.passed["reply"] > before)
    running[second] = await start(second, settings)
    return {program: (await output(process)).splitlines() for program, process in running.items()}


@pytest.mark.long
async def test_the_two_programs_work_together_as_often_as_they_are_run(settings: Settings, proxy: CuttingProxy) -> None:
    async with AsyncTrainer(settings) as watching:
        orders = [("environment.py", "trainer.py"), ("trainer.py", "environment.py"), ("environment.py", "trainer.py")]
        for done, order in enumerate(orders):
            lines = await round_of_both(settings, proxy, *order)
            steps = range(5 * done + 1, 5 * done + 6)
            said = [
                line.split(":")[0] for line in lines["trainer.py"] if not line.startswith("WARNING")
            ]  # that it waits
            assert said == [f"step {step}" for step in steps]
            assert lines["environment.py"][-1] == "addition: {'accepted': 20}"
            status = await watching.status()
            assert (status.groups.delivered, status.queue_size) == (20 * (done + 1), 0)
            assert status.policy_version == 5 * (done + 1)


@pytest.mark.long
async def test_a_program_whose_wait_ends_without_an_answer_prints_the_reason(settings: Settings) -> None:
    for program, said in (
        ("environment.py", "WARNING waiting up to 1 s: there is no run math\\. .*create_run.*\n.*no run math"),
        ("trainer.py", "trainer: no batch in 1 s: too_few_sequences: "),
    ):
        assert re.search(said, await output(await start(program, settings, "--wait-s", "1"), code=1), re.S)
    assert await output(await start("environment.py", settings))
    said = "addition: no permit for environment addition in 1 s: the run wants 80 .*; 80 are queued.* when a trainer"
    assert re.search(said, await output(await start("environment.py", settings, "--wait-s", "1"), code=1))


def files_in(folder: Path) -> Iterator[Path]:
    return folder.iterdir()


async def test_the_program_for_trackers_writes_no_file_if_there_is_no_run(settings: Settings, tmp_path: Path) -> None:
    process = await start("trackers.py", settings, "tensorboard", folder=tmp_path)
    assert "tensorboard: there is no run math" in await output(process, code=1)
    assert not any(files_in(tmp_path))


async def start_cartpole(settings: Settings, *arguments: str) -> tuple[asyncio.subprocess.Process, list[int]]:
    """Start the learner with three workers; their process ids."""
    process = await start("cartpole.py", settings, "--workers", "3", "--seed", "1", *arguments)

    async def playing() -> bool:
        return len(descendants(process.pid)) == 3 or process.returncode is not None

    await wait_until(playing, timeout_s=60)
    return process, descendants(process.pid)


@pytest.mark.long
async def test_the_learner_of_cartpole_learns_to_hold_the_pole_up(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No two runs are alike, as all run as fast as they can: half of what they could learn is enough."""
    weights = tmp_path / "weights.npz"
    process, workers = await start_cartpole(settings, "--target", "250", "--steps", "600", "--weights", str(weights))
    said = await output(process, within_s=400)
    assert len(workers) == 3, said
    assert not any(map(is_running, workers))
    assert re.search(r"step \d+: mean return \d+\.\d; \d+ chunks, mean staleness \d+\.\d\nsolved; ", said), said

    cartpole = load_cartpole(monkeypatch)
    version, learned = cartpole.load(weights)
    first = cartpole.Learner(cartpole.np.random.default_rng(1)).averaged
    assert cartpole.evaluate(first, 20, seed=0) < 50
    assert cartpole.evaluate(learned, 20, seed=0) > 150
    async with AsyncReplay(settings) as replay:
        state = await replay.state()
    assert (state.policy_version, state.samples_held, state.gaps) == (version, 0, 0)
    assert state.refused_fragments == {}
    assert state.limiter.samples > 128 * 10
    assert all(worker.accepted_fragments > 0 for worker in state.workers)


@pytest.mark.long
async def test_ctrl_c_ends_the_learner_of_cartpole_and_its_workers(settings: Settings, tmp_path: Path) -> None:
    process, workers = await start_cartpole(settings, "--target", "501", "--weights", str(tmp_path / "weights.npz"))
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while not (line := await process.stdout.readline()).startswith(b"step 10: mean return "):
            assert line.startswith(b"WARNING run math: no sample for "), line  # on a busy machine
    process.send_signal(signal.SIGINT)
    assert "Traceback" not in await output(process, code=130)
    assert len(workers) == 3
    assert not any(map(is_running, workers))
    async with AsyncReplay(settings) as replay:
        assert (await replay.state()).samples_held == 0


@pytest.mark.long
async def test_a_learner_is_followed_by_its_curriculum_as_often_as_it_is_run(settings: Settings) -> None:
    for attempts, told in (("80", ["20", "40", "60", "80"]), ("2", ["1", "2"])):
        process = await start("curriculum.py", settings, "--strategy", "plr", "--attempts", attempts)
        lines = (await output(process)).splitlines()
        assert [line.split(" attempts")[0] for line in lines] == told
    refused = await start("curriculum.py", settings, "--strategy", "x")
    assert "strategy: Input should be" in await output(refused, code=1)
