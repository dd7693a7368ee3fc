"""The releases of the libraries that are followed, as the index lists them (``schemas/releases.json``)."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from dslint.core.schemafiles import load_file

# The distribution of a package, where it has another name.
_DISTRIBUTIONS = {
    "pytorch_lightning": "pytorch-lightning", "huggingface_hub": "huggingface-hub", "PIL": "pillow",
    "flash_attn": "flash-attn", "liger_kernel": "liger-kernel", "sentence_transformers": "sentence-transformers",
}  # fmt: skip
_PACKAGES = {distribution: package for package, distribution in _DISTRIBUTIONS.items()}
# A late patch of each, which satisfies what asks for one of its patches.
_PYTHONS = tuple(f"3.{minor}.20" for minor in range(6, 15))


def distribution_of(package: str) -> str:
    """The distribution that installs a package: ``pytorch-lightning`` for ``pytorch_lightning``."""
    return _DISTRIBUTIONS.get(package, package)


def package_of(distribution: str) -> str:
    """The package that a distribution installs, as code imports it."""
    return _PACKAGES.get(distribution, distribution)


class Release(NamedTuple):
    """One release: its number, the day of its upload, what Pythons it says and is built for, and whether it is yanked.

    ``built_for`` is empty where it installs on any Python that ``requires_python`` allows.
    """

    version: str
    uploaded: str
    requires_python: str
    built_for: tuple[str, ...]
    is_yanked: bool

    def fits(self, python: str) -> bool:
        """Whether pip takes this release on a Python such as ``3.10``."""
        if self.built_for and python not in self.built_for:
            return False
        if not self.requires_python:
            return True
        from dslint.model.versions.ranges import contains

        return contains(self.requires_python, f"{python}.20")


@cache
def _table() -> dict[str, Any]:
    return load_file("releases.json")


@cache
def releases_of(library: str) -> tuple[Release, ...]:
    """The releases of a library, oldest first; none of one that is not followed."""
    if library == "python":
        return tuple(Release(version, "", "", (), False) for version in _PYTHONS)
    rows = _table().get(library, ())
    return tuple(
        Release(version, day, asks, tuple(built.split()), yanked) for version, day, asks, built, yanked in rows
    )


@cache
def release_of(library: str, version: str) -> Release | None:
    """The release with this number, however it is written (``4.30`` is ``4.30.0``)."""
    same = next((release for release in releases_of(library) if release.version == version), None)
    if same is not None:
        return same
    from packaging.version import InvalidVersion, Version

    try:
        wanted = Version(Version(version).public)
    except InvalidVersion:
        return None
    return next((release for release in releases_of(library) if Version(release.version) == wanted), None)
