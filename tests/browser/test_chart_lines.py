"""Lines and axes of charts: gaps, marks and labels, drawn by the parts of the page themselves."""

import re

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open

DRAW = """async () => {
  const page = document.querySelector("script[type=module]").src;
  const { html, render } = await import(page.replace("app.js", "lib/html.js"));
  const { Lines } = await import(page.replace("app.js", "parts/chart.js"));
  const place = document.body.appendChild(document.createElement("div"));
  place.style.width = "600px";
  const times = [...Array(13).keys()].map((at) => at * 10);
  const series = [{ label: "queued", values: [1, 1, 1, null, null, null, 9, 9, 9, null, 5, null, 9], token: "accent" }];
  const marks = [];
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
    const half = this.measureText(text).width / 2;
    if (this.textAlign === "center") marks.push([text, x + half <= this.canvas.width]);
    draw.call(this, text, x, ...rest);
  };
  render(html`<${Lines} title="Queue" times=${times} step=${10} series=${series} />`, place);
  while (marks.length === 0) await new Promise(requestAnimationFrame);
  CanvasRenderingContext2D.prototype.fillText = draw;
  const over = place.querySelector(".u-over");
  const canvas = place.querySelector("canvas");
  const wide = over.offsetWidth / 130;
  const column = (second) => Math.floor((over.offsetLeft + wide * second) * devicePixelRatio);
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const drawn = [];
  for (let x = column(30) + 1; x < column(60); x++)
    for (let part = 0.15; part < 0.48; part += 0.01) {
      const y = Math.floor((over.offsetTop + over.offsetHeight * part) * devicePixelRatio);
      if (data[4 * (y * width + x) + 3] > 0) drawn.push([x, y]);
    }
  const middle = Math.floor((over.offsetTop + over.offsetHeight * (1 - 5 / 10.2)) * devicePixelRatio);
  const dot = data.slice(4 * (middle * width + column(100)), 4 * (middle * width + column(100)) + 4);
  const accent = Object.assign(document.body.appendChild(document.createElement("p")), { textContent: "x" });
  accent.style.color = "var(--accent)";
  return { marks, drawn, dot: `rgb(${dot.slice(0, 3).join(", ")})`, accent: getComputedStyle(accent).color };
}"""
"""Draws a line with gaps. Says which marks of the time axis have room, what is between the lines in a gap, and which
colour a value between two gaps has."""


async def test_a_line_leaves_its_gaps_empty_shows_lone_values_and_has_room_for_all_marks(show: Open) -> None:
    page = await show("/about")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    found = await page.evaluate(DRAW)
    assert [has_room for _, has_room in found["marks"]] == [True] * len(found["marks"])
    assert found["drawn"] == []
    assert found["dot"] == found["accent"], "a value between two gaps"


AXES = """async ([width, times, values]) => {
  const page = document.querySelector("script[type=module]").src;
  const { html, render } = await import(page.replace("app.js", "lib/html.js"));
  const { Lines } = await import(page.replace("app.js", "parts/chart.js"));
  const place = document.body.appendChild(document.createElement("div"));
  place.style.width = `${width}px`;
  const marks = { center: [], right: [] };
  let room = Infinity;
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
    marks[this.textAlign]?.push(text);
    if (this.textAlign === "right") room = Math.min(room, x - this.measureText(text).width);
    draw.call(this, text, x, ...rest);
  };
  const series = [{ label: "queued", values, token: "accent" }];
  render(html`<${Lines} title="Queue" times=${times} step=${10} series=${series} />`, place);
  while (marks.right.length === 0) await new Promise(requestAnimationFrame);
  CanvasRenderingContext2D.prototype.fillText = draw;
  const when = place.querySelector(".when").innerText;
  const over = place.querySelector(".u-over");
  const canvas = place.querySelector("canvas");
  const picture = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const column = Math.round((over.offsetLeft + over.offsetWidth * (1 - 0.5 / times.length)) * devicePixelRatio);
  const accent = Object.assign(document.body.appendChild(document.createElement("p")), { textContent: "x" });
  accent.style.color = "var(--accent)";
  const [red, green, blue] = getComputedStyle(accent).color.match(/\\d+/g).map(Number);
  const inked = (y) => {
    const [r, g, b, alpha] = picture.data.slice(4 * (y * picture.width + column)).slice(0, 4);
    return alpha > 0 && Math.abs(r - red) + Math.abs(g - green) + Math.abs(b - blue) < 60;
  };
  const rows = [...Array(canvas.height).keys()].filter(inked).map((y) => y / devicePixelRatio - over.offsetTop);
  over.scrollIntoView();
  const box = over.getBoundingClientRect();
  const x = box.left + (box.width * (times.length - 0.2)) / times.length;
  over.dispatchEvent(new MouseEvent("mousemove", { clientX: x, clientY: box.top + 9, bubbles: true }));
  await new Promise((done) => setTimeout(done, 100));
  return { times: marks.center, values: marks.right, room, when, rows, said: place.querySelector(".labels").innerText };
}"""
"""Draws a line in a width. Says the marks of its axes, the room beside those of values, of when the labels are, and
where the line is in the middle of its last span, from the top of the plot on. Then it says the labels while the
pointer is near the end of that span."""


