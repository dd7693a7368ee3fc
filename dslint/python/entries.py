"""Where interpretation begins: scripts as `__main__`, and with open parameters every function that none reaches."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from dslint.python import attributes, configdicts, ranknames
from dslint.python.binding import Arguments, annotation_of, default_of
from dslint.python.bynames import class_of, names_loader, yields_own
from dslint.python.dataclass_parsers import field_inputs
from dslint.python.escapes import lose_fields, lose_names
from dslint.python.events import Lost, Node, Seq
from dslint.python.files import Files
from dslint.python.focus import Focus
from dslint.python.heap import CONTENT, Frame, Outcome, OutOfBudgetError
from dslint.python.hooks import first_name, hook_lanes, passed
from dslint.python.lanes import Worlds
from dslint.python.libraries import Libraries, libraries
from dslint.python.machine import Machine
from dslint.python.models import perhaps
from dslint.python.namedlayers import may_lack, may_skip
from dslint.python.program import Program
from dslint.python.relevance import called_names
from dslint.python.shared import Shared
from dslint.python.source import Module
from dslint.python.values import (
    INPUT,
    NOTHING,
    ClassAtom,
    Function,
    Instance,
    Unknown,
    Value,
    const,
    one,
    unknown,
)
from dslint.python.varies import DATA, NAMED_DATA

# What projects call the function that an installed program starts, which nothing else of its module calls.
_PROGRAMS = frozenset({"main", "cli", "cli_main", "main_cli", "run_cli"})


@dataclass(slots=True)
class Entry:
    """One interpretation: what it began with, and the tree of its events.

    `kind` is `script` (a module as `__main__`), `function` or `class` (its methods after its constructor).
    """

    kind: str
    module: Module
    node: ast.AST
    tree: Seq
    steps: int = 0


class Analysis:
    """All entries of the files that were asked for."""

    def __init__(self, files: Files, worlds: Worlds | None = None, rows: Libraries | None = None,
                 shared: Shared | None = None, focus: Focus | None = None) -> None:  # fmt: skip
        self.program = Program(files, shared, focus)
        self.machine = Machine(self.program, rows or libraries(), worlds, shared)
        self.entries: list[Entry] = []
        self.ran: frozenset[int] = frozenset()  # the functions that the script itself has reached
        self._left = 0  # the steps that the script has not taken

    def script(
        self, path: str, *, everything: bool = False, wanted: Callable[[ast.AST], bool] | None = None
    ) -> Entry | None:
        """Interpret a file as the script that is started; `None` when Python cannot read it.

        What it defines and does not reach is interpreted, too, where it may concern other ranks, or in any case, or
        where it is `wanted`.
        """
        self.program.main = self.program.files.absolute(path)
        module = self.program.load(self.program.main)
        if module is None:
            return None
        m = self.machine
        body: list[Node] = []
        mark = m.store.mark()
        _begin(m, module, body)
        m.store.set((m.frame.id, "__name__"), const("__main__"))
        from dslint.python.statements import execute

        m.limit, self.program.gone_on = self.program.effort.script, set() if self.program.focus is None else None
        guarded(m, module.tree, lambda: execute(m, module.tree.body))
        self.program.gone_on = None
        if m.keeps_configs:
            lose_names(m)
            configdicts.end_of_module(m)
        entry = Entry("script", module, module.tree, Seq(body), m.steps)
        self.entries.append(entry)
        self._left = self.program.effort.script - m.steps
        self.ran = frozenset(m.reached)
        focus = self.program.focus
        if focus is not None and focus.question.is_open:
            self.open(module, wanted=lambda node: focus.is_named(node, module))
        elif focus is None:
            self.open(module, everything=everything, wanted=wanted)  # while its names are still there
        m.store.undo(mark)
        return entry

    def module(self, path: str) -> None:
        """Interpret a file as an imported module, and what it defines with open parameters."""
        module = self.program.load(self.program.files.absolute(path))
        if module is None:
            return
        m = self.machine
        m.alive, m.events, m.frame = True, [], Frame(0, module, 0)
        self.program.run_module(m, module)
        self.open(module)

    def open(
        self, module: Module, *, everything: bool = False, wanted: Callable[[ast.AST], bool] | None = None
    ) -> None:
        """Interpret the functions and classes of a module that nothing has reached, with open parameters.

        Functions that no other code of the module calls come first: what they reach is seen with what they give it.
        """
        m = self.machine
        concerns = self.program.relevance(m).of

        def matters(node: ast.AST, module: Module) -> bool:
            if wanted is not None:
                return wanted(node)
            return everything or concerns(node, module) or may_skip(node)

        functions = [f for f in self.program.noted.functions if f.module is module and f.owner is None]
        functions = [f for f in functions if matters(f.node, module)]
        called = called_names(module)
        roots = [f for f in functions if f.name not in called]
        self._functions(module, sorted(roots, key=lambda f: f.name not in _PROGRAMS))
        for cls in [c for c in self.program.noted.classes if c.module is module]:
            methods = [n for n in cls.node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            methods = [n for n in methods if n.name == "__init__" or matters(n, module)]
            if any(id(n) not in m.reached and matters(n, module) for n in methods):
                self.entries.append(self._class(module, cls, methods))
        self._functions(module, [f for f in functions if f.name in called])

    def _functions(self, module: Module, functions: list[Function]) -> None:
        for function in functions:
            if id(function.node) not in self.machine.reached:
                self.entries.append(self._function(module, function))

    def _function(self, module: Module, function: Function) -> Entry:
        m = self.machine
        mark, body = m.store.mark(), _begin(m, module, [])
        if function.name in _PROGRAMS and module.absolute == self.program.main:
            m.limit = max(m.limit, self._left)  # what `setup.py` names as a program does the work of the script
        self._run(function, open_arguments(m, function, False), function.node)
        m.store.undo(mark)
        return Entry("function", module, function.node, Seq(body), m.steps)

    def _class(self, module: Module, cls: ClassAtom, methods: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> Entry:
        """Run the constructor with open parameters, and after it every method that nothing has reached."""
        from dslint.python.objects import construct

        m = self.machine
        mark, body = m.store.mark(), _begin(m, module, [])
        own = attributes.of_class(m, cls, "__init__", m.instance(cls.node, m.frame.id, cls))
        atom = next(iter(own.atoms)) if own is not None and own.atoms else None
        function = getattr(atom, "function", None)
        if isinstance(function, Function):  # perhaps what a decorator has made of it, which hands arguments on
            function = next((f for n in methods if n.name == "__init__" and (f := self._defined(n))), function)
        given = open_arguments(m, function, True) if isinstance(function, Function) else Arguments()
        made = guarded(m, cls.node, lambda: construct(m, cls, given, cls.node))
        if made is None:
            made = one(m.instance(cls.node, m.frame.id, cls))
        for node in methods:
            if id(node) in m.reached or node.name == "__init__":
                continue
            self._method(module, cls, made, node)
        m.store.undo(mark)
        return Entry("class", module, cls.node, Seq(body), m.steps)

    def _method(
        self, module: Module, cls: ClassAtom, made: Value, node: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> None:
        """Run a method of an open object; what it writes may be there for the methods after it."""
        from dslint.python.invoke import call_value

        m = self.machine
        inner = m.store.mark()
        part: list[Node] = []
        if m.keeps_configs:
            lose_fields(m, made, [n for n in cls.node.body if n is not node])
        outer, m.events, m.control, m.lanes, m.path = m.events, part, 0, hook_lanes(m, cls, node.name), {}
        # A property runs when it is looked up.
        m.steps, m.limit = 0, self.program.effort.open
        method = guarded(m, node, lambda: attributes.read(m, made, node.name, node)) or NOTHING
        found = next(
            (a.function for a in method.atoms if hasattr(a, "function") and isinstance(a.function, Function)), None
        )
        own = found
        if found is not None and found.node is not node and found.name != node.name:
            own = self._defined(node)  # what a decorator has made of it is called, with what the method takes
        if own is not None and own.node is node:
            m.steps, m.limit = 0, self.program.effort.open
            guarded(
                m,
                node,
                lambda: _consumed(m, own, call_value(m, method, open_arguments(m, own, True, _only(made)), node), node),
            )
        m.events, m.alive, m.tries = outer, True, []
        changes = m.store.changes(inner)
        m.store.undo(inner)
        m.meet([Outcome({}, m.lanes, 0), Outcome(changes, m.lanes, 0)], 0)
        if part:
            self.entries.append(Entry("function", module, node, Seq(part), m.steps))

    def _defined(self, node: ast.AST) -> Function | None:
        """Return the function that a definition has made, before its decorators."""
        return next((function for function in reversed(self.program.noted.functions) if function.node is node), None)

    def _run(self, function: Function, arguments: Arguments, node: ast.AST) -> None:
        from dslint.python.frames import call_function
        from dslint.python.scopes import scope_of

        m = self.machine
        on_yield = (lambda value: None) if scope_of(function.node).is_generator else None
        guarded(m, node, lambda: call_function(m, function, arguments, node, function.owner, on_yield))

    def events(self) -> Iterator[tuple[Entry, Seq]]:
        """Yield all entries with their trees."""
        for entry in self.entries:
            yield entry, entry.tree


def _consumed(m: Machine, function: Function, result: Value, node: ast.AST) -> None:
    """Take all that a generator yields, as whoever calls it does."""
    from dslint.python.loops import items_of
    from dslint.python.scopes import scope_of

    if m.alive and scope_of(function.node).is_generator:
        items_of(m, result, node)


Result = TypeVar("Result")


def guarded(m: Machine, node: ast.AST, run: Callable[[], Result]) -> Result | None:
    """Run an entry; where it takes too many steps it ends, and what it did so far stays."""
    frame, events, control, lanes, path, recorder = m.frame, m.events, m.control, m.lanes, m.path, m.recorder
    found: Result | None = None
    try:
        found = run()
    except OutOfBudgetError:
        m.frame, m.events, m.control, m.lanes, m.path, m.recorder = frame, events, control, lanes, path, recorder
        m.lost["budget of an entry"] = m.lost.get("budget of an entry", 0) + 1
        m.events += [*m.partial, Lost("budget of an entry", node)]
        m.partial, m.tries = [], []
    m.alive = True
    return found


def _begin(m: Machine, module: Module, body: list[Node]) -> list[Node]:
    number = m.program.frame_of(m, module)
    m.frame = Frame(number, module, number)
    m.frame.mark = m.store.mark()
    m.events, m.control, m.lanes, m.path, m.alive, m.steps, m.tries = body, 0, m.worlds.full, {}, True, 0, []
    m.limit = m.program.effort.open
    return body


def open_arguments(
    m: Machine, function: Function, is_method: bool, receiver: Instance | None = None, *, of_batch: bool = False
) -> Arguments:
    """Return arguments that nobody knows for the parameters of a function.

    Of a method of `receiver` that overrides one of a library, they are what the library passes. With `of_batch` what
    has no default is a part of each rank's own batch.
    """
    parameters = function.node.args
    names = [p.arg for p in (*parameters.posonlyargs, *parameters.args)]
    values = {}
    for at, name in enumerate(names):
        if is_method and at == 0:
            continue
        is_own = of_batch and default_of(parameters, name) is None
        values[name] = open_value(m, function, name, annotation_of(parameters, name), is_own=is_own)
    for parameter in parameters.kwonlyargs:
        values[parameter.arg] = open_value(m, function, parameter.arg, parameter.annotation)
    if receiver is not None:
        for at, name in enumerate(values):
            called = name if at or not is_method else first_name(m, receiver.cls, function.name) or name
            given = passed(m, one(receiver), receiver.cls, function.name, called, function.node)
            values[name] = given if given is not None else values[name]
    only = {p.arg for p in parameters.posonlyargs}
    positional = [values.pop(name) for name in names if name in only and name in values]
    return Arguments(positional, values, _open_star(parameters.vararg), _open_star(parameters.kwarg))


def _open_star(star: ast.arg | None) -> Value | None:
    """Return what `*` or `**` may gather where nobody knows the call."""
    return unknown(INPUT, f"parameter `{star.arg}`") if star is not None else None


# Parameters of these names and another default mean something else: the rank of a matrix.
_UNRANKED = (None, -1, 0, 1)
_SCALARS = {"int": "builtins.int", "float": "builtins.float", "str": "builtins.str", "bool": "builtins.bool"}
# Parameters that hold each rank's own part of the data by convention, whatever their length ...
_OWN_DATA = frozenset(
    {
        *("batch", "mini_batch", "minibatch", "batch_data", "data_batch", "inputs", "input_ids", "attention_mask"),
        *("images", "pixel_values", "labels", "targets"),
    }
)
# ... and those of which each rank may as well hold the whole, so that their length says nothing.
_DATA = frozenset({"samples"})


def open_value(
    m: Machine, function: Function, name: str, annotation: ast.expr | None = None, *, is_own: bool = False
) -> Value:
    """Return the value of a parameter that nobody knows: an input, the same on all ranks unless it is named a rank."""
    ranked = ranknames.parameter(m, name, function.module, _parameter(function, name))
    if ranked is not None and not (ranknames.is_rank(name) and _is_of_matrix(function, name)):
        return ranked
    stated = default_of(function.node.args, name)
    if isinstance(stated, ast.Constant):
        m.defaults["parameter", id(function.node), name] = const(stated.value)
    if isinstance(annotation, ast.Name) and annotation.id in _SCALARS:
        is_optional = isinstance(stated, ast.Constant) and stated.value is None  # `folder: str = None`
        atom = Unknown(INPUT, f"parameter `{name}`", "" if is_optional else _SCALARS[annotation.id])
        return Value(frozenset((atom,)), 0, 0, frozenset(), ("parameter", id(function.node), name))
    annotated = _annotated_class(m, function, annotation) or (
        class_of(name, function.module) if annotation is None and stated is None else ""
    )
    instance = m.instance(function.node, m.context(("parameter", name)), annotated)
    lacks = may_lack(function, name)
    bits = DATA | NAMED_DATA if is_own or name in _OWN_DATA or name in _DATA or lacks else 0
    shape = bits if is_own or name in _OWN_DATA else 0
    place = (function.module, _parameter(function, name)) if bits else None
    content = Value(frozenset((Unknown(INPUT, f"parameter `{name}`"),)), bits, shape, frozenset(), None, place)
    m.store.set((instance, CONTENT), content)
    found = Value(frozenset((instance,)), 0, 0, frozenset(), ("parameter", id(function.node), name))
    if lacks:
        return perhaps(found)
    if not annotated and names_loader(name):
        yields_own(m, instance, name, function.module, function.node, _parameter(function, name))
    if isinstance(annotated, ClassAtom):
        for field, value in field_inputs(m, annotated, instance, function.node).items():
            m.store.set((instance, field), value)
    return found


def _is_of_matrix(function: Function, name: str) -> bool:
    """Return whether the default of a parameter says that its rank is another one."""
    default = default_of(function.node.args, name)
    return isinstance(default, ast.Constant) and default.value not in _UNRANKED


def _parameter(function: Function, name: str) -> ast.AST:
    given = function.node.args
    return next(p for p in (*given.posonlyargs, *given.args, *given.kwonlyargs) if p.arg == name)


def _annotated_class(m: Machine, function: Function, annotation: ast.expr | None) -> ClassAtom | str:
    """Return the class that an annotation names: of the project, or of a library with a row."""
    from dslint.python.expressions import evaluate
    from dslint.python.values import Api

    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return ""
    if not isinstance(annotation, ast.Name | ast.Attribute):
        return ""
    frame, recorder = m.frame, m.recorder
    number = m.program.frame_of(m, function.module)
    m.frame, m.recorder = Frame(number, function.module, number), None
    found = evaluate(m, annotation).single
    m.frame, m.recorder = frame, recorder
    if isinstance(found, Api):
        row = m.libraries.class_(found.path)
        return found.path if row is not None and row.kind else ""
    return found if isinstance(found, ClassAtom) else ""


def _only(value: Value) -> Instance | None:
    atom = value.single
    return atom if isinstance(atom, Instance) else None
