"""What the names say by which programs ask for their place among the ranks, where nothing else tells what they mean."""

from __future__ import annotations

import ast
import re

from dslint.python.binding import Arguments
from dslint.python.environment import by_rank
from dslint.python.machine import Machine
from dslint.python.source import Module
from dslint.python.values import OPAQUE, Const, Instance, PerRank, Unknown, Value, one, unknown
from dslint.python.varies import NAMED_RANK, RANK, RANKED

# Names of the number of the process, and the columns of `Worlds.lanes`. Ranks inside a group (`tp_rank`) are others.
_RANKS = {
    **dict.fromkeys(("rank", "global_rank", "process_index", "world_rank", "proc_rank", "ddp_rank", "dist_rank"), 0),
    **dict.fromkeys(("my_rank", "cur_rank", "current_rank", "this_rank", "rank_id", "process_rank"), 0),
    **dict.fromkeys(("local_rank", "local_process_index", "ddp_local_rank", "local_rank_id"), 1),
    "global_rank_id": 0,
    "world_size": 3,
}
_WORLD = 3
# Names of tests of it, whether they are called or not.
_MAINS = {
    **dict.fromkeys(("is_main_process", "is_world_process_zero", "is_global_zero", "is_rank_0", "is_rank0"), 0),
    **dict.fromkeys(("is_rank_zero", "is_master", "is_master_process", "is_main_rank", "is_world_main_process"), 0),
    **dict.fromkeys(("is_first_rank", "is_main", "is_rank0_process", "is_torch_dist_rank_zero"), 0),
    **dict.fromkeys(("is_local_main_process", "is_local_process_zero", "is_local_master", "is_local_rank_0"), 1),
    **dict.fromkeys(("is_local_rank0", "is_local_rank_zero", "is_local_main", "is_node_main_process"), 1),
    "master_process": 0,
    "main_process": 0,
    "is_local_dist_rank_0": 1,
    "is_node_master": 1,
}
_CALLS = {
    "get_rank": 0,
    "get_global_rank": 0,
    "get_process_index": 0,
    "get_local_rank": 1,
    "get_world_size": 3,
    "get_num_processes": 3,
}
# Keys of settings; `rank` alone may be that of a matrix.
_KEYS = {"local_rank": 1, "global_rank": 0, "rank": 0}
# Fields that hold it for certain, whatever the object is.
_CERTAIN = frozenset({"rank", "global_rank", "local_rank", "world_size"})
# Decorators of functions that the first process (of each machine) runs alone.
_FIRST = {
    **dict.fromkeys(("rank_zero_only", "rank0_only", "master_only", "main_process_only", "only_main_process"), 0),
    "on_master_only": 0,
    "on_main_process": 0,
    "on_local_main_process": 1,
    "local_main_process_only": 1,
}
# Names of the number of processes on a machine, and the call that counts its devices, of which each process has one.
_PER_NODE = re.compile(r"(?:n|num_?|n_)?(?:gpus|procs?|processes|devices)_per_(?:node|machine|host)|local_world_size")
_COUNTS = "torch.cuda.device_count"
# Arguments with which a test asks for the job, and not for a group of ranks.
_OPTIONS = frozenset({"args", "opt", "cfg", "config"})
# Words of modules that speak of processes.
_OF_PROCESSES = re.compile(
    r"distributed|deepspeed|accelerat|process_group|horovod|lightning|mmengine|xtuner|megatron|torchtune|composer"
    r"|colossalai|openrlhf|DataParallel|Trainer[()]"
)


def _plain(name: str) -> str:
    """Return a name without the underscores of what is private."""
    return name.lstrip("_").lower()


def is_of_matrices(module: Module) -> bool:
    """Return whether `rank` may be that of a matrix: the module is about LoRA, or does not speak of processes."""
    text = module.source.text
    return "lora" in text.lower() or not _OF_PROCESSES.search(text)


def named(m: Machine, name: str, module: Module, place: ast.AST) -> Value | None:
    """Return what a variable or field of this name holds: the rank or a test of it; `None` for other names."""
    found = _named(m, _plain(name), module)
    return found.with_(NAMED_RANK, origin=(module, place)) if found is not None else None


def _named(m: Machine, name: str, module: Module) -> Value | None:
    if name in _MAINS:
        return first(m, _MAINS[name])
    if name not in _RANKS or (name == "rank" and is_of_matrices(module)):
        return None
    return by_rank(m, _RANKS[name])


def parameter(m: Machine, name: str, module: Module, place: ast.AST) -> Value | None:
    """Return what a parameter of this name gets from callers that nobody knows; `None` for other names."""
    plain = _plain(name)
    if plain == "rank":  # the default would tell the rank of a matrix
        return by_rank(m, 0).with_(NAMED_RANK, origin=(module, place))
    return named(m, name, module, place)


