"""What kind of work a script does: training or inference, and slow work that only one rank does."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_TRAINING_CALLS = frozenset({"backward", "zero_grad", "train_batch"})
_INFERENCE_CALLS = frozenset({"generate", "chat", "init_inference"})
# Work of minutes that scripts do once, on the first rank: downloads, tokenization, dataset building.
_SLOW_CALLS = frozenset(
    {
        "load_dataset",
        "load_from_disk",
        "save_to_disk",
        "snapshot_download",
        "hf_hub_download",
        "map",
        "tokenize_dataset",
        "preprocess_dataset",
        "build_dataset",
        "prepare_data",
        "process_dataset",
    }
)
# Blocks that rank 0 runs before the others.
FIRST_BLOCKS = frozenset(
    {"main_process_first", "local_main_process_first", "torch_distributed_zero_first", "zero_first", "rank_zero_first"}
)


def is_inference(tree: Tree, names: Names) -> bool:
    """The script generates or predicts and never trains: no backward pass, no `Trainer(...).train()`."""
    infers = False
    for node in tree.order:
        if not isinstance(node, cst.Call):
            continue
        name = last_name(node.func)
        if name in _TRAINING_CALLS or name.endswith("Trainer"):
            return False
        infers = infers or name in _INFERENCE_CALLS or names.qualified(node.func) == "torch.inference_mode"
    return infers


def slow_calls(tree: Tree, block: cst.CSTNode) -> Iterator[cst.Call]:
    """Calls inside a block that usually take minutes on real data."""
    for node in tree.descendants(block):
        if isinstance(node, cst.Call) and last_name(node.func) in _SLOW_CALLS and not _is_builtin_map(node):
            yield node


def _is_builtin_map(node: cst.Call) -> bool:
    # ``map(f, items)`` is lazy; ``dataset.map(f)`` is the slow one.
    return isinstance(node.func, cst.Name) and node.func.value == "map"
