"""How Sphinx builds the site: `make docs`. Pages are Markdown and read well without the site, too."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "Lachesis"
author = copyright = "the authors of Lachesis"
extensions = ["myst_parser"]
exclude_patterns = ["_static"]

html_theme = "furo"
html_title = "Lachesis"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 4  # links to headings work as they do on a code host

# The order of the pages. A page that is in no list is a warning, and so an error.
NAVIGATION = {
    "Begin": ["get-started", "how-to/demo", "concepts"],
    "How to": [
        "how-to/python-sdk",
        "how-to/language-models",
        "how-to/http-api",
        "how-to/move-from-atropos",
        "how-to/many-workers",
        "how-to/ranks",
        "how-to/loader",
        "how-to/dataset-shards",
        "how-to/filters",
        "how-to/replay",
        "how-to/curriculum",
        "how-to/troubleshooting",
        "how-to/resume-after-a-crash",
        "how-to/no-batch",
        "how-to/operators-page",
        "how-to/follow-a-run",
        "how-to/command-line",
        "how-to/groups",
        "how-to/tracing",
    ],
    "Reference": [
        "reference/http-api",
        "reference/settings",
        "reference/service-settings",
        "reference/errors",
        "reference/sdk",
        "reference/status",
        "reference/metrics",
        "reference/log",
        "reference/command-line",
    ],
    "Operate": ["operate/index", "security"],
    "Design": [
        "design/architecture",
        "design/adr/index",
        "design/benchmarks",
        "design/growth",
        "design/attacks",
        "design/contributing",
        "design/changelog",
        "design/earlier-builds",
    ],
}
# Lists inside of pages, which the sidebar folds.
BELOW = {
    "reference/http-api": sorted(f"http/{page.stem}" for page in DOCS.glob("reference/http/*.md")),
    "design/adr/index": sorted(page.stem for page in DOCS.glob("design/adr/0*.md")),
}

# Pages that lie outside of docs/ in the repository, and where the site has them.
OUTSIDE = {
    "ARCHITECTURE.md": "design/architecture.md",
    "CONTRIBUTING.md": "design/contributing.md",
    "CHANGELOG.md": "design/changelog.md",
}


def setup(app: Any) -> None:
    """Register the hooks."""
    app.connect("config-inited", lambda *_: _copy_pages())
    app.connect("source-read", _add_navigation)


def _copy_pages() -> None:
    """Copy the pages of `OUTSIDE` into docs/, which git ignores, with links as they are there."""
    for name, place in OUTSIDE.items():
        text = (ROOT / name).read_text()
        text = re.sub(r"\]\(docs/", "](/", text)
        for other, its_place in OUTSIDE.items():
            text = text.replace(f"]({other}", f"](/{its_place}")
        target = DOCS / place
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


def _add_navigation(_: Any, page: str, source: list[str]) -> None:
    """Point links out of docs/ to the copies, and add the lists of pages that code hosts would show as code."""
    for name, place in OUTSIDE.items():
        source[0] = re.sub(rf"\]\((?:\.\./)+{re.escape(name)}", f"](/{place}", source[0])
    if page == "index":
        source[0] += "".join(_toctree(pages, caption) for caption, pages in NAVIGATION.items())
    elif page in BELOW:
        source[0] += _toctree(BELOW[page])


def _toctree(pages: list[str], caption: str = "") -> str:
    return "\n".join(["\n\n```{toctree}", ":hidden:", f":caption: {caption}" if caption else "", "", *pages, "```\n"])
