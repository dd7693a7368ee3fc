"""Generates ``schemas/releases.json``: the releases of the libraries that dslint follows, as the index lists them.

    python scripts/generate_releases.py [LIBRARY ...]

Needs the network and pip, by whose session the index is read: one page a library, no wheel. A row is the release, the
day on which its first file was uploaded, its ``Requires-Python``, the Pythons that its Linux wheels are built for where
nothing else can be installed (empty: any), and whether it is yanked. Pre-releases are left out: pip takes none unasked.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

TARGET = Path(__file__).resolve().parent.parent / "schemas" / "releases.json"
LIBRARIES = (
    "accelerate", "bitsandbytes", "datasets", "deepspeed", "diffusers", "lightning", "mmengine", "peft",
    "pytorch-lightning", "torch", "transformers", "trl", "webdataset", "xtuner",
)  # fmt: skip
INDEX = "https://pypi.org/simple/{}/"
ACCEPT = {"Accept": "application/vnd.pypi.simple.v1+json"}


def main(libraries: list[str]) -> int:
    """Read the pages of the libraries and write the table; those that are not named stay as they are."""
    from pip._internal.network.session import PipSession

    session = PipSession(retries=2)
    table: dict[str, Any] = json.loads(TARGET.read_text("utf-8")) if TARGET.is_file() else {}
    for library in libraries or LIBRARIES:
        page = session.get(INDEX.format(library), headers=ACCEPT, timeout=60)
        page.raise_for_status()
        table[library] = rows(page.json()["files"])
    lines = (
        f'"{library}": [\n' + ",\n".join(json.dumps(row) for row in table[library]) + "\n]" for library in sorted(table)
    )
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(TARGET)
    return 0


def rows(files: list[dict[str, Any]]) -> list[list[Any]]:
    """The releases of one library, oldest first."""
    by_release: dict[Version, list[tuple[dict[str, Any], frozenset[str]]]] = {}
    for file in files:
        found = _parsed(file["filename"])
        if found is not None and not found[0].is_prerelease:
            by_release.setdefault(found[0], []).append((file, found[1]))
    return [_row(release, by_release[release]) for release in sorted(by_release)]


def _row(release: Version, files: list[tuple[dict[str, Any], frozenset[str]]]) -> list[Any]:
    uploaded = min(file["upload-time"] for file, _ in files)[:10]
    required = next((file["requires-python"] for file, _ in files if file.get("requires-python")), "")
    pythons = frozenset().union(*(tags for _, tags in files))
    built = [] if "any" in pythons else sorted(pythons, key=lambda tag: int(tag.partition(".")[2]))
    return [str(release), uploaded, required, " ".join(built), all(file.get("yanked") for file, _ in files)]


def _parsed(name: str) -> tuple[Version, frozenset[str]] | None:
    """The release of a file and the Pythons on Linux that it is for; ``any`` for a sdist and for pure Python."""
    try:
        if not name.endswith(".whl"):
            return parse_sdist_filename(name)[1], frozenset({"any"})
        _, release, _, tags = parse_wheel_filename(name)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return None
    found = set()
    for tag in tags:
        match = re.fullmatch(r"cp3(\d+)", tag.interpreter)
        if tag.platform == "any" or tag.interpreter.startswith("py3"):
            found.add("any")
        elif match and "linux" in tag.platform and not tag.abi.endswith("t"):
            found.add(f"3.{match[1]}")
    return release, frozenset(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
