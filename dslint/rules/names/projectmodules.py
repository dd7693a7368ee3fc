"""Which modules of a project an import may mean, and what stands beside a package: for rules about names in them."""

from __future__ import annotations

import posixpath
import re

from dslint.python.program import Program
from dslint.python.queries.modulenames import ModuleNames
from dslint.python.source import Module

# Modules that a build makes.
MADE = re.compile(r"(?i)_?version$|_pb2(?:_grpc)?$|^_C$|_cuda$|_ext$|_cpp$|build|generated")


class ProjectModules:
    """Answers for the modules of one run."""

    def __init__(self, program: Program, names: ModuleNames) -> None:
        self._program = program
        self._names = names

    def owners(self, module: Module, home: str) -> list[Module]:
        """Return the modules of the project that an import may mean; none where nobody knows which."""
        found = self._program.named(module, home)
        if found is None:
            return []
        if home.startswith("."):
            return [found]
        root = self._program.files.root(module.absolute)
        owners = {found}
        for base in self._folders(module, root):
            path = self._program.asked("module", base, root, f".{home}")
            other = self._program.load(path) if path else None
            if path and other is None:
                return []
            owners |= {other} if other is not None else set()
        return [found, *sorted(owners - {found}, key=lambda owner: owner.path)]

    def _folders(self, module: Module, root: str) -> list[str]:
        """Return the folders where Python may look: those above the file and above the script, and `src`."""
        found = {posixpath.join(root, "src"): None}
        for start in (module.absolute, self._program.main):
            folder = posixpath.dirname(start)
            while (folder + "/").startswith(root.rstrip("/") + "/"):
                found[folder] = None
                folder = posixpath.dirname(folder)
        return list(found)

    def is_part(self, owner: Module, name: str) -> bool:
        """Return whether a package has a part of that name, or something makes one."""
        if not owner.is_package:
            return False
        folder = posixpath.dirname(owner.absolute)
        return (
            self._names.submodule(folder, name) or self._names.is_ignored(f"{folder}/{name}") or bool(MADE.search(name))
        )
