"""The GPUs to which a script restricts itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile
from dslint.parse.astplaces import AstPlaces
from dslint.parse.python import parse_ast

_NAME = "CUDA_VISIBLE_DEVICES"
_LIST = re.compile(r"\s*\d{1,2}\s*(?:,\s*\d{1,2}\s*)*")


@dataclass(frozen=True, slots=True)
class OwnDevices:
    """The one list of devices that a script writes to its environment on every path."""

    numbers: tuple[int, ...]
    location: Location


def own_devices(source: SourceFile) -> OwnDevices | None:
    """What the script writes at its top, or in functions outside of tests; ``None`` where it writes several lists."""
    if _NAME not in source.text or not source.path.endswith(".py"):
        return None
    tree = parse_ast(source)
    if not isinstance(tree, ast.Module):
        return None
    if len(re.findall(rf"[\"']{_NAME}[\"']\]?\s*(?:=[^=]|,)", source.text)) != 1:
        return None
    for statement in _plain(tree.body):
        if isinstance(statement, ast.Assign) and _NAME in ast.unparse(statement.targets[0]):
            value = statement.value
            text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            if _LIST.fullmatch(text):
                numbers = tuple(map(int, text.split(",")))
                return OwnDevices(numbers, source.location(AstPlaces(source).span(statement)))
    return None


def _plain(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run without a test: at the top, in `main`, behind `if __name__`."""
    for statement in body:
        yield statement
        is_main = isinstance(statement, ast.FunctionDef) and statement.name == "main"
        is_guard = isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)
        if isinstance(statement, ast.FunctionDef | ast.If) and (is_main or is_guard):
            yield from _plain(statement.body)
