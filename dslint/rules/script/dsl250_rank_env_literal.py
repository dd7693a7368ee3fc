"""**What.** A script writes `os.environ["RANK"]`, `LOCAL_RANK`, `WORLD_SIZE` or `MASTER_PORT` with a fixed value in
every process, and leaves the process group to the environment.

**Why it hurts.** torchrun, deepspeed and accelerate give each process these variables. The script puts one value over
all of them: every process is rank 0, or a world of one, or looks for the store at a port where nobody listens. The
group never forms, and the job ends at the timeout (10 minutes with NCCL), or rank 0 trains alone.

**Fix.** `os.environ.setdefault("RANK", "0")`, which the safe fix writes: the value then only serves a run without a
launcher.

**When it stays quiet.** Under a test (`if "RANK" not in os.environ:`), in functions that the script does not call at
the top, in scripts that start their processes themselves (`mp.spawn`, `Process`, ray) or pass `rank=` to
`init_process_group`; values that the script computes; a run of one process on purpose (`WORLD_SIZE` is written as "1"
as well), unless a launch command starts several; `LOCAL_RANK` below srun; `MASTER_PORT` under launchers that do not
open the store themselves, and where it is 29500, the usual port.

**Evidence.** Two gloo ranks under torchrun, torch 2.13. `RANK` written as "0": `DistStoreError: wait timeout` on both
processes. `WORLD_SIZE` as "1": rank 0 is alone in a world of 1, rank 1 raises `rank < size`. Another `MASTER_PORT`:
`DistNetworkError: The client socket has timed out` on both. With `setdefault` the group forms.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.model.script.quick import flat
from dslint.model.script.setup.startup import EnvironmentWrite
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"})
_USUAL_PORT = "29500"

META = RuleMeta(
    code="DSL250",
    name="rank-env-literal",
    kind="script",
    severity=Severity.WARNING,
    summary="The script writes its rank, world size or port over what the launcher gave",
    fix="safe",
    markers=(
        r"environ",
        r"RANK|WORLD_SIZE|MASTER_PORT",
        r"torch|deepspeed|accelerate|transformers",
        r"environ(?:\.update\(|\[\s*[\"'](?:RANK|LOCAL_RANK|WORLD_SIZE|MASTER_PORT)[\"']\s*\]\s*=\s*[^=\s])",
    ),
    references=("https://pytorch.org/docs/stable/elastic/run.html#environment-variables",),
    depends_on_run=True,
)

_HEAD = "import os\n\nimport torch.distributed as dist\n\n"
_INIT = 'dist.init_process_group("nccl")\n'
_RANK = 'os.environ["RANK"] = "0"\n'
_KEPT = 'os.environ.setdefault("RANK", "0")\n'
_MAIN = "\n\ndef main():\n    {}\n    dist.init_process_group('nccl')\n\n\nif __name__ == '__main__':\n    main()\n"

EXAMPLES = (
    bad(
        "every process is rank 0",
        {"train.py": _HEAD + _RANK + _INIT},
        at="train.py:5 warning",
        fixed={"train.py": _HEAD + _KEPT + _INIT},
    ),
    bad(
        "a launch command starts several processes",
        {"train.py": _HEAD + _RANK + _INIT, "run.sh": "torchrun --nproc_per_node 8 train.py\n"},
        at="train.py:5 error",
        fixed={"train.py": _HEAD + _KEPT + _INIT},
    ),
    bad(
        "in `main`, by `update`",
        {"train.py": _HEAD + _MAIN.format("os.environ.update({'LOCAL_RANK': '0'})")},
        at="train.py:8 warning",
    ),
    bad(
        "a port where nobody listens",
        {
            "train.py": _HEAD + "os.environ['MASTER_PORT'] = '12355'\n" + _INIT,
            "run.sh": "torchrun --standalone --nproc_per_node 4 train.py\n",
        },
        at="train.py:5 error",
        fixed={
            "train.py": _HEAD + "os.environ.setdefault('MASTER_PORT', '12355')\n" + _INIT,
        },
    ),
    bad(
        "a world of one, started as eight",
        {
            "train.py": _HEAD + "os.environ['WORLD_SIZE'] = '1'\n" + _INIT,
            "run.sh": "torchrun --nproc_per_node 8 train.py\n",
        },
        at="train.py:5 error",
        fixed={"train.py": _HEAD + "os.environ.setdefault('WORLD_SIZE', '1')\n" + _INIT},
    ),
    good("a default", {"train.py": _HEAD + _KEPT + _INIT}),
    good(
        "only without a launcher",
        {"train.py": _HEAD + 'if "RANK" not in os.environ:\n    ' + _RANK + _INIT},
    ),
    good(
        "started by plain python",
        {"train.py": _HEAD + _RANK + 'os.environ["WORLD_SIZE"] = count()\n' + _INIT, "run.sh": "python train.py\n"},
    ),
    good(
        "one process on purpose",
        {"train.py": _HEAD + _RANK + 'os.environ["WORLD_SIZE"] = "1"\nos.environ["MASTER_PORT"] = "8088"\n' + _INIT},
    ),
    good(
        "the worker of `mp.spawn`",
        {
            "train.py": "import os\n\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n\n\n"
            "def worker(rank, world_size):\n"
            "    os.environ['MASTER_PORT'] = '12355'\n"
            "    dist.init_process_group('nccl', rank=rank, world_size=world_size)\n\n\n"
            "if __name__ == '__main__':\n    mp.spawn(worker, args=(4,), nprocs=4)\n"
        },
    ),
    good(
        "a value of the scheduler",
        {"train.py": _HEAD + 'os.environ["RANK"] = os.environ["SLURM_PROCID"]\n' + _INIT},
    ),
    good("nobody calls the function", {"helpers.py": _HEAD + "\ndef single():\n    " + _RANK + "    " + _INIT}),
    good(
        "srun shows each process one GPU",
        {
            "train.py": _HEAD + "os.environ['RANK'] = os.environ['SLURM_PROCID']\n"
            "os.environ['LOCAL_RANK'] = '0'\n" + _INIT
        },
    ),
    good(
        "the deepspeed launcher opens no store: all processes use the same port",
        {
            "train.py": "import os\n\nimport deepspeed\n\nos.environ['MASTER_PORT'] = '12355'\n"
            "deepspeed.init_distributed()\n",
            "run.sh": "deepspeed --num_gpus 4 train.py\n",
        },
    ),
    good(
        "a script without a process group",
        {"demo.py": "import os\n\nimport torch\n\nos.environ['RANK'] = '0'\nprint(torch.ones(1))\n"},
    ),
)

_GROUPS = (
    "deepspeed.initialize",
    "accelerate.Accelerator",
    "accelerate.PartialState",
    "transformers.TrainingArguments",
    "transformers.HfArgumentParser",
    "transformers.Trainer",
    "trl.SFTConfig",
    "trl.SFTTrainer",
    "lightning.Fabric",
    "lightning.Trainer",
    "pytorch_lightning.Trainer",
)


def precheck(tree: ast.Module) -> bool:
    """Some variable of the launcher is assigned, in the environment, with something that may be a literal."""
    nodes = flat(tree)
    for assign in nodes.nodes(ast.Assign):
        if isinstance(assign.value, ast.Constant | ast.Name) or _is_str_of_literal(assign.value):
            for target in assign.targets:
                if isinstance(target, ast.Subscript) and _text(target.slice) in _VARIABLES:
                    return True
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "update"
        and isinstance(call.func.value, ast.Attribute)
        and call.func.value.attr == "environ"
        for call in nodes.nodes(ast.Call)
    )


def _is_str_of_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Constant | ast.Name)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


class Check(ScriptCheck):
    """Judges the writes into the environment once, at the end."""

    def finish(self) -> None:
        """Fire on each variable that every process writes with the same value before it joins the group."""
        startup = self.ctx.startup
        writes = [w for w in startup.environment_writes if w.name in _VARIABLES]
        if (
            not writes
            or self.ctx.run.is_one_process
            or startup.starts_processes
            or startup.states_ranks
            or not self._joins_by_environment()
        ):
            return
        certain = [w for w in writes if w.text is not None and startup.runs_always(w.node)]
        several = self.ctx.run.world_size.get_or(1) > 1
        if not several and any(w.name == "WORLD_SIZE" and w.text == "1" for w in certain):
            return  # one process on purpose
        for write in certain:
            effect = self._effect(write, {w.name for w in writes if w is not write})
            if effect:
                self._report(write, effect, several)

    def _joins_by_environment(self) -> bool:
        if self.ctx.startup.group_makers:
            return True
        calls = self.ctx.tree.every(cst.Call)
        return any(self.ctx.qualified_name(call.func) in _GROUPS for call in calls)

    def _effect(self, write: EnvironmentWrite, others: set[str]) -> str:
        """What the value does to a run of several processes; "" when it may do nothing."""
        world = self.ctx.run.world_size.get_or(None)
        if write.name == "RANK":
            return f"every process takes itself for rank {write.text}, and the group never forms"
        launcher = self.ctx.run.launcher.get_or("torchrun")
        if write.name == "LOCAL_RANK":
            # Below srun each process may see a GPU of its own, with the index 0.
            given = launcher in ("torchrun", "deepspeed", "accelerate") and "SLURM" not in self.ctx.doc.source.text
            return f"every process of a machine takes GPU {write.text}" if given else ""
        if write.name == "WORLD_SIZE":
            wrong = isinstance(world, int) and write.text != str(world)
            return f"the processes count {write.text} of them, and the group never forms" if wrong else ""
        # Others than torchrun leave the store to rank 0, which then opens it at the port that all write.
        if write.text == _USUAL_PORT or launcher != "torchrun" or {"RANK", "WORLD_SIZE"} & others:
            return ""
        return "under torchrun nobody listens at that port, and every process waits until the timeout"

    def _report(self, write: EnvironmentWrite, effect: str, several: bool) -> None:
        world = self.ctx.run.world_size
        certain = several and not self._is_only_device(write)
        self.report(
            write.node,
            f'`os.environ["{write.name}"]` is written as "{write.text}" over what the launcher gave: {effect}',
            hint=f'Use `os.environ.setdefault("{write.name}", "{write.text}")`, or drop the line',
            severity=Severity.ERROR if certain else None,
            related=tuple(o.labelled("several processes are started here") for o in world.origins) if several else (),
            fix=self._fix(write),
            facts={"variable": write.name, "value": write.text},
        )

    def _is_only_device(self, write: EnvironmentWrite) -> bool:
        """What two processes on one GPU come to needs GPUs to be seen."""
        return write.name == "LOCAL_RANK"

    def _fix(self, write: EnvironmentWrite) -> Fix | None:
        statement = write.statement
        if statement is None or len(statement.targets) != 1:
            return None
        target = statement.targets[0].target
        if not isinstance(target, cst.Subscript) or not isinstance(target.slice[0].slice, cst.Index):
            return None
        key, value = self.ctx.text(target.slice[0].slice.value), self.ctx.text(statement.value)
        text = f"{self.ctx.text(target.value)}.setdefault({key}, {value})"
        return Fix("Keep what the launcher gave", (Edit(self.ctx.doc.path, self.ctx.span(statement), text),))
