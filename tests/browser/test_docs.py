"""The page `/docs` in a browser."""

import pytest

from tests.browser.conftest import Open


@pytest.mark.parametrize(
    ("system", "chosen", "is_dark"),
    [("dark", None, True), ("light", None, False), ("dark", "light", False), ("light", "dark", True)],
)
async def test_the_page_has_the_theme_of_the_system_or_of_the_reader(
    show: Open, system: str, chosen: str | None, is_dark: bool
) -> None:
    page = await show("/about", color_scheme=system)
    if chosen:
        await page.evaluate("theme => localStorage.setItem('lachesis.theme', theme)", chosen)
    await page.goto(page.url.replace("/about", "/docs"))
    await page.wait_for_selector(".swagger-ui .opblock")
    colour = await page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert (colour == "rgb(28, 32, 34)") is is_dark, colour
