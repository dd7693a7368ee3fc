"""Slips with the numbers of ranks: the first character of one (`os.environ["WORLD_SIZE"][0]`), and two compared.

A first character becomes an event with the tag `takes-first-digit`; a comparison of the rank on the machine with the
rank in the job (`local_rank == get_rank()`) one with the tag `compares-ranks`.
"""

from __future__ import annotations

import ast
import re

from dslint.python.environment import COLUMNS, WORLD
from dslint.python.events import Event
from dslint.python.machine import Machine
from dslint.python.values import Const, PerRank, Unknown, Value, const
from dslint.python.varies import ASSUMED

# Variables of launchers that hold a number, or begin with one, beside those whose value is known for each rank.
_NUMBER = re.compile(
    r"environment variable `("
    r"SLURM_(?!\w*(?:LIST|GRES|_IDS?\b|_GPUS`|DISTRIBUTION))\w*(?:TASKS|NODES|GPUS|CPUS|PROCS)\w*"
    r"|SLURM_\w*GPUS_(?:ON|PER)_\w+|(?:LOCAL_|GROUP_)?WORLD_SIZE|NNODES|NUM_NODES|NUM_GPUS|NPROC_PER_NODE)`"
)
_PLAIN = re.compile(r"0|[1-9]\d*")


def note_first(m: Machine, base: Value, key: Value, node: ast.AST) -> None:
    """Note that the first character of a number is taken: `os.environ["SLURM_NNODES"][0]`."""
    at = key.single if isinstance(node, ast.Subscript) else None  # each subscript comes here
    if isinstance(at, Const) and at.value == 0:
        name = next((found for atom in base.atoms if (found := _held(base, atom)) is not None), None)
        if name is not None:
            _note(m, "takes-first-digit", node, {"base": base, "name": const(name)})


def _held(base: Value, atom: object) -> str | None:
    """Return the variable whose number a text is, `""` where only the number is known; `None` for other texts."""
    if isinstance(atom, Unknown):
        found = _NUMBER.fullmatch(atom.reason)
        return found[1] if found is not None and atom.type == "builtins.str" else None
    if isinstance(atom, PerRank):
        return "" if all(isinstance(text, str) and _PLAIN.fullmatch(text) for text in atom.values) else None
    return "" if isinstance(atom, Const) and isinstance(atom.value, str) and base.number == WORLD else None


def note_compared(m: Machine, op: type[ast.cmpop], left: Value, right: Value, node: ast.AST) -> None:
    """Note that the rank on the machine is compared with the rank in the job."""
    if op not in (ast.Eq, ast.NotEq) or not isinstance(node, ast.Compare) or (left.varies | right.varies) & ASSUMED:
        return
    if not isinstance(left.single, PerRank) or not isinstance(right.single, PerRank):
        return
    sides = [left.single.values, right.single.values]
    columns = [tuple(lane[COLUMNS[word]] for lane in m.worlds.lanes) for word in ("rank", "local-rank")]
    if columns[0] != columns[1] and sides in (columns, columns[::-1]):
        _note(m, "compares-ranks", node, {"left": left, "right": right})


def _note(m: Machine, tag: str, node: ast.AST, given: dict[str, Value]) -> None:
    m.events.append(
        Event(f"operator.{tag}", frozenset((tag,)), node, m.frame.module, None, given, None, m.lanes, m.control)
    )
