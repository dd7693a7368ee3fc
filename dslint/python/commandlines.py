"""What the command line of a process may hold, as it stands where a call parses it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dslint.core.fact import Fact
from dslint.core.fact import unknown as unknown_fact
from dslint.python import attributes, fieldoptions, optiontable, subparsers
from dslint.python.binding import BoundArguments, default_of
from dslint.python.escapes import is_escaped
from dslint.python.heap import ITEMS, LENGTH, REST
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.namespaces import PART_OF_ARGV, is_command_line
from dslint.python.ownparsers import changed_by_class, changed_by_fields
from dslint.python.parsers import COMMANDS
from dslint.python.plainoptions import Option, plain
from dslint.python.values import NOTHING, OPAQUE, Api, ClassAtom, Instance, Value, const, one, unknown

# `sys.argv` where a program has changed it.
ARGV = Api("sys.argv")
CHANGED = "#changed"
_PLAIN = ("argparse.ArgumentParser", "transformers.HfArgumentParser", "trl.TrlParser")
_FILES = ("parse_json_file", "parse_yaml_file", "parse_dict")
_KNOWN_ONLY = ("parse_known_args", "parse_known_intermixed_args")
# With this the words that no option takes are given back.
_REST = "return_remaining_strings"
# Arguments of parsing that say nothing of the options.
_ASIDE = frozenset(
    {"args", "namespace", "look_for_args_file", "yaml_file", "json_file", "allow_extra_keys"}
    | {"fail_with_unknown_args", "separate_remaining_strings"}  # of a config file
)


@dataclass(slots=True, eq=False)
class CommandLine:
    """The parser that a call uses, with its options then.

    `kind` is `argparse`, `hf`, `trl` or the library that makes options from functions and files; `parser` is `None`
    where that does it, or where nobody knows which parser it is. `open_because` says why there may be other options,
    `passes` that unknown ones are let pass. `classes` are classes of libraries whose fields are options as well.
    `parses` is false of a call that reads a file instead; `own_words` says that the script chooses the words.
    `commands` are those of `add_subparsers`, each with its own options, `command` is the operand that names one.
    """

    kind: str
    parser: Instance | None = None
    options: tuple[Option, ...] = ()
    open_because: str = ""
    passes: bool = False
    abbreviates: bool = True
    helps: bool = True
    classes: tuple[str, ...] = ()
    parses: bool = True
    own_words: bool = False
    reads_config: bool = False
    commands: dict[str, CommandLine] = field(default_factory=dict)
    command: Option | None = None


def read(m: Machine, row: Row, bound: BoundArguments, base: Value | None) -> CommandLine | None:
    """Return what the command line may hold where a call parses it."""
    kind = str(row.extra.get("command_line", ""))
    own_words = not is_command_line(m, bound.given.get(str(row.extra.get("arguments", ""))))
    if kind and not (base is not None and isinstance(base.single, Instance)):
        return CommandLine(kind, own_words=own_words)
    parser = base.single if base is not None else None
    if not isinstance(parser, Instance) or not attributes.is_instance_of(m, parser.cls, "parser"):
        return CommandLine("", own_words=own_words)
    name = row.path.rpartition(".")[2]
    found = of_parser(m, parser)
    found.own_words = own_words
    found.parses = name not in _FILES
    found.passes = name in _KNOWN_ONLY or bound.given.get(_REST, NOTHING).constants == (True,)
    found.reads_config = name == "parse_args_and_config"
    found.open_because = found.open_because or _because(m, row, bound, parser)
    return found


def of_parser(m: Machine, parser: Instance) -> CommandLine:
    """Return the options of a parser as they are now."""
    kind = "argparse"
    for path, name in (("transformers.HfArgumentParser", "hf"), ("trl.TrlParser", "trl")):
        kind = name if attributes.is_instance_of(m, parser.cls, path) else kind
    fields = fieldoptions.Fields(m)
    if kind != "argparse":
        fields.read(parser)
    own = tuple(_declared(m, parser))
    given = _given(m, parser, "conflict_handler")
    options = _resolved((*fields.options, *own)) if given == "resolve" else (*fields.options, *own)
    found = CommandLine(
        kind,
        parser,
        options,
        fields.open_because,
        abbreviates=_given(m, parser, "allow_abbrev") is not False,
        helps=_given(m, parser, "add_help") is not False,
        classes=tuple(dict.fromkeys(fields.classes)),
    )
    _add_commands(m, parser, found)
    return found


def _add_commands(m: Machine, parser: Instance, found: CommandLine) -> None:
    """Take in the commands of a parser, with the options of each."""
    stored = m.store.get((parser, COMMANDS))
    if stored is None or not stored.atoms:
        return
    action = stored.single
    place = subparsers.place_of(m, action) if isinstance(action, Instance) else None
    if not isinstance(action, Instance) or place is None:
        found.open_because = found.open_because or "its subparsers are not in view"
        return
    found.open_because = found.open_because or subparsers.why_open(m, action)
    for name, value in subparsers.commands_of(m, action).items():
        inner = value.single
        if isinstance(inner, Instance):
            line = found.commands[name] = of_parser(m, inner)
            line.open_because = line.open_because or _own_reading(m, inner)
        else:
            found.open_because = found.open_because or f"the parser of `{name}` is not in view"
    dest = optiontable.constant(m.store.get((action, subparsers.DEST)) or NOTHING)
    required = optiontable.is_truth(m.store.get((action, subparsers.REQUIRED)) or NOTHING)
    found.command = Option(
        dest if isinstance(dest, str) and dest else f"{{{','.join(found.commands)}}}", (), place, required=required,
        choices=tuple(found.commands),
    )  # fmt: skip


def argv(m: Machine, node: ast.AST) -> Value:
    """Return `sys.argv`: a list of texts that nobody knows, the same on all ranks."""
    atom = m.instance(node, m.context((m.frame.id, ARGV.path)), "builtins.list")
    m.store.set((atom, ITEMS), NOTHING)
    m.store.set((atom, REST), unknown(OPAQUE, "word of the command line", 0, 0, "builtins.str"))
    m.store.set((atom, LENGTH), unknown(OPAQUE, "length", 0, 0, "builtins.int"))
    m.store.set((atom, PART_OF_ARGV), const(0))
    return one(atom)


def _declared(m: Machine, parser: Instance) -> Iterator[Option]:
    for key, options in optiontable.listed(m, parser):
        found = [plain(m, parser, option) for option in options]
        first = found[0]
        if any(_shape(other) != _shape(first) for other in found[1:]):
            default: Fact[object] = unknown_fact("the script computes it", first.location)
            first = replace(first, default=default, type="", choices=None, is_opaque=True)
        if optiontable.may_lack(m, parser, key):
            first = replace(first, required=False)
        yield first


def _shape(option: Option) -> tuple[object, ...]:
    default = option.default
    return default.state, default.value, option.type, option.choices, option.nargs, option.action


def _resolved(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """Return the options where a later one takes the flags of those before it."""
    kept: list[Option] = []
    for option in options:
        rest = [replace(o, flags=tuple(f for f in o.flags if f not in option.flags)) if o.flags else o for o in kept]
        kept = [new for old, new in zip(kept, rest, strict=True) if new.flags or not old.flags]
        kept.append(option)
    return tuple(kept)


def _given(m: Machine, parser: Instance, name: str) -> object:
    stored = m.store.get((parser, ("argument", name)))
    return optiontable.constant(stored) if stored is not None else None


def _because(m: Machine, row: Row, bound: BoundArguments, parser: Instance) -> str:
    """Return why a parser may take other words than its options say."""
    if m.store.get((ARGV, "#value")) is not None or m.store.get((ARGV, CHANGED)) is not None:
        return "the script changes `sys.argv`"
    if m.store.get((parser, "#arguments")) is None:
        return "the parser is not made in view"
    cls = parser.cls
    if isinstance(cls, str) and cls not in _PLAIN:
        return f"`{cls}` is no plain parser"
    reason = changed_by_class(m, cls) if isinstance(cls, ClassAtom) else ""
    if not reason and isinstance(cls, ClassAtom) and m.store.get((parser, COMMANDS)) is not None:
        reason = "its subparsers are of a class of their own"
    reason = reason or _own_reading(m, parser)
    if reason:
        return reason
    if _is_held_elsewhere(m, parser):
        return "the parser is stored where others may add options"
    return _strictness(row, bound)


def _own_reading(m: Machine, parser: Instance) -> str:
    """Return why a parser, perhaps of a command, may take other words than its options say."""
    for name in ("fromfile_prefix_chars", "prefix_chars", "argument_default"):
        if _given(m, parser, name) is not None or _is_computed(m, parser, name):
            return f"the parser is made with `{name}`"
    return changed_by_fields(m, parser) or optiontable.why_open(m, parser)


def _is_computed(m: Machine, parser: Instance, name: str) -> bool:
    stored = m.store.get((parser, ("argument", name)))
    return stored is not None and stored.constants != (None,)


def _strictness(row: Row, bound: BoundArguments) -> str:
    for name, value in bound.given.items():
        default = default_of(row.parameters, name) if row.parameters is not None else None
        is_default = isinstance(default, ast.Constant) and value.constants == (default.value,)
        if name not in _ASIDE and not is_default and not (name == _REST and value.constants == (True,)):
            return f"it parses with `{name}`"
    return ""


def _is_held_elsewhere(m: Machine, parser: Instance) -> bool:
    """Return whether an object that code without a model has got hold of leads to the parser."""
    for owner in m.escaped:
        for name in tuple(m.store.names.get(owner, ())) if owner is not parser else ():
            stored = m.store.peek((owner, name))
            if stored is not None and parser in stored.atoms:
                return is_escaped(m, owner)
    return False
