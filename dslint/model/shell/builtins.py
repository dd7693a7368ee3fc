"""Commands of the shell itself that change its state: ``cd``, ``set``, ``shift``, ``source``, ``eval``, ``read``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact, unknown
from dslint.core.source import Location, Span
from dslint.model.shell.effects import OPENERS, SETTERS, command_names, side_effects, text_names
from dslint.model.shell.flow.choices import TOO_MANY, UNSET, Choice, Unknown, World
from dslint.model.shell.flow.trees import mapped, tree_of
from dslint.model.shell.folder import changed_directory
from dslint.model.shell.functions import argument, bind
from dslint.model.shell.overwriting import before, mark_sourced
from dslint.model.shell.pieces import UnknownWordError, Value
from dslint.model.shell.scope import Scope
from dslint.model.shell.setters import values_set
from dslint.model.shell.words import expand_assignment, expand_quoted

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.model.shell.commands import CommandReader

BUILTINS = frozenset({"cd", "set", "shift", "command", "builtin", "pushd", "popd"}) | OPENERS
NAME_OPERANDS = SETTERS
# Commands after which the next statement is another one than the next in the text.
CONTROL = frozenset({"exit", "return", "break", "continue", "exec"})
_DEFAULT = re.compile(r""":\s+(["']?)\$\{(\w+):?=([^}"'$`\\]*)\}\1""")
# A file of assignments is small; sourcing chains are short.
_MAX_SOURCED = 200_000
_MAX_CHAIN = 5


def run_builtin(
    reader: CommandReader,
    name: str,
    raws: Sequence[tuple[str, Span]],
    raw: str,
    scope: Scope,
    redirects: list[Node],
    ifs: str | None = None,
) -> None:
    """What the command does to ``scope``; ``ifs`` is the raw value of ``IFS=`` in front of it."""
    arguments = [text for text, _ in raws]
    if name in ("cd", "pushd", "popd"):
        _change_directory(reader, name, arguments, scope)
    elif name == "set":
        _set(reader, raws, scope)
    elif name == "shift":
        _shift(arguments, scope)
    elif name in ("source", ".") and _source(reader, arguments, scope):
        pass
    elif name == "eval" and (kept := _evaluated(arguments, scope)) is not None:
        scope.forget(text_names(kept))
    elif name == "read" and (body := _heredoc(reader, arguments, scope, redirects)) is not None:
        scope.assign(arguments[-1], body)
    elif name == "let" and all(_calculated(reader, text, scope) for text in arguments):
        pass
    elif name in ("read", "mapfile", "readarray", "printf") and raws:
        given = [reader.doc.raw(r) for r in redirects]
        _set_values(name, arguments, given, ifs, reader.location(raws[0][1]), raw, scope)
    else:
        scope.forget(command_names(raw))


def _calculated(reader: CommandReader, text: str, scope: Scope) -> bool:
    try:
        return reader.calculate(expand_assignment(text, scope.lookup()), scope)
    except UnknownWordError:
        return False


def _set_values(
    name: str, raws: list[str], given: list[str], ifs: str | None, place: Location, raw: str, scope: Scope
) -> None:
    """``read A B <<< text``, ``mapfile -t L <<< text``, ``printf -v NAME ...``."""

    def compute(world: World) -> Any:
        return values_set(name, raws, given[0] if given else "", ifs, scope.lookup(world), place)

    tree = tree_of(compute, scope.here()) if len(given) <= 1 else None
    names = None if tree is None else _names_in(tree)
    if names is None:
        scope.forget(command_names(raw))
    for each in names or ():
        scope.assign(each, mapped(tree, partial(_value_of, name=each)))


def _names_in(tree: Any) -> set[str] | None:
    """The names that every leaf sets; ``None`` when nobody knows, or when they differ."""
    if isinstance(tree, Choice):
        found = [_names_in(arm) for arm in tree.arms]
        return found[0] if all(names == found[0] for names in found) else None
    return set(tree) if isinstance(tree, dict) else None


def _value_of(values: Any, *, name: str) -> Any:
    return values[name]


def default_assignment(name: str, place: Location, raw: str, scope: Scope) -> None:
    """``: ${X:=4}`` gives X a value unless it has one."""
    names = side_effects(raw)
    match = _DEFAULT.fullmatch(raw) if name == ":" else None
    if match is None or scope.open:
        scope.forget(names)
    elif match[2] not in scope.values:
        scope.assign(match[2], Value(match[3], None, (place,), is_default=not scope.is_whole))
    else:
        default = Value(match[3], None, (place,), is_default=not scope.is_whole)
        scope.assign(match[2], mapped(scope.values[match[2]], lambda old: _or_default(old, default)))


def _or_default(old: Any, default: Value) -> Any:
    if old is UNSET:
        return default
    return old if isinstance(old, Value) and old.text and old.items is None else Unknown(getattr(old, "why", ""))


def _change_directory(reader: CommandReader, name: str, arguments: list[str], scope: Scope) -> None:
    def changed(world: World) -> Fact[str]:
        return changed_directory(arguments, reader.doc.source.path, scope, world)

    before, stack = scope.directory, scope.stack
    if name == "popd":
        is_plain = stack and not arguments
        scope.directory = stack[0] if stack and is_plain else unknown("`popd`")
        scope.stack = stack[1:] if stack and is_plain else None
    elif arguments == ["-"] and name == "cd":
        scope.directory = scope.previous
    else:
        tree = tree_of(changed, scope.here())
        scope.directory = unknown(TOO_MANY) if tree is None else tree
        if name == "pushd":
            scope.stack = (before, *stack) if stack is not None and len(arguments) == 1 else None
    scope.previous = before


def _evaluated(arguments: list[str], scope: Scope) -> str | None:
    from dslint.model.shell.commands import kept_template

    template = kept_template([w.strip('"') for w in arguments], scope)
    return template.text if template is not None else None


def _set(reader: CommandReader, raws: Sequence[tuple[str, Span]], scope: Scope) -> None:
    arguments = [text for text, _ in raws]
    if "--" in arguments:
        at = arguments.index("--")
        bind(reader, raws[at + 1 :], scope)
    flags = " ".join(arguments).partition("--")[0]
    if re.search(r"(^|\s)-\w*a|allexport", flags):
        scope.export_all = "+o" not in flags
    elif re.search(r"(^|\s)\+\w*a", flags):
        scope.export_all = False


def _shift(arguments: list[str], scope: Scope) -> None:
    count = int(arguments[0]) if arguments and arguments[0].isdigit() else 1

    def shifted(held: Any) -> Any:
        if not isinstance(held, Value) or held.items is None:
            return Unknown("an argument after `shift`")
        # With fewer arguments than that, ``shift`` fails and leaves them.
        at = count if count <= len(held.items) else 0
        return Value("", held.items[at:], (), held.places[at:], first=1)

    if arguments and not arguments[0].isdigit():
        scope.forget([*"123456789", "@"])
        return
    whole = mapped(scope.values.get("@", UNSET), shifted)
    scope.assign("@", whole)
    for number in range(1, 10):
        scope.assign(str(number), mapped(whole, partial(argument, number)))


# Kaldi's reader of ``--name value``, which ESPnet, WeNet and others source: it sets the variables that the caller of
# the script names, and leaves every one at its default where the script is called without options. Which of the stages
# run is what people choose with it.
_OPTIONS_OF_KALDI = "parse_options.sh"
_STAGES = ("stage", "stop_stage")


def _source(reader: CommandReader, arguments: list[str], scope: Scope) -> bool:
    """Run a file of the project in this state; ``False`` when it is not here."""
    if reader.find_file is None or not arguments:
        return False
    try:
        path = expand_assignment(arguments[0], scope.lookup())
    except UnknownWordError:
        return False
    if path.rpartition("/")[2] == _OPTIONS_OF_KALDI:
        empty = [name for name, value in scope.values.items() if isinstance(value, Value) and value.text == ""]
        for name in (*_STAGES, *empty):  # an empty one is for the caller to fill
            scope.assign(name, None)
        return True
    source = reader.find_file(path, scope)
    chain = reader.functions.sources
    if source is None or len(source.text) > _MAX_SOURCED or len(chain) >= _MAX_CHAIN:
        return False
    if source.path in chain or source.path == reader.doc.source.path:
        return True
    chain.append(source.path)
    script, scope.script = scope.script, source.path
    old = before(scope)
    reader.read_other(source, scope)
    mark_sourced(scope, old, reader.doc.source.path, source.path)
    scope.script = script
    chain.pop()
    return True


def _heredoc(reader: CommandReader, arguments: list[str], scope: Scope, redirects: list[Node]) -> Value | None:
    """``read -r -d '' NAME <<EOF``: the way scripts keep a long command in a variable."""
    flags = "".join(arguments[:-1]).replace('"', "").replace("'", "")
    if flags not in ("-r-d", "-d-r", "-rd") or len(redirects) != 1 or "IFS" in scope.values:
        return None
    parts = {c.type: c for c in redirects[0].children}
    if "heredoc_body" not in parts or "<<" not in parts or len(parts) != 4:
        return None
    body = reader.doc.raw(parts["heredoc_body"])
    lookup = scope.lookup()
    if not re.search(r"[\"'\\]", reader.doc.raw(parts["heredoc_start"])):
        try:
            body = expand_quoted(body, lookup)
        except UnknownWordError:
            return None
    elif "\\" in body:
        return None
    return Value(body.strip(" \t\n"), None, (reader.doc.location(redirects[0]), *lookup.used))
