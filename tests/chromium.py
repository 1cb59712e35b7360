"""The browser that tests of pages use."""

import shutil

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # the first is the fastest

CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
"""The path of the browser. None if this machine has no browser."""
