"""A script interpreted for the questions of plans, without a command: what holds however it is started."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dslint.core.garbage import no_collections
from dslint.model.workspace import Workspace
from dslint.python.commandlines import CommandLine
from dslint.python.entries import Analysis, Entry
from dslint.python.events import Call, Event, Lost, Node, children, events
from dslint.python.focus import Focus
from dslint.python.heap import UNFINISHED
from dslint.python.importgraph import ImportGraph
from dslint.python.launches import Launch
from dslint.python.libraries import libraries
from dslint.python.search import ModuleSearch
from dslint.python.shared import Shared
from dslint.python.source import Module
from dslint.python.stack import deep_calls

# Where the interpreter sees the files that the user sees by relative paths.
_ROOT = "/project"
# Interpretations are large; several questions about a script follow each other.
_KEPT = 4


@dataclass(eq=False)
class ScriptRun:
    """One interpretation of a script: its analysis, and the tree of what the script itself does."""

    analysis: Analysis
    entry: Entry

    @cached_property
    def events(self) -> list[Event]:
        """The events of the script in the order of the tree, without those of functions that it does not reach."""
        return list(events(self.entry.tree))


class _Runs:
    """What the interpretations of one workspace share."""

    def __init__(self) -> None:
        self.shared = Shared()
        self.graph = ImportGraph(libraries())
        self.recent: list[tuple[str, ScriptRun | None]] = []


def script_run(path: str, workspace: Workspace) -> ScriptRun | None:
    """The script as every command may start it; `None` when Python cannot read it.

    Who asks again for one of the last scripts gets the same.
    """
    if not workspace.interprets:
        return None
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
    if not workspace.interprets:
        return None
    worlds = launch.worlds if launch is not None else None
    shared = _runs(workspace).shared
    analysis = Analysis(WorkspaceFiles(workspace, path), worlds, shared=shared.started(worlds) if launch else shared)
    analysis.machine.launch = launch
    return _interpreted(path, analysis)


def _interpreted(path: str, analysis: Analysis) -> ScriptRun | None:
    with deep_calls(), no_collections():
        entry = analysis.script(path)
    return None if entry is None else ScriptRun(analysis, entry)


def command_lines(path: str, workspace: Workspace) -> tuple[list[tuple[Event, CommandLine]], str]:
    """Where a script parses its command line, with the options there; and why it may parse it elsewhere, too."""
    if not workspace.interprets:
        return [], ""
    runs, files = _runs(workspace), WorkspaceFiles(workspace, path)
    focus = Focus(runs.graph, files, files.absolute(workspace.normal(path)))
    if not focus.matters:
        return [], ""
    shared = runs.shared.started("command line")
    run = _interpreted(path, Analysis(files, shared=shared, focus=focus))
    if run is None:
        return [], ""
    found = [(event, event.command_line) for event in run.events if event.command_line and _is_run(run, event)]
    is_missed = not focus.is_answered and any(focus.is_missed(run.analysis.machine, *lost) for lost in _lost(run))
    return found, "a part of the script is not read that may parse the command line" if is_missed else ""


def _is_run(run: ScriptRun, event: Event) -> bool:
    """Whether the function runs of which a decorator makes a command; one that another module defines need not."""
    if "decorator" not in event.tags or event.module is run.entry.module:
        return True
    functions = (f.node for f in run.analysis.program.noted.functions)
    return any(id(node) in run.analysis.ran for node in functions if event.node in getattr(node, "decorator_list", ()))


def _lost(run: ScriptRun) -> Iterator[tuple[ast.AST, Module]]:
    """The places with their modules at which the interpretation has passed over something for want of steps."""
    pending: list[tuple[Node, Module]] = [(run.entry.tree, run.entry.module)]
    while pending:
        top, module = pending.pop()
        if isinstance(top, Lost) and top.reason in (UNFINISHED, "depth of calls", "budget of an entry"):
            yield top.node, module
        inner = getattr(top.function, "module", top.function) if isinstance(top, Call) else module
        pending += [(child, inner if isinstance(inner, Module) else module) for child in children(top)]


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
