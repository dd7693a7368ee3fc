"""Code that lets shares of work come out even, or lets ranks end early: somebody has thought of the rest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

# A batch over the ranks, and every so many steps: neither says anything of the number of items.
_OTHERS = re.compile(r"(?i)batch|(?<!num_)rank|step|epoch|seed|worker|(?<!\w)(?:bs|tokens?)(?!\w)")
# Counters: of the items, where the ranks divide them.
_COUNTERS = re.compile(r"(?i)iter|idx|count|(?<!\w)i(?!\w)")
RANKS = re.compile(r"(?i)world|n?_?proc|repl|size|gpu|rank")
_ROUNDS = frozenset({"ceil", "lcm", "gcd", "divmod"})
# Padding of tokens, pixels and layers, and not of the list of items.
_TOKEN_PADS = frozenset({"pad_sequence", "pad_packed_sequence", "pack_padded_sequence", "zeropad2d"})
_TOKEN_PADDERS = re.compile(r"(?i)token|process|^f$|^functional$|^nn$|^np$|collat")
_OPTIONS = frozenset({"drop_last", "even_batches", "apply_padding"})
_SIZES = frozenset({"size", "num_samples", "k"})
_EXTREMES = frozenset({"MIN", "MAX"})
_OPERATIONS = frozenset({"ReduceOp", "reduce_op"})
# Numbers of items, or what was gathered from the ranks.
_COUNTED = re.compile(r"len|(?i:gather|counts)")
_LENGTHS = frozenset({"min_len", "max_len", "min_length_over_ranks"})


def evens(scope: ast.AST, told: frozenset[int] = frozenset()) -> bool:
    """Return whether code rounds a number of items, fills a list up or lets ranks end early; not the nodes `told`."""
    return any(_divides(node, parent) or _rounds(node) or _fills(node) for node, parent in _walk(scope, told))


def fills(scope: ast.AST, told: frozenset[int] = frozenset()) -> bool:
    """Return whether code takes the remainder, fills a list up or lets ranks end early; not the nodes `told`."""
    return any(
        (_divides(node, parent) and not _is(node, ast.FloorDiv)) or _fills(node) for node, parent in _walk(scope, told)
    )


def is_filled(node: ast.AST) -> bool:
    """Return whether a cut itself fills its parts up."""
    return any(_fills(each) for each, _ in _walk(node, frozenset()))


def divides_by_ranks(scope: ast.AST) -> bool:
    """Return whether code takes the remainder of a division by the number of ranks."""
    return any(
        _is(node, ast.Mod) and _divides(node, parent) and RANKS.search(ast.unparse(node.right))
        for node, parent in _walk(scope, frozenset())
        if isinstance(node, ast.BinOp)
    )


def _walk(scope: ast.AST, told: frozenset[int]) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    pending: list[tuple[ast.AST, ast.AST | None]] = [(scope, None)]
    while pending:
        node, parent = pending.pop()
        if id(node) in told:
            continue
        yield node, parent
        pending.extend((child, node) for child in ast.iter_child_nodes(node))


def _is(node: ast.AST, kind: type[ast.operator]) -> bool:
    return isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, kind)


def _divides(node: ast.AST, parent: ast.AST | None) -> bool:
    """Return whether a number of items is divided, not text formatted, nor items dealt out one by one."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Mod | ast.FloorDiv) and not isinstance(node.value, ast.Constant)
    if not (_is(node, ast.Mod) or _is(node, ast.FloorDiv)) or not isinstance(node, ast.BinOp):
        return False
    left, right = node.left, node.right
    if isinstance(left, ast.Constant | ast.JoinedStr) or isinstance(right, ast.Constant | ast.Tuple | ast.Dict):
        return False
    name = _last(_innermost(left))
    if _OTHERS.search(name) or (_COUNTERS.search(name) and not RANKS.search(ast.unparse(right))):
        return False
    return not (_is(node, ast.Mod) and _is_turn(node, parent))


