"""A Python environment: its packages and its torch, without importing any of them.

Versions come from the metadata of the installed distributions, the facts about torch from the text of
``torch/version.py``. Of another interpreter (``--python``) only its search path is asked, in a process of its own.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable
from functools import cached_property
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

ASK_SECONDS = 20.0
_ASK = """
import json, sys
paths = [path for path in sys.path if path]
answer = {"executable": sys.executable, "paths": paths, "version": sys.version_info[:2], "prefix": sys.prefix}
print(json.dumps({**answer, "abiflags": getattr(sys, "abiflags", "")}))
"""


class NoPython(ValueError):  # noqa: N818 - the name says the mistake
    """The interpreter that was named cannot be asked; the message says why, in one line."""


class Torch(NamedTuple):
    """What ``torch/version.py`` states. ``cuda`` and ``hip`` are None in builds without them."""

    version: str
    cuda: str | None
    hip: str | None
    folder: Path


class Python:
    """One Python environment: interpreter, ``sys.path``, version and ABI flags."""

    def __init__(
        self, executable: Path, paths: Iterable[str], version: tuple[int, int], abiflags: str = "", prefix: str = ""
    ) -> None:
        self.executable = executable
        self.paths = tuple(paths)
        self.version = version
        self.abiflags = abiflags
        self.prefix = Path(prefix) if prefix else executable.parent.parent

    @classmethod
    def current(cls) -> Python:
        """The environment that dslint itself runs in."""
        return cls(Path(sys.executable), sys.path, sys.version_info[:2], getattr(sys, "abiflags", ""), sys.prefix)

    @classmethod
    def ask(cls, executable: Path) -> Python:
        """The environment of another interpreter, as a script started by it sees it (``PYTHONPATH``, user site).

        It starts in ``/``: no module of the current folder can be taken for one of the standard library.

        Raises:
            NoPython: it does not exist, does not start, or does not answer like a Python.
        """
        try:
            done = subprocess.run(
                [str(executable), "-c", _ASK], cwd="/",
                capture_output=True, text=True, timeout=ASK_SECONDS, stdin=subprocess.DEVNULL, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoPython(f"{executable}: no answer in {ASK_SECONDS:g} s") from None
        except (OSError, ValueError) as problem:
            raise NoPython(f"{executable}: {getattr(problem, 'strerror', None) or problem}") from None
        try:
            answer = json.loads(done.stdout.splitlines()[-1])
            major, minor = answer["version"]
            paths = [str(path) for path in answer["paths"]]
            executable = Path(answer["executable"] or executable)
            return cls(executable, paths, (int(major), int(minor)), str(answer["abiflags"]), str(answer["prefix"]))
        except (ValueError, IndexError, KeyError, TypeError):
            raise NoPython(f"{executable}: not a Python interpreter (exit status {done.returncode})") from None

    def _distribution(self, name: str) -> Distribution | None:
        # The first on the path is the one that is imported; what a cut-off installation left has no name.
        return next((d for d in distributions(name=name, path=list(self.paths)) if _field(d, "Name")), None)

    def release(self, name: str) -> str | None:
        """The installed version of a distribution, None when there is none."""
        found = self._distribution(name)
        return _field(found, "Version") if found else None

    def requirements(self, name: str) -> list[str]:
        """What a distribution asks for, as PEP 508 lines."""
        found = self._distribution(name)
        try:
            return list(found.requires or []) if found else []
        except ValueError:
            return []

    @cached_property
    def torch(self) -> Torch | None:
        """The torch of this environment, None when there is none or its ``version.py`` says nothing."""
        for path in self.paths:
            place = Path(path) / "torch" / "version.py"
            try:
                values = _constants(place.read_text(encoding="utf-8", errors="replace"))
            except (OSError, SyntaxError, ValueError):
                continue
            version = values.get("__version__")
            if version:
                return Torch(version, values.get("cuda"), values.get("hip"), place.parent)
        return None

    @property
    def build_tag(self) -> str | None:
        """The folder below the default extensions root that this environment uses, such as ``py311_cu121``."""
        torch = self.torch
        if torch is None:
            return None
        kind = "cpu"
        if torch.hip:
            kind = "rocm" + torch.hip.replace(".", "")
        elif torch.cuda:
            kind = "cu" + torch.cuda.replace(".", "")
        return f"py{self.version[0]}{self.version[1]}{self.abiflags}_{kind}"


def _field(distribution: Distribution, name: str) -> str | None:
    """A field of the metadata, None when it is missing or the file is broken (an installation that was cut off)."""
    try:
        value: str | None = distribution.metadata[name]
    except (KeyError, TypeError, ValueError, OSError):
        return None
    return value


def _constants(source: str) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, (str, type(None))):
            values.update(dict.fromkeys(names, node.value.value))
    return values
