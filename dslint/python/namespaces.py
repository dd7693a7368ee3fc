"""What `parse_args()` gives: an object whose fields come from outside, the same on all ranks.

A field that a launcher fills for each process (`--local_rank`) holds the number of the process.
"""

from __future__ import annotations

import ast

from dslint.python import containers, optiontable
from dslint.python.binding import BoundArguments
from dslint.python.environment import by_rank
from dslint.python.heap import CONTENT, REST
from dslint.python.launches import given_option, is_left_out
from dslint.python.machine import Machine
from dslint.python.optiontable import Declared
from dslint.python.values import (
    INPUT,
    Api,
    Atom,
    Const,
    Function,
    Instance,
    Tuple,
    Unknown,
    Value,
    const,
    one,
    unknown,
)
from dslint.python.varies import RANKED

# Options that launchers fill for each process, and the columns of `Worlds.lanes`.
RANK_FIELDS = {"local_rank": 1, "global_rank": 0, "node_rank": 2, "rank": 0, "world_size": 3}
# Of a list: which part of `sys.argv` it is.
PART_OF_ARGV = "#argv"
TYPES = {"int": "builtins.int", "float": "builtins.float", "str": "builtins.str", "bool": "builtins.bool"}
_REPEATED = ("append", "extend", "append_const")
_SWITCHES = ("store_true", "store_false", "BooleanOptionalAction")


def parse_args(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    """Return the namespace that `parse_args` gives."""
    from dslint.python.parsers import OPEN, PARSED

    given = bound.given.get("namespace")
    held = given.single if given is not None else None
    if isinstance(held, Instance):
        made = one(held)
    else:
        content = Value(frozenset((Unknown(INPUT, "command line"),)))
        made = m.made(node, "argparse.Namespace", content)
    atom = made.single
    assert isinstance(atom, Instance)
    words = words_of(m, bound.given.get("args"))
    # What a file says instead of the defaults is not known.
    is_filled = isinstance(held, Instance) or m.store.get((parser, OPEN)) is not None
    if not (isinstance(held, Instance) or is_filled or optiontable.why_open(m, parser)):
        m.store.set((atom, PARSED), const(True))
    by_dest: dict[str, Declared | None] = dict.fromkeys(optiontable.set_apart(m, parser))
    for _, options in optiontable.listed(m, parser, with_commands=True):
        for option in options:
            by_dest[str(optiontable.constant(option.dest))] = option if len(options) == 1 else None
    for name, found in by_dest.items():
        default = optiontable.default_of(m, parser, name)
        m.store.set((atom, name), _field(m, atom, name, found, default, words, node, is_filled))
    return made


def parse_known(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    """Return the namespace and the words that are left, which `parse_known_args` gives."""
    made = parse_args(m, parser, bound, node)
    rest = containers.new_list(m, node, [], unknown(INPUT, "command line", 0, 0, "builtins.str"))
    if is_command_line(m, bound.given.get("args")):
        # As far as the parser has not taken them they are the words of the process, like `sys.argv[1:]`.
        m.store.set((rest.single, PART_OF_ARGV), const(1))
    return one(Tuple((made, rest))) if made is not None else None


def is_command_line(m: Machine, words: Value | None) -> bool:
    """Return whether words to parse are those of the process, as far as no other parser has taken them.

    None are given, or `sys.argv[1:]`, or what `parse_known_args` has left, as it is.
    """
    if words is None or words.constants == (None,):
        return True
    atom = words.single
    part = m.store.get((atom, PART_OF_ARGV)) if isinstance(atom, Instance) else None
    return part is not None and part.constants == (1,)


def words_of(m: Machine, arguments: Value | None) -> list[str] | None:
    """Return the words that a program passes to its own parser; `None` where they come from the command line."""
    items = containers.exact_items(m, arguments) if arguments is not None and arguments.constants != (None,) else None
    if items is None or not all(i.constants and len(i.constants) == 1 for i in items):
        return None
    return [str(i.constants[0]) for i in items if i.constants]


def _field(m: Machine, atom: Instance, name: str, option: Declared | None, default: Value | None,
           words: list[str] | None, node: ast.AST, is_filled: bool) -> Value:  # fmt: skip
    if option is None:
        return default if default is not None else const(None)
    nothing = const(None)
    type_, action, nargs = option.type, optiontable.constant(option.action), option.nargs
    type_, nargs = type_ if type_.atoms else nothing, nargs if nargs.atoms else nothing
    action = action if isinstance(action, str) else ""
    own = default if default is not None else option.default if option.default.atoms else nothing
    names = option.spellings
    if words is not None and names and not any(w.partition("=")[0] in names for w in words):
        return _not_given(own, action)
    if _is_rank_field(m, name, own):
        return by_rank(m, RANK_FIELDS[name])
    if not is_filled and is_left_out(m, name) and names:
        return _not_given(own, action)
    if nargs.constants in ((None,), ("?",)):
        given = given_option(m, name, _converter(type_))
        if given is not None:
            return given
    kind = _type_of(type_, action)
    optional = own.constants == (None,) and option.required.constants != (True,) and bool(names)
    value = input_of(atom, name, "" if optional and kind != "builtins.bool" else kind)
    m.defaults[value.number] = own
    m.converted[value.number] = kind
    if nargs.constants not in ((None,), ("?",)) or action in _REPEATED:
        return _many(m, atom, name, value, optional)
    return value


def _not_given(own: Value, action: str) -> Value:
    return const(action == "store_false") if action in _SWITCHES and own.constants == (None,) else own


def _converter(type_: Value) -> str | None:
    """Return the path of a plain converter, empty without one; `None` where the script converts by itself."""
    atom = type_.single
    if isinstance(atom, Api):
        return TYPES.get(atom.path.rpartition(".")[2])
    return "" if isinstance(atom, Const) and atom.value is None else None


def _is_rank_field(m: Machine, name: str, default: Value) -> bool:
    """Return whether launchers fill an option. `--rank` with another default is the rank of a matrix, for example."""
    if name not in RANK_FIELDS:
        return False
    if name == "local_rank" or m.varies(default) & RANKED:
        return True
    known = default.constants
    return known is None or all(value in (None, -1, 0, 1) for value in known)


def _type_of(type_: Value, action: str) -> str:
    atom = type_.single
    if isinstance(atom, Api):
        return TYPES.get(atom.path.rpartition(".")[2], "")
    if action in _SWITCHES or (isinstance(atom, Function) and "bool" in atom.name):
        return "builtins.bool"
    if action == "count":
        return "builtins.int"
    return "builtins.str" if isinstance(atom, Const) and atom.value is None and action in ("", "store") else ""


def input_of(atom: Instance, name: str, kind: str) -> Value:
    """Return an unknown value from the command line: the same one at each place that reads it."""
    return Value(frozenset((Unknown(INPUT, f"option `{name}`", kind),)), 0, 0, frozenset(), ("option", atom, name))


def _many(m: Machine, atom: Instance, name: str, element: Value, optional: bool) -> Value:
    inner = Value(element.atoms)
    made = m.instance(atom.node, m.context((atom, name, "list")), "builtins.list", atom.loop)
    m.store.set((made, REST), inner)
    m.store.set((made, CONTENT), Value(frozenset((Unknown(INPUT, f"option `{name}`"),))))
    m.store.set((made, "#length"), unknown(INPUT, "length", 0, 0, "builtins.int"))
    nothing: tuple[Atom, ...] = (Const(None),) if optional else ()
    return Value(frozenset((made, *nothing)), 0, 0, frozenset(), ("option", atom, name))
