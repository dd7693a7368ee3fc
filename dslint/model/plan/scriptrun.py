"""A script interpreted for the questions of plans, without a command: what holds however it is started."""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from dataclasses import dataclass
from functools import cached_property

from dslint.core.garbage import no_collections
from dslint.core.source import Location, SourceFile
from dslint.model.workspace import Workspace
from dslint.parse.notebook import read_notebook
from dslint.python.entries import Analysis, Entry
from dslint.python.events import Event, events
from dslint.python.launches import Launch
from dslint.python.search import ModuleSearch, is_library
from dslint.python.shared import Shared
from dslint.python.source import Module, read
from dslint.python.values import Instance, Value

# Where the interpreter sees the files that the user sees by relative paths.
_ROOT = "/project"
# Interpretations are large; several questions about a script follow each other.
_KEPT = 4
# Modules that are kept for the next script.
_MOST_MODULES = 600
_IMPORT = re.compile(r"^[ \t]*(?:from\s+([\w.]+)\s+import|import\s+([\w.]+))", re.MULTILINE)
# Frames of Python for the deepest chain of calls that is interpreted.
_FRAMES = 6_000


@dataclass(eq=False)
class ScriptRun:
    """One interpretation of a script: its analysis, and the tree of what the script itself does."""

    analysis: Analysis
    entry: Entry

    @cached_property
    def events(self) -> list[Event]:
        """The events of the script in the order of the tree, without those of functions that it does not reach."""
        return list(events(self.entry.tree))

    @cached_property
    def all_events(self) -> list[Event]:
        """The same, and behind them those of functions of the script that nothing reaches, with open parameters."""
        others = [entry for entry in self.analysis.entries if entry is not self.entry]
        return [*self.events, *(event for entry in others for event in events(entry.tree))]

    @cached_property
    def once(self) -> list[Event]:
        """The same, of each place the first."""
        return list({event.node: event for event in reversed(self.all_events)}.values())[::-1]

    def calls(self, api: str) -> list[list[Event]]:
        """The events of a function or class, those of one place together."""
        found: dict[ast.AST, list[Event]] = {}
        for event in self.all_events:
            if event.api == api:
                found.setdefault(event.node, []).append(event)
        return list(found.values())

    def made(self, value: Value | None, event: Event, label: str = "") -> Location:
        """The place where the one object that an event gets was made; else that of the event."""
        atom = value.single if value is not None else None
        node = atom.node if isinstance(atom, Instance) else None
        modules = (
            dict.fromkeys((event.module, *(other.module for other in self.all_events))) if node is not None else ()
        )
        for module in modules:
            if any(found is node for found in ast.walk(module.tree)) and node is not None:
                return module.location(node, label)
        return event.module.location(event.node, label)

    def takes(self, event: Event, parameter: str) -> bool:
        """Return whether what an event calls has a parameter of that name."""
        row = self.analysis.machine.libraries.function(event.api)
        given = row.parameters if row is not None else None
        return given is not None and parameter in {p.arg for p in (*given.args, *given.kwonlyargs)}


def option_of(value: Value | None) -> str:
    """The field of the command line that a value certainly is: ``args.gpus`` -> ``gpus``; else empty."""
    number = value.number if value is not None else None
    is_option = isinstance(number, tuple) and len(number) == 3 and number[0] == "option"
    return str(number[2]) if is_option and isinstance(number, tuple) else ""


def constant_of(value: Value | None) -> object:
    """The constant that a value certainly is, else `None`."""
    known = value.constants if value is not None else None
    return known[0] if known is not None and len(known) == 1 else None


def place_of(event: Event, parameter: str) -> Location:
    """Where an argument of a call stands, else the call."""
    return event.module.location(_argument(event, parameter) or event.node)


def written(event: Event, parameter: str, constant: object) -> Location:
    """Where a constant stands that a call gets: in its argument, or in the one other place of the module for it."""
    node = _argument(event, parameter)
    if isinstance(node, ast.Constant):
        return event.module.location(node)
    tree = event.module.tree
    places = [n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and _is_set(n, node)]
    if len(places) != 1 or not (isinstance(places[0], ast.Constant) and places[0].value == constant):
        texts = ast.walk(tree) if isinstance(constant, str) else ()
        places = [n for n in texts if isinstance(n, ast.Constant) and n.value == constant]
    return event.module.location(places[0]) if len(places) == 1 else place_of(event, parameter)


