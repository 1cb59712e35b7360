"""The page `/docs`: Swagger UI on the service's OpenAPI document.

All of its files come from this service, so it works without the internet. `vendor/swagger-ui/manifest.json` names the
version and the checksums. To update it, replace the files by those of another version of the npm package.
"""

import json
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse

from app.api.deps import ServicesDep
from app.api.http.routing import GuardedRoute, requires
from app.api.pages.warning import warning
from app.core.access.permissions import Permission

_PAGES = Path(__file__).parent
_SWAGGER_UI = _PAGES / "vendor" / "swagger-ui"
_VERSION = json.loads((_SWAGGER_UI / "manifest.json").read_text())["version"]
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript"}
# Addresses are relative, so that the page works behind a proxy that adds a prefix.
_HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lachesis: HTTP API</title>
<link rel="stylesheet" href="docs/swagger-ui.css?v={_VERSION}">
<link rel="stylesheet" href="docs/docs.css">
</head>
<body>
"""
_BODY = f"""<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js?v={_VERSION}"></script>
<script src="docs/docs.js"></script>
</body>
</html>
"""

DocsFile = Literal["swagger-ui.css", "swagger-ui-bundle.js", "docs.js", "docs.css"]

router = APIRouter(include_in_schema=False, route_class=GuardedRoute)


@router.get("/openapi.json")
@requires(Permission.DESCRIBE)
async def document(request: Request) -> JSONResponse:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/docs")
@requires(Permission.DESCRIBE)
async def docs(services: ServicesDep) -> HTMLResponse:
    """Return the page."""
    return HTMLResponse(f"{_HEAD}{warning(services.access.authenticator.mode)}{_BODY}")


@router.get("/docs/{file}")
@requires(Permission.DESCRIBE)
async def docs_file(file: Annotated[DocsFile, PathParameter()]) -> FileResponse:
    """Return a file that the page loads."""
    path = (_SWAGGER_UI if file.startswith("swagger-ui") else _PAGES) / file
    return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix], headers={"Cache-Control": "max-age=3600"})
