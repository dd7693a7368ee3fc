"""Saves over which a record decides, and whether each writes the file of the one before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.python.events import Call
from dslint.python.queries.bound import parents, stores
from dslint.python.queries.reach import functions, meant
from dslint.python.queries.records import Record
from dslint.python.source import Module
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import last_name

_SAVES = re.compile(r"(?i)(?:^|_)(?:save|dump|copyfile|copy2?)(?:_|d?$|[A-Z])|save_?(?:model|check|ckpt)|^checkpoint$")
_NO_SAVES = re.compile(r"(?i)log|config|args|image|fig|result|pred|metric|summary|vis|load|json|yaml")
_WRITES = frozenset({"saves", "saves-collective"})
# What gives each file a name of its own: the number of a turn, the value that is reached, the time.
_NUMBERS = re.compile(
    r"(?i)^(?:epochs?|ep|e|i|it|iters?|steps?|iteration|global_step|n_iter|batch|idx)$|_(?:epoch|step|iter|iteration)$|^(?:cur|curr|current|this)_"
)
_TIMES = re.compile(r"strftime|\bnow\(|\btime\(\)|uuid|isoformat|timestamp|today\(")
_CLOCKS = re.compile(rf"{_TIMES.pattern}|\btime\.(?:strftime|time)$|\.now$")
_PATHS = re.compile(r"(?i)path|dir|file|name|ckpt|output|prefix|tag|^out$|^f$|dst|suffix")
_DEPTH = 3


def decided_save(run: RunQuery, record: Record) -> ast.Call | None:
    """Return the save that a better value leads to, where it writes over what the last better value wrote."""
    module = record.module
    calls = [node for side in record.sides for node in ast.walk(side) if isinstance(node, ast.Call)]
    saving = _saving(run)
    for call in calls:
        if (call in saving or _is_named(call)) and not is_versioned(run, record, module, call):
            return call
    scope = module.function(record.asks) or module.tree
    for call in (n for n in ast.walk(scope) if isinstance(n, ast.Call) and record.flags and n is not record.asks):
        if (
            (call in saving or _is_named(call))
            and _hands_flag(run, record, call)
            and not is_versioned(run, record, module, call)
        ):
            return call
    return None


def _is_named(call: ast.Call) -> bool:
    name = last_name(call.func)
    return _SAVES.search(name) is not None and not _NO_SAVES.search(ast.unparse(call.func))


def _saving(run: RunQuery) -> set[ast.AST]:
    """Return the calls that certainly lead to a save of a state, as the run has them."""
    found: set[ast.AST] = set()
    for happening in run.occurrences(*_WRITES):
        if happening.event.api == "torch.save" or "saves-collective" in happening.event.tags:
            found.add(happening.event.node)
            found |= {node.node for node in happening.around if isinstance(node, Call)}
    return found


def _hands_flag(run: RunQuery, record: Record, call: ast.Call) -> bool:
    """Return whether a function that saves gets the flag of a better value, and saves once more where it is set."""
    given = [*enumerate(call.args), *((k.arg, k.value) for k in call.keywords)]
    at = [where for where, value in given if ast.unparse(value) in record.flags]
    for _, function in functions(run.machine.program, record.module, call) if at else ():
        arguments = getattr(function, "args", None)
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)] if arguments is not None else []
        names = names[1:] if names[:1] == ["self"] else names
        flags = {names[w] if isinstance(w, int) and w < len(names) else w for w in at}
        for test in (n for n in ast.walk(function) if isinstance(n, ast.If) and ast.unparse(n.test) in flags):
            if any(_is_named(n) for n in ast.walk(test) if isinstance(n, ast.Call)):
                return True
    return False


def is_versioned(run: RunQuery, record: Record, module: Module, call: ast.Call) -> bool:
    """Return whether a save gives each file a name of its own, or writes into a folder of this start."""
    varying = {ast.unparse(n) for n in ast.walk(record.asks) if isinstance(n, ast.Name | ast.Attribute | ast.Subscript)}
    varying -= {record.name}
    loops = [node for node in parents(module, record.asks) if isinstance(node, ast.For | ast.AsyncFor)]
    varying |= {n.id for loop in loops for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    pending: list[tuple[Module, ast.Call, int]] = [(module, call, 0)]
    while pending:
        home, one, depth = pending.pop()
        for path in _paths_of(one):
            pieces = list(_behind(home, path, one))
            if any(_is_numbered(piece, varying) for piece in pieces):
                return True
            if _is_dated(run, home, pieces):
                return True
        for inner, function in functions(run.machine.program, home, one) if depth < _DEPTH else ():
            named = [n for n in ast.walk(function) if isinstance(n, ast.Call) and n is not one and _is_named(n)]
            pending += [(inner, n, depth + 1) for n in named]
    return False


def _paths_of(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments of a save that make up its path, and texts that take part in it."""
    for value in call.args:
        if isinstance(value, ast.JoinedStr | ast.BinOp) or _is_join(value) or _PATHS.search(last_name(value)):
            yield value
    for keyword in call.keywords:
        if keyword.arg is not None and (_PATHS.search(keyword.arg) or isinstance(keyword.value, ast.JoinedStr)):
            yield keyword.value


