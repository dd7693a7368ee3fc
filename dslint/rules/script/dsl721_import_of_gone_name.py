"""A name or submodule is imported from the project's own code, and is not there.

**What.** `from utils.misc import all_gather_list`, where `utils/misc.py` of the project binds no such name, or
`from .losses import dice`, where the package has no `losses`.

**Why it hurts.** Python looks for it when the import is reached: `ImportError` or `ModuleNotFoundError`. In a function
(for an evaluation, a save, an option) that is hours after the job has queued, loaded and trained.

**Fix.** Import the name that is there, or bring back the one that was removed.

**When it stays quiet.** The module may have names that are not in its text (a star import of a library, `__getattr__`,
`globals()`, `exec`); another module of that name in the project has it; git ignores the file, or its folder is
empty; a `try` takes the exception; imports for type checkers, and under tests of what is installed.

**Evidence.** Python's import statement: what a module does not bind cannot be imported from it.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.queries.modulenames import home_of
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import is_caught, near
from dslint.rules.names.projectmodules import MADE, ProjectModules
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL721",
    name="import-of-gone-name",
    kind="script",
    severity=Severity.ERROR,
    summary="a name or submodule is imported from the project's own code, which does not have it",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine|transformers", r"import"),
    references=("https://docs.python.org/3/reference/simple_stmts.html#the-import-statement",),
    depends_on_run=True,
)
_CAUGHT = ("ImportError", "ModuleNotFoundError")
# Tests that ask what is there, or who reads the file.
_ASKS = re.compile(r"(?i)TYPE_CHECKING|available|installed|version|platform|find_spec|has_|exists|import|support")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each import of what a closed module of the project does not have."""
    looked = _Imports(run)
    for module in run.machine.program.ran():
        imports: list[ast.ImportFrom | ast.Import] = [*module.nodes_of(ast.ImportFrom), *module.nodes_of(ast.Import)]
        for node in imports:
            for message, related in looked.missing(module, node):
                if not is_caught(module, node, *_CAUGHT) and not _is_asked(module, node):
                    yield _finding(run, module, node, message, related)


class _Imports:
    """What the imports of a run lead to."""

    def __init__(self, run: RunQuery) -> None:
        self._program = run.machine.program
        self._names = run.module_names
        self._modules = ProjectModules(self._program, self._names)

    def missing(self, module: Module, node: ast.ImportFrom | ast.Import) -> Iterator[tuple[str, Module | None]]:
        """Yield what is not there, in words, and the module that lacks it."""
        homes = [home_of(node)] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        for home in homes:
            path = self._program.resolve(module, home)
            if not path:
                gone = self._gone(module, home)
                if gone:
                    yield (
                        f"the project has no module `{gone}`: `ModuleNotFoundError` when a run reaches this import",
                        None,
                    )
            elif isinstance(node, ast.ImportFrom):
                yield from self._names_of(module, node, home)

    def _names_of(self, module: Module, node: ast.ImportFrom, home: str) -> Iterator[tuple[str, Module | None]]:
        owners = self._modules.owners(module, home)
        if not owners:
            return
        known: set[str] = set()
        for owner in owners:
            names = self._names.of(owner)
            if names is None:
                return
            known |= names
        for alias in node.names:
            name = alias.name
            if name == "*" or name in known or any(self._modules.is_part(owner, name) for owner in owners):
                continue
            if not self._names.is_set(name):
                lacks = f"`{_shown(owners[0])}` has no `{name}`"
                yield f"{lacks}: `ImportError` when a run reaches this import{near(name, known)}", owners[0]

    def _gone(self, module: Module, home: str) -> str:
        """Return the submodule of a package of the project that is not there; empty where nobody knows."""
        level = len(home) - len(home.lstrip("."))
        parts = home[level:].split(".")
        if self._program.files.read(module.absolute) is None:
            return ""  # a text without a file has no neighbours
        for end in range(len(parts), 0, -1):
            outer = "." * level + ".".join(parts[: end - 1])
            if not level and end == 1:
                return ""  # the package itself is none of the project
            folder = self._folder(module, outer)
            if folder is None:
                return ""
            if not folder:
                continue
            name = parts[end - 1]
            is_made = self._names.submodule(folder, name) or self._names.is_ignored(f"{folder}/{name}")
            return "" if is_made or MADE.search(name) else ("." * level + ".".join(parts[:end]))
        return ""

    def _folder(self, module: Module, outer: str) -> str | None:
        """Return the folder of a package; empty where the package is not there, `None` where it may be another."""
        if not outer.strip("."):
            folder = posixpath.dirname(module.absolute)
            for _ in range(len(outer) - 1):
                folder = posixpath.dirname(folder)
            root = self._program.files.root(module.absolute)
            return folder if (folder + "/").startswith(root.rstrip("/") + "/") else None
        path = self._program.resolve(module, outer)
        if not path:
            return ""
        owners = self._modules.owners(module, outer)
        if len(owners) != 1 or not owners[0].is_package or self._names.of(owners[0]) is None:
            return None
        return posixpath.dirname(path)


