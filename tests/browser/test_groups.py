"""Groups are found, opened, and shown as they were submitted, whatever they contain."""

import random
import re
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect
from tokenizers import Tokenizer

from lachesis.wire.groups import MAX_LOOKED_AT
from tests.api.access.conftest import Tokens, bearer
from tests.api.conftest import Start
from tests.browser.conftest import Open, Watch
from tests.browser.test_accessibility import findings
from tests.browser.test_hostile import MARKUP, check_inert
from tests.scenarios.native_calls import end, group, join, make_run, submit, taken
from tests.tokenizers import make_tokenizer
from tests.waiting import wait_until

GROUPS = "/runs/run/groups"


def rows(page: Page) -> Any:
    return page.locator(".rows .group")


async def test_groups_are_found_by_what_they_are(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=2)
    await client.post("/v1/runs/run/environments", json={"name": "math"})
    await submit(client, group("low", scores=[0.0, 0.0], environment=0, item="sum-1"))
    await submit(client, group("high", scores=[1.0, 1.0], environment=0, item="sum-2"))
    await taken(client)
    page = await show(GROUPS)
    await expect(rows(page)).to_have_count(2)
    low = page.locator("[data-group=low]")
    for text in ("leased", "math", "2", "4", "0", "sum-1"):
        await expect(low).to_contain_text(text)
    await page.get_by_role("combobox", name="State").select_option("queued")
    await expect(rows(page)).to_have_count(1)
    await expect(page.locator("[data-group=high]")).to_be_visible()
    assert page.url.endswith("/groups?state=queued")
    await page.get_by_label("Minimum mean score").fill("2")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("The run knows no such group.")).to_be_visible()
    await page.goto(f"{GROUPS}?item=sum-1&environment=math")
    await expect(low).to_be_visible()
    await expect(rows(page)).to_have_count(1)


async def test_the_list_is_filtered_by_an_environment_of_the_run(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    watch.expected.append("404")
    await make_run(client)
    math, code = await join(client, "math"), await join(client, "code")
    await submit(client, group("m", environment=math), group("c", environment=code), group("n"))
    page = await show(GROUPS)
    await expect(rows(page)).to_have_count(3)
    chosen, chip = (
        page.get_by_role("combobox", name="Environment"),
        page.get_by_role("button", name="Remove the filter"),
    )
    for name, only in (("code", "c"), ("groups without one", "n"), ("math", "m")):
        await chosen.select_option(label=name)
        await expect(rows(page)).to_have_count(1)
        await expect(rows(page)).to_have_attribute("data-group", only)
    await expect(chip).to_contain_text("Environment: math")
    await expect(page).to_have_url(re.compile(f"environment={math}$"))
    await page.goto(f"{GROUPS}?environment=code")
    await expect(chosen.locator("option:checked")).to_have_text("code")
    await page.goto(f"{GROUPS}?environment=mth")
    await expect(page.get_by_text("The run has no environment named mth. Choose another one.")).to_be_visible()
    await expect(page.get_by_text("Join the run")).to_have_count(0)
    await expect(chosen.locator("option:checked")).to_have_text("named mth")
    await page.get_by_role("button", name="Clear the filters").click()
    await expect(rows(page)).to_have_count(3)


async def test_the_reader_comes_back_to_the_row_that_they_left(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=1000)
    await submit(client, *(f"g{number:02}" for number in range(80)))
    page = await show(GROUPS, height=600)
    await expect(rows(page).first).to_be_visible()
    for _ in range(40):
        await page.keyboard.press("j")
    place = page.locator("[role=row]:focus-within")
    opened = await place.get_by_role("link").inner_text()
    top = await page.evaluate("scrollY")
    assert top > 400
    focused = "document.activeElement.id || document.activeElement.innerText"
    for back in ("browser", "button", "key"):
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(rf"group={opened}$"))
        await expect(page).to_have_title(f"run · group {opened} · Lachesis")
        assert await page.evaluate(focused) == "main", "the link that had the focus is gone"
        await expect(page.get_by_role("list", name="Way of the group")).to_be_visible()
        if back == "browser":
            await page.go_back()
        elif back == "button":
            await page.get_by_role("button", name="All groups").click()
        else:
            await page.keyboard.press("Escape")
        await expect(page).to_have_url(re.compile("/groups$"))
        await expect(place.get_by_role("link")).to_have_text(opened)
        await wait_until(partial(page.evaluate, f"Math.abs(scrollY - {top}) <= 1"))
        assert await page.evaluate(focused) == opened
    await expect(page).to_have_title("run · groups · Lachesis")
    await page.keyboard.press("j")
    await expect(place.get_by_role("link")).not_to_have_text(opened)
    await page.get_by_role("link", name="Batches").click()
    await expect(page.get_by_text("No batch was handed out yet.")).to_be_visible()
    assert await page.evaluate(focused) == "main"


