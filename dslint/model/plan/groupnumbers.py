"""Options of a script that its process group needs as numbers: the rank, and how many ranks there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile
from dslint.model.plan.parser.options import Option, Passed, ScriptParser
from dslint.model.plan.scriptrun import imported_sources
from dslint.model.workspace import Workspace
from dslint.parse.astplaces import AstPlaces
from dslint.parse.python import parse_ast

# What must be a number in which call. torch (2.13, run): `world_size` must be an integer. None
_CALLS = {"init_process_group": ("rank", "world_size"), "spawn": ("nprocs",)}
_WORTH_READING = re.compile(r"init_process_group\(|\bspawn\(")
_SETS_ANY = re.compile(r"\bsetattr\(|vars\(|__dict__|\.update\(")
_DECIDE = (ast.If, ast.Try, ast.While, ast.For, ast.IfExp, ast.BoolOp, ast.Match, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class GroupNumber:
    """An option that a call takes for a number as it is: ``parameter`` of ``call``, at ``location``."""

    call: str
    parameter: str
    option: str
    location: Location


@dataclass(frozen=True, slots=True)
class NoNumber:
    """What a run hands over for such an option: ``None``, or a text."""

    number: GroupNumber
    option: Option
    value: str | None


def group_numbers(source: SourceFile, workspace: Workspace) -> tuple[GroupNumber, ...]:
    """The options that reach these calls, in functions of the script itself and under no test, and that nobody sets."""
    if not source.path.endswith(".py") or not _WORTH_READING.search(source.text):
        return ()
    tree = parse_ast(source)
    found = tuple(_in_calls(tree, source)) if isinstance(tree, ast.Module) else ()
    texts = [other.text for other in imported_sources(source.path, workspace, 2, 40)] if found else []
    if any(map(_SETS_ANY.search, texts)):
        return ()
    return tuple(number for number in found if not any(_assigned(number.option).search(text) for text in texts))


def _assigned(option: str) -> re.Pattern[str]:
    return re.compile(rf"\.{re.escape(option)}\s*(?:[-+*/|]|//)?=[^=]")


def _in_calls(tree: ast.Module, source: SourceFile) -> Iterator[GroupNumber]:
    places = AstPlaces(source)
    for call in _plain_calls(tree):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        for keyword in call.keywords:
            value = keyword.value
            if keyword.arg not in _CALLS.get(name, ()) or not isinstance(value, ast.Attribute):
                continue
            if isinstance(value.value, ast.Name):
                yield GroupNumber(name, str(keyword.arg), value.attr, source.location(places.span(keyword)))


def _plain_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls in statements of the module and of its functions that no test and no loop decides about."""
    bodies = [tree.body]
    while bodies:
        for statement in bodies.pop():
            if isinstance(statement, ast.FunctionDef):
                bodies.append(statement.body)
            elif isinstance(statement, ast.With) or _is_guard(statement):
                bodies.append(statement.body)  # type: ignore[attr-defined]
            elif not isinstance(statement, _DECIDE):
                yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)


def no_number(numbers: tuple[GroupNumber, ...], parser: ScriptParser | None, given: Passed | None) -> NoNumber | None:
    """The first of these options that is no number in a run; ``None`` where a word of its command may say more."""
    if parser is None or given is None or not given.is_whole or parser.kind != "argparse" or parser.reads_file:
        return None
    options = {option.dest: option for option in parser.options}
    for number in numbers:
        option, fact = options.get(number.option), given.values.get(number.option)
        if option is None or fact is None or option.action != "store" or option.nargs is not None:
            continue
        value = fact.get_or(None)  # absent: an option without a default, which argparse makes ``None``
        if not fact.is_unknown and (value is None or isinstance(value, str)):
            return NoNumber(number, option, None if value is None else str(value))
    return None
