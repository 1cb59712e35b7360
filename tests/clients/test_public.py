"""What every public object shows, and what the SDK says when it is entered, left or closed in the wrong way."""

import ast
import asyncio
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lachesis
from lachesis import (
    AsyncCurriculum,
    AsyncEnvironment,
    AsyncReplay,
    AsyncSample,
    AsyncTrainer,
    Curriculum,
    Environment,
    Group,
    ItemStream,
    LachesisError,
    LeaseLost,
    NotSent,
    Rank,
    Replay,
    Sample,
    ServiceError,
    Settings,
    Trainer,
    Unreachable,
    errors,
)
from lachesis.batches.columns import Columns
from tests.clients.run import group, submitted

SECRET = Settings("http://me:secret@lachesis:1", run="math")


def test_a_star_import_of_the_errors_brings_no_module() -> None:
    names: dict[str, Any] = {}
    exec("from lachesis.errors import *", names)
    assert names["RunNotFound"].__module__ == "lachesis.wire.errors"
    assert not [name for name, value in names.items() if isinstance(value, ModuleType)]


def test_the_module_of_errors_exports_what_it_imports_to_type_checkers() -> None:
    """Pyright takes an imported name for private, unless it is imported as itself."""
    imports = [node for node in ast.parse(inspect.getsource(errors)).body if isinstance(node, ast.ImportFrom)]
    names = [(name.name, name.asname) for node in imports for name in node.names if name.name != "*"]
    assert ("LachesisError", "LachesisError") in names
    assert [name for name, exported in names if name != exported] == []


async def samples(replay: AsyncReplay) -> AsyncSample:
    await replay.set_up()
    async with replay.worker("w", steps=2) as worker:
        assert repr(worker) == "<AsyncWorker name=w session=0 next=0 unsent=0>"
        await worker.insert({"obs": np.float32([[1], [2]])}, policy_version=0)
    async for sample in replay.samples(num_chunks=1):
        return sample
    raise AssertionError


@pytest.mark.slow
async def test_every_public_object_shows_what_it_is(run: Settings) -> None:
    """Its name and what it is about, in a line; never all of its contents."""
    url = run.url
    objects: dict[str, tuple[object, str]] = {}

    def show(thing: object, shown: str) -> None:
        objects[type(thing).__name__] = (thing, shown)

    async with AsyncEnvironment("gsm8k", run) as environment, AsyncTrainer(run, name="rank-0") as trainer:
        show(environment, f"<AsyncEnvironment name=gsm8k run=math url={url} id={environment.id} running_groups=0>")
        first, _ = await submitted(environment, [group(1, 2, item="i1", policy_version=0), group(1)])
        batch = await trainer.take(wait_s=10)
        assert batch is not None
        what = f"step={batch.step} batch={batch.info.batch} groups=2 sequences=2 tokens=3"
        show(batch, f"<AsyncBatch {what} held=True>")
        show(Columns(batch.info, batch.file), f"<Columns {what}>")
        view = f"<GroupView id={first} environment={environment.id} item=i1 sequences=1 tokens=2 staleness=0>"
        show(batch.groups[0], view)
        show(batch.groups[0].sequences()[0], f"<SequenceView group={first} index=0 tokens=2 score=2.0>")
        show(trainer, f"<AsyncTrainer name=rank-0 run=math url={url} batches_held=1>")
        await batch.nack()

    def synchronous() -> None:
        with Trainer(run) as trainer:
            show(trainer, f"<Trainer run=math url={url} batches_held=0>")
            held = trainer.take(wait_s=10)
            assert held is not None
            again = f"step={held.step} batch={held.info.batch} groups=2 sequences=2 tokens=3"
            show(held, f"<Batch {again} held=False>")  # by the time it is looked at
            held.nack()

    await asyncio.to_thread(synchronous)
    async with AsyncReplay(run) as replay:
        show(replay, f"<AsyncReplay run=math url={url} samples_held=0>")
        sample = await samples(replay)
        show(sample, f"<AsyncSample sample={sample.info.sample} chunks=1 fragments=1 held=False>")

        def of_threads() -> None:
            with Replay(run) as replay:
                show(replay, f"<Replay run=math url={url} samples_held=0>")
                with replay.worker("w", 2) as worker:
                    assert repr(worker) == "<Worker name=w session=0 next=1 unsent=0>"
                for sample in replay.samples(num_chunks=1):
                    show(sample, f"<Sample sample={sample.info.sample} chunks=1 fragments=1 held=False>")
                    assert isinstance(sample, Sample)
                    break

        await asyncio.to_thread(of_threads)

    hidden = "run=math url=http://lachesis:1"
    with Curriculum("sums", SECRET) as curriculum:
        show(curriculum, f"<Curriculum name=sums {hidden}>")
        show(curriculum.items(), "<ItemStream closed=False>")
    show(Environment("gsm8k", SECRET).permit(3), "<Permit wait_s=3>")
    show(AsyncEnvironment("gsm8k", SECRET).permit(3), "<AsyncPermit wait_s=3>")
    show(Environment("gsm8k", SECRET), f"<Environment name=gsm8k {hidden} joined=False>")
    show(AsyncCurriculum("sums", SECRET), f"<AsyncCurriculum name=sums {hidden}>")
    show(AsyncCurriculum("sums", SECRET).items(), "<AsyncItemStream closed=False>")
    show(AsyncReplay(SECRET).worker("w", 2), "<AsyncWorker name=w unsent=0>")
    show(Replay(SECRET).worker("w", 2), "<Worker name=w unsent=0>")
    times = "connect_timeout_s=5.0, timeout_s=30.0, retry_budget_s=60.0"
    show(SECRET, f"Settings(url='http://lachesis:1', run='math', {times})")
    show(Group([[1] * 9999] * 3, [[1]], [1.0], id="g", item="i"), "Group(id='g', sequences=3, item='i')")
    show(Group(7, [[1]], [1.0], id="g"), "Group(id='g')")  # type: ignore[arg-type]
    rank = (
        "split_groups=False, equal_sequences=None, cost='tokens', ended_by='all', micro_batch_tokens=None, padded=False"
    )
    show(Rank(1, 2), f"Rank(rank=1, world_size=2, {rank}, equal_micro_batches=True)")
    show(LeaseLost("it is gone"), "LeaseLost('it is gone', status=409, code='lease_lost')")
    show(ServiceError("it is gone"), "ServiceError('it is gone', status=500, code='error')")
    for name in ("LachesisError", "NoBatch", "NoItem", "NoPermit", "Unreachable", "UntrustedCertificate"):
        show(getattr(lachesis, name)("no answer"), f"{name}('no answer')")
    show(NotSent({"g": LachesisError("no")}), "NotSent('group g was not sent: no')")

    assert set(objects) == set(lachesis.__all__) - {"errors"}
    for thing, shown in objects.values():
        if not isinstance(thing, AsyncTrainer | AsyncEnvironment | ItemStream):  # they have gone on
            assert repr(thing).replace("held=True", "held=False") == shown.replace("held=True", "held=False")