async def test_the_list_stays_while_one_of_its_groups_is_open(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=1000)
    await submit(client, *(f"g{number}" for number in range(5)))
    page = await show(GROUPS, height=600)
    link = page.locator("[data-group=g2]").get_by_role("link")
    await link.click()
    await expect(page.get_by_role("list", name="Way of the group")).to_be_visible()
    await submit(client, *(f"new{number}" for number in range(30)))
    await page.go_back()
    await expect(link).to_be_focused()
    await expect(link).to_be_in_viewport()
    await page.get_by_role("button", name="30 new: show them").click()
    await expect(page.locator("[data-group=new29]")).to_be_visible()


async def test_the_list_stays_while_it_is_read_and_says_what_is_new(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await submit(client, "a")
    page = await show(GROUPS)
    await expect(rows(page)).to_have_count(1)
    await submit(client, "b", "c")
    await page.get_by_role("button", name="2 new: show them").click()
    await expect(rows(page)).to_have_count(3)


async def test_on_a_phone_groups_are_on_the_first_screen_and_filters_fold(
    client: httpx.AsyncClient, show: Open
) -> None:
    await make_run(client)
    await submit(client, group("a", item="x"), group("b", item="y"))
    page = await show(GROUPS, width=390)
    await expect(rows(page)).to_have_count(2)
    box = await rows(page).first.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 800
    await page.get_by_role("button", name="Filters", exact=True).click()
    await page.get_by_label("Item").fill("x")
    await page.keyboard.press("Enter")
    await expect(rows(page)).to_have_count(1)
    assert await findings(page) == []


async def test_filters_are_chips_and_the_list_says_when_it_was_read(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await submit(client, group("a", item="x"), group("b", item="y"))
    page = await show(f"{GROUPS}?item=x&from=1000000000&to=1000003600")
    await expect(page.get_by_text("The run knows no such group.")).to_be_visible()
    chips = page.get_by_role("list", name="Filters that are set")
    await expect(chips.get_by_role("listitem")).to_have_text(
        [
            re.compile("^Item: x"),
            re.compile("^Received from: [89] Sept? 2001"),
            re.compile("^Received before"),
            "Remove all",
        ]
    )
    await expect(page.get_by_label("Received from", exact=True)).to_have_value(re.compile("^2001-09-0"))
    assert await findings(page) == []
    await chips.get_by_role("button", name="Remove the filter Received from").click()
    await chips.get_by_role("button", name="Remove the filter Received before").click()
    await expect(rows(page)).to_have_count(1)
    assert page.url.endswith("/groups?item=x")
    await submit(client, group("c", item="x"), "d")
    await expect(page.get_by_text(re.compile(r"Read at \d+ \w+ \d{4}, .* States and ages"))).to_be_visible()
    await page.get_by_role("button", name="Read again").click()
    await expect(rows(page)).to_have_count(2)
    await expect(page.get_by_role("button", name=re.compile(" new: "))).to_have_count(0)
    await chips.get_by_role("button", name="Remove the filter Item: x").click()
    await expect(rows(page)).to_have_count(4)
    await expect(chips).to_have_count(0)
    await client.delete("/v1/runs/run/groups/d")
    await page.get_by_label("Reason for the drop").select_option("deleted")
    await expect(rows(page)).to_have_count(1)
    await expect(chips.get_by_role("listitem")).to_have_text(re.compile("^Reason for the drop: deleted"))


async def test_what_is_typed_stays_while_the_page_is_drawn_again(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await submit(client, group("a", item="sum"), group("b", item="other"))
    page = await show(GROUPS)
    await expect(rows(page)).to_have_count(2)
    field = page.get_by_label("Item", exact=True)
    await field.press_sequentially("sum")
    generated = page.get_by_role("region", name="Token ledger").locator("strong").first
    before = await generated.inner_text()
    await submit(client, group("c"))
    await expect(generated).not_to_have_text(before)
    await expect(field).to_have_value("sum")
    await field.press("Enter")
    await expect(rows(page)).to_have_count(1)
    assert page.url.endswith("/groups?item=sum")
    await page.get_by_role("button", name="Remove the filter Item: sum").click()
    await expect(field).to_have_value("")


async def test_a_long_list_comes_page_by_page(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await submit(client, *(f"g{number:03d}" for number in range(130)))
    page = await show(GROUPS)
    await expect(rows(page).first).to_contain_text("g129")
    await page.get_by_role("button", name="Next page").click()
    await expect(rows(page).first).to_contain_text("g029")
    await page.reload()
    await expect(rows(page).first).to_contain_text("g029")
    await page.get_by_role("button", name="First page").click()
    await expect(rows(page).first).to_contain_text("g129")


async def test_an_opened_group_shows_its_sequences_the_best_first(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    columns = {
        "tokens": [[11, 12], [21, 22, 23]],
        "masks": [[-100, 12], [-100, 22, 23]],
        "scores": [0.0, 1.0],
        "inference_logprobs": [[1.0, -0.5], [1.0, -0.25, -2.0]],
        "advantages": [[-1.0, -1.0], [1.0, 1.0, 1.0]],
        "messages": [
            [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "3"}],
            [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}],
        ],
        "policy_version": 0,
        "policy_versions": [[0, 0], [1, 1, 2]],
    }
    await client.put("/v1/runs/run/policy-version", json={"policy_version": 3})
    await submit(client, {"id": "a", **columns})
    entropy = {"annotations": {"entropy": [[0, 0], [0, 0.25, 0.5]]}}
    assert (await client.post("/v1/runs/run/groups/a/annotations", json=entropy)).status_code == 200
    page = await show(GROUPS)
    await expect(rows(page)).to_have_count(1)
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/groups\?group=a$"))
    sequences = page.get_by_role("article")
    await expect(sequences).to_have_count(2)
    await expect(sequences.first.get_by_role("heading")).to_have_text(
        "Sequence 1, score 1, advantage over the group 1, 3 tokens, versions 1 to 2"
    )
    await expect(sequences.first.get_by_role("listitem")).to_have_text(
        [re.compile(r"user\s*1\+1\?"), re.compile(r"assistant\s*2")]
    )
    tokens = sequences.first.locator(".tokens > span")
    await expect(tokens).to_have_text(["21", "22", "23"])
    assert [await token.get_attribute("class") for token in await tokens.all()] == [None, "trained", "trained"]
    await expect(page.get_by_role("list", name="Way of the group")).to_contain_text("sampled with version 0")

    await page.get_by_label("Overlay").select_option("log probability")
    await expect(tokens.nth(2)).to_have_attribute("data-overlay", "")
    assert await tokens.nth(0).get_attribute("data-overlay") is None, "it was not sampled"
    await expect(page.locator(".ramp")).to_have_text(re.compile(r"log probability\s*-2\s*-0.25"))
    await tokens.nth(1).hover()
    readout = sequences.first.get_by_role("status")
    await expect(readout).to_have_text(
        "token 1 · id 22 · in the loss · log probability -0.25 · advantage 1 · version age 2 · "
        "entropy (annotation) 0.25 · version 1"
    )
    await sequences.first.locator(".tokens").press("ArrowRight")
    await expect(readout).to_contain_text("token 2 · id 23 · in the loss · log probability -2 ·")
    shares = {"logprob": "0", "advantage": "1", "age": "0", "annotation.entropy": "1"}
    for name, share in shares.items():
        await page.get_by_label("Overlay").select_option(name)
        await expect(tokens.nth(2)).to_have_attribute("style", re.compile(rf"--share: {share}\.?0*;"))
    await page.get_by_label("Overlay").select_option("logprob")
    assert "overlay=logprob" in page.url
    await page.get_by_role("heading", name="Group", exact=True).click()  # leaves the field
    await page.locator("body").press("]")
    await expect(sequences).to_have_count(1)
    await expect(sequences.first.get_by_role("heading")).to_have_text(
        "Sequence 0, score 0, advantage over the group -1, 2 tokens, version 0"
    )
    await page.locator("body").press("x")
    await expect(page.locator("pre[aria-label='Raw JSON']")).to_contain_text('"inference_logprobs"')
    await page.locator("body").press("Escape")
    await expect(rows(page)).to_have_count(1)


async def test_ids_of_tokens_keep_all_their_digits(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    large = 2**53 + 1
    await submit(client, group("a", tokens=[[7, large], [7, -large]], masks=[[-100, large], [-100, -large]]))
    page = await show(f"{GROUPS}?group=a")
    sequences = page.get_by_role("article")
    await expect(sequences.first.locator(".tokens > span")).to_have_text(["7", str(-large)])
    await sequences.last.locator(".tokens > span").last.hover()
    await expect(sequences.last.get_by_role("status")).to_contain_text(f"id {large} · in the loss")
    await page.keyboard.press("x")
    await expect(page.locator("pre[aria-label='Raw JSON']")).to_contain_text(re.compile(rf"\s{large}\s"))


def common(left: list[int], right: list[int]) -> int:
    """The length of the longest common subsequence, by the textbook."""
    row = [0] * (len(right) + 1)
    for one in left:
        above = row[:]
        for at, other in enumerate(right):
            row[at + 1] = above[at] + 1 if one == other else max(above[at + 1], row[at])
    return row[-1]


async def test_two_siblings_are_compared_token_by_token(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    prompt, tail = list(range(100, 150)), list(range(300, 340))
    tokens = [[*prompt, 1, 2, 3, *tail], [*prompt, 1, 9, 3, 4, *tail], prompt]
    await submit(client, {"id": "a", "tokens": tokens, "masks": tokens, "scores": [1.0, 0.5, 0.0]})
    page = await show(f"{GROUPS}?group=a")
    await page.get_by_label("Compare sequence 0 with").fill("1")
    await page.keyboard.press("Enter")
    both = page.get_by_role("article", name="Comparison")
    await expect(both.get_by_role("heading")).to_have_text("Sequence 0, score 1 beside Sequence 1, score 0.5")
    await expect(both).to_contain_text(
        "92 tokens in both. Struck out: 1 only in sequence 0. Tinted: 2 only in sequence 1"
    )
    await expect(both.locator(".tokens del")).to_have_text(["2"])
    await expect(both.locator(".tokens ins")).to_have_text(["9", "4"])
    assert await both.locator(".tokens > span").count() == 17, "8 beside each difference, and the 3"
    assert "compare=1" in page.url
    await both.get_by_role("button", name="43 tokens in both: show").click()
    await expect(both.locator(".tokens > span")).to_have_count(60)
    await page.reload()  # what is unfolded is in the address
    await expect(both.locator(".tokens > span")).to_have_count(60)
    await both.get_by_role("button", name="tokens in both: show").click()
    await expect(both.locator(".tokens > span")).to_have_count(92)
    await expect(page).to_have_url(re.compile(r"[?&]unfolded=0\.\d+$"))
    await page.get_by_label("Compare sequence 0 with").fill("2")
    await page.keyboard.press("Enter")
    await expect(page).not_to_have_url(re.compile("unfolded"))
    assert await findings(page) == []


async def test_a_comparison_is_the_shortest_and_its_work_is_bounded(client: httpx.AsyncClient, show: Open) -> None:
    chance = random.Random(7)
    pairs = [[[chance.randrange(4) for _ in range(chance.randrange(12))] for _ in range(2)] for _ in range(300)]
    page = await show("/about")
    found = await page.evaluate(
        """async pairs => {
            const app = document.querySelector("script[type=module]").src;
            const { compare } = await import(new URL("lib/diff.js", app));
            window.compare = compare;
            return pairs.map(([left, right]) => compare(left, right));
        }""",
        pairs,
    )
    for (left, right), result in zip(pairs, found, strict=True):
        sides: dict[str, list[int]] = {"left": [], "right": []}
        for part in result["parts"]:
            values = (right if part["kind"] == "right" else left)[part["from"] : part["to"]]
            for side in sides if part["kind"] == "same" else (part["kind"],):
                sides[side] += values
        assert (sides["left"], sides["right"], result["isExact"]) == (left, right, True)
        same = sum(part["to"] - part["from"] for part in result["parts"] if part["kind"] == "same")
        assert same == common(left, right), (left, right)
    far = await page.evaluate(
        """() => {
            const numbers = first => Array.from({length: 20000}, (_, at) => first + at);
            return compare([1, ...numbers(10), 2], [1, ...numbers(90000), 2]);
        }"""
    )
    assert not far["isExact"]
    assert [(part["kind"], part["to"] - part["from"]) for part in far["parts"]] == [
        ("same", 1),
        ("left", 20000),
        ("right", 20000),
        ("same", 1),
    ]


async def test_tokens_are_text_if_the_operator_names_a_tokenizer(
    start: Start, browser: Browser, tmp_path: Path
) -> None:
    client = await start(tokenizer_file=make_tokenizer(tmp_path))
    encode = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode
    told = encode(f"add {MARKUP}\n\x1b[2J").ids
    await make_run(client)
    await submit(client, group("a", tokens=[[-5, *told], told[:-1]], masks=[[-5, *told], told[:-1]]))
    watch = Watch(httpx.URL(str(client.base_url)).netloc.decode())
    context = await browser.new_context(base_url=str(client.base_url))
    page = await context.new_page()
    watch.follow(page)
    await page.goto(f"{GROUPS}?group=a&compare=0")
    boxes = page.get_by_role("article", name="Sequence").locator(".tokens")
    shown = re.escape(f"add {MARKUP}↵\n") + r"\\u001b\[2"
    await expect(boxes.first).to_have_text(re.compile(f"^{shown}$"), use_inner_text=True)
    await expect(boxes.nth(1)).to_have_text(re.compile(f"^⟨-5⟩{shown}J$"), use_inner_text=True)
    await expect(page.get_by_role("article", name="Comparison").locator(".tokens ins")).to_have_text(["⟨-5⟩", "J"])
    await check_inert(page)
    assert await findings(page) == []
    await page.get_by_label("Tokens as").select_option("ids")
    await expect(boxes.first.locator("span").first).to_have_text(str(told[0]))
    assert "tokens=ids" in page.url
    watch.check()
    await context.close()


async def test_attempts_of_an_item_say_where_they_were_counted(client: httpx.AsyncClient, show: Open) -> None:
    """In a large run, the list looks at the first groups only."""
    await make_run(client)
    await submit(client, *(f"g{number}" for number in range(MAX_LOOKED_AT)))
    await submit(client, group("a", item="x"))
    page = await show(f"{GROUPS}?group=a")
    steps = page.get_by_role("list", name="Way of the group").get_by_role("listitem")
    await expect(steps.nth(1)).to_have_text("attempts 1 group among 1,000 that were looked at")


async def test_an_opened_group_follows_its_way(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    await make_run(client, batch_size=2)
    await client.put("/v1/runs/run/policy-version", json={"policy_version": 3})
    await submit(client, group("a", item=MARKUP, policy_version=1))
    await submit(client, group("b", item=MARKUP, policy_version=3))
    page = await show(f"{GROUPS}?group=a")
    steps = page.get_by_role("list", name="Way of the group").get_by_role("listitem")
    begin = [
        re.compile(r"^item <img src=x "),
        "attempts 2 groups",
        "sampled with version 1, 2 versions old",
        re.compile(r"^received \d+ s ago, 4 tokens, .*B$"),
    ]
    await expect(steps).to_have_text([*begin, re.compile("^queued")])
    await expect(steps.nth(1).get_by_role("link")).to_have_attribute("href", re.compile(r"/groups\?item=%3Cimg"))
    batch = await taken(client, trainer="gpu-0")
    in_batch = [*begin, re.compile(rf"^step 1 batch {batch['batch'][:12]}…, formed \d+ s ago$")]
    await expect(steps).to_have_text([*in_batch, re.compile("^leased held, by gpu-0, handed out 1 time, ends in ")])
    await end(client, batch)
    in_batch[2] = "sampled with version 1"
    in_batch[3] = re.compile(r"^received \d+ s ago, .*B$")
    await expect(steps).to_have_text([*in_batch, re.compile(r"^delivered \d+ s ago$")])
    await client.post("/v1/runs/run/checkpoints", json={"step": 1})
    await expect(steps.last).to_have_text("saved in the checkpoint of step 1")
    await check_inert(page)
    watch.expected.append("410")
    await page.reload()
    gone = page.locator("[data-state=empty]")
    await expect(gone).to_contain_text("The run does not keep the contents of this group. Read contents while")
    await expect(gone).not_to_contain_text(" ago")  # the list of steps has its age, which grows


async def test_contents_need_a_role_that_may_read_them(
    client: httpx.AsyncClient, operator: str, tokens: Tokens, show: Open, watch: Watch
) -> None:
    watch.expected += ["401", "403"]
    await client.post("/v1/runs", json={"name": "run", "batch_size": 2}, headers=bearer(operator))
    await client.post("/v1/runs/run/groups", json=group("a"), headers=bearer(operator))
    page = await show(f"{GROUPS}?group=a")
    for contents in (False, True):
        await page.get_by_label("Token").first.fill(await tokens.make("viewer", "run", contents=contents))
        await page.get_by_role("button", name="Use it").first.click()
        if contents:
            await expect(page.get_by_role("article")).to_have_count(2)
        else:
            await expect(page.locator("[data-state=forbidden]")).to_contain_text("or credentials with contents")
            await expect(page.get_by_role("list", name="Way of the group")).to_be_visible()
            await page.get_by_role("button", name="Use another token").click()


@pytest.mark.parametrize("query", ["?group=gone", "?state=leased&cursor=nonsense"])
async def test_what_is_not_there_is_an_error_with_its_code(
    client: httpx.AsyncClient, show: Open, watch: Watch, query: str
) -> None:
    watch.expected += ["404", "422"]
    await make_run(client)
    page = await show(GROUPS + query)
    await expect(page.locator("[data-state=error]").first).to_contain_text(re.compile("group_not_found|invalid"))
