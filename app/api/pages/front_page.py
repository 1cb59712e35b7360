"""The page that a browser gets at `/`: a description of the service, and links. It loads nothing else."""

from html import escape

from fastapi import Request
from fastapi.responses import HTMLResponse

from app.version import lachesis_version

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_LINKS = (
    ("/docs", "every endpoint, to read and to try"),
    ("/openapi.json", "the OpenAPI document"),
    ("/v1/runs", "all runs"),
    ("/status", "status of the run of Atropos clients (the run default)"),
    ("/metrics", "metrics for Prometheus"),
    ("/healthz", "whether this process is alive"),
    ("/readyz", "whether it can serve"),
    ("/version", "which version it is"),
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lachesis</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1rem }}
code {{ border: 1px solid #8888; padding: .1em .3em; border-radius: 3px }}
dt {{ float: left; clear: left; width: 9rem }}
dd {{ margin: 0 0 .3rem 9rem }}
:root {{ color-scheme: light dark }}
</style>
</head>
<body>
<h1>Lachesis {version}</h1>
<p>Batches between rollout workers and trainers in reinforcement learning. Environments submit groups of scored
sequences; trainers take batches of exactly the size they asked for.</p>
<p>Programs reach it at <code>{url}</code>: the SDK with <code>LACHESIS_URL={url}</code>, Atropos clients with the same
address, or with <code>{url}/runs/NAME/atropos</code> for the run <code>NAME</code>.</p>
<dl>
{links}
</dl>
</body>
</html>
"""


def front_page(request: Request) -> HTMLResponse:
    """Build the page, with the host name that the browser used."""
    links = "\n".join(f'<dt><a href="{path}">{path}</a></dt><dd>{escape(what)}</dd>' for path, what in _LINKS)
    scheme = "https" if request.headers.get("x-forwarded-proto") == "https" else "http"  # a proxy may end TLS
    url = escape(f"{scheme}://{request.headers.get('host', '')}")
    return HTMLResponse(_PAGE.format(version=escape(lachesis_version()), url=url, links=links), headers=_HEADERS)
