"""A script interpreted for the questions of plans, without a command: what holds however it is started."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from dslint.core.garbage import no_collections
from dslint.core.source import Location, SourceFile
from dslint.model.workspace import Workspace
from dslint.parse.notebook import read_notebook
from dslint.python.commandlines import CommandLine
from dslint.python.entries import Analysis, Entry
from dslint.python.events import Call, Event, Lost, Node, children, events
from dslint.python.focus import Focus
from dslint.python.heap import UNFINISHED
from dslint.python.importgraph import ImportGraph
from dslint.python.launches import Launch
from dslint.python.libraries import libraries
from dslint.python.questions import Question, command_line
from dslint.python.search import ModuleSearch
from dslint.python.shared import Shared
from dslint.python.source import Module, read
from dslint.python.stack import deep_calls
from dslint.python.values import Instance, Value

# Where the interpreter sees the files that the user sees by relative paths.
_ROOT = "/project"
# What the interpretations share is kept under this name.
RUNS = "script runs"
# Interpretations are large; several questions about a script follow each other.
_KEPT = 4


@dataclass(eq=False)
class ScriptRun:
    """One interpretation of a script: its analysis, and the tree of what the script itself does."""

    analysis: Analysis
    entry: Entry

    @property
    def has_options(self) -> bool:
        """Whether all that the script parses of its command line is among its events."""
        focus = self.analysis.program.focus
        return focus is not None and focus.first_is_answered

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
            if node is not None and module.holds(node):
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
        self.graph = ImportGraph(libraries())
        self.recent: list[tuple[tuple[str, Question | None], ScriptRun | None]] = []


def script_run(path: str, workspace: Workspace, question: Question | None = None) -> ScriptRun | None:
    """The script as every command may start it; `None` when Python cannot read it.

    With a `question` only what that needs is read; `None` as well where the script does nothing that is asked about.
    Who asks again for one of the last scripts gets the same.
    """
    if not workspace.interprets:
        return None
    runs = _runs(workspace, path)
    path = workspace.normal(path)
    key = (path, question)
    for known, run in runs.recent:
        if known == key:
            return run
    found = interpreted(path, workspace) if question is None else _focused(path, workspace, question)
    runs.recent.append((key, found))
    del runs.recent[:-_KEPT]
    return found


def interpreted(path: str, workspace: Workspace, launch: Launch | None = None) -> ScriptRun | None:
    """The script as one command starts it (`launch`), or as any may."""
    if not workspace.interprets:
        return None
    worlds = launch.worlds if launch is not None else None
    shared = _runs(workspace, path).shared
    analysis = Analysis(WorkspaceFiles(workspace, path), worlds, shared=shared.started(worlds) if launch else shared)
    analysis.machine.launch = launch
    return _interpreted(path, analysis, workspace)


def _focused(path: str, workspace: Workspace, question: Question) -> ScriptRun | None:
    runs, files = _runs(workspace, path), WorkspaceFiles(workspace, path)
    main = files.absolute(path)
    if not runs.graph.concerns(files, main, question):
        return None
    focus = Focus(runs.graph, files, main, question)
    return _interpreted(path, Analysis(files, shared=runs.shared.started(question.name), focus=focus), workspace)


def _interpreted(path: str, analysis: Analysis, workspace: Workspace) -> ScriptRun | None:
    source = workspace.read(path) if path.endswith(".ipynb") else None
    if source is not None:
        analysis.program.shared.parsed.setdefault(analysis.program.files.absolute(path), _notebook(source))
    with deep_calls(), no_collections():
        entry = analysis.script(path)
    return None if entry is None else ScriptRun(analysis, entry)


def command_lines(path: str, workspace: Workspace) -> tuple[list[tuple[Event, CommandLine]], str, ScriptRun | None]:
    """Where a script parses its command line, with the options there; why it may elsewhere, too; and its run."""
    if not workspace.interprets:
        return [], "", None
    runs, files = _runs(workspace, path), WorkspaceFiles(workspace, path)
    question = command_line(libraries())
    known = next((run for (at, _), run in runs.recent if run is not None and at == path and run.has_options), None)
    if known is not None:
        return _parsed(known), "", known
    focus = Focus(runs.graph, files, files.absolute(workspace.normal(path)), question)
    if not focus.matters:
        return [], "", None
    shared = runs.shared.started(question.name)
    run = _interpreted(path, Analysis(files, shared=shared, focus=focus), workspace)
    if run is None:
        return [], "", None
    is_missed = not focus.is_answered and any(focus.is_missed(run.analysis.machine, *lost) for lost in _lost(run))
    return _parsed(run), "a part of the script is not read that may parse the command line" if is_missed else "", run


def _parsed(run: ScriptRun) -> list[tuple[Event, CommandLine]]:
    return [(event, event.command_line) for event in run.events if event.command_line and _is_run(run, event)]


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


def imported_sources(path: str, workspace: Workspace, steps: int, most: int) -> Iterator[SourceFile]:
    """Yield a script and the modules of the project that it imports: ``steps`` imports deep, ``most`` files in all."""
    files, graph = WorkspaceFiles(workspace, path), _runs(workspace, path).graph
    main = files.absolute(workspace.normal(path))
    pending, seen = [(main, 0)], {main}
    while pending:
        at, depth = pending.pop(0)
        source, file = workspace.read(files.shown(at)), graph.file(files, at)
        if source is not None:
            yield source
        for found in file.imports if file is not None and depth < steps else ():
            if found not in seen and len(seen) < most:
                seen.add(found)
                pending.append((found, depth + 1))


def near_sources(source: SourceFile, workspace: Workspace) -> list[SourceFile]:
    """Return a script with the modules that are two imports away at most; a text without a file stands alone."""
    return list(imported_sources(source.path, workspace, 2, 40)) or [source]


def _notebook(source: SourceFile) -> Module | None:
    """The code cells of a notebook, one after the other; `None` when they cannot be read."""
    cells = read_notebook(source.path, source.text)
    module = read(cells) if isinstance(cells, SourceFile) else None
    return module if isinstance(module, Module) else None


def _runs(workspace: Workspace, path: str = "") -> _Runs:
    if path:
        workspace.rests_on(workspace.normal(path))
    return workspace.kept(RUNS, _Runs)


def imported_by(path: str, workspace: Workspace) -> set[str]:
    """A script and the files of the project that it imports, and these in turn, by user-facing path."""
    files = WorkspaceFiles(workspace, path)
    reached = _runs(workspace).graph.reach(files, files.absolute(workspace.normal(path)))
    return {files.shown(found) for found in reached}


def forget(paths: Iterable[str], workspace: Workspace) -> None:
    """Read these scripts again, and keep of all others no more than their trees."""
    runs = _runs(workspace)
    absolute = [WorkspaceFiles(workspace, path).absolute(path) for path in paths]
    runs.graph.forget(absolute)
    runs.shared = runs.shared.without(absolute)
    runs.recent.clear()


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
        if question[0] in ("scripts", "entries", "ignored"):
            return ""  # no question about a command line looks at other scripts
        source = self._workspace.read(self.shown(question[1]))
        return "" if source is None else source.text

    def _kind(self, path: str) -> str:
        if self._workspace.is_file(self.shown(path)):
            return "file"
        return "folder" if path == _ROOT or self._workspace.exists(self.shown(path)) else ""
