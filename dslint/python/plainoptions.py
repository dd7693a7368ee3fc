"""Options in plain words: what a parser does with the words of a command for one that was declared."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location
from dslint.python import containers, optiontable
from dslint.python.dictionaries import known_keys, may_lack
from dslint.python.heap import REST
from dslint.python.machine import Machine
from dslint.python.optiontable import Declared
from dslint.python.source import Module
from dslint.python.values import NOTHING, Api, Const, Instance, Tuple, Value

_ACTIONS = ("store", "store_true", "store_false", "store_const", "append", "append_const", "extend", "count")
_NARGS = ("?", "*", "+", "...", "A...")
_TYPES = ("int", "float", "str", "bool")
_MOST = 256  # choices of a range
# Attributes of what `add_argument` gives that a program may set later.
_LATER = ("default", "required", "choices", "type", "nargs", "const", "dest", "option_strings")


@dataclass(frozen=True, slots=True)
class Option:
    """One option or operand that a parser declares.

    `flags` are all its spellings; an operand has none. `type` is the name of the converter (`int`), empty when nobody
    names one or it is no builtin. `choices` are `None` where anything goes or nobody knows. `nargs` as argparse takes
    it. `required`: argparse refuses a command without it. `is_opaque`: how many words it takes is not known.
    """

    dest: str
    flags: tuple[str, ...]
    location: Location
    default: Fact[object] = field(default_factory=absent)
    type: str = ""
    choices: tuple[object, ...] | None = None
    nargs: str | int | None = None
    action: str = "store"
    required: bool = False
    is_opaque: bool = False

    @property
    def name(self) -> str:
        """The long spelling, or what the operand is called."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0] if self.flags else self.dest)


def default_fact(module: Module, node: ast.AST, state: str, value: object, at: ast.AST | None) -> Fact[object]:
    """Return the default of an option that `node` declares: it is `known`, `absent` or `unknown`, and stands `at`."""
    if state == "absent":
        return absent()
    is_own = at is None or at is node
    where = module.location(node) if is_own or at is None else module.location(at, "the default of the script")
    return unknown("the script computes it", where) if state == "unknown" else known(value, where)


def plain(m: Machine, parser: Instance, option: Declared) -> Option:
    """Return an option that was declared, in plain words."""
    where = option.where
    assert where is not None
    module, node = where
    keywords = {k.arg: k.value for k in node.keywords if k.arg} if isinstance(node, ast.Call) else {}
    made = (option.made, m.store.get((parser, optiontable.EACH)) or NOTHING)
    is_changed = any(m.store.get((a, name)) is not None for v in made for a in v.atoms for name in _LATER)
    dest, flags = str(optiontable.constant(option.dest)), tuple(option.spellings)
    action = _action(option.action)
    nargs, is_known = _nargs(option.nargs)
    is_opaque = action is None or bool(option.open.atoms) or not is_known or is_changed
    type_ = _type(option.type)
    # A converter of the script may turn the words into others.
    converts = bool(option.type.atoms) and option.type.constants != (None,) and type_ not in ("int", "float", "str")
    choices = None if converts or is_changed else _choices(m, option.choices, keywords.get("choices"))
    state, default = _default(m, parser, option, dest, action or "store", keywords.get("default"))
    required = optiontable.is_truth(option.required) or (not flags and nargs in (None, "+"))
    state = "unknown" if is_changed else state
    return Option(
        dest, flags, module.location(node), default_fact(module, node, state, default, keywords.get("default")),
        "" if is_changed else type_, choices, nargs, action or "store",
        required and not is_changed and not option.open.atoms, is_opaque,
    )  # fmt: skip


def _default(
    m: Machine, parser: Instance, option: Declared, dest: str, action: str, node: ast.expr | None
) -> tuple[str, object]:
    """Return whether a default is known, and the default."""
    given = optiontable.default_of(m, parser, dest)
    if given is not None and optiontable.may_keep_default(m, parser, dest):
        return "unknown", None
    value = given if given is not None else option.default
    if not value.atoms:
        if action in ("store_true", "store_false"):
            return "known", action == "store_false"
        return "absent", None
    is_known, found = constant_of(m, value, node if given is None else None)
    return ("known", found) if is_known else ("unknown", None)


