"""Tests that ask whether there are several processes: `is_initialized()`, `args.distributed`, `world_size > 1`."""

from __future__ import annotations

import ast
import re

from dslint.python import formulas
from dslint.python.values import PerRank, Value

# Whether there is a process group, as a test: all calls of one of these are the same one.
_HAS_GROUP = ("torch.distributed.is_initialized", "deepspeed.comm.is_initialized")
_MAY_HAVE_GROUP = ("torch.distributed.is_available",)
# `multi_gpu`, `multi_node` and a bare `multi` ask for processes; `multi_scale` and `multi_task` ask for something else.
SEVERAL = r"multi(?:[-_]?(?:gpu|node|proc|host|machine|card|device|rank)s?|(?![-_]?[a-z]))"
_WORDS = re.compile(
    r"(?:^|[_\W])(?:dist|distributed|ddp|fsdp|deepspeed|horovod|slurm|torchrun|initiali[sz]ed|available|process(?:es)?|"
    r"world|rank|local_rank|group|parallel|gpus?|n_?gpus?|nproc|ranks|mpi|xla|" + SEVERAL + r")(?:$|[_\W\d])",
    re.IGNORECASE,
)


def holds_with_group(test: Value | None) -> bool | None:
    """Return which answer to a test comes only where there is a process group; `None` where neither does so."""
    formula = formulas.of_test(test)
    for answer in (True, False) if formula is not None else ():
        if any(holds and _is_of_group(atom) for atom, holds in formulas.implied(formula, answer).items()):
            return answer
    return None


def _is_of_group(atom: object) -> bool:
    return isinstance(atom, tuple) and bool(atom) and atom[0] in _HAS_GROUP


def group_atoms(formula: object) -> dict[object, bool]:
    """Return the tests in a formula that a run without a group answers for certain, with that answer."""
    found = (atom for atom in formulas.atoms(formula) if isinstance(atom, tuple) and atom)
    return {atom: atom[0] in _MAY_HAVE_GROUP for atom in found if atom[0] in (*_HAS_GROUP, *_MAY_HAVE_GROUP)}


def asks_for_job(node: ast.AST | None, value: Value | None) -> bool:
    """Return whether a test asks if there are several processes; its other answer is for a run of one."""
    if value is not None and any(isinstance(atom, PerRank) for atom in value.atoms):
        return False  # it counts them, and some jobs take the other way
    if isinstance(node, ast.Try):  # without a job the question raises
        return any(_WORDS.search(word) for statement in node.body for word in _names(statement, asked=True))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        ways = (n for n in ast.walk(node) if isinstance(n, ast.If | ast.Try) and _returns(n))
        return any(asks_for_job(way, None) for way in ways)
    test = node.test if isinstance(node, ast.If | ast.IfExp) else node
    return test is not None and any(_WORDS.search(word) for word in _names(test))


def _names(test: ast.AST, *, asked: bool = False) -> list[str]:
    """Return the words of a test; with `asked` only those that can raise: reading `rank` does not."""
    found: list[str] = []
    todo: list[ast.AST] = [test]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.List | ast.Set | ast.Dict) and node is not test:
            continue  # `f([rank, step])` puts the rank among other things, and asks nothing about it
        if isinstance(node, ast.Compare) and not any(isinstance(n, ast.Constant) for n in ast.walk(node)):
            continue  # `rank == source` compares two ranks of a job
        todo += ast.iter_child_nodes(node)
        base = node.func if isinstance(node, ast.Call) else getattr(node, "value", None)
        if isinstance(node, ast.Call | ast.Attribute | ast.Subscript) and asked and isinstance(base, ast.Name):
            found.append(base.id)
        if isinstance(node, ast.alias):
            found += [node.name, node.asname or ""] if asked else []
        elif isinstance(node, ast.Name) and not asked:
            found.append(node.id)
        elif isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def _returns(node: ast.If | ast.Try) -> bool:
    return any(isinstance(inner, ast.Return) for part in node.body for inner in ast.walk(part))
