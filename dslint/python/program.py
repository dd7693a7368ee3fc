"""The modules of a project: found by import, interpreted once, and read through re-exports."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dslint.python import attributes
from dslint.python.budgets import MODULE
from dslint.python.events import Call, Node, Seq, tells
from dslint.python.files import Files
from dslint.python.heap import Frame, OutOfBudgetError
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.moduleruns import ModuleRun, Noted, Recording, is_kept, replay
from dslint.python.questions import Effort
from dslint.python.relevance import Relevance
from dslint.python.search import is_library
from dslint.python.shared import Shared
from dslint.python.source import Module
from dslint.python.values import INPUT, LOST_VALUE, NOTHING, Api, ClassAtom, Function, ModuleAtom, Value, one, unknown
from dslint.python.varies import LOST
from dslint.python.vocabulary import TRAINER

if TYPE_CHECKING:
    from dslint.python.focus import Focus


class Program:
    """The modules that one machine has read and run."""

    def __init__(self, files: Files, shared: Shared | None = None, focus: Focus | None = None) -> None:
        self.files = files
        self.focus = focus
        self.effort = focus.question.effort if focus is not None else Effort()
        self.shared = shared or Shared()
        # The file that is run as `__main__`, and the run of a module that takes place.
        self.main = ""
        self._recording: Recording | None = None
        self.records_imports = True  # what is recorded of expressions (`Machine.recorder`) is wanted of modules, too
        self.frames: dict[int, int] = {}
        self.module_frames: set[int] = set()
        self._running: set[str] = set()
        self._run: dict[str, Seq] = {}
        self.noted = Noted()
        # How often calls of a function took too many steps (`budgets.py`), and what may happen where (`relevance.py`).
        self.costly: dict[int, int] = {}
        self.called: dict[ast.AST, Function] = {}  # the function of the project that each call has called last
        # The functions that have gone on beyond their budget, while what is started runs.
        self.gone_on: set[int] | None = None
        self._relevance: Relevance | None = None
        self._unindexed: list[Module] = []
        self._seen: set[str] = set()
        self.module_events: list[tuple[Module, Seq]] = []

    # -- what definitions tell ----------------------------------------------------------------------------------

    def note_function(self, function: Function) -> None:
        """Remember a function that a definition has made."""
        self.noted.functions.append(function)

    def note_class(self, cls: ClassAtom) -> None:
        """Remember a class that a definition has made."""
        self.noted.classes.append(cls)

    def note_decorator(self, m: Machine, value: Value, path: str, node: ast.AST) -> None:
        """Remember that a library decorates a function."""
        for atom in value.atoms:
            if isinstance(atom, Function):
                self.noted.decorators.setdefault(atom, []).append((path, node))

    def defines(self, m: Machine, cls: ClassAtom, *names: str) -> bool:
        """Return whether a class of the project or a base of it defines one of the methods."""
        for base in attributes.lineage(m, cls):
            if isinstance(base, ClassAtom) and any(m.store.get((base, name)) is not None for name in names):
                return True
        return False

    # -- modules ------------------------------------------------------------------------------------------------

    def frame_of(self, m: Machine, module: Module) -> int:
        """Return the number of the frame that holds the names of a module."""
        found = self.frames.get(id(module))
        if found is None:
            new, m.new = m.new, m.shared.interned
            found = self.frames[id(module)] = m.context(("module", module.absolute))
            m.new = new
            self.module_frames.add(found)
        return found

    def load(self, path: str) -> Module | None:
        """Return the module in a file; `None` when Python cannot read it."""
        module = self._loaded(path)
        if path != self.main:
            self.noted.asked.add(("file", path))
        if module is not None and path not in self._seen:
            self._seen.add(path)
            self._unindexed.append(module)
        return module

    def with_imports(self, modules: Iterable[Module]) -> list[Module]:
        """Return modules and those of the project that they import, each once."""
        found = {id(module): module for module in modules}
        for module in list(found.values()):
            homes = {home for origins in module.imported.values() for home, _ in origins}
            for inner in filter(None, (self.named(module, home) for home in sorted(homes))):
                found.setdefault(id(inner), inner)
        return list(found.values())

    def named(self, importer: Module, name: str) -> Module | None:
        """Return the module of the project that an import means, without running it."""
        path = self.resolve(importer, name)
        if path:
            self.noted.asked.add(("file", path))
        return self._loaded(path) if path else None

    def other_scripts(self) -> list[str]:
        """Return the files around the script that is started which nothing in its run has read."""
        root = self.files.root(self.main)
        question = ("scripts", self.main.rpartition("/")[0], root)
        self.noted.asked.add(question)
        return [path for path in self.files.answer(question).splitlines() if path not in self._seen]

    def modules(self) -> list[Module]:
        """Return the modules that were read for this machine."""
        return [module for path in sorted(self._seen) if (module := self.shared.parsed.get(path)) is not None]

    def ran(self) -> list[Module]:
        """Return the script and the modules whose bodies its run has come to."""
        return [module for module in self.modules() if module.absolute == self.main or module.absolute in self._run]

    def asked(self, *question: str) -> str:
        """Return the answer to a question about files, which is written down."""
        self.noted.asked.add(question)
        return self.files.answer(question)

    def home_of(self, node: ast.AST | None) -> Module | None:
        """Return the module in whose tree a node is."""
        return next((module for module in self.modules() if module.holds(node)), None)

    def _loaded(self, path: str) -> Module | None:
        return self.shared.module_in(self.files, path)

    def relevance(self, m: Machine) -> Relevance:
        """Return the index of what may happen in functions, with all modules that were read so far."""
        if self._relevance is None:
            self._relevance = Relevance(m.libraries, self.focus)
        for module in self._unindexed:
            self._relevance.add(module)
        self._unindexed.clear()
        return self._relevance

    def resolve(self, importer: Module, name: str) -> str:
        """Return the path of the file that an import means; empty when it is none of the project."""
        if not name.startswith(".") and is_library(importer.absolute, name):
            return ""
        folder = importer.absolute.rpartition("/")[0]
        question = ("module", folder, self.files.root(importer.absolute), name)
        self.noted.asked.add(question)
        path = self.files.answer(question)
        # The folder of the script is on the path of Python, no other: `import wandb` in `pkg/wandb.py` is the library.
        is_itself = path == f"{folder}/{name}.py" == importer.absolute and folder != self.main.rpartition("/")[0]
        return "" if is_itself else path

    def imported(self, m: Machine, importer: Module, name: str, node: ast.AST) -> Value:
        """Return the module that `import name` means, interpreted."""
        path = self.resolve(importer, name)
        if path:
            self._parents(m, importer, name, node)
            module = self.load(path)
            if module is None:
                return unknown(LOST_VALUE, f"`{path}` cannot be read", LOST)
            self.run_module(m, module, node)
            return one(ModuleAtom(module))
        return one(Api(m.libraries.canonical(name.lstrip("."))))

    def _parents(self, m: Machine, importer: Module, name: str, node: ast.AST) -> None:
        """Run the packages around a module, as Python does before the module itself."""
        dots = len(name) - len(name.lstrip("."))
        for at, letter in enumerate(name):
            path = self.resolve(importer, name[:at]) if letter == "." and at > dots else ""
            package = self.load(path) if path else None
            if package is not None:
                self.run_module(m, package, node)

    def run_module(self, m: Machine, module: Module, node: ast.AST | None = None) -> None:
        """Interpret the body of a module the first time that something imports it."""
        path = module.absolute
        if self._recording is not None:
            self._recording.imports(module, node)
        if path in self._run or path in self._running:
            return
        if len(self._run) >= self.effort.modules:
            if self._recording is not None:
                self._recording.is_complete = False
            if self.focus is not None:
                m.lost["modules"] = m.lost.get("modules", 0) + 1
            return
        self._running.add(path)
        body = self._replayed(m, module)
        if body is None:
            body = self._executed(m, module)
        self._running.discard(path)
        if not tells(body):
            body = []
        self._run[path] = Seq(body)
        if body:
            self.module_events.append((module, self._run[path]))
            if node is not None and m.frame is not None:
                m.events.append(Call(node, m.frame.module, module, self._run[path]))

    def run_again(self, m: Machine, module: Module) -> Seq | None:
        """Import a module as a run did that is replayed; return its events when this is the first time."""
        if module.absolute in self._run or module.absolute in self._running:
            return None
        self.load(module.absolute)
        self.run_module(m, module)
        return self._run.get(module.absolute)

    def _replayed(self, m: Machine, module: Module) -> list[Node] | None:
        """Do what the body of a module did for another script; return its events, `None` where it must run."""
        outer, self._recording = self._recording, None
        frame, m.frame = m.frame, None  # type: ignore[assignment]  # imports of a replay are nobody's events
        try:
            for run in self.shared.runs.get(module.absolute, ()) if not self._records(m) else ():
                body = replay(self, m, module, run)
                if body is not None:
                    self.frame_of(m, module)
                    self._note(m, run.noted)
                    return body
        finally:
            self._recording, m.frame = outer, frame
        return None

    def _note(self, m: Machine, noted: Noted) -> None:
        self.noted.add(noted)
        m.reached |= noted.reached
        m.generators.update(noted.generators)
        for reason, number in noted.lost.items():
            m.lost[reason] = m.lost.get(reason, 0) + number

    def _executed(self, m: Machine, module: Module) -> list[Node]:
        """Interpret the body of a module, and keep what it does for the next script."""
        from dslint.python.joins import join_all
        from dslint.python.statements import execute
        from dslint.python.values import const

        path = module.absolute
        saved = (m.frame, m.events, m.control, m.lanes, m.path, m.alive, m.steps, m.tries, m.limit, m.decided)
        gone_on, self.gone_on = self.gone_on, None
        apart = (self.noted, self.costly, self._recording, m.new, m.reached, m.lost, m.generators, m.forwarding)
        self.noted, self.costly, m.reached, m.lost, m.generators = Noted(), {}, set(), {}, {}
        m.forwarding = frozenset()
        body: list[Node] = []
        number = self.frame_of(m, module)
        mark = m.store.mark()
        m.frame = Frame(number, module, number, None)
        m.frame.mark = mark
        m.events, m.control, m.lanes, m.path, m.alive, m.steps, m.tries = body, 0, m.worlds.full, {}, True, 0, []
        m.new, m.limit, m.decided = m.shared.interned, MODULE, {}
        recording = self._recording = Recording(m, mark, body)
        m.store.set((number, "__name__"), join_all(map(const, module.names)))
        run: ModuleRun | None = None
        try:
            execute(m, module.tree.body)
        except OutOfBudgetError:
            m.lost["budget of a module"] = m.lost.get("budget of a module", 0) + 1
        finally:
            noted = self.noted
            noted.reached, noted.lost, noted.generators = m.reached, m.lost, m.generators
            run = recording.end(noted)
            self.noted, self.costly, self._recording, m.new, m.reached, m.lost, m.generators, m.forwarding = apart
        m.store.settle(mark)
        m.frame, m.events, m.control, m.lanes, m.path, m.alive, m.steps, m.tries, m.limit, m.decided = saved
        self.gone_on = gone_on
        self._note(m, noted)
        known = self.shared.runs.setdefault(path, [])
        if run is not None and path != self.main and not self._records(m) and is_kept(known):
            known.append(run)
        elif self._recording is not None and path == self.main:
            self._recording.is_complete = False
        return body

    def _records(self, m: Machine) -> bool:
        """Return whether somebody wants the values of all expressions, those of imported modules too."""
        return m.recorder is not None and self.records_imports

    def depends_on_launch(self) -> None:
        """Keep no record of the run of the module that takes place: another command may say something else."""
        if self._recording is not None:
            self._recording.is_complete = False

    def attribute(self, m: Machine, module: Module, name: str) -> Value:
        """Return a name of a module: its own, a re-export, or a submodule of a package."""
        found = m.store.get((self.frame_of(m, module), name))
        if found is not None and found.atoms:
            return found
        arrived = self.focus.arrived(m, self.frame_of(m, module), name) if self.focus is not None else None
        if arrived is not None:
            return arrived
        if module.is_package:
            path = self.resolve(module, f".{name}")
            if path:
                inner = self.load(path)
                if inner is not None:
                    self.run_module(m, inner)
                    return one(ModuleAtom(inner))
        if module.absolute in self._running:
            return unknown(LOST_VALUE, f"`{name}` of a module that is still being imported", LOST)
        getter = m.store.get((self.frame_of(m, module), "__getattr__"))
        return unknown(
            INPUT if getter is not None else LOST_VALUE, f"`{name}` of `{module.path}`", 0 if getter else LOST
        )

    def member(self, m: Machine, importer: Module, name: str, member: str, node: ast.AST) -> Value:
        """Return what `from name import member` means."""
        known = self.focus.library_parser(m, name, member) if self.focus is not None else None
        if known is not None:
            return known
        found = self.imported(m, importer, name, node)
        value = NOTHING
        for atom in found.atoms:
            if isinstance(atom, ModuleAtom):
                value = join(value, self.attribute(m, atom.module, member))
            elif isinstance(atom, Api):
                if name.startswith("."):
                    path = self.resolve(
                        importer, f"{name.rstrip('.')}.{member}" if name.strip(".") else f"{name}{member}"
                    )
                    inner = self.load(path) if path else None
                    if inner is not None:
                        self.run_module(m, inner, node)
                        return one(ModuleAtom(inner))
                    if m.libraries.own is not None and m.libraries.own.kind(f"{name}.{member}") == "trainers":
                        return one(Api(TRAINER))
                    return unknown(LOST_VALUE, f"`{member}` of a module that is not in the project", LOST)
                path = self.resolve(importer, f"{name}.{member}")
                inner = self.load(path) if path else None
                if inner is not None:  # a namespace package
                    self.run_module(m, inner, node)
                    return one(ModuleAtom(inner))
                value = join(value, attributes.of_api(m, atom, member))
            else:
                value = join(value, one(atom, found.varies))
        return value

    def everything(self, m: Machine, importer: Module, name: str, node: ast.AST) -> dict[str, Value]:
        """Return what `from name import *` binds."""
        found = self.imported(m, importer, name, node)
        names: dict[str, Value] = {}
        for atom in found.atoms:
            if isinstance(atom, ModuleAtom):
                number = self.frame_of(m, atom.module)
                if self.focus is not None:
                    self.focus.handed_on(m, number, m.frame.id)
                for key in m.store.names.get(number, ()):
                    value = m.store.get((number, key))
                    if isinstance(key, str) and not key.startswith("_") and value is not None and value.atoms:
                        names[key] = value
            elif isinstance(atom, Api):
                prefix = f"{atom.path}."
                for path in m.libraries.members(atom.path):
                    names[path.removeprefix(prefix)] = one(Api(m.libraries.canonical(path)))
        return names
