"""Where torch builds its extensions, and which builds are there.

``torch.utils.cpp_extension._get_build_directory``: ``$TORCH_EXTENSIONS_DIR/<op>`` when that variable is set, else
``${XDG_CACHE_HOME:-~/.cache}/torch_extensions/<py311_cu121>/<op>``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dslint.doctor.machine import Machine

TAG = re.compile(r"py\d{2,3}[a-z]*_(?:cpu|xpu|cu\d+|rocm[\w.]+)\Z")
_TRACES = ("build.ninja", ".ninja_log", ".ninja_deps", "main.cpp", "cuda.cu", "sycl.sycl")
# A folder with more entries than this is no extensions root; /tmp can be named as one.
_MOST_ENTRIES = 5000


class Root(NamedTuple):
    """A folder of builds. ``stated`` is set when ``TORCH_EXTENSIONS_DIR`` names it."""

    path: Path
    stated: bool


class Build(NamedTuple):
    """The folder of one extension. ``tag`` is the folder above it when that is named like ``py311_cu121``."""

    folder: Path
    root: Root
    tag: str | None

    @property
    def lock(self) -> Path:
        """The file by which processes tell each other that one of them builds."""
        return self.folder / "lock"

    def is_torchs(self) -> bool:
        """Whether torch made this folder, as far as can be seen."""
        if self.tag or not self.root.stated:
            return True
        return any(os.path.exists(self.folder / name) for name in _TRACES)


def default_root(machine: Machine) -> Path:
    """The root that torch uses when ``TORCH_EXTENSIONS_DIR`` is not set."""
    return machine.folder("XDG_CACHE_HOME", machine.home / ".cache") / "torch_extensions"


def roots(machine: Machine) -> list[Root]:
    """The stated root first, then the default one: another shell may not state it."""
    found = [Root(default_root(machine), False)]
    # torch takes an empty variable literally: the current folder.
    if "TORCH_EXTENSIONS_DIR" in machine.environ:
        stated = Root(machine.expand(machine.environ["TORCH_EXTENSIONS_DIR"]), True)
        found = [stated] if stated.path == found[0].path else [stated, *found]
    return found


def root_in_use(machine: Machine) -> Root:
    """The root that a job started from this shell uses."""
    return roots(machine)[0]


def builds(root: Root) -> Iterator[Build]:
    """The builds below a root: directly below it, and below the folders of one environment each."""
    for folder in _folders(root.path):
        if TAG.match(folder.name):
            for inner in _folders(folder):
                yield Build(inner, root, folder.name)
        else:
            tag = root.path.name if TAG.match(root.path.name) else None
            yield Build(folder, root, tag)


def is_hidden(path: Path) -> bool:
    """Whether a folder is there and this user may not list it."""
    return os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK)


def _folders(path: Path) -> list[Path]:
    found: list[Path] = []
    try:
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                if number >= _MOST_ENTRIES:
                    break
                if entry.is_dir():
                    found.append(Path(entry.path))
    except OSError:
        return found
    return sorted(found)
