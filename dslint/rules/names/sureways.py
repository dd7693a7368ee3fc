"""The code that every run of a script comes to: no option, no test and no data decides about it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from dslint.python.source import Module
from dslint.rules.runs import RunQuery

_BLOCKS = (ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# So deep calls are followed.
_DEEP = 12


class SureWays:
    """The statements and functions that a run certainly comes to, as far as its text says."""

    def __init__(self, run: RunQuery) -> None:
        self._run = run
        self._nodes: set[int] = set()
        self._called: set[int] = set()
        program = run.machine.program
        main = next((module for module in program.ran() if module.absolute == program.main), None)
        if main is not None:
            self._module(main, 0)

    def comes_to(self, statement: ast.AST) -> bool:
        """Return whether a statement is certainly reached."""
        return id(statement) in self._nodes

    def _module(self, module: Module, depth: int) -> None:
        if id(module.tree) not in self._nodes and depth < _DEEP:
            self._nodes.add(id(module.tree))
            self._block(module, module.tree.body, depth)

    def _block(self, module: Module, body: list[ast.stmt], depth: int) -> None:
        for statement in unconditional(body):
            self._nodes.add(id(statement))
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self._imports(module, statement, depth)
            elif not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
                for call in _calls(statement):
                    self._call(module, call, depth)

    def _imports(self, module: Module, node: ast.Import | ast.ImportFrom, depth: int) -> None:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [f"{'.' * node.level}{node.module or ''}"]
        for name in names:
            inner = self._run.machine.program.named(module, name)
            if inner is not None:
                self._module(inner, depth + 1)

    def _call(self, module: Module, call: ast.Call, depth: int) -> None:
        found = self._function(module, call.func)
        if found is not None and id(found[1]) not in self._called and depth < _DEEP:
            self._called.add(id(found[1]))
            self._block(found[0], found[1].body, depth + 1)

    def _function(self, module: Module, name: ast.expr) -> tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        if not isinstance(name, ast.Name):
            return None
        found = _defined(module, name.id)
        if found is not None:
            return module, found
        origins = module.imported.get(name.id, [])
        inner = self._run.machine.program.named(module, origins[0][0]) if len(origins) == 1 else None
        found = _defined(inner, origins[0][1]) if inner is not None else None
        return (inner, found) if inner is not None and found is not None else None


def _defined(module: Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    found = [n for n in module.tree.body if isinstance(n, _FUNCTIONS) and n.name == name]
    if len(found) != 1 or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(found[0])):
        return None
    return found[0]


def unconditional(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block that run whenever it does; loops are taken to run, `__main__` is the script."""
    for statement in body:
        yield statement
        if isinstance(statement, _BLOCKS) or is_main(statement):
            yield from unconditional(statement.body)
        if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break) or _may_leave(statement):
            return


def is_main(statement: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a statement is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test)


def _may_leave(statement: ast.stmt) -> bool:
    """Return whether a test may leave the block here: what follows is reached by some runs only."""
    if not isinstance(statement, ast.If):
        return False
    return any(isinstance(n, ast.Return) or is_exit(n) for n in ast.walk(statement))


def is_exit(node: ast.AST) -> bool:
    """Return whether a call ends the process."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("exit", "quit", "sys.exit", "os._exit")


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls in the head of a statement that it makes in any case."""
    heads: list[ast.AST]
    if isinstance(statement, ast.If | ast.While):
        heads = [statement.test]
    elif isinstance(statement, ast.For | ast.AsyncFor):
        heads = [statement.iter]
    elif isinstance(statement, ast.With | ast.AsyncWith):
        heads = [item.context_expr for item in statement.items]
    elif isinstance(statement, ast.Try | ast.Match):
        heads = []
    else:
        heads = [statement]
    pending = heads
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call):
            yield node
        if isinstance(node, ast.BoolOp):
            pending.append(node.values[0])
        elif isinstance(node, ast.IfExp):
            pending.append(node.test)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            pending += ast.iter_child_nodes(node)
