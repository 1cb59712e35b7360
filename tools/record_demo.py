"""Record the page of `make demo` for the README: `python -m tools.record_demo docs/demo.webp`, or `docs/page.png`.

It runs the demo. For an animation, it takes a picture of the page every two seconds, and joins them. For a `.png`, it
takes one picture after the policy has learnt. This takes about two minutes, and needs Chromium (`tools/chromium`).
"""

import argparse
import io
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.chromium import CHROMIUM
from tests.ports import free_port

DEMO = Path(__file__).parents[1] / "examples" / "demo" / "demo.py"
STORY = (("now", 12), ("curriculum", 24), ("rewards", 10), ("shares", 6), ("batches", 6), ("groups", 6), ("now", 6))
"""The views of the page, and for how many seconds each."""

EVERY_S, SHOWN_MS, LAST_MS = 2.0, 260, 3000
WIDTH, HEIGHT = 1120, 760
LEARNT_S = 70
MOST_BYTES = 1_500_000


def pictures(page: Page, url: str) -> list[Image.Image]:
    """Take the pictures of the story."""
    taken = []
    for view, seconds in STORY:
        page.goto(f"{url}/runs/demo/{view}")
        page.wait_for_selector("h1")
        for _ in range(round(seconds / EVERY_S)):
            page.wait_for_timeout(EVERY_S * 1000)
            taken.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
    return taken


def take_picture(page: Page, url: str, place: Path) -> None:
    """Take one picture: how rewards rise."""
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{url}/runs/demo/rewards?environment=sum")
    page.wait_for_timeout(LEARNT_S * 1000)
    page.screenshot(path=place)


def main(place: Path, quality: int) -> None:
    """Run the demo, and write the animation or the picture."""
    port = free_port()
    if CHROMIUM is None:
        sys.exit("there is no Chromium: run `tools/chromium`")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        command = [sys.executable, str(DEMO), "--no-comparison", "--groups", "4000", "--port", str(port)]
        demo = subprocess.Popen([*command, "--folder", folder], start_new_session=True)
        try:
            while not (Path(folder) / "demo" / "policy.npz").exists():
                if demo.poll() is not None:
                    sys.exit("the demo has ended; the lines above say why")
                time.sleep(0.1)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--no-proxy-server"])
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            url = f"http://127.0.0.1:{port}"
            if place.suffix == ".png":
                take_picture(page, url, place)
                return
            first, *others = pictures(page, url)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait()
    shown_ms = [SHOWN_MS] * len(others) + [LAST_MS]
    first.save(place, save_all=True, append_images=others, duration=shown_ms, loop=0, quality=quality, method=6)
    if place.stat().st_size > MOST_BYTES:
        sys.exit(f"{place} has {place.stat().st_size:,} bytes, at most {MOST_BYTES:,}: lower --quality or EVERY_S")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path, help="the file to write: .webp or .png")
    parser.add_argument("--quality", type=int, default=60)
    given = parser.parse_args()
    main(given.place, given.quality)
