"""Generates ``schemas/releases.json``, the releases of the libraries that dslint follows, as the index lists them, and
``schemas/required.json``, what each of them requires of other distributions.

    python scripts/generate_releases.py [LIBRARY ...]

Needs the network and pip, by whose session the index is read: one page a library, and for each release that is new the
metadata of one wheel, of which pip reads a part (as with ``--use-feature=fast-deps``); of DeepSpeed, which has no
wheels, the text of the requirements that its setup.py reads. A row is the release, the
day on which its first file was uploaded, its ``Requires-Python``, the Pythons that its Linux wheels are built for where
nothing else can be installed (empty: any), and whether it is yanked. Pre-releases are left out: pip takes none unasked.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"
sys.path.insert(0, str(SCHEMAS.parent))

from dslint.model.versions.requirements import FOLLOWED  # noqa: E402
from dslint.model.versions.requirements import REQUIRED as BESIDE  # noqa: E402

TARGET = SCHEMAS / "releases.json"
REQUIRED = SCHEMAS / "required.json"
# Nobody trains with releases before this day any more.
OLDEST = "2022-01-01"
# Of what stands beside the libraries nobody asks for earlier ones; pins on those say nothing.
OLDEST_BESIDE = "2019-06-01"
# Each of their releases requires one release of torch: old pins of both stand side by side.
_OF_ONE_TORCH = frozenset(("torchaudio", "torchtext", "torchvision"))
# Only as sdists: the file that their setup.py takes the requirements from.
SDISTS = {"deepspeed": "requirements/requirements.txt"}
INDEX = "https://pypi.org/simple/{}/"
ACCEPT = {"Accept": "application/vnd.pypi.simple.v1+json"}


def main(libraries: list[str]) -> int:
    """Read the pages of the libraries and write the table; those that are not named stay as they are."""
    from pip._internal.network.session import PipSession

    session = PipSession(retries=2)
    table: dict[str, Any] = json.loads(TARGET.read_text("utf-8")) if TARGET.is_file() else {}
    required = Required()
    for library in libraries or (*sorted(FOLLOWED), *BESIDE):
        page = session.get(INDEX.format(library), headers=ACCEPT, timeout=60)
        page.raise_for_status()
        table[library] = rows(page.json()["files"], OLDEST_BESIDE if library in BESIDE else "")
        required.add(session, library, page.json()["files"])
        required.write()
    lines = (
        f'"{library}": [\n' + ",\n".join(json.dumps(row) for row in table[library]) + "\n]" for library in sorted(table)
    )
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(TARGET, REQUIRED)
    return 0


class Required:
    """What releases require beside extras: each text once, and for each release the numbers of its texts."""

    def __init__(self) -> None:
        known = json.loads(REQUIRED.read_text("utf-8")) if REQUIRED.is_file() else {"texts": [], "releases": {}}
        self.texts: list[str] = known["texts"]
        self.releases: dict[str, dict[str, list[int]]] = known["releases"]

    def add(self, session: Any, library: str, files: list[dict[str, Any]]) -> None:
        """Ask for the metadata of every release that is not known yet."""
        known = self.releases.setdefault(library, {})
        asked: dict[str, str] = {}
        for file in files:
            found = _parsed(file["filename"])
            if found is None or found[0].is_prerelease or str(found[0]) in known:
                continue
            oldest = OLDEST_BESIDE if library in _OF_ONE_TORCH else OLDEST
            if file["upload-time"] >= oldest and (
                file["filename"].endswith(".tar.gz") if library in SDISTS else _is_wheel(file)
            ):
                asked.setdefault(str(found[0]), file["url"])
        ask = _of_sdist if library in SDISTS else _required
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda url: ask(session, library, url), asked.values()))
        for release, texts in zip(asked, answers, strict=True):
            known[release] = sorted({self._number(text) for text in texts})

    def _number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)

    def write(self) -> None:
        """One line a release."""
        parts = []
        for library, known in sorted(self.releases.items()):
            lines = (f'"{release}": {json.dumps(known[release])}' for release in sorted(known, key=Version))
            parts.append(f'"{library}": {{\n' + ",\n".join(lines) + "\n}")
        texts = ",\n".join(map(json.dumps, self.texts))
        text = '{"texts": [\n' + texts + '\n],\n"releases": {\n' + ",\n".join(parts) + "\n}}\n"
        REQUIRED.write_text(text, encoding="utf-8")


def _is_wheel(file: dict[str, Any]) -> bool:
    return file["filename"].endswith(".whl") and not re.search(r"macosx|win32|win_amd64|aarch64", file["filename"])


def _required(session: Any, library: str, url: str) -> list[str]:
    """The requirements of a release that no extra adds, in one spelling."""
    from pip._internal.network.lazy_wheel import dist_from_wheel_url

    return _spelled(dist_from_wheel_url(library, url, session).metadata.get_all("Requires-Dist") or [])


def _of_sdist(session: Any, library: str, url: str) -> list[str]:
    """The requirements of a release that is an sdist, from their text."""
    answer = session.get(url, timeout=120)
    answer.raise_for_status()
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        member = next((m for m in archive if m.name.partition("/")[2] == SDISTS[library]), None)
        file = archive.extractfile(member) if member is not None else None
        lines = file.read().decode().splitlines() if file is not None else []
    return _spelled([line.partition("#")[0].strip() for line in lines if line.partition("#")[0].strip()])


def _spelled(found: list[str]) -> list[str]:
    # `torch (>=1.9.*)` is refused today, and was read as `>=1.9`.
    plain = [re.sub(r"([<>]=?\s*\d+(?:\.\d+)*)\.\*", r"\1", text) for text in found]
    return [str(Requirement(text)) for text in plain if not re.search(r"\bextra\s*==", text)]


def rows(files: list[dict[str, Any]], oldest: str = "") -> list[list[Any]]:
    """The releases of one library from a day on, oldest first."""
    by_release: dict[Version, list[tuple[dict[str, Any], frozenset[str]]]] = {}
    for file in files:
        found = _parsed(file["filename"])
        if found is not None and not found[0].is_prerelease and file["upload-time"] >= oldest:
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