ASYNC: dict[str, Callable[[], Any]] = {
    "AsyncEnvironment": lambda: AsyncEnvironment("gsm8k", SECRET),
    "AsyncTrainer": lambda: AsyncTrainer(SECRET),
    "AsyncReplay": lambda: AsyncReplay(SECRET),
    "AsyncCurriculum": lambda: AsyncCurriculum("sums", SECRET),
    "AsyncPermit": lambda: AsyncEnvironment("gsm8k", SECRET).permit(),
    "AsyncItemStream": lambda: AsyncCurriculum("sums", SECRET).items(),
    "AsyncWorker": lambda: AsyncReplay(SECRET).worker("w", 2),
}


@pytest.mark.parametrize("name", ASYNC)
async def test_the_wrong_with_names_the_right_one_and_the_other_class(name: str) -> None:
    thing = ASYNC[name]()
    said = f"^{name} is for asyncio: use `async with`, or the synchronous {name[5:]} with `with`$"
    with pytest.raises(TypeError, match=said), thing:
        pass


SYNC: dict[str, Callable[[], Any]] = {
    "Trainer": lambda: Trainer(SECRET),
    "Environment": lambda: Environment("gsm8k", SECRET),
    "Replay": lambda: Replay(SECRET),
    "Curriculum": lambda: Curriculum("sums", SECRET),
    "Permit": lambda: Environment("gsm8k", SECRET).permit(),
    "ItemStream": lambda: Curriculum("sums", SECRET).items(),
    "Worker": lambda: Replay(SECRET).worker("w", 2),
}


@pytest.mark.parametrize("name", SYNC)
async def test_the_wrong_async_with_names_the_right_one_and_the_other_class(name: str) -> None:
    thing = SYNC[name]()
    with pytest.raises(TypeError, match=f"^{name} is synchronous: use `with`, or Async{name} with `async with`$"):
        async with thing:
            pass


def test_a_class_derived_from_ours_is_named_as_ours() -> None:
    class MyTrainer(AsyncTrainer):
        pass

    thing: Any = MyTrainer(SECRET)
    with pytest.raises(TypeError, match=r"^AsyncTrainer is for asyncio: .* the synchronous Trainer"), thing:
        pass


