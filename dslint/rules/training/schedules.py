"""What the numbers of learning rate schedules are made of, by the words of the code behind them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from dslint.python.queries.derived import Derived
from dslint.rules.ranks.defaulted import dead_by_default

if TYPE_CHECKING:
    from dslint.rules.runs import RunQuery

# Code that knows how many processes there are, or that divides and multiplies by them.
_KNOWS_WORLD = re.compile(
    r"num_processes|process_count|world|n_?gpus?\b|num_?gpus|gpus|n_?proc|device_count|num_devices|n_devices|replicas|"
    r"global_batch|total_batch|effective|split_batches|num_nodes",
    re.I,
)
# What takes part in a schedule and is none of its numbers.
OTHERS = r"optim|^opt$|model|accelerator$|^torch$|^math$|^np$|^lr$|learning_rate"
OPTIMIZERS = re.compile(r"optimizer|^last_epoch$|^name$|lr$|^self$")


def number_code(run: RunQuery, *, by_field: bool = False) -> Derived:
    """Return the way to the code behind the numbers of schedules: with the defaults of options, in this run."""
    trees = (tree for _, tree in run.trees())
    return Derived(run.machine.program.modules(), trees, OTHERS, dead_by_default(run), by_field=by_field)


def knows_world(node: ast.AST) -> bool:
    """Return whether the words of a piece (without comments and sentences) speak of the number of processes."""
    found = [getattr(n, "id", "") or getattr(n, "attr", "") or getattr(n, "arg", "") for n in ast.walk(node)]
    # `os.environ["WORLD_SIZE"]`, `options["world_size"]`
    keys = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    short = [key for key in keys if key.replace("_", "").isalnum()]
    return _KNOWS_WORLD.search(" ".join(str(word) for word in (*found, *short) if word)) is not None


def is_length(node: ast.AST) -> bool:
    """Return whether a length is asked that is none of a list of numbers."""
    if isinstance(node, ast.Attribute):
        return bool(re.search(r"num_(?:rows|samples|batches|examples)|__len__|(?:iters|steps)_per_epoch", node.attr))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
