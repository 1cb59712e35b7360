"""Keys of items: any text but dots, in bodies and in paths."""

from urllib.parse import quote, unquote

import httpx
import pytest

from tests.api.curriculum.conftest import CURRICULUM, ITEMS, LINES, state


async def store_dots(client: httpx.AsyncClient) -> None:
    """Store items with the keys `.` and `..`, as earlier builds did."""
    await client.post(f"{CURRICULUM}/items", json={"items": ["one dot", "two dots"]})
    saved = (await client.get(f"{CURRICULUM}/state")).text
    stored = saved.replace('"one dot"', '"."').replace('"two dots"', '".."')
    assert (await client.put(f"{CURRICULUM}/state", content=stored, headers=LINES)).status_code == 200


async def test_a_key_is_any_text_and_slashes_may_stand_in_a_path(curriculum: httpx.AsyncClient) -> None:
    for key in ("a/b//c", "ключ 图/🙂", "100%", "a?b#c", "\0", "x" * 512, "/", '"\\', " ", "%2F"):
        body = {"items": [{"key": key, "metadata": {"url": "http://x/y"}, "category": key[:128]}]}
        assert (await curriculum.post(f"{CURRICULUM}/items", json=body)).json() == {"registered": 1, "known": 0}
        observation = {"item": key, "rewards": [1]}
        observed = await curriculum.post(f"{CURRICULUM}/observations", json={"observations": [observation]})
        assert observed.json()["observed"][0]["item"] == key
        for safe in ("", "/"):
            reply = await curriculum.get(f"{CURRICULUM}/items/{quote(key, safe=safe)}")
            assert reply.status_code == 200, reply.text
            item = reply.json()
            assert (item["key"], item["category"], item["metadata"]) == (key, key[:128], {"url": "http://x/y"})
        lines = await state(curriculum)
        saved = await curriculum.get(f"{CURRICULUM}/state")
        await curriculum.put(f"{CURRICULUM}/state", content=saved.content, headers=LINES)
        assert await state(curriculum) == lines
        assert (await curriculum.delete(f"{CURRICULUM}/items/{quote(key, safe='')}")).status_code == 204


async def test_a_path_addresses_the_item_of_exactly_this_key(curriculum: httpx.AsyncClient) -> None:
    """All of these keys are there at once. Some differ only in what a path might lose."""
    ends = ["nl", "nl\n", "nl\n\n", "\nnl", "n\nl", "nl\r\n", "\n", "nl\u2028", "nl\x85", "nl ", " nl", "nl\0"]
    slashes = ["a", "a/", "/a", "a//", "a//b", "a/b", "/", "//", "items", "a%2Fb", "a%252Fb"]
    dots = [".", ".."]
    others = ["...", "a/..", "../a", "a/./b", "é", "e\u0301", "%", "%0A", "+", "?", "#", "\ufffd"]
    keys = [*ends, *slashes, *others, "🙂" * 512]
    await store_dots(curriculum)
    await curriculum.post(f"{CURRICULUM}/items", json={"items": keys})
    keys += dots

    def path(key: str) -> str:
        quoted = quote(key, safe="") if key.strip(".") else key.replace(".", "%2E")
        return f"{CURRICULUM}/items/{quoted}"

    async def there() -> set[str]:
        reply = await curriculum.get(f"{CURRICULUM}/items", params={"limit": 1000})
        return {item["key"] for item in reply.json()["items"]} & set(keys)

    for key in keys:
        assert (await curriculum.get(path(key))).json()["key"] == key
        changed = await curriculum.patch(path(key), json={"metadata": {"key": key}})
        assert (changed.json()["key"], changed.json()["metadata"]) == (key, {"key": key})
    for number, key in enumerate(keys):
        assert (await curriculum.delete(path(key))).status_code == 204
        assert await there() == set(keys[number + 1 :])
        assert (await curriculum.get(path(key))).status_code == 404


@pytest.mark.parametrize("key", [".", ".."])
async def test_dots_are_no_key_of_a_new_item_and_stored_ones_go_on(curriculum: httpx.AsyncClient, key: str) -> None:
    for item in (key, {"key": key, "prior": 0.5}):
        reply = await curriculum.post(f"{CURRICULUM}/items", json={"items": ["new", item]})
        (error,) = reply.json()["errors"]
        assert (reply.status_code, error["loc"]) == (422, ["items", 1, "key"])
        assert error["msg"] == "is `.` or `..`, which HTTP clients remove from the path of the item"
    assert (await curriculum.get(CURRICULUM)).json()["items"] == len(ITEMS)
    await store_dots(curriculum)
    sample = (await curriculum.post(f"{CURRICULUM}/samples", json={"n": len(ITEMS) + 2})).json()
    assert key in {item["key"] for item in sample["items"]}
    observed = {"observations": [{"item": key, "rewards": [1.0]}]}
    assert (await curriculum.post(f"{CURRICULUM}/observations", json=observed)).json()["observed"][0]["count"] == 1


async def test_a_path_that_lost_its_end_deletes_nothing(curriculum: httpx.AsyncClient) -> None:
    """`curl -L` and browsers make `curricula/c/` of `curricula/c/items/..`, and follow redirects."""
    for method in ("GET", "DELETE"):
        reply = await curriculum.request(method, f"{CURRICULUM}/", follow_redirects=True)
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
    assert (await curriculum.get(CURRICULUM)).json()["items"] == len(ITEMS)


@pytest.mark.parametrize("raw", ["%FF", "a%C3", "%ED%A0%80", "%C0%AF", "", "x" * 513])
async def test_a_path_that_names_no_key_is_refused(curriculum: httpx.AsyncClient, raw: str) -> None:
    """What is not UTF-8 would be read as replacement characters, which another item may have in its key."""
    replaced = unquote(raw)[:512]
    if replaced:
        await curriculum.post(f"{CURRICULUM}/items", json={"items": [replaced]})
    before = await state(curriculum)
    for method in ("GET", "DELETE"):
        reply = await curriculum.request(method, f"{CURRICULUM}/items/{raw}")
        assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["path", "key"])
    assert await state(curriculum) == before
