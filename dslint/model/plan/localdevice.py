"""Whether a script takes its device by the number of its task on the node."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.source import Location, SourceFile
from dslint.parse.astplaces import AstPlaces
from dslint.parse.python import parse_ast

_LOCAL = re.compile(r"""environ(?:\.get\(|\[)\s*["']SLURM_LOCALID["']|getenv\(\s*["']SLURM_LOCALID["']""")
_COUNTS = re.compile(r"device_count|CUDA_VISIBLE_DEVICES|GPUS_PER|%")


def local_device(source: SourceFile) -> Location | None:
    """``torch.cuda.set_device(local)`` where ``local`` is ``SLURM_LOCALID``, and no test decides about it."""
    if "SLURM_LOCALID" not in source.text or not source.path.endswith(".py") or _COUNTS.search(source.text):
        return None
    tree = parse_ast(source)
    if not isinstance(tree, ast.Module):
        return None
    names: set[str] = set()
    for statement in _plain(tree.body):
        text = ast.unparse(statement)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            (names.add if _LOCAL.search(text) else names.discard)(name)
        elif isinstance(statement, ast.Expr) and _sets(statement.value, names):
            return source.location(AstPlaces(source).span(statement))
    return None


def _sets(call: ast.expr, names: set[str]) -> bool:
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("torch.cuda.set_device", "cuda.set_device"):
        return False
    given = call.args[0] if len(call.args) == 1 else None
    return given is not None and (
        (isinstance(given, ast.Name) and given.id in names) or _LOCAL.search(ast.unparse(given)) is not None
    )


def _plain(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run without a test: at the top, in `main`, behind `if __name__`."""
    for statement in body:
        is_main = isinstance(statement, ast.FunctionDef) and statement.name in ("main", "setup", "init_distributed")
        is_guard = isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)
        if isinstance(statement, ast.FunctionDef | ast.If) and (is_main or is_guard):
            yield from _plain(statement.body)
        else:
            yield statement