@pytest.mark.slow
async def test_batches_say_which_with_they_take(run: Settings) -> None:
    async with AsyncEnvironment("gsm8k", run) as environment, AsyncTrainer(run) as trainer:
        await submitted(environment, [group(1), group(1)])
        batch: Any = await trainer.take(wait_s=10)
        with (
            pytest.raises(TypeError, match=r"^AsyncBatch is for asyncio: .* the synchronous Batch with `with`$"),
            batch,
        ):
            pass
        assert batch.held


@pytest.mark.slow
async def test_a_batch_that_outlived_its_loop_says_so_and_names_take(run: Settings) -> None:
    def story() -> None:
        with Trainer(run) as trainer, Environment("math", run) as environment:
            for _ in range(4):
                environment.submit(group(1))
            batch = next(iter(trainer.batches(wait_s=10)))
            said = r"its loop was left before ack\(\); .* or take one without a loop with take\(\)"
            with pytest.raises(LeaseLost, match=f"^it was given back: {said}") as raised:
                batch.ack()
            assert (raised.value.status, raised.value.code) == (409, "lease_lost")
            with pytest.raises(LeaseLost, match=said):
                batch.extend()
            batch.nack()  # it is where that would bring it
            taken = trainer.take(wait_s=10)
            assert taken is not None
            taken.ack()
            kept = trainer.take(wait_s=10)
        assert kept is not None
        with pytest.raises(RuntimeError, match="closed"):
            kept.ack()

    await asyncio.to_thread(story)


@pytest.mark.slow
async def test_a_batch_that_outlived_its_trainer_says_so(run: Settings) -> None:
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(1)])
        async with AsyncTrainer(run) as trainer:
            batch = await trainer.take(wait_s=10)
            assert batch is not None
        with pytest.raises(LeaseLost, match=r"^it was given back: its trainer was closed before ack\(\)"):
            await batch.ack()


async def test_an_error_of_the_network_comes_without_the_frames_of_its_libraries() -> None:
    """And with what they say, in its message."""

    def story() -> str:
        with Trainer(Settings("http://127.0.0.1:1", retry_budget_s=0)) as trainer:
            try:
                trainer.run()
            except Unreachable as error:
                return "".join(traceback.format_exception(error))
        raise AssertionError

    told = await asyncio.to_thread(story)
    assert "ConnectError: All connection attempts failed" in told
    assert "httpcore/" not in told
    assert "httpx/" not in told
    assert told.count("Traceback") == 1


UNCLOSED = {
    "a trainer": """
        trainer = Trainer()
        batch = trainer.take()
        """,
    "a trainer in a loop": """
        trainer = Trainer()
        batches = trainer.batches(prefetch=2)
        batch = next(batches)
        """,
    "a trainer that is collected": """
        def train():
            trainer = Trainer()
            batches = trainer.batches(prefetch=2)
            batch = next(batches)
        train()
        gc.collect()
        """,
    "a trainer of asyncio": """
        async def main():
            trainer = AsyncTrainer()
            batch = await trainer.take()
        asyncio.run(main())
        """,
    "a trainer whose event loop ended": """
        async def main():
            trainer = AsyncTrainer()
            return await trainer.take()
        loop = asyncio.new_event_loop()
        batch = loop.run_until_complete(main())
        loop.close()
        del loop, batch
        gc.collect()
        """,
    "a trainer in a thread that is stopped": """
        trainer = Trainer()
        def work():
            for batch in trainer.batches(prefetch=2):
                came.set()
        came = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        came.wait(20)
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UNCLOSED)
async def test_what_was_not_closed_is_warned_of_by_name_and_no_task_is_destroyed(name: str, run: Settings) -> None:
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1) for _ in range(8)])
    lines = UNCLOSED[name].splitlines()
    program = "\n".join(["import asyncio, gc, threading", "from lachesis import *", *(line[8:] for line in lines)])
    variables = {"LACHESIS_URL": run.url, "LACHESIS_RUN": run.run, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-X", "dev", "-c", program),
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    if name != "a trainer whose event loop ended":  # its loop was closed with tasks in it, which asyncio says itself
        assert "destroyed" not in said
    assert "Traceback" not in said
    if name != "a trainer in a thread that is stopped":  # which still uses it
        how = r"`async with` or aclose\(\)" if "asyncio" in name or "event loop" in name else r"`with` or close\(\)"
        shown = (
            rf"ResourceWarning: unclosed <(Async)?Trainer run=math url={run.url} batches_held=\d>: end it with {how}"
        )
        assert len(re.findall(shown, said)) == 1, said