def _shown(module: Module) -> str:
    """Return the name of a file, with its folder where the name alone says nothing."""
    folder, name = posixpath.split(module.path)
    return f"{posixpath.basename(folder)}/{name}" if name == "__init__.py" else name


def _is_asked(module: Module, node: ast.AST) -> bool:
    """Return whether a test of what is there, or a handler of another import, is around an import."""
    around = module.parents.get(node)
    while around is not None:
        if isinstance(around, ast.If) and _ASKS.search(module.text(around.test)):
            return True
        if isinstance(around, ast.ExceptHandler):
            return True
        around = module.parents.get(around)
    return False


def _finding(run: RunQuery, module: Module, node: ast.AST, message: str, owner: Module | None) -> Finding:
    related: tuple[Location, ...] = ()
    if owner is not None and owner.tree.body:
        related = (run.location(owner, owner.tree.body[0], "the module"),)
    return run.finding(
        META,
        module,
        node,
        message,
        hint="Import the name that is there, or bring back the one that is meant",
        related=related,
        severity=Severity.ERROR if run.sure_ways.comes_to(node) else Severity.WARNING,
    )


_TRAIN = """\
import torch
import torch.distributed as dist
%s

def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for x in torch.load("data.pt"):
        model(x).mean().backward()
%s

main()
"""
_LATE = "    from utils.misc import all_gather_list\n\n    print(all_gather_list(model))"
_MISC = "def all_gather_lists(x):\n    return x\n"
_PACKAGE = {"utils/__init__.py": "", "utils/misc.py": _MISC}
_TRIED = "    try:\n        from utils.misc import all_gather_list\n    except ImportError:\n        pass"
_OPTION = "    if '--eval' in sys.argv:\n        from utils.misc import all_gather_list"
_TYPES = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from utils.misc import all_gather_list\n"

EXAMPLES = (
    bad("after the training", {**_PACKAGE, "train.py": _TRAIN % ("", _LATE)}, "train.py:10 error"),
    bad("for an option", {**_PACKAGE, "train.py": _TRAIN % ("import sys\n", _OPTION)}, "train.py:12 warning"),
    bad("a submodule", {
        **_PACKAGE, "train.py": _TRAIN % ("", "    from utils.metrics import f1")}, "train.py:10 error"),
    bad("in a module of the run", {
        **_PACKAGE, "utils/run.py": "from .misc import gather\n\n\ndef go(x):\n    return gather(x)\n",
        "train.py": _TRAIN % ("from utils.run import go\n", "    go(model)")}, "utils/run.py:1 error"),
    good("it is there", {**_PACKAGE, "train.py": _TRAIN % ("", _LATE.replace("_list", "_lists"))}),
    good("by a star import of the project", {
        "utils/__init__.py": "", "utils/misc.py": "from .more import *\n",
        "utils/more.py": "def all_gather_list(x):\n    return x\n", "train.py": _TRAIN % ("", _LATE)}),
    good("by a star import of a library", {
        "utils/__init__.py": "", "utils/misc.py": "from kit import *\n", "train.py": _TRAIN % ("", _LATE)}),
    good("by `__getattr__`", {"utils/__init__.py": "", "utils/misc.py": "def __getattr__(name):\n    return len\n",
         "train.py": _TRAIN % ("", _LATE)}),
    good("the exception is taken", {**_PACKAGE, "train.py": _TRAIN % ("", _TRIED)}),
    good("for type checkers", {**_PACKAGE, "train.py": _TRAIN % (_TYPES, "    print(1)")}),
    good("no package of the project", {"train.py": _TRAIN % ("", _LATE)}),
)  # fmt: skip
