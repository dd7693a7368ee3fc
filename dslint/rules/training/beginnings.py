"""With what value each start of a script begins a record that its loop keeps, where nothing restores one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dslint.python.queries.bound import LOOPS, is_inside, outermost_loop, parameters, scope_of, stores
from dslint.python.queries.reach import Class, Piece, functions, meant
from dslint.python.queries.records import Record
from dslint.python.source import Module
from dslint.rules.runs import RunQuery

_MADE_OF_PARTS = (ast.UnaryOp, ast.IfExp, ast.BinOp, ast.Tuple, ast.List, ast.Dict, ast.JoinedStr, ast.FormattedValue)
# What makes numbers and containers of nothing but constants.
_MAKERS = re.compile(
    r"float|int|dict|list|tuple|(?:np|numpy|math|torch)\.(?:inf|Inf|infty|nan|tensor|array|zeros|ones|full|float\d+|finfo\(.*)"
    r"|sys\.(?:maxsize|float_info\.max)|(?:collections\.|types\.)?(?:defaultdict|OrderedDict|SimpleNamespace)"
)
_SETTINGS = re.compile(
    r"(?:self\.)?(?:args?|cfg|config|conf|opts?|hparams|params)\b(?!.*(?:best|resum|start|last|ckpt|checkpoint))"
)
# Classes of libraries that restore no field of what derives from them.
_PLAIN_BASES = re.compile(r"object|ABC|(?:abc\.)?ABC|(?:torch\.)?(?:nn\.)?Module|Protocol|Generic|Enum|metaclass")


def beginning(run: RunQuery, record: Record) -> Piece | None:
    """Return where a record gets its first value, where each start gives it the same one; else nothing."""
    kept = record.kept
    if isinstance(kept, ast.Name):
        scope = scope_of(record.module, record.asks, kept.id)
        if kept.id in parameters(scope):
            outer = _of_caller(run, record, scope)
            return beginning(run, outer) if outer is not None else None
        return _first(run, record, [(record.module, node) for node in ast.walk(scope)])
    if isinstance(kept, ast.Attribute):
        return _of_field(run, record, kept)
    return _of_item(run, record, kept) if isinstance(kept, ast.Subscript) else None


def _of_caller(run: RunQuery, record: Record, scope: ast.AST) -> Record | None:
    """Return the record of the one caller that hands its own over, and takes it back: `best = step(model, best)`."""
    found = []
    for module in run.machine.program.modules():
        for call in module.nodes_of(ast.Call) if re.search(rf"\b{getattr(scope, 'name', '')}\b", module.code) else ():
            if any(node is scope for _, node in functions(run.machine.program, module, call)):
                statement = module.parents.get(call)
                given = {ast.unparse(v) for v in (*call.args, *(k.value for k in call.keywords))}
                bound = [target for target, _ in stores(statement)] if statement is not None else []
                parts = [part for target in bound for part in getattr(target, "elts", ())]
                taken = [part for part in (*bound, *parts) if ast.unparse(part) in given]
                found.append(replace(record, module=module, kept=taken[0], asks=call) if len(taken) == 1 else None)
    return found[0] if len(found) == 1 else None


def _first(run: RunQuery, record: Record, nodes: list[Piece], *, is_kept: bool = False) -> Piece | None:
    """Return the first of the stores of a record, where those outside of its loop give it what each start gives it."""
    first: Piece | None = None
    is_kept, is_plain = is_kept or bool(record.inside), True
    loop = outermost_loop(record.module, record.asks)
    for module, node in nodes:
        for target, value in stores(node):
            if ast.unparse(target) != record.name:
                continue
            within = module is record.module and is_inside(module, node, loop)
            is_constant = value is not None and _is_constant(run, module, value, record.name)
            if within and not is_constant:
                is_kept = True
            elif within or not is_constant:
                return None  # begins anew in every turn, or with what was restored
            else:
                first = first or (module, node)
                is_plain = is_plain and not _holds_call(value)
    if first is None or not is_kept or (not is_plain and _is_used_before(record, loop)):
        return None
    return first


def _holds_call(value: ast.expr | None) -> bool:
    return (
        value is not None
        and any(isinstance(n, ast.Call | ast.Dict | ast.List) for n in ast.walk(value))
        and not (isinstance(value, ast.Call) and ast.unparse(value.func) in ("float", "torch.tensor", "np.array"))
    )


def _is_used_before(record: Record, loop: ast.AST | None) -> bool:
    """Return whether an object is read before the loop, but for its own stores: somebody may restore what it holds."""
    scope = (
        record.module.tree
        if not isinstance(record.kept, ast.Name)
        else scope_of(record.module, record.asks, record.name)
    )
    for node in ast.walk(scope):
        if not isinstance(node, ast.Name | ast.Attribute) or ast.unparse(node) != record.name:
            continue
        if not isinstance(node.ctx, ast.Load) or is_inside(record.module, node, loop):
            continue
        statement = record.module.statement(node)
        own = any(ast.unparse(target) == record.name for target, _ in stores(statement))
        is_after = (
            isinstance(loop, LOOPS) and node.lineno > (loop.end_lineno or 0) and isinstance(record.kept, ast.Name)
        )
        if not own and not is_after:
            return True
    return False


def _is_constant(run: RunQuery, module: Module, value: ast.expr, name: str, *, is_given: bool = False) -> bool:
    """Return whether a value is the same in each start: made of constants, of settings, and of the record itself."""
    if isinstance(value, ast.Constant) or ast.unparse(value) == name or _MAKERS.fullmatch(ast.unparse(value)):
        return True
    if isinstance(value, _MADE_OF_PARTS):
        parts = [p for p in ast.iter_child_nodes(value) if isinstance(p, ast.expr)]
        parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else parts
        return all(_is_constant(run, module, part, name) for part in parts)
    program = run.machine.program
    if isinstance(value, ast.Call):
        given = [*value.args, *(keyword.value for keyword in value.keywords)]
        is_class = any(isinstance(node, ast.ClassDef) for _, node in meant(program, module, value.func))
        is_text = isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Constant)
        is_made = is_class or is_text or _MAKERS.fullmatch(ast.unparse(value.func)) is not None
        return is_made and all(_is_constant(run, module, part, name, is_given=is_class) for part in given)
    if is_given and _SETTINGS.match(ast.unparse(value)) is not None:
        return True
    if isinstance(value, ast.Attribute | ast.Subscript) and isinstance(value.value, ast.Name):
        inside = meant(program, module, value.value)
        return bool(inside) and all(isinstance(n, ast.ClassDef) or _is_given(run, m, n, name) for m, n in inside)
    return isinstance(value, ast.Name) and _is_fixed(run, module, value, name)


def _is_fixed(run: RunQuery, module: Module, value: ast.Name, name: str) -> bool:
    """Return whether a variable has constants only: of its function, or of a module."""
    scope = module.function(value)
    if scope is not None and value.id in parameters(scope):
        return False
    own = [v for n in ast.walk(scope or module.tree) for t, v in stores(n) if ast.unparse(t) == value.id]
    if scope is not None and own:
        return all(v is not None and value.id not in ast.unparse(v) and _is_constant(run, module, v, name) for v in own)
    named = meant(run.machine.program, module, value)
    return bool(named) and all(_is_given(run, home, node, name) for home, node in named)


def _is_given(run: RunQuery, module: Module, node: ast.AST, name: str) -> bool:
    """Return whether a statement of a module gives a name a constant, or a container of them."""
    value = node.value if isinstance(node, ast.Assign) else None
    return value is not None and not isinstance(value, ast.Name) and _is_constant(run, module, value, name)


def _of_field(run: RunQuery, record: Record, kept: ast.Attribute) -> Piece | None:
    """Return the first value of a field: in its class and their relatives, and by no other name of the object."""
    program = run.machine.program
    owner = ast.unparse(kept.value)
    for module in program.modules():
        if _sets_any(module, owner) and (module is record.module or owner != "self"):
            return None
        for node in module.nodes_of(ast.Assign, ast.AnnAssign):
            for target, value in stores(node):
                if not isinstance(target, ast.Attribute) or target.attr != kept.attr:
                    continue
                is_own = ast.unparse(target) == record.name and module is record.module
                is_other = not is_own and (owner != "self" or ast.unparse(target.value) != "self")
                if is_other and (value is None or not _is_constant(run, module, value, record.name)):
                    return None
    if owner != "self":
        return _first(run, record, [(record.module, node) for node in record.module.nodes])
    cls = next((p for p in _all_parents(record.module, record.asks) if isinstance(p, ast.ClassDef)), None)
    family = _family(run, record.module, cls) if cls is not None else None
    if family is None:
        return None
    return _first(run, record, [(home, node) for home, one in family for node in ast.walk(one)])


def _sets_any(module: Module, owner: str) -> bool:
    """Return whether a file sets fields of an object by names that it does not spell."""
    name = re.escape(owner)
    return re.search(rf"\bsetattr\(\s*{name}\s*,|\b{name}\.__dict__|\bvars\({name}\)\.update", module.code) is not None


def _all_parents(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    while node in module.parents:
        node = module.parents[node]
        yield node


def _family(run: RunQuery, module: Module, cls: ast.ClassDef) -> list[Class] | None:
    """Return a class with its bases and the classes that derive from it; `None` where a base is not of the project."""
    pending, found = [(module, cls)], []
    while pending:
        home, one = pending.pop()
        if (home, one) in found:
            continue
        found.append((home, one))
        for base in one.bases:
            bases = [(m, n) for m, n in meant(run.machine.program, home, base) if isinstance(n, ast.ClassDef)]
            if not bases and not _PLAIN_BASES.match(ast.unparse(base)):
                return None
            pending += bases
    for other in run.machine.program.modules():
        for one in other.nodes_of(ast.ClassDef):
            if any(ast.unparse(base).rpartition(".")[2] == cls.name for base in one.bases):
                found.append((other, one))
    return found


def _of_item(run: RunQuery, record: Record, kept: ast.Subscript) -> Piece | None:
    """Return the first value of an item: in the display of the dictionary, which nothing gets before the loop."""
    if not isinstance(kept.value, ast.Name) or not isinstance(kept.slice, ast.Constant):
        return None
    scope = scope_of(record.module, record.asks, kept.value.id)
    if kept.value.id in parameters(scope):
        return None
    nodes: list[Piece] = [(record.module, node) for node in ast.walk(scope)]
    return _first(run, replace(record, kept=kept.value), nodes, is_kept=True)
