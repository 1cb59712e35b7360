"""Add the packages of `app/api/pages/vendor` to the SBOM of the service, which lists those of Python.

python -m tools.sbom SBOM
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[1] / "app" / "api" / "pages" / "vendor"


def vendored() -> Iterator[dict[str, Any]]:
    """Yield a CycloneDX component for each package in `VENDOR`, with its files."""
    for path in sorted(VENDOR.glob("*/manifest.json")):
        manifest = json.loads(path.read_text())
        name, _, more = manifest["package"].partition(" (npm)")
        place = f"pkg:npm/{name}@{manifest['version']}"
        files = [
            {"type": "file", "name": file, "hashes": [{"alg": "SHA-256", "content": digest}]}
            for file, digest in manifest["sha256"].items()
        ]
        yield {
            "type": "library",
            "bom-ref": place,
            "name": name,
            "version": manifest["version"],
            "description": f"A part of the pages{more}.",
            "licenses": [{"license": {"name": manifest["licence"]}}],
            "purl": place,
            "components": files,
        }


def main(path: Path) -> None:
    """Add the packages of `VENDOR` to the SBOM in a file."""
    sbom, found = json.loads(path.read_text()), list(vendored())
    sbom["components"] += found
    sbom["dependencies"] += [{"ref": one["bom-ref"]} for one in found]
    path.write_text(json.dumps(sbom, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