async def test_axes_have_times_whole_counts_and_the_place_of_the_last_span(show: Open) -> None:
    page = await show("/about")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    begin = 1_600_000_200  # five full minutes
    four_minutes = [begin - 120 + 10 * at for at in range(24)]
    narrow = await page.evaluate(AXES, [190, four_minutes, [172] * 23 + [50]])
    assert len(narrow["times"]) == 1
    assert re.fullmatch(r"\d\d:\d\d", narrow["times"][0]), "one mark is a time, too"
    assert narrow["values"] == ["0", "50", "100", "150", "200"]
    assert re.search(r"queued\s+50\s+\d\d:\d\d:50$", narrow["said"])

    six_minutes = [begin - 180 + 10 * at for at in range(36)]
    column = await page.evaluate(AXES, [340, six_minutes, [172] * 36])
    assert len(column["times"]) == 3, "one mark does not say how long the axis is"

    few = await page.evaluate(AXES, [600, [begin, begin + 10, begin + 20], [1, 1, 2]])
    assert few["values"] == ["0", "1", "2"]
    assert few["rows"], "the last span has its width"
    assert 0 < min(few["rows"]) < 10, "the line at the last mark is whole"
    share = await page.evaluate(AXES, [600, [begin, begin + 10], [0.25, 0.5]])
    assert share["values"] == ["0", "0.2", "0.4", "0.6"]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", mark) for mark in share["times"])


@pytest.mark.parametrize(
    ("most", "marks"),
    [
        (900_000, ["0", "250K", "500K", "750K", "1M"]),
        (2_000_000, ["0", "500K", "1M", "1.5M", "2M"]),
        (9_000_000_000, ["0", "2.5B", "5B", "7.5B", "10B"]),
    ],
)
async def test_marks_of_large_values_differ_and_are_not_cut(show: Open, most: int, marks: list[str]) -> None:
    page = await show("/about")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    found = await page.evaluate(AXES, [600, [1_600_000_200, 1_600_000_210], [0, most]])
    assert found["values"] == marks
    assert found["room"] >= 0


async def test_labels_of_a_line_that_ended_say_when(show: Open) -> None:
    page = await show("/about", timezone_id="UTC")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    times = [1_600_000_200 + 10 * at for at in range(5)]
    goes_on = await page.evaluate(AXES, [600, times, [1, 2, 3, 4, None]])
    assert goes_on["when"] == "latest", "the last span may not be written yet"
    ended = await page.evaluate(AXES, [600, times, [1, 2, 3, None, None]])
    assert ended["when"] == "12:30:20"


TWO_VALUES = """async () => {
  const page = document.querySelector("script[type=module]").src;
  const { html, render } = await import(page.replace("app.js", "lib/html.js"));
  const { Lines } = await import(page.replace("app.js", "parts/chart.js"));
  const place = document.body.appendChild(document.createElement("div"));
  const marks = (window.marks = []);
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    marks.push(text);
    draw.call(this, text, ...rest);
  };
  const show = async (value) => {
    const series = [{ label: "queued", values: [value, value], token: "accent" }];
    render(html`<${Lines} title="Queue" times=${[0, 10]} step=${10} series=${series} />`, place);
    while (!marks.includes(String(value))) await new Promise(requestAnimationFrame);
  };
  await show(4);
  await show(400);
}"""
"""Draws a line, and another value of it. The marks that are drawn are in `marks`."""

DRAWN = """async () => {
  while (marks.length === 0) await new Promise(requestAnimationFrame);
  return marks;
}"""
"""Waits for marks, and returns them."""


async def test_another_theme_and_paper_show_the_latest_values(show: Open) -> None:
    page = await show("/about")
    await page.evaluate(TWO_VALUES)
    for change in "theme", "paper":
        await page.evaluate("marks.length = 0")
        if change == "theme":
            await page.evaluate("dispatchEvent(new CustomEvent('lachesis-theme', { detail: 'dark' }))")
        else:
            await page.emulate_media(media="print")
        marks = await page.evaluate(DRAWN)
        assert "400" in marks, change
        assert "4" not in marks, change