def constant_of(m: Machine, value: Value, node: ast.expr | None = None, depth: int = 4) -> tuple[bool, object]:
    """Return whether a value is a constant of Python, and the constant; lists and dictionaries of such as well."""
    if node is not None and not isinstance(node, ast.Name | ast.Call | ast.Attribute):
        try:
            return True, ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            pass
    atom = value.single
    if isinstance(atom, Const):
        return isinstance(atom.value, str | int | float | bytes | bool | None), atom.value
    if depth == 0 or value.varies:
        return False, None
    if isinstance(atom, Instance) and atom.cls == "builtins.dict":
        return _dictionary(m, atom, depth)
    is_list = isinstance(atom, Instance) and atom.cls == "builtins.list"
    items = containers.exact_items(m, value) if is_list or (isinstance(atom, Tuple) and atom.is_tuple) else None
    if items is None:
        return False, None
    found = [constant_of(m, item, None, depth - 1) for item in items]
    plain = [part for _, part in found]
    return all(is_known for is_known, _ in found), plain if is_list else tuple(plain)


def _dictionary(m: Machine, atom: Instance, depth: int) -> tuple[bool, object]:
    rest = m.store.get((atom, REST))
    keys = known_keys(m, atom)
    if (rest is not None and rest.atoms) or any(may_lack(m, atom, key) for key in keys):
        return False, None
    if m.content(atom) is not None:
        return False, None
    found = {k: constant_of(m, m.store.get((atom, ("key", k))) or NOTHING, None, depth - 1) for k in keys}
    return all(is_known for is_known, _ in found.values()), {key: part for key, (_, part) in found.items()}


def _action(value: Value) -> str | None:
    """Return what an option does with its words; `None` where nobody knows."""
    if not value.atoms:
        return "store"
    atom = value.single
    if isinstance(atom, Api):
        return "boolean" if atom.path.rpartition(".")[2] == "BooleanOptionalAction" else None
    found = optiontable.constant(value)
    return found if isinstance(found, str) and found in (*_ACTIONS, "help", "version") else None


def _nargs(value: Value) -> tuple[str | int | None, bool]:
    if not value.atoms:
        return None, True
    if not isinstance(value.single, Const):
        return None, False
    found = value.single.value
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        return found, True
    return (found, True) if isinstance(found, str) and found in _NARGS else (None, False)


def _type(value: Value) -> str:
    atom = value.single
    name = atom.path.removeprefix("builtins.") if isinstance(atom, Api) else ""
    return name if name in _TYPES else ""


def _choices(m: Machine, value: Value, node: ast.expr | None) -> tuple[object, ...] | None:
    if not value.atoms:
        return None
    is_known, found = constant_of(m, value, node)
    if is_known and isinstance(found, list | tuple | set | dict):
        return tuple(found)
    atom = value.single
    if isinstance(atom, Tuple):  # a range, or a view of a dictionary
        items = [constant_of(m, item) for item in atom.items]
        return tuple(part for _, part in items) if all(is_known for is_known, _ in items) else None
    if isinstance(atom, Instance) and atom.cls == "builtins.set":
        rest = m.store.get((atom, REST))
        return rest.constants if rest is not None else None
    return _range(node)


def _range(node: ast.expr | None) -> tuple[object, ...] | None:
    """Return the numbers of `range(1, 4)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "range":
        return None
    bounds = [a.value for a in node.args if isinstance(a, ast.Constant) and type(a.value) is int]
    if len(bounds) < len(node.args) or not bounds or (len(bounds) == 3 and not bounds[2]):
        return None
    span = range(*bounds)
    return tuple(span) if len(span) <= _MOST else None
