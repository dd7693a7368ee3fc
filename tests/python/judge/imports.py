"""`import` of a program that runs on a simulated rank: its own files, stand-ins, the standard library, mocks."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .ranks import current
from .standins import engines, mocks, torches
from .surroundings import RankSet, rank_hash

_REAL_IMPORT = builtins.__import__
_REAL_IMPORT_MODULE = importlib.import_module


class Importer:
    """Loads modules for the running rank. Each rank has modules of its own, and no lock is shared among ranks."""

    def __init__(self, folder: Path, compiled: Callable[[str, str], types.CodeType], *, own_sets: bool) -> None:
        self.folder, self._compiled, self._own_sets = folder, compiled, own_sets
        self._codes: dict[str, types.CodeType] = {}

    def code(self, file: Path) -> types.CodeType:
        relative = file.relative_to(self.folder).as_posix()
        if relative not in self._codes:
            self._codes[relative] = self._compiled(file.read_text(encoding="utf-8"), relative)
        return self._codes[relative]

    def builtins(self) -> dict[str, Any]:
        """The builtins of the programs of one rank."""
        own = current().own
        if "builtins" not in own:
            names = own["builtins"] = dict(vars(builtins))
            names.update(__import__=self.load, exit=_leave, quit=_leave, input=lambda *_: "")
            if self._own_sets:
                names.update(set=RankSet, hash=rank_hash)
            recorder = current().recorder
            if recorder is not None:
                names.update(recorder.names())
        return own["builtins"]  # type: ignore[no-any-return]

    def execute(self, file: Path, name: str, package: str | None) -> types.ModuleType:
        """Run a file of the program as module `name`."""
        module = types.ModuleType(name)
        module.__file__, module.__package__ = str(file), package
        if file.name == "__init__.py":
            module.__path__ = [str(file.parent)]
        module.__dict__["__builtins__"] = self.builtins()
        self._keep(name, module)
        if current().recorder is not None:
            current().recorder.begin_module(module.__dict__)
        try:
            exec(self.code(file), module.__dict__)  # noqa: S102 - the program is under test
        except BaseException:
            if name != "__main__":
                sys.modules.pop(name, None)
                current().own["modules"].pop(name, None)
            raise
        return module

    def _keep(self, name: str, module: types.ModuleType) -> None:
        current().own["modules"][name] = sys.modules[name] = module

    def _find(self, name: str) -> Path | None:
        base = self.folder.joinpath(*name.split("."))
        for file in (base / "__init__.py", base.with_name(base.name + ".py")):
            if file.is_file():
                return file
        return base if base.is_dir() else None

    def _module(self, name: str) -> types.ModuleType:
        """The module `name`, loaded with its parents."""
        own = current().own["modules"]
        if name in own:
            return own[name]  # type: ignore[no-any-return]
        parent, _, last = name.rpartition(".")
        above = self._module(parent) if parent else None
        if name in own:
            return own[name]  # type: ignore[no-any-return]
        found = self._made(name, parent)
        if above is not None:
            setattr(above, last, found)
        return found

    def _made(self, name: str, parent: str) -> types.ModuleType:
        top = name.partition(".")[0]
        file = self._find(name)
        if file is not None and file.is_dir():
            namespace = types.ModuleType(name)
            namespace.__path__ = [str(file)]
            self._keep(name, namespace)
            return namespace
        if file is not None:
            return self.execute(file, name, name if file.name == "__init__.py" else parent)
        if self._find(top) is not None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if top in sys.stdlib_module_names:
            return _REAL_IMPORT_MODULE(name)
        made = torches.modules(name) or engines.modules(name) or mocks.mock_module(name)
        self._keep(name, made)
        if name == "torch":  # `import torch` brings these with it
            for inner in torches.MODULES:
                self._module(inner)
        return made

    def _known_outside(self, top: str) -> bool:
        return top in sys.stdlib_module_names and self._find(top) is None

    def load(self, name: str, names: Any = None, local: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """The `__import__` of programs."""
        if level:
            package = (names or {}).get("__package__") or ""
            if not package:
                raise ImportError("attempted relative import with no known parent package")
            name = importlib.util.resolve_name("." * level + name, package)
        elif self._known_outside(name.partition(".")[0]):
            return _REAL_IMPORT(name, names, local, fromlist, 0)
        module = self._module(name)
        if not fromlist:
            return module if level else self._module(name.partition(".")[0])
        if hasattr(module, "__path__"):
            for wanted in fromlist:
                inner = f"{name}.{wanted}"
                if wanted != "*" and (self._find(inner) or inner in torches.MODULES) and not _has(module, wanted):
                    self._module(inner)
        return module

    def import_module(self, name: str, package: str | None = None) -> types.ModuleType:
        """`importlib.import_module` of programs."""
        absolute = importlib.util.resolve_name(name, package) if name.startswith(".") else name
        if self._known_outside(absolute.partition(".")[0]):
            return _REAL_IMPORT_MODULE(absolute)
        return self._module(absolute)


def _has(module: types.ModuleType, name: str) -> bool:
    return name in module.__dict__


def _leave(code: Any = None) -> None:
    raise SystemExit(code)