def assigned(m: Machine, name: str, value: Value, target: ast.AST) -> Value | None:
    """Return what a variable of this name holds where nobody knows what it gets; `None` for other names."""
    plain = _plain(name)
    if (plain not in _RANKS and plain not in _MAINS) or _RANKS.get(plain) == _WORLD or value.varies & RANKED:
        return None
    is_made = bool(value.atoms) and all(
        isinstance(atom, Instance) and not atom.cls and isinstance(atom.node, ast.Call | ast.Tuple)
        for atom in value.atoms
    )
    return named(m, name, m.frame.module, target) if is_made else None


def _is_open(value: Value) -> bool:
    """Return whether nobody knows anything of a value."""
    return bool(value.atoms) and all(
        isinstance(atom, Unknown) or (isinstance(atom, Instance) and not atom.cls) for atom in value.atoms
    )


def first(m: Machine, column: int) -> Value:
    """Return the test whether the process is the first one, of the job or of its machine."""
    values = tuple(lane[column] == 0 for lane in m.worlds.lanes)
    return one(PerRank(values), m.worlds.varies(values, m.worlds.full))


def field(m: Machine, name: str, node: ast.AST | None) -> Value | None:
    """Return what a field of this name holds in an object of which nobody knows the class, or that nothing sets."""
    module = m.frame.module
    if name in _CERTAIN:
        return _named(m, name, module)
    if name == "should_save":  # `state.should_save` and `control.should_save` are the same on every rank
        owner = node.value if isinstance(node, ast.Attribute) else None
        word = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        is_own = word.endswith("args") and node is not None
        return first(m, 0).with_(NAMED_RANK, origin=(module, node)) if is_own else None  # type: ignore[arg-type]
    return named(m, name, module, node or module.tree)


def item(m: Machine, key: Value, node: ast.AST) -> Value | None:
    """Return what settings of which nobody knows anything hold under a key: `config["local_rank"]`."""
    atom = key.single
    name = atom.value if isinstance(atom, Const) else None
    if not isinstance(name, str) or name not in _KEYS or (name == "rank" and is_of_matrices(m.frame.module)):
        return None
    return by_rank(m, _KEYS[name]).with_(NAMED_RANK, origin=(m.frame.module, node))


def called(m: Machine, name: str, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return what a function of this name answers that nobody can read; `None` for other names.

    `get_rank(group)` is the rank inside a group, `is_master(args)` asks for the job.
    """
    plain = _plain(name)
    if plain not in _CALLS and plain not in _MAINS:
        return None
    given = [*arguments.nodes.values()]
    words = {n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in given}
    if not words <= (_OPTIONS if plain in _MAINS else frozenset()):
        return None
    if plain in _CALLS and _is_of_group(node):
        return unknown(OPAQUE, "rank inside a group", RANK, 0, "builtins.int")
    found = first(m, _MAINS[plain]) if plain in _MAINS else by_rank(m, _CALLS[plain])
    return found.with_(NAMED_RANK, origin=(m.frame.module, node))


def _is_of_group(node: ast.AST) -> bool:
    """Return whether a call asks a part of the ranks: `mesh["dp"].get_local_rank()`, `self.tp_group.get_rank()`."""
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return isinstance(owner, ast.Subscript) or "mesh" in name or name.endswith("group")


def decorated(m: Machine, decorator: Value, node: ast.expr) -> int | None:
    """Return the lanes on which a function runs, by the name of a decorator that nobody can read; else `None`."""
    if not _is_open(decorator):
        return None
    function = node.func if isinstance(node, ast.Call) else node
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    column = _FIRST.get(name)
    return m.worlds.mask(lambda lane: m.worlds.lanes[lane][column] == 0) if column is not None else None


def divisor(m: Machine, rank: Value, number: Value, node: ast.AST) -> Value:
    """Return what a rank is divided by where nobody knows it: `rank % ngpus_per_node`, the processes of a machine."""
    is_known = number.constants is not None or any(isinstance(atom, PerRank) for atom in number.atoms)
    if is_known or not isinstance(rank.single, PerRank) or not isinstance(node, ast.BinOp):
        return number
    place = m.origin(number)
    is_counted = place is not None and isinstance(place[1], ast.Call) and place[0].path_of(place[1].func) == _COUNTS
    name = node.right.attr if isinstance(node.right, ast.Attribute) else getattr(node.right, "id", "")
    if not is_counted and not _PER_NODE.fullmatch(_plain(name)):
        return number
    return by_rank(m, 4).with_(NAMED_RANK, origin=(m.frame.module, node.right))


def is_rank(name: str) -> bool:
    """Return whether a parameter of this name holds the number of the process or the number of processes."""
    return _plain(name) in _RANKS
