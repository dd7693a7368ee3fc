"""Which releases a package index has, which of them are wanted, and the text of their files.

Only text is kept of a file: its Python sources, stubs and metadata. Nothing of it is built, installed or run.
The index is asked as PEP 691 says (JSON of the simple index), with the upload times of PEP 700.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urljoin

from packaging.version import InvalidVersion, Version

INDEX = "https://pypi.org/simple/"
# The first upload of interest: four years before the newest release here.
SINCE = "2022-10-15"
# Import name of the library -> project on the index.
PROJECTS = {
    "torch": "torch",
    "deepspeed": "deepspeed",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "trl": "trl",
    "peft": "peft",
    "datasets": "datasets",
    "lightning": "lightning",
    "pytorch_lightning": "pytorch-lightning",
    "mmengine": "mmengine",
    "bitsandbytes": "bitsandbytes",
    "diffusers": "diffusers",
    # What those import while they are imported themselves.
    "huggingface_hub": "huggingface-hub",
    "tokenizers": "tokenizers",
    "safetensors": "safetensors",
    "triton": "triton",
    "torchvision": "torchvision",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "fsspec": "fsspec",
    # What scripts use beside them.
    "numpy": "numpy",
    "torchaudio": "torchaudio",
    "torchdata": "torchdata",
    "torchmetrics": "torchmetrics",
    "flash_attn": "flash-attn",
    "timm": "timm",
    "sentence_transformers": "sentence-transformers",
    "vllm": "vllm",
}
# Libraries of which only the names are read: nobody asks what they need.
NAMES_ONLY = frozenset(
    (
        "tokenizers", "safetensors", "triton", "torchvision", "pyarrow", "pydantic", "fsspec", "numpy", "torchaudio",
        "torchdata", "torchmetrics", "flash_attn", "vllm",
    )
)  # fmt: skip
# Libraries of which every release is read: their patches change names, or they are small.
EVERY_RELEASE = {
    "deepspeed": "0.7.0",
    "accelerate": "0.13.0",
    "trl": "0.2.0",
    "peft": "0.0.2",
    "bitsandbytes": "0.40.0",
    "timm": "0.9.0",
}
# Releases that come before the four years and that many projects still pin.
ALSO = {
    "torch": ("1.12.1",),
    "numpy": ("1.20.3", "1.21.6", "1.22.4", "1.23.5"),
    "torchmetrics": ("0.7.3", "0.9.3", "0.10.3"),
    "timm": ("0.3.2", "0.4.12", "0.5.4", "0.6.13"),
    "sentence_transformers": ("2.2.2",),
    "torchaudio": ("0.12.1",),
    "torchdata": ("0.4.1",),
}
# Wheels whose Python files are the same on all systems are taken where they are small.
_SMALL = ("none-any.whl", "macosx_11_0_arm64.whl", "macosx_14_0_arm64.whl", "win_arm64.whl")
# Of wheels that are larger than this, only the parts with text are asked for.
_LARGE = 20_000_000
_TEXT = (".py", ".pyi", "/METADATA", "/PKG-INFO", "/entry_points.txt", "/requirements.txt")


@dataclass(frozen=True)
class Release:
    """A release on the index: the file of it that is read."""

    library: str
    version: str
    filename: str
    url: str
    sha256: str
    uploaded: str
    size: int = 0


def wanted(library: str) -> list[Release]:
    """The releases of a library that the data should have, oldest first."""
    releases = sorted(_releases(library), key=lambda release: Version(release.version))
    first = EVERY_RELEASE.get(library)
    if first is not None:
        also = ALSO.get(library, ())
        return [each for each in releases if Version(each.version) >= Version(first) or each.version in also]
    last: dict[tuple[int, int], Release] = {}
    for release in releases:
        version = Version(release.version)
        if release.uploaded >= SINCE or release.version in ALSO.get(library, ()):
            last[version.major, version.minor] = release
    return list(last.values())


def one(library: str, version: str) -> Release:
    """The release with this number."""
    for release in _releases(library):
        if release.version == version:
            return release
    raise SystemExit(f"The index has no file of {library} {version} that can be read.")


def with_hashes(library: str, hashes: set[str]) -> list[Release]:
    """The releases whose file has one of these hashes, oldest first."""
    found = [release for release in _releases(library) if release.sha256 in hashes]
    return sorted(found, key=lambda release: Version(release.version))


def _releases(library: str) -> Iterator[Release]:
    files: dict[str, list[dict[str, Any]]] = {}
    project = PROJECTS[library]
    for file in _index(project)["files"]:
        version = _version(file["filename"])
        if version is not None and not file.get("yanked"):
            files.setdefault(version, []).append(file)
    for version, found in files.items():
        # The sdist of what is written in C or Rust has its Python elsewhere.
        wheels = [each for each in found if each["filename"].endswith(".whl")] if library in NAMES_ONLY else []
        file = min(wheels or found, key=_preference)
        if _preference(file)[0] == len(_SMALL) + 2:
            continue
        uploaded = min(str(each["upload-time"]) for each in found)[:10]
        digest = file["hashes"]["sha256"]
        yield Release(library, version, file["filename"], file["url"], digest, uploaded, file.get("size") or 0)


def _index(project: str) -> dict[str, Any]:
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(f"{INDEX}{project}/", headers=accept)) as answer:
        data: dict[str, Any] = json.load(answer)
    return data


def _version(filename: str) -> str | None:
    if filename.endswith(".whl"):
        text = filename.split("-")[1]
    elif filename.endswith(".tar.gz"):
        text = filename[: -len(".tar.gz")].rsplit("-", 1)[-1]
    else:
        return None
    try:
        version = Version(text)
    except InvalidVersion:
        return None
    return None if version.is_prerelease else str(version)


def _preference(file: dict[str, Any]) -> tuple[int, int, str]:
    """Pure wheels first, then small ones, then sdists, then the wheel of the least size."""
    name = file["filename"]
    for rank, end in enumerate(_SMALL):
        if name.endswith(end):
            # The oldest Python that has one: newer stubs say the same.
            return rank, 0 if "cp310" in name or "cp311" in name else 1, name
    if name.endswith(".tar.gz"):
        return len(_SMALL), file["size"], name
    if "manylinux" in name:
        return len(_SMALL) + 1, file["size"], name
    return len(_SMALL) + 2, file["size"], name


def fetch(release: Release, cache: str) -> str:
    """The path of the texts of a release as a zip file, downloaded where the cache lacks it."""
    path = os.path.join(cache, "texts", release.library, release.version + ".zip")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as packed:
            for name, text in _texts(release.filename, _opened(release)):
                packed.writestr(name, text)
        os.replace(path + ".part", path)
    return path


def _opened(release: Release) -> BinaryIO:
    """The file of a release: as a whole with the hash that the index promises, of a large wheel what is read of it."""
    if release.filename.endswith(".whl") and release.size > _LARGE:
        return io.BufferedReader(Remote(_address(release), release.size), 1 << 20)
    content = _download(release)
    found = hashlib.sha256(content).hexdigest()
    if found != release.sha256:
        raise SystemExit(f"{release.filename}: the index promises {release.sha256}, the file has {found}.")
    return io.BytesIO(content)


def _address(release: Release) -> str:
    return urljoin(f"{INDEX}{PROJECTS[release.library]}/", release.url)


def _download(release: Release) -> bytes:
    with urllib.request.urlopen(_address(release)) as answer:
        content: bytes = answer.read()
    return content


class Remote(io.RawIOBase):
    """A file on the index of which only the parts are loaded that are read."""

    def __init__(self, address: str, size: int) -> None:
        self.address, self.size, self.at = address, size, 0

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def readinto(self, buffer: Any) -> int:
        """Load what fits from the place on."""
        last = min(self.at + len(buffer), self.size) - 1
        if last < self.at:
            return 0
        asked = urllib.request.Request(self.address, headers={"Range": f"bytes={self.at}-{last}"})
        with urllib.request.urlopen(asked) as answer:
            content: bytes = answer.read()
        buffer[: len(content)] = content
        self.at += len(content)
        return len(content)


def _texts(filename: str, content: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """The files with text; of an sdist without the folder that all of it lies in."""
    if filename.endswith(".tar.gz"):
        with tarfile.open(fileobj=content) as archive:
            for member in archive:
                _, _, name = member.name.partition("/")
                file = archive.extractfile(member) if member.isfile() and ("/" + name).endswith(_TEXT) else None
                if file is not None:
                    yield name, file.read()
    else:
        with zipfile.ZipFile(content) as wheel:
            for name in wheel.namelist():
                if name.endswith(_TEXT):
                    yield name, wheel.read(name)
