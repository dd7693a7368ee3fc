"""Files of arguments that a script reads only when their name is its sole argument: `len(sys.argv) == 2`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.localrank import adds_local_rank
from dslint.model.plan.parser.options import ARGUMENT_FILES, ScriptParser
from dslint.model.workspace import Workspace
from dslint.python.source import Module, read

_READS = ("parse_yaml_file", "parse_json_file", "parse_dict")
# The text takes words away from the command line before it counts them.
_TAKES_AWAY = re.compile(r"sys\.argv\.(?:remove|pop)|sys\.argv(?:\[[^\]]*\])?\s*=(?!=)|del sys\.argv")


def file_not_alone(command: LaunchCommand, parser: ScriptParser | None, workspace: Workspace) -> Location | None:
    """The test of a script that a launcher makes false, by the local rank that it puts before a file of arguments."""
    if parser is None or not parser.reads_file or not parser.is_closed or parser.location is None:
        return None
    words = command.script_args
    if len(words) != 1 or not (words[0].text or "").endswith(ARGUMENT_FILES) or command.may_hide_flags():
        return None
    is_passed = adds_local_rank(command) and not command.hides_options
    return workspace.memo("file alone", parser.location.path, _tested) if is_passed else None


def _tested(source: SourceFile) -> Location | None:
    """The one test of a module that asks for the sole argument before a file is read."""
    module = read(source) if source.path.endswith(".py") and not _TAKES_AWAY.search(source.text) else None
    if not isinstance(module, Module):
        return None
    reads = {id(call) for call in _calls(module.tree)}
    guarded: set[int] = set()
    first: ast.expr | None = None
    for node in module.nodes_of(ast.If, ast.IfExp):
        if isinstance(node, ast.If | ast.IfExp) and _asks_for_one(node.test):
            body = node.body if isinstance(node.body, list) else [node.body]
            inside = {id(call) for part in body for call in _calls(part)}
            first = first or (node.test if inside else None)
            guarded |= inside
    return module.location(first) if first is not None and reads <= guarded else None


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _READS:
            yield inner


def _asks_for_one(test: ast.expr) -> bool:
    """The test holds for exactly one argument: `len(sys.argv) == 2 and ...`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return any(ast.unparse(part) in _SOLE for part in parts)


_SOLE = frozenset(
    text.format(argv)
    for argv in ("sys.argv", "argv")
    for text in (
        *("len({}) == 2", "2 == len({})", "len({}) < 3", "len({}) <= 2", "len({}[1:]) == 1", "1 == len({}[1:])"),
        *("not len({}) > 2", "len({}) - 1 == 1"),
    )
)
