"""What kind of work a script does: training or inference."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_TRAINING_CALLS = frozenset({"backward", "zero_grad", "train_batch"})
_INFERENCE_CALLS = frozenset({"generate", "chat", "init_inference"})


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