def _is_join(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in ("join", "format", "joinpath", "Path", "str")


def _behind(module: Module, node: ast.expr, call: ast.Call, depth: int = 0) -> Iterator[ast.expr]:
    """Yield an expression, and what its names get in the same function."""
    yield node
    scope = module.function(call) or module.tree
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if depth < _DEPTH else set()
    for statement in ast.walk(scope) if names else ():
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(t, ast.Name) and t.id in names for t in targets) and statement.value is not node:
                yield from _behind(module, statement.value, call, depth + 1)
        elif isinstance(statement, ast.For) and isinstance(statement.target, ast.Name) and statement.target.id in names:
            yield from _behind(module, statement.iter, call, depth + 1)


def _is_numbered(node: ast.expr, varying: set[str]) -> bool:
    """Return whether a text is made with the number of a turn, or with the value that is compared."""
    for part in ast.walk(node):
        inside: list[ast.AST] = []
        if isinstance(part, ast.JoinedStr):
            inside = [v.value for v in part.values if isinstance(v, ast.FormattedValue)]
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod | ast.Add):
            inside = [part.right, part.left]
        elif isinstance(part, ast.Call) and last_name(part.func) in ("format", "str"):
            inside = [*part.args, *(k.value for k in part.keywords)]
        for one in (n for value in inside for n in ast.walk(value)):
            is_value = isinstance(one, ast.Name | ast.Attribute | ast.Subscript)
            if is_value and (ast.unparse(one) in varying or _NUMBERS.search(last_name(one))):
                return True
    return False


def _is_dated(run: RunQuery, home: Module, pieces: list[ast.expr]) -> bool:
    """Return whether the time of this start is part of a path, or of a setting that is."""
    if any(_TIMES.search(ast.unparse(piece)) for piece in pieces):
        return True
    parts = [n for piece in pieces for n in ast.walk(piece) if isinstance(n, ast.Name | ast.Attribute)]
    named = (node for part in parts for _, node in meant(run.machine.program, home, part))
    if any(isinstance(node, ast.Assign) and _CLOCKS.search(ast.unparse(node.value)) for node in named):
        return True
    names = {name for part in parts if _PATHS.search(name := last_name(part))}
    modules = [module for module in run.machine.program.modules() if module.search(_TIMES) is not None]
    given = [
        (last_name(target), value) for module in modules for node in module.nodes for target, value in stores(node)
    ]
    dated = {name for name, value in given if value is not None and _TIMES.search(ast.unparse(value))}
    for name, value in given if names else ():
        if name in names and value is not None:
            inside = {last_name(n) for n in ast.walk(value) if isinstance(n, ast.Name | ast.Attribute)}
            if name in dated or inside & (dated - {name}):
                return True
    return False