def _argument(event: Event, parameter: str) -> ast.expr | None:
    found = event.nodes.get(parameter)
    if found is None and isinstance(event.node, ast.Call):
        found = next((k.value for k in event.node.keywords if k.arg == parameter), None)
    return found


def _is_set(statement: ast.Assign, name: ast.expr | None) -> bool:
    targets = [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return isinstance(name, ast.Name) and name.id in targets


class _Runs:
    """What the interpretations of one workspace share."""

    def __init__(self) -> None:
        self.shared = Shared()
        self.recent: list[tuple[str, ScriptRun | None]] = []


def script_run(path: str, workspace: Workspace) -> ScriptRun | None:
    """The script as every command may start it; `None` when Python cannot read it.

    Who asks again for one of the last scripts gets the same.
    """
    runs = _runs(workspace)
    path = workspace.normal(path)
    for known, run in runs.recent:
        if known == path:
            return run
    found = interpreted(path, workspace)
    runs.recent.append((path, found))
    del runs.recent[:-_KEPT]
    return found


def interpreted(path: str, workspace: Workspace, launch: Launch | None = None) -> ScriptRun | None:
    """The script as one command starts it (`launch`), or as any may."""
    worlds = launch.worlds if launch is not None else None
    runs = _runs(workspace)
    if len(runs.shared.parsed) > _MOST_MODULES:
        runs.shared = Shared()
    shared = runs.shared
    analysis = Analysis(WorkspaceFiles(workspace, path), worlds, shared=shared.started(worlds) if launch else shared)
    analysis.machine.launch = launch
    source = workspace.read(path) if path.endswith(".ipynb") else None
    if source is not None:
        analysis.program.shared.parsed.setdefault(analysis.program.files.absolute(path), _notebook(source))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _FRAMES))
    try:
        with no_collections():
            entry = analysis.script(path)
    finally:
        sys.setrecursionlimit(limit)
    return None if entry is None else ScriptRun(analysis, entry)


def texts_of(path: str, workspace: Workspace) -> list[str]:
    """The text of a script and of the modules of the project that it imports, for a first look."""
    source = workspace.read(path)
    if source is None:
        return []
    files, found = WorkspaceFiles(workspace, path), [source.text]
    main = files.absolute(path)
    folder, root = posixpath.dirname(main), files.root(main)
    for match in _IMPORT.finditer(source.text):
        name = match[1] or match[2]
        place = files.answer(("module", folder, root, name)) if not is_library(main, name) else ""
        module = workspace.read(files.shown(place)) if place else None
        found += [module.text] if module is not None else []
    return found


def _notebook(source: SourceFile) -> Module | None:
    """The code cells of a notebook, one after the other; `None` when they cannot be read."""
    cells = read_notebook(source.path, source.text)
    module = read(cells) if isinstance(cells, SourceFile) else None
    return module if isinstance(module, Module) else None


def _runs(workspace: Workspace) -> _Runs:
    return workspace.kept("script runs", _Runs)


class WorkspaceFiles:
    """The files of a workspace, as the interpreter asks for them."""

    is_remembered = False

    def __init__(self, workspace: Workspace, script: str) -> None:
        self._workspace = workspace
        self._top = workspace.bases(script)[-1]
        self._search = ModuleSearch(self._kind)

    def absolute(self, path: str) -> str:
        """The absolute path of a path that the user sees."""
        return path if path.startswith("/") else posixpath.normpath(f"{_ROOT}/{path}")

    def shown(self, path: str) -> str:
        """The path as the user sees it."""
        return path.removeprefix(f"{_ROOT}/")

    def root(self, _path: str) -> str:
        """The root folder of the project around a file."""
        return self.absolute(self._top)

    def read(self, path: str) -> bytes | None:
        """The bytes of a file."""
        source = self._workspace.read(self.shown(path))
        return None if source is None else source.text.encode("utf-8", "surrogatepass")

    def answer(self, question: tuple[str, ...]) -> str:
        """The path of a module, or something that changes with the bytes of a file."""
        if question[0] == "module":
            return self._search.find(question[1], question[2], question[3])
        source = self._workspace.read(self.shown(question[1]))
        return "" if source is None else source.text

    def _kind(self, path: str) -> str:
        if self._workspace.is_file(self.shown(path)):
            return "file"
        return "folder" if path == _ROOT or self._workspace.exists(self.shown(path)) else ""
