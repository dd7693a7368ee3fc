"""What Python refuses of the project's own: calls that do not fit a signature, results of another number of parts."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from dslint.python import attributes
from dslint.python.binding import Arguments, refusal
from dslint.python.events import Event
from dslint.python.machine import Machine
from dslint.python.values import Atom, ClassAtom, Function, Instance, Tuple, Value, const, one

TAG = frozenset(("refused-call",))
LACKS = frozenset(("missing-attribute",))
UNPACKS = frozenset(("refused-unpacking",))
_DATACLASSES = frozenset({"dataclasses.dataclass", "dslint.dataclass"})
# What stands in the body of a dataclass and is no argument.
_NO_FIELDS = ("ClassVar", "typing.ClassVar", "KW_ONLY", "dataclasses.KW_ONLY")
_EMPTY_BASES = frozenset({"builtins.object", "typing.Generic", "abc.ABC"})


def note_function(m: Machine, function: Function, arguments: Arguments, node: ast.AST) -> None:
    """Add an event where a call that the program writes does not fit a function."""
    m.program.called[node] = function
    problem = refusal(function.node.args, arguments)
    if problem:
        _note(m, one(function), problem, arguments, node)


def note_class(m: Machine, cls: ClassAtom, arguments: Arguments, node: ast.AST) -> None:
    """Add an event where a call does not fit a class without an `__init__` of its own."""
    parameters = _fields(m, cls)
    problem = refusal(parameters, arguments) if parameters is not None else ""
    if problem:
        _note(m, one(cls), problem, arguments, node)


def note_unpacked(m: Machine, value: Value, target: ast.Tuple | ast.List, written: ast.expr) -> None:
    """Add an event where the targets of an assignment are more or fewer than the parts of what they get."""
    count = len(target.elts)
    has_star = any(isinstance(element, ast.Starred) for element in target.elts)
    sizes = set()
    for atom in value.atoms:
        if not isinstance(atom, Tuple) or not atom.is_tuple:
            return
        size = len(atom.items)
        if size == count or (has_star and size >= count - 1):
            return
        sizes.add(size)
    function = m.program.called.get(written)
    if not sizes or (isinstance(written, ast.Call) and function is None):
        return
    given = {"sizes": const(tuple(sorted(sizes))), **({"called": one(function)} if function is not None else {})}
    m.events.append(Event("", UNPACKS, target, m.frame.module, None, given, None, m.lanes, m.control))


def note_attribute(m: Machine, base: Value, name: str, number: object, node: ast.AST) -> None:
    """Add an event where an object of the project has no attribute of that name: `number` is that of a field unset."""
    if not isinstance(number, tuple) or number[0] != "field" or not m.alive:
        return
    atom = base.single
    if not isinstance(atom, Instance) or not isinstance(atom.cls, ClassAtom) or number[1:] != (atom, name):
        return
    if _is_made(m, atom) and m.store.get((atom, name)) is None:
        m.events.append(
            Event("", LACKS, node, m.frame.module, one(atom), {"name": const(name)}, None, m.lanes, m.control)
        )


def _note(m: Machine, called: Value, problem: str, arguments: Arguments, node: ast.AST) -> None:
    function = called.single
    is_method = isinstance(function, Function) and function.owner is not None and bool(arguments.positional)
    first = arguments.positional[0] if is_method else None
    given = {"called": called, "problem": const(problem)}
    event = Event("", TAG, node, m.frame.module, first, given, None, m.lanes, m.control)
    event.may = first is not None and not all(_is_made(m, atom) for atom in first.atoms)
    m.events.append(event)


def _is_made(m: Machine, atom: Atom) -> bool:
    """Return whether the program makes an object here: one from outside may be of a class that derives from its own."""
    if not isinstance(atom, Instance):
        return True
    return m.store.get((atom, "#made")) is not None and not isinstance(atom.node, ast.ClassDef)


@dataclass(slots=True)
class _Field:
    """A field of a class as an argument of its constructor."""

    name: str
    default: ast.expr | None
    is_keyword: bool = False


def _fields(m: Machine, cls: ClassAtom) -> ast.arguments | None:
    """Return what the constructor takes that a dataclass or a named tuple gets; `None` where it is another one."""
    from dslint.python.enums import is_named_tuple
    from dslint.python.objects import is_dataclass

    order = attributes.lineage(m, cls)
    is_tuple = is_named_tuple(m, cls)
    own = [base for base in order if isinstance(base, ClassAtom)]
    if is_tuple:
        own = own if len(own) == 1 else []
    else:
        has_known_bases = all(isinstance(base, ClassAtom) or base in _EMPTY_BASES for base in order)
        if not (has_known_bases and is_dataclass(m, cls) and all(is_dataclass(m, b) or _is_plain(b) for b in own)):
            return None
    fields: dict[str, _Field] = {}
    for base in reversed(own):
        if base.node.keywords or any(_defines(base, name) for name in ("__init__", "__new__")):
            return None
        if is_tuple or is_dataclass(m, base):
            found = _fields_of(base, is_tuple=is_tuple)
            if found is None:
                return None
            fields |= {field.name: field for field in found}
    return _arguments(list(fields.values())) if own else None


def _is_plain(cls: ClassAtom) -> bool:
    return not cls.node.decorator_list and not cls.node.keywords


def _defines(cls: ClassAtom, name: str) -> bool:
    return any(isinstance(n, ast.FunctionDef) and n.name == name for n in cls.node.body)


def _fields_of(cls: ClassAtom, *, is_tuple: bool) -> list[_Field] | None:
    """Return the fields that the body of one class declares; `None` where a decorator may read them otherwise."""
    only_keywords = False
    for decorator in cls.node.decorator_list if not is_tuple else ():
        call = decorator if isinstance(decorator, ast.Call) else None
        if cls.module.path_of(call.func if call is not None else decorator) not in _DATACLASSES:
            return None
        for keyword in call.keywords if call is not None else ():
            if keyword.arg in (None, "init") or not isinstance(keyword.value, ast.Constant):
                return None
            only_keywords |= keyword.arg == "kw_only" and bool(keyword.value.value)
    found = []
    for statement in cls.node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        kind = ast.unparse(statement.annotation).strip("\"'").partition("[")[0]
        if kind in _NO_FIELDS:
            only_keywords |= kind.endswith("KW_ONLY")
            continue
        field = _field(statement, is_keyword=only_keywords)
        if field is not None:
            found.append(field)
    return found


def _field(statement: ast.AnnAssign, *, is_keyword: bool) -> _Field | None:
    """Return a field as an argument; `None` where `field(init=False)` says that it is none."""
    assert isinstance(statement.target, ast.Name)
    value = statement.value
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
        said = {keyword.arg: keyword.value for keyword in value.keywords}
        if any(isinstance(one, ast.Constant) and one.value is False for name, one in said.items() if name == "init"):
            return None
        is_keyword |= isinstance(said.get("kw_only"), ast.Constant)
        value = said.get("default") or said.get("default_factory") or (value if None in said else None)
    return _Field(statement.target.id, value, is_keyword)


def _arguments(fields: list[_Field]) -> ast.arguments:
    """Return the parameters of the constructor that has these fields; without `self`."""
    plain = [field for field in fields if not field.is_keyword]
    named = [field for field in fields if field.is_keyword]
    return ast.arguments(
        [], [ast.arg(field.name) for field in plain], None, [ast.arg(field.name) for field in named],
        [field.default for field in named], None, [field.default for field in plain if field.default is not None],
    )  # fmt: skip