def _is_turn(node: ast.BinOp, parent: ast.AST | None) -> bool:
    """Return whether `i % world_size == rank` deals items out: another number than zero is asked for."""
    if not isinstance(parent, ast.Compare) or len(parent.ops) != 1:
        return False
    other = parent.comparators[0] if parent.left is node else parent.left
    return isinstance(parent.ops[0], ast.Eq | ast.NotEq) and not isinstance(other, ast.Constant)


def _innermost(node: ast.expr) -> ast.expr:
    """Return what an operand is about: `n` of `-n`, of `(n + 1)` and of `int(n)`."""
    while True:
        if isinstance(node, ast.UnaryOp):
            node = node.operand
        elif isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args and node.func.id == "int":
            node = node.args[0]
        else:
            return node


def _rounds(node: ast.AST) -> bool:
    """Return whether a number is rounded, or is that of the shortest of several lists: `min(map(len, parts))`.

    So is one of which all ranks take the smallest or the largest: `all_reduce(count, op=ReduceOp.MIN)`.
    """
    if isinstance(node, ast.Attribute):
        return node.attr in _EXTREMES and _last(node.value) in _OPERATIONS
    if not isinstance(node, ast.Call):
        return False
    name = _last(node.func)
    if name in _ROUNDS:
        return True
    asked = node.args[0] if node.args else node.func
    return name == "min" and len(node.args) <= 1 and _COUNTED.search(ast.unparse(asked)) is not None


def _fills(node: ast.AST) -> bool:
    """Return whether a call fills a list up or lets ranks end early, or a name says so."""
    if isinstance(node, ast.keyword):
        off = isinstance(node.value, ast.Constant) and node.value.value is False
        return (node.arg in _OPTIONS and not off) or _draws_multiple(node)
    if isinstance(node, ast.Name | ast.Attribute):
        name = _last(node)
        return name in _OPTIONS or name in _LENGTHS or name == "Join"
    if not isinstance(node, ast.Call):
        return _is_pad(node) or _repeats(node)
    name = _last(node.func).lower()
    if name == "join":  # of a DDP model; threads aside, the others join texts and paths
        return isinstance(node.func, ast.Attribute) and not node.args
    owner = _last(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    fills = "pad" in name or "truncate" in name
    return fills and name not in _TOKEN_PADS and _TOKEN_PADDERS.search(owner) is None


def _draws_multiple(node: ast.keyword) -> bool:
    """Return whether a number of draws is so many for each of several: `rng.choice(n, size=rounds * slots)`."""
    value = node.value
    if node.arg not in _SIZES or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
        return False
    return isinstance(value.left, ast.Name | ast.Attribute) and isinstance(value.right, ast.Name | ast.Attribute)


def _is_pad(node: ast.AST) -> bool:
    """Return whether something that pads is given a name: `padding = -len(items) % world_size`."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(t, ast.Name) and re.match(r"pad|num_pad|n_pad", t.id) for t in targets)


def _repeats(node: ast.AST) -> bool:
    """Return whether a generator goes through its items again and again: no rank runs out of them."""
    is_endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
    if not is_endless or not all(map(_ends_without_number, _exits(node))):
        return False
    loops = [n for n in ast.walk(node) if isinstance(n, ast.For)]
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for loop in loops for n in ast.walk(loop))


def _exits(loop: ast.AST) -> list[list[ast.AST]]:
    """Return the ways out of an endless loop, each with the nodes around it."""
    found: list[list[ast.AST]] = []
    pending: list[tuple[ast.AST, list[ast.AST]]] = [(loop, [])]
    while pending:
        node, around = pending.pop()
        if isinstance(node, ast.Return | ast.Break):
            found.append(around)
        pending.extend((child, [*around, node]) for child in ast.iter_child_nodes(node))
    return found


def _ends_without_number(around: list[ast.AST]) -> bool:
    """Return whether a way out is taken only where nobody has given a number: `if self.steps is None: return`."""
    tests = [node.test for node in around if isinstance(node, ast.If)]
    return any(isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) for test in tests)


def _last(node: ast.AST) -> str:
    """Return the last name of a dotted one, of what is called, or nothing."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
