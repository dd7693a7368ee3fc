"""**What.** The process group is created without `timeout=`, so the default of the library applies: 10 minutes for
NCCL, 30 minutes for gloo in `torch.distributed`; 10 minutes in `deepspeed.init_distributed` unless the environment
variable `DEEPSPEED_TIMEOUT` (in minutes) says otherwise.

**Why it hurts.** A rank that waits longer than this for its peers dies, and takes the job with it. That bites where one
rank legitimately works alone for long: it downloads or tokenizes the data set while the others wait at a barrier, or
(ZeRO-3 inference) generates a longer answer than its peers. There the finding is a warning; elsewhere it is a note.

**Fix.** `timeout=timedelta(hours=2)` where a late rank is expected. A longer timeout cures a rank that comes *late*;
for a rank that never comes (a collective under a rank guard, an uneven loop) it only delays the error.

**When it stays quiet.** `timeout` is given, or `**kwargs` may hold it. It is a note only, unless the file shows slow
work of one rank before a barrier or ZeRO-3 inference. One finding a file: further calls stand in other branches of the
same set-up. Silent in tests (`test_*.py`, files of a folder `tests`), for a group of one rank and the backend `xla`.

**Evidence.** torch 2.13 `distributed_c10d._get_default_timeout`; DeepSpeed 0.19.8 `constants.default_pg_timeout`. Two
gloo ranks, one of them 6 s late: with a 2 s timeout the waiting rank raises `Timed out waiting 2000ms for recv
operation to complete`, with 15 s both finish.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.script.data.workload import FIRST_BLOCKS, is_inference, slow_calls
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.model.script.setup.timeouts import GROUP_CREATORS
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL223",
    name="process-group-timeout-missing",
    kind="script",
    severity=Severity.INFO,
    summary="The process group is created with the default timeout",
    markers=(r"init_process_group\b|init_distributed\b",),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",
        "https://github.com/pytorch/pytorch/issues/135352",
        "https://github.com/InternLM/xtuner/issues/438",
        "https://github.com/OpenBMB/MiniCPM-V/issues/769",
    ),
)

EXAMPLES = (
    bad(
        "a plain training script: a note",
        {"train.py": "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"},
        at="train.py:3 info",
    ),
    bad(
        "rank 0 tokenizes while the others wait",
        {
            "train.py": (
                "import torch.distributed as dist\nfrom datasets import load_dataset\n\n"
                "dist.init_process_group('nccl')\n"
                "if dist.get_rank() == 0:\n"
                "    load_dataset('json', data_files='train.jsonl').map(str).save_to_disk('cache')\n"
                "dist.barrier()\n"
            )
        },
        at="train.py:4 warning",
    ),
    bad(
        "rank 0 tokenizes first, in a block that makes the others wait",
        {
            "train.py": (
                "import torch.distributed as dist\nfrom datasets import load_dataset\n\n"
                "dist.init_process_group('nccl')\nwith torch_distributed_zero_first(local_rank):\n"
                "    data = load_dataset('json', data_files='train.jsonl').map(str)\n"
            )
        },
        at="train.py:4 warning",
    ),
    bad(
        "ZeRO-3 inference: one rank generates longer than another",
        {
            "infer.py": (
                "import deepspeed\n\n"
                "config = {'train_micro_batch_size_per_gpu': 1, 'zero_optimization': {'stage': 3}}\n"
                "deepspeed.init_distributed('nccl')\n\n\n"
                "def run(model, batch):\n"
                "    engine = deepspeed.initialize(model=model, config=config)[0]\n"
                "    return engine.module.generate(**batch, synced_gpus=True)\n"
            )
        },
        at="infer.py:4 warning",
    ),
    good(
        "a timeout",
        {
            "train.py": (
                "from datetime import timedelta\n\nimport torch.distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            )
        },
    ),
    good(
        "a timeout may be among the arguments",
        {
            "train.py": (
                "import torch.distributed as dist\n\n\ndef setup(**kwargs):\n"
                "    dist.init_process_group('nccl', **kwargs)\n"
            )
        },
    ),
    good(
        "one rank; TPUs",
        {
            "train.py": "import torch.distributed as dist\n\nif tpu:\n    dist.init_process_group(backend='xla')\n"
            "else:\n    dist.init_process_group('gloo', world_size=1, rank=0, store=dist.HashStore())\n"
        },
    ),
    good(
        "one rank, by a setting of the file",
        {
            "convert.py": "import torch.distributed as dist\n\nBACKEND = 'gloo'\nRANKS = (1)\n\n"
            "dist.init_process_group(BACKEND, world_size=RANKS, rank=0, store=dist.HashStore())\n"
        },
    ),
    good(
        "a test",
        {"tests/test_ops.py": "import torch.distributed as dist\n\ndist.init_process_group('gloo')\n"},
    ),
    good(
        "a function of the project with the same name",
        {"train.py": "def init_distributed():\n    return None\n\n\ninit_distributed()\n"},
    ),
)


def applies(path: str, _: Context) -> bool:
    """Tests of seconds need no timeout."""
    *folders, name = path.split("/")
    return not (name.startswith("test_") or folders[-1:] in (["test"], ["tests"]))


def precheck(tree: ast.Module) -> bool:
    """A process group is created without a timeout keyword."""
    return any(
        call_name(node) in ("init_process_group", "init_distributed")
        and not any(k.arg in (None, "timeout") for k in node.keywords)
        for node in flat(tree).nodes(ast.Call)
    )


class Check(ScriptCheck):
    """Looks at each call that creates the default process group."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when no timeout is passed; escalate on evidence in the same file."""
        name = self.ctx.qualified_name(node.func)
        # A file creates one process group, in one of the branches of its set-up: the first finding says it for all.
        if self.findings or name not in GROUP_CREATORS or self.ctx.has_unpacked_arguments(node):
            return
        if self.ctx.argument(node, "timeout", GROUP_CREATORS[name]) is not None:
            return
        if self._has_no_peers(node):
            return
        default = "10 minutes" if name.startswith("deepspeed") else "10 minutes with NCCL, 30 with gloo"
        call = self.ctx.text(node.func)
        message = f"`{call}` has no `timeout`: ranks that wait longer than the default ({default}) for a peer give up"
        slow = self._slow_rank()
        reason = slow or self._zero3_inference()
        # Where the others wait for the late rank.
        facts = {
            "call": self.ctx.called(node),
            "waits_in": ("barrier" if slow else "all_gather") if reason else None,
        }
        if reason:
            text, places = reason
            self.report(
                node,
                f"{message}, and {text}",
                severity=Severity.WARNING,
                related=places,
                hint="Pass `timeout=timedelta(...)` longer than the slowest rank needs; a longer timeout does not "
                "cure a rank that never arrives",
                facts=facts,
            )
        else:
            hint = "Pass `timeout=timedelta(...)` if one rank may be late for good reason"
            self.report(node, message, hint=hint, facts=facts)

    def _has_no_peers(self, node: cst.Call) -> bool:
        """A group of one rank, or a backend with timeouts of its own (`xla`)."""
        backend, size = self.ctx.argument(node, "backend", 0), self.ctx.argument(node, "world_size")
        written = self.ctx.constants.written
        return written(backend).get_or(None) == "xla" or written(size).get_or(None) == 1

    def _slow_rank(self) -> tuple[str, tuple[Location, ...]] | None:
        """Slow work of one rank while the others wait: in a block that it runs first, or guarded before a barrier."""
        for block in self.ctx.tree.every(cst.With):
            named = [last_name(i.item.func) for i in block.items if isinstance(i.item, cst.Call)]
            slow = next(slow_calls(self.ctx.tree, block.body), None) if FIRST_BLOCKS & set(named) else None
            if slow is not None:
                places = (
                    self.ctx.location(slow, "rank 0 does this first"),
                    self.ctx.location(block.items[0], "the others wait here"),
                )
                return f"here the others wait while rank 0 runs `{last_name(slow.func)}`", places
        for node in self.ctx.tree.every(cst.Call):
            if self.ctx.called(node) not in ("barrier", "wait_for_everyone"):
                continue
            function = self.ctx.enclosing_function(node) or self.ctx.doc.module
            for slow in slow_calls(self.ctx.tree, function):
                if self.ctx.tree.position(slow) > self.ctx.tree.position(node) or self.ctx.guard(slow) is None:
                    continue
                if self.ctx.enclosing_function(slow) is not self.ctx.enclosing_function(node):
                    continue
                places = (
                    self.ctx.location(slow, "only some ranks do this"),
                    self.ctx.location(node, "the others wait here"),
                )
                return f"here the others wait while one rank runs `{last_name(slow.func)}`", places
        return None

    def _zero3_inference(self) -> tuple[str, tuple[Location, ...]] | None:
        stage3 = self.ctx.zero3_evidence
        if not stage3.get_or(False) or not is_inference(self.ctx.tree, self.ctx.names):
            return None
        return "under ZeRO-3 inference every rank waits for the slowest one in each layer", stage3.origins
