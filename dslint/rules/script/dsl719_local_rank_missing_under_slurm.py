"""Code under Lightning and Slurm takes its GPU from `LOCAL_RANK`, which nobody sets there.

**What.** `srun` starts the tasks of a Lightning Trainer, and a module of the project asks for
`os.environ.get("LOCAL_RANK", 0)` to choose a device: in a loss, a metric, a helper `current_device()`.

**Why it hurts.** torchrun and Lightning's own launcher set `LOCAL_RANK`; Slurm sets `SLURM_LOCALID`, and Lightning
reads that. On every task the default 0 applies: what the code makes lies on `cuda:0`, while the models of the tasks
lie on `cuda:1` and up. The first step fails with `Expected all tensors to be on the same device`, or all tasks fill
the memory of GPU 0.

**Fix.** Ask the module or the tensor at hand: `self.device`, `batch.device`, or register a buffer. Or read
`SLURM_LOCALID`, too.

**When it stays quiet.** One task on a machine; each task sees one GPU only, as number 0; a module of the project speaks
of `SLURM_LOCALID` or sets `LOCAL_RANK`; the number chooses no device; scripts without a Trainer of Lightning, and
other launchers.

**Evidence.** `SLURMEnvironment.local_rank` of lightning 2.x reads `SLURM_LOCALID` and sets nothing; srun's manual
(output environment variables).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import trainers

META = RuleMeta(
    code="DSL719",
    name="local-rank-missing-under-slurm",
    kind="script",
    severity=Severity.WARNING,
    summary="code under Lightning and srun takes its GPU from LOCAL_RANK, which nobody sets: every task uses GPU 0",
    markers=(r"lightning", r"Trainer"),
    references=("https://github.com/paninski-lab/lightning-pose/issues/220",),
    depends_on_run=True,
    no_experiment="it takes Slurm, GPUs and Lightning; the variables are in the source of Lightning",
)
_KNOWS = re.compile(r"SLURM_LOCALID|environ\[[\"']LOCAL_RANK[\"']\]\s*=[^=]|setdefault\([\"']LOCAL_RANK")
_ASKS = re.compile(r"(?:environ\.get|getenv)\(\s*[\"']LOCAL_RANK[\"']\s*,\s*(?:[\"']0[\"']|0)\s*\)")
_DEVICE = r"(?:device\(|cuda|\.to\()"
_NAMED = re.compile(r"\s*(\w+)\s*(?::\s*\w+\s*)?=[^=]")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each device that is chosen by a variable that no task has."""
    each = run.context.processes_per_node
    if run.context.launcher.get_or("") != "srun" or each.get_or(1) < 2 or run.context.gpus_of_task.get_or(0) == 1:
        return
    made = trainers(run)
    modules = [module for module in run.machine.program.modules() if "LOCAL_RANK" in module.code]
    if not made or any("plugins" in event.arguments for event in made) or any(m.search(_KNOWS) for m in modules):
        return
    for module in modules:
        for call in module.nodes_of(ast.Call):
            if _ASKS.fullmatch(module.text(call).removeprefix("os.")) and _chooses_device(module, call):
                yield run.finding(
                    META,
                    module,
                    call,
                    f"srun starts {each.get()} tasks on a node and sets no `LOCAL_RANK`: each of them takes GPU 0 here",
                    hint="Take the device of the module or of the batch, or read `SLURM_LOCALID`",
                    related=(*each.origins, run.location(made[0].module, made[0].node, "Lightning asks Slurm itself")),
                )


def _chooses_device(module: Module, call: ast.Call) -> bool:
    """Return whether a device is made of the answer: on the same line, or by the name that it gets there."""
    line = module.lines(call.lineno, call.end_lineno or call.lineno)
    if re.search(_DEVICE, line):
        return True
    named = _NAMED.match(line)
    return named is not None and re.search(rf"{_DEVICE}[^\n]*\b{named[1]}\b", module.code) is not None


_JOB = "#!/bin/bash\n#SBATCH --ntasks-per-node=%s\n#SBATCH %s\nsrun python train.py\n"
_TRAIN = """\
import lightning as L

from losses import Loss
from mine import Data, Net


class Model(L.LightningModule):
    def setup(self, stage):
        self.net, self.loss = Net(), Loss()

    def training_step(self, batch, index):
        return self.loss(self.net(batch))


if __name__ == "__main__":
    trainer = L.Trainer(accelerator="gpu", devices=4, strategy="ddp")
    trainer.fit(Model(), Data())
"""
_LOSS = """\
import os

import torch

%s


class Loss:
    def __init__(self):
        self.weights = torch.ones(8).to(%s)

    def __call__(self, rows):
        return (rows * self.weights).mean()
"""
_HELPER = """\
def current():
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))"""
_NUMBER = 'local_rank = int(os.getenv("LOCAL_RANK", 0))'
_BOTH = 'local_rank = int(os.environ.get("SLURM_LOCALID", os.environ.get("LOCAL_RANK", 0)))'


def _project(code: str, device: str, tasks: int = 4, gpus: str = "--gres=gpu:4") -> dict[str, str]:
    return {"job.sbatch": _JOB % (tasks, gpus), "train.py": _TRAIN, "losses.py": _LOSS % (code, device)}


EXAMPLES = (
    bad("a helper", _project(_HELPER, "current()"), "losses.py:6"),
    bad("a number of the module", _project(_NUMBER, 'f"cuda:{local_rank}"'), "losses.py:5"),
    bad("pytorch_lightning", {
        name: text.replace("import lightning as L", "import pytorch_lightning as L")
        for name, text in _project(_NUMBER, "torch.device('cuda', local_rank)").items()}, "losses.py:5"),
    good("it reads the variable of Slurm, too", _project(_BOTH, 'f"cuda:{local_rank}"')),
    good("one GPU for each task", _project(_NUMBER, 'f"cuda:{local_rank}"', 4, "--gpus-per-task=1"), select="DSL719"),
    good("one task", {
        name: text.replace("devices=4", "devices=1")
        for name, text in _project(_NUMBER, 'f"cuda:{local_rank}"', 1).items()}),
    good("for a message only", _project("is_first = os.environ.get('LOCAL_RANK', '0') == '0'", "torch.float32")),
)  # fmt: skip
