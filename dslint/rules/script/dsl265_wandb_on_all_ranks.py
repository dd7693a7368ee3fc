"""**What.** A script of a distributed job calls `wandb.init` on every rank.

**Why it hurts.** Each rank makes a run of its own: eight runs with the same loss for one training, and with many ranks
the service answers late or refuses, while the other ranks wait in their next collective.

**Fix.** `if rank == 0: wandb.init(...)`, or `mode="disabled"` on the others; the Hugging Face Trainer and
`accelerator.init_trackers` do so by themselves.

**When it stays quiet.** It is off unless selected: one run a rank may be wanted. With a test of the rank around the
call or around every call of the function that holds it, with `group=` or `mode=`, in scripts of a Trainer, in files
that join no job.

**Evidence.** Documentation of Weights & Biases, "Log distributed training experiments": log from rank 0 only, or from
all ranks with `group`.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.given import given
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.lonely import on_some_ranks
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL265",
    name="wandb-on-all-ranks",
    kind="script",
    severity=Severity.INFO,
    summary="Every rank of the job starts a run of Weights & Biases",
    markers=(
        r"wandb",
        r"init_process_group|init_distributed|deepspeed|Accelerator",
        r"wandb[\s\\]*\.init\(|from wandb import|wandb as",
    ),
    references=("https://docs.wandb.ai/guides/track/log/distributed-training/",),
    depends_on_run=True,
    optional=True,
    no_experiment="it takes an account and a network",
)

_HEAD = "import torch.distributed as dist\nimport wandb\n\ndist.init_process_group('nccl')\n"

EXAMPLES = (
    bad("on every rank", {"train.py": _HEAD + "wandb.init(project='x')\n"}, at="train.py:5 info"),
    bad(
        "in a function that every rank calls",
        {"train.py": _HEAD + "\n\ndef log():\n    wandb.init(project='x')\n\n\nlog()\n"},
        at="train.py:8",
    ),
    good("on rank 0", {"train.py": _HEAD + "if dist.get_rank() == 0:\n    wandb.init(project='x')\n"}),
    good(
        "in a function that rank 0 calls",
        {
            "train.py": _HEAD + "\n\ndef log():\n    wandb.init(project='x')\n\n\n"
            "if dist.get_rank() == 0:\n    log()\n"
        },
    ),
    good("a group of runs", {"train.py": _HEAD + "wandb.init(project='x', group='run-1')\n"}),
    good("no job", {"train.py": "import wandb\n\nwandb.init(project='x')\n"}),
    good(
        "a trainer",
        {
            "train.py": "import deepspeed\nimport wandb\nfrom transformers import Trainer\n\n"
            "wandb.init(project='x')\nTrainer(model=None).train()\n"
        },
    ),
)  # fmt: skip

_JOINING = frozenset({"deepspeed.initialize", "accelerate.Accelerator", "accelerate.PartialState"})


def precheck(tree: ast.Module) -> bool:
    """Something is called that may be `wandb.init`."""
    return any(call_name(call) == "init" for call in flat(tree).nodes(ast.Call))


class Check(ScriptCheck):
    """Looks at each start of a run."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire where nothing keeps the other ranks away."""
        if self.ctx.qualified_name(node.func) != "wandb.init" or not self._joins():
            return
        if self.ctx.imports("transformers", "trl", "lightning", "pytorch_lightning"):
            return
        names = given(self.ctx.names, node).named.keys()
        if names & {"group", "mode"} or self.ctx.has_unpacked_arguments(node) or self._is_guarded(node):
            return
        self.report(
            node,
            "`wandb.init` runs on every rank: one run a process, and a service that answers late stalls the job",
            hint="Call it on rank 0 only, or pass `group=` to keep the runs together",
        )

    def _joins(self) -> bool:
        if self.ctx.run.is_one_process and not self.ctx.startup.starts_processes:
            return False
        if self.ctx.run.world_size.is_known:
            return self.ctx.run.world_size.get() > 1
        if self.ctx.startup.group_makers:
            return True
        calls = self.ctx.tree.every(cst.Call)
        return any(self.ctx.qualified_name(call.func) in _JOINING for call in calls)

    def _is_guarded(self, node: cst.Call) -> bool:
        if on_some_ranks(self.ctx, node):
            return True
        function = self.ctx.enclosing_function(node)
        if function is None:
            return False
        # Who calls a function that the file itself does not call is not known.
        return not self.ctx.names.callers.of(function)
