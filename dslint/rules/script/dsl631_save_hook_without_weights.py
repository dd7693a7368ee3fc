"""A hook of `save_state` takes weights out of a list that DeepSpeed leaves empty.

**What.** A function that `accelerator.register_save_state_pre_hook` takes calls `weights.pop()` for each model, as many
scripts of diffusers do, and the Accelerator works with DeepSpeed.

**Why it hurts.** Under DeepSpeed the engine saves its own checkpoint, and `save_state` passes an empty list of weights
to its hooks: `IndexError: pop from empty list` at the first checkpoint, often after hours. Where only the main process
pops, it alone stops, and the others wait for it.

**Fix.** `if weights: weights.pop()`.

**When it stays quiet.** A test asks for the list (or for DeepSpeed) before; it is not certain that the Accelerator
works with DeepSpeed.

**Evidence.** Two gloo ranks, accelerate 1.15 and DeepSpeed 0.19.8: the first `save_state` raises on every rank; with
DDP, and with the test, it saves. `Accelerator.save_state` in accelerate/accelerator.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.values import Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import maker_of, uses_deepspeed

META = RuleMeta(
    code="DSL631",
    name="save-hook-without-weights",
    kind="script",
    severity=Severity.ERROR,
    summary="a hook of `save_state` pops weights from a list that is empty under DeepSpeed",
    markers=(r"register_save_state_pre_hook",),
    references=(
        "https://github.com/huggingface/diffusers/issues/2606",
        "https://github.com/kamalkraj/e5-mistral-7b-instruct/issues/12",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each `weights.pop()` of a hook that nothing guards."""
    seen: set[int] = set()
    for event in (found.event for found in run.happenings("registers-save-hook")):
        accelerator, hook = maker_of(run, event.receiver), event.arguments.get("hook")
        atom = hook.single if hook is not None else None
        if accelerator is None or not isinstance(atom, Function) or not uses_deepspeed(run, accelerator):
            continue
        pop = _pop(atom.node)
        if pop is None or id(pop) in seen:
            continue
        seen.add(id(pop))
        yield run.finding(
            META,
            atom.module,
            pop,
            "DeepSpeed passes no weights to this hook, and `pop` of an empty list raises at the first checkpoint",
            hint="Write `if weights:` before it",
            related=(
                run.location(event.module, event.node, "the hook is registered"),
                run.location(accelerator.module, accelerator.node, "works with DeepSpeed"),
            ),
            facts={"call": "pop"},
        )


def _pop(function: ast.AST) -> ast.Call | None:
    """Return the call that takes something out of the second argument, where no test asks for that before."""
    arguments = getattr(function, "args", None)
    names = [a.arg for a in arguments.args] if isinstance(arguments, ast.arguments) else []
    names = names[1:] if names[:1] == ["self"] else names
    if len(names) < 2 or isinstance(function, ast.Lambda):
        return None
    weights = names[1]
    tests = [node.test for node in ast.walk(function) if isinstance(node, ast.If | ast.While | ast.IfExp)]
    if any(_speaks_of(test, weights) for test in tests) or any(isinstance(n, ast.Try) for n in ast.walk(function)):
        return None
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{weights}.pop":
            return node
    return None


def _speaks_of(test: ast.expr, weights: str) -> bool:
    """Return whether a test asks for the list, or for DeepSpeed."""
    words = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(test)}
    return weights in words or any("deepspeed" in str(word).lower() for word in words)


_TRAIN = """\
import os

import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin
from hooks import register


def main(data):
    accelerator = Accelerator(%s)
    register(accelerator)
    model, loader = accelerator.prepare(torch.nn.Linear(4, 1), torch.utils.data.DataLoader(data))
    accelerator.save_state("last")


main([])
"""
_HOOKS = """\
import os


def register(accelerator):
    def save_model_hook(models, weights, output_dir):
        for number, model in enumerate(models):
            folder = os.path.join(output_dir, str(number))
            model.save_pretrained(folder, is_main_process=accelerator.is_main_process)
%s

    accelerator.register_save_state_pre_hook(save_model_hook)
"""
_PLUGIN = "deepspeed_plugin=DeepSpeedPlugin(zero_stage=2)"
_POP, _GUARDED = "            weights.pop()", "            if weights:\n                weights.pop()"

EXAMPLES = (
    bad("The hook of diffusers", {"hooks.py": _HOOKS % _POP, "train.py": _TRAIN % _PLUGIN}, "hooks.py:9 error"),
    good("The list is asked", {"hooks.py": _HOOKS % _GUARDED, "train.py": _TRAIN % _PLUGIN}),
    good("Without DeepSpeed", {"hooks.py": _HOOKS % _POP, "train.py": _TRAIN % ""}),
)
