"""Contents of groups are shown as text, whatever they contain and however long they are."""

import base64
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.browser.test_groups import GROUPS, rows
from tests.browser.test_hostile import BIDI, ESCAPES, MARKUP, check_inert
from tests.scenarios.native_calls import group, make_run, submit

MANY_BYTES = 10 * 1024 * 1024
HEADER_BYTES = 4_000_000  # most that fits into the header of a group, where its metadata is


async def test_hostile_contents_of_any_length_are_inert(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    hostile = MARKUP + ESCAPES + BIDI
    talk = [
        {"role": hostile, "content": hostile + "m" * MANY_BYTES},
        {"role": "tool", "content": [hostile], "x": hostile},
    ]
    told = {"messages": [talk, talk], "generation_params": {hostile: hostile}, "item": MARKUP}
    large = {"tokens": [[5] * 200_000] * 2, "masks": [[5] * 200_000] * 2}
    await submit(client, group("large", **told, **large), group("small", messages=[talk[1:]] * 2, item=MARKUP))
    page = await show(GROUPS)
    await expect(rows(page)).to_have_count(2)
    await check_inert(page)
    for name, characters in (("large", 100_000), ("small", 100_000)):
        await page.goto(f"{GROUPS}?group={name}")
        await expect(page.get_by_role("article")).to_have_count(2)
        await expect(page.get_by_text("<img src=x onerror=").first).to_be_visible()
        await check_inert(page)
        assert len(await page.content()) < 10 * characters
        await page.goto(f"{GROUPS}?group={name}&view=raw")
        await expect(page.locator("pre[aria-label='Raw JSON']")).to_contain_text("<img src=x onerror=")
        await check_inert(page)


def hostile_fields(text: str) -> dict[str, Any]:
    """Every field of contents that may have text of others, each with its name and this text."""
    data = {"dtype": "U8", "shape": [3], "data": "AAAA"}

    def deep(name: str) -> dict[str, Any]:
        return {f"{name} key {text}": [f"{name} value {text}", {f"{name} inner {text}": text}]}

    talk = [{"role": f"role {text}", "content": f"content {text}", f"more {text}": text}]
    return {
        "messages": [talk, [{"role": "user", "content": [deep("part")]}]],
        "generation_params": deep("generation"),
        "overrides": [deep("override"), {}],
        "group_overrides": deep("group_override"),
        "images": [f"image {text}", deep("image")],
        "metadata": deep("metadata"),
        "item": f"item {MARKUP}",
        "tensors": {f"tensor {MARKUP}": data},
    }


async def test_hostile_text_in_every_field_of_the_contents_is_inert(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await submit(client, group("a", **hostile_fields(MARKUP + ESCAPES + BIDI)))
    page = await show(f"{GROUPS}?group=a")
    await expect(page.get_by_role("article")).to_have_count(2)
    await expect(page.get_by_text("content <img src=x onerror=").first).to_be_visible()
    await check_inert(page)
    await page.goto(f"{GROUPS}?group=a&view=raw")
    raw = page.locator("pre[aria-label='Raw JSON']")
    for name in ("role", "content", "more", "part key", "generation value", "override inner", "group_override value"):
        await expect(raw).to_contain_text(f'"{name} <img src=x onerror=')
    for name in ("image", "image inner", "metadata key", "metadata value", "item", "tensor"):
        await expect(raw).to_contain_text(f'"{name} <img src=x onerror=')
    await check_inert(page)


@pytest.mark.parametrize("field", ["metadata", "images", "group_overrides", "overrides", "tensors"])
async def test_large_fields_of_the_contents_are_inert(client: httpx.AsyncClient, show: Open, field: str) -> None:
    await make_run(client)
    most = HEADER_BYTES if field == "metadata" else MANY_BYTES
    text = MARKUP + ESCAPES + BIDI + "m" * most
    large: Any = {MARKUP: text}
    if field == "overrides":
        large = [large, large]
    elif field == "tensors":
        large = {MARKUP: {"dtype": "U8", "shape": [MANY_BYTES], "data": base64.b64encode(bytes(MANY_BYTES)).decode()}}
    await submit(client, group("a", **{field: large}))
    for view in ("", "&view=raw"):
        page = await show(f"{GROUPS}?group=a{view}")
        shown = page.locator("pre[aria-label='Raw JSON']") if view else page.get_by_role("article").nth(1)
        await expect(shown).to_be_visible()
        await check_inert(page)
        assert len(await page.content()) < 1_000_000
        await page.context.close()


async def test_scores_of_any_size_are_short_and_told_apart(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    written = {"1.7e+308": 1.7e308, "-2.5e+12": -2.5e12, "1e-9": 1e-9, "123,000,000": 123e6, "0.00001": 1e-5, "0": 0.0}
    for number, score in enumerate(written.values()):
        await submit(client, group(f"g{number}", scores=[score, score]))
    page = await show(GROUPS)
    await expect(rows(page)).to_have_count(len(written))
    shown = await page.locator("[data-group] .score").all_inner_texts()
    assert sorted(shown) == sorted(written)
    await page.goto(f"{GROUPS}?group=g0")
    await expect(page.get_by_role("article").first).to_contain_text("score 1.7e+308,")
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
