"""Items, states and settings of curricula against the real service; curricula without an event loop."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lachesis import AsyncCurriculum, AsyncTrainer, Curriculum, Environment, Settings, Trainer
from lachesis._transport.curriculum_calls import MOST_ITEMS_SENT, slices
from lachesis._transport.protocol import REQUEST_BYTES
from lachesis.errors import CurriculumNotFound, InvalidField, ItemNotFound, MalformedBody, RunNotFound
from lachesis.wire.curriculum_items import ItemChange, NewItem, NewItems
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy, Direction

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ODD_KEYS = [
    "...", "a/b", "a/../b", "é ?#%2F", "\u2028", "nl", "nl\n", "\n", "n\nl", "/", "a/", "/a", "a//b", "\0",
    "🙂" * 512,
]  # fmt: skip
STORED = {"one dot": ".", "two dots": ".."}
"""Keys that no new item has, by what the items are called before."""


@pytest.fixture
async def curriculum(run: Settings) -> AsyncIterator[AsyncCurriculum]:
    """One without items."""
    async with AsyncCurriculum("sums", run) as curriculum:
        await curriculum.set_up(strategy="learnability", n_bins=3, seed=7)
        yield curriculum


def test_items_are_cut_into_requests_as_they_are_asked_for() -> None:
    asked = iter(range(2 * MOST_ITEMS_SENT))
    first = next(slices(str(number) for number in asked))
    assert (len(first), next(asked)) == (MOST_ITEMS_SENT, MOST_ITEMS_SENT + 1)
    large = [{"key": str(number), "metadata": {"text": "é" * 2000}} for number in range(5000)]
    cut = list(slices(large))
    assert len(cut) > 1
    assert max(sum(map(len, lines)) for lines in cut) <= REQUEST_BYTES
    bodies = [NewItems.model_validate_json(b'{"items":[' + b",".join(lines) + b"]}") for lines in cut]
    assert [item.model_dump(exclude_unset=True) for body in bodies for item in body.items] == large


def test_everything_of_an_item_but_its_key_can_be_changed() -> None:
    assert ItemChange.model_fields.keys() == NewItem.model_fields.keys() - {"key"}


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_any_number_of_items_is_registered_and_again_changes_nothing(
    curriculum: AsyncCurriculum,
) -> None:
    def items() -> Iterator[str | NewItem]:
        for number in range(MOST_ITEMS_SENT):
            yield str(number)
        yield NewItem(key="a", prior=0.5)

    for registered in (MOST_ITEMS_SENT + 1, 0):
        done = await curriculum.register(items())
        assert (done.registered, done.known) == (registered, MOST_ITEMS_SENT + 1 - registered)
    with pytest.raises(InvalidField, match=r"items\[1\]\.prior: Input should be a valid number"):
        await curriculum.register(["b", {"key": "a", "prior": "high"}])
    with pytest.raises(InvalidField, match=r"items\[1\]: should be a key, a NewItem or its fields, not int"):
        await curriculum.register(["b", 2])  # type: ignore[list-item]
    for one in ("abc", {"key": "a"}):
        with pytest.raises(InvalidField, match="should be several items, not one"):
            await curriculum.register(one)
    assert (await curriculum.info()).items == MOST_ITEMS_SENT + 1


@pytest.mark.parametrize("key", [*ODD_KEYS, *STORED.values()])
async def test_an_item_is_found_changed_and_forgotten_whatever_its_key(curriculum: AsyncCurriculum, key: str) -> None:
    await curriculum.register({"key": odd, "prior": 0.25, "metadata": {"id": 1}} for odd in [*ODD_KEYS, *STORED])
    state = (await curriculum.state()).decode()
    for before, stored in STORED.items():
        state = state.replace(f'"{before}"', f'"{stored}"')
    await curriculum.load_state(state.encode())
    changed = await curriculum.change_item(key, prior=None, category="odd")
    assert (changed.key, changed.prior, changed.category, changed.metadata) == (key, None, "odd", {"id": 1})
    await curriculum.observe(key, [1.0, 0.0])
    await curriculum.flush()
    assert (await curriculum.item(key)).history == [0.5]
    await curriculum.delete_item(key)
    with pytest.raises(ItemNotFound):
        await curriculum.item(key)
    assert {item.key async for item in curriculum.list_items()} == {*ODD_KEYS, *STORED.values()} - {key}


async def test_dots_are_no_key_of_a_new_item(curriculum: AsyncCurriculum) -> None:
    for key in STORED.values():
        with pytest.raises(InvalidField, match=r"items\[1\].key: is `.` or `..`, which HTTP clients remove"):
            await curriculum.register(["a", key])
    assert (await curriculum.info()).items == 0


async def test_what_is_known_of_items_is_shown_page_by_page_in_order(curriculum: AsyncCurriculum) -> None:
    await curriculum.register({"key": f"{number:04}", "prior": number / 1500} for number in range(1500))
    easiest = [item.key async for item in curriculum.list_items(descending=True)]
    assert easiest == [f"{number:04}" for number in reversed(range(1500))]
    hard = [item.key async for item in curriculum.list_items(in_bin=2)]
    assert sorted(hard) == [f"{number:04}" for number in range(500)]
    with pytest.raises(InvalidField):
        await anext(curriculum.list_items(sort="beauty"))  # type: ignore[arg-type]


async def test_other_settings_are_compared_and_numbers_are_returned_without_handing_anything_out(
    curriculum: AsyncCurriculum,
) -> None:
    await curriculum.register({"key": str(number), "prior": number / 30} for number in range(30))
    compared = await curriculum.what_if(strategy="easy_first", n=5, step=1, total_steps=10)
    assert (compared.current.strategy, compared.alternative.strategy) == ("learnability", "easy_first")
    assert (len(compared.alternative.items), compared.difference > 0) == (5, True)
    bins = await curriculum.bins(200, strategy="easy_first", total_steps=10, seed=1)
    assert set(bins) == {0, 1, 2}
    assert bins == await curriculum.bins(200, strategy="easy_first", total_steps=10, seed=1)
    await curriculum.observe("7", [1.0])
    await curriculum.flush()
    metrics = await curriculum.metrics(step=1, total_steps=10)
    assert (metrics["curriculum/total_updates"], (await curriculum.info()).in_flight) == (1, 0)


@pytest.mark.parametrize("cut", [None, "request", "reply"])
async def test_a_curriculum_that_is_restored_from_a_file_continues_with_the_same_samples(
    curriculum: AsyncCurriculum, proxy: CuttingProxy, tmp_path: Path, cut: Direction | None
) -> None:
    await curriculum.change(in_flight_ttl_s=0)
    await curriculum.register(str(number) for number in range(5000))
    for number in range(50):
        await curriculum.observe(str(number), [number / 50])
    await curriculum.flush()
    with (tmp_path / "state.jsonl").open("w+b") as file:
        file.write(b"before\n")
        if cut == "reply":
            proxy.cut(cut, 20_000)
        await curriculum.save_state(file)
        following = [item.key for item in (await curriculum.sample(100)).items]
        assert following != [item.key for item in (await curriculum.sample(100)).items]
        if cut == "request":
            proxy.cut(cut, 20_000)
        file.seek(7)
        loaded = await curriculum.load_state(file)
        assert (loaded.items, loaded.items_seen, proxy.cuts) == (5000, 50, int(cut is not None))
        assert [item.key for item in (await curriculum.sample(100)).items] == following
        file.seek(0)
        assert file.read(7) == b"before\n"


async def test_a_state_is_read_from_bytes_files_and_atropos_or_refused_whole(
    curriculum: AsyncCurriculum, tmp_path: Path
) -> None:
    await curriculum.register(["a", "b", "c"])
    state = await curriculum.state()
    await curriculum.delete()
    with pytest.raises(CurriculumNotFound):
        await curriculum.info()
    with pytest.raises(MalformedBody, match="is cut off"):
        await curriculum.load_state(state[: state.index(b"\n") + 1])
    assert (await curriculum.load_state(io.BytesIO(state))).items == 3
    path = tmp_path / "state.jsonl"
    path.write_bytes(b"a former one")
    await curriculum.save_state(path)
    assert (await curriculum.load_state(str(path))).items == 3
    await curriculum.delete()
    before = files_in(tmp_path)
    with pytest.raises(CurriculumNotFound):
        await curriculum.save_state(str(path))
    assert files_in(tmp_path) == before, "replaced by a whole one, or not at all"
    scheduler = {
        "strategy": "easy_first",
        "n_bins": 5,
        "temperature": 1.0,
        "ema_alpha": 0.3,
        "competence_threshold": 0.5,
        "item_scores": {"a": [0.5, 2], "z": [1.0, 1]},
        "bin_boundaries": [],
        "last_rebin_count": 0,
    }
    assert (await curriculum.load_state(scheduler)).items_seen == 2
    assert (await curriculum.item("z")).mean_reward == 1


async def test_states_that_are_saved_to_one_path_at_once_are_each_whole(
    curriculum: AsyncCurriculum, tmp_path: Path
) -> None:
    await curriculum.register(f"item {number}" for number in range(5000))
    path = tmp_path / "state.jsonl"
    await asyncio.gather(*(curriculum.save_state(path) for _ in range(3)))
    assert (await curriculum.load_state(path)).items == 5000
    assert files_in(tmp_path).keys() == {path.name}


async def test_what_is_not_there_is_said_to_be_missing(run: Settings, proxy: CuttingProxy) -> None:
    async with (
        AsyncCurriculum("sums", run) as curriculum,
        AsyncCurriculum("sums", settings_of(proxy, run="other")) as nowhere,
    ):
        with pytest.raises(CurriculumNotFound):
            await anext(curriculum.items())
        with pytest.raises(CurriculumNotFound):
            await curriculum.change(n_bins=3)
        with pytest.raises(CurriculumNotFound):
            await curriculum.register(["a"])
        with pytest.raises(RunNotFound):
            await nowhere.set_up()
        with pytest.raises(RunNotFound):
            await nowhere.sample(1)


async def test_without_an_event_loop_it_is_the_same(run: Settings) -> None:
    def live() -> None:
        with Trainer(run) as trainer, Curriculum("sums", run) as curriculum:
            shown = trainer.curriculum("sums").set_up(strategy="thompson")
            assert (curriculum.name, shown.settings.strategy) == ("sums", "thompson")
            assert curriculum.register(map(str, range(9))).registered == 9
            with pytest.raises(InvalidField, match="several items"):
                curriculum.register("abc")
            seen = []
            for item in curriculum.items(prefetch=2):
                seen.append(item.key)
                curriculum.observe(item, [1.0])
                if len(seen) == 20:
                    break
            with curriculum.items(prefetch=0) as stream:
                assert next(stream).bin >= 0
            assert list(stream) == []
            curriculum.flush()
            assert curriculum.info().observations == 20
            with Environment("sums", run) as environment:
                environment.curriculum().observe("a", [0.0])
            assert curriculum.item("a").count == 1
            assert len(list(curriculum.list_items())) == 10
            file = io.BytesIO()
            curriculum.save_state(file)
            assert len(file.getvalue().splitlines()) == len(curriculum.state().splitlines()) == 12
            curriculum.observe("a", [0.0])
        with Curriculum("sums", run) as curriculum:
            assert curriculum.item("a").count == 2
        curriculum.close()

    async with AsyncTrainer(run):
        await asyncio.to_thread(live)
