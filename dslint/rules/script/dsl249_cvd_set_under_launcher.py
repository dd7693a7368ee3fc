"""**What.** A script that a launcher starts on several processes writes `os.environ["CUDA_VISIBLE_DEVICES"]` with fewer
GPUs than there are processes on the machine.

**Why it hurts.** Each process runs the line, so each sees the same few GPUs. The process with local rank 1 asks for a
second GPU that it has hidden from itself: `CUDA error: invalid device ordinal`; or all of them share one.

**Fix.** Delete the line, and set the variable in the launch command: `CUDA_VISIBLE_DEVICES=0,1 torchrun
--nproc_per_node 2 train.py`.

**When it stays quiet.** With as many GPUs as processes; for one process; values that the script computes; an empty text
or "-1", which hide all GPUs on purpose; under a test; in functions that the script does not call at the top, and in
scripts that start their processes themselves. Without a launch command it fires only where one GPU is listed and the
script chooses its GPU by the local rank.

**Evidence.** CUDA C++ Programming Guide, "CUDA Environment Variables": devices are counted from 0 among those that the
variable lists.
"""

from __future__ import annotations

import ast

from dslint.core.finding import Severity
from dslint.core.source import Location
from dslint.model.script.quick import writes_environment
from dslint.model.script.setup.startup import EnvironmentWrite
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL249",
    name="cvd-set-under-launcher",
    kind="script",
    severity=Severity.WARNING,
    summary="Every process of a launch hides the GPUs of the others from itself",
    markers=(r"CUDA_VISIBLE_DEVICES", r"CUDA_VISIBLE_DEVICES[\"']?\s*\]?\s*[=:]\s*[^=\s]"),
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables",),
    depends_on_run=True,
    no_experiment="a process needs GPUs to hide them",
)

_HEAD = "import os\n\n"
_SET = 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"\n'
_CHOOSE = "\nimport torch\n\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
_RUN = "torchrun --nproc_per_node 4 train.py\n"

EXAMPLES = (
    bad("one GPU for four processes", {"train.py": _HEAD + _SET + _CHOOSE, "run.sh": _RUN}, at="train.py:3 warning"),
    bad(
        "two GPUs for four processes",
        {"train.py": _HEAD + _SET.replace('"0"', '"0,1"'), "run.sh": _RUN},
        at="train.py:3",
    ),
    bad("the local rank is an index among one GPU", {"train.py": _HEAD + _SET + _CHOOSE}, at="train.py:3"),
    good(
        "as many GPUs as processes",
        {"train.py": _HEAD + _SET.replace('"0"', '"0,1,2,3"') + _CHOOSE, "run.sh": _RUN},
    ),
    good("one process", {"train.py": _HEAD + _SET + _CHOOSE, "run.sh": _RUN.replace("4", "1")}),
    good("no launcher", {"infer.py": _HEAD + _SET + "\nimport torch\n\nprint(torch.ones(1).cuda())\n"}),
    good("no GPU at all", {"train.py": _HEAD + _SET.replace('"0"', '""') + _CHOOSE, "run.sh": _RUN}),
    good(
        "the GPU of the process",
        {"train.py": _HEAD + "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n", "run.sh": _RUN},
    ),
    good(
        "only without a launcher",
        {"train.py": _HEAD + "if 'LOCAL_RANK' not in os.environ:\n    " + _SET + _CHOOSE, "run.sh": _RUN},
    ),
    good("set in the command", {"train.py": _HEAD + _CHOOSE, "run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 " + _RUN}),
)


def precheck(tree: ast.Module) -> bool:
    """The variable is written into the environment."""
    return writes_environment(tree, "CUDA_VISIBLE_DEVICES")


class Check(ScriptCheck):
    """Compares each write with the number of processes on a machine."""

    def finish(self) -> None:
        """Fire where every process lists fewer GPUs than there are processes."""
        startup = self.ctx.startup
        if startup.starts_processes or self.ctx.run.is_one_process:
            return
        for write in startup.environment_writes:
            gpus = _count(write.text) if write.name == "CUDA_VISIBLE_DEVICES" else 0
            if gpus and startup.runs_always(write.node):
                self._judge(write, gpus)

    def _judge(self, write: EnvironmentWrite, gpus: int) -> None:
        listed = f"{gpus} GPU{'s' if gpus > 1 else ''} (`{write.text}`)"
        processes = self.ctx.run.processes_per_node
        if processes.get_or(0) > gpus:
            self._report(
                write,
                f"each of the {processes.get()} processes of a machine shows itself {listed}, the same for all: local"
                f" rank {gpus} has none",
                tuple(origin.labelled("the processes are started here") for origin in processes.origins),
            )
        elif processes.is_absent and gpus == 1:
            chosen = next(
                (c for c in self.ctx.startup.devices.choices if self.ctx.guards.rank_values.is_rank(c.index)), None
            )
            if chosen is not None:
                self._report(
                    write,
                    f"the script shows itself {listed} and chooses its GPU by the local rank: local rank 1 has none",
                    (self.ctx.location(chosen.index, "the GPU is chosen by the local rank"),),
                )

    def _report(self, write: EnvironmentWrite, message: str, related: tuple[Location, ...]) -> None:
        self.report(
            write.node,
            message,
            hint="Delete the line, and set `CUDA_VISIBLE_DEVICES` in the launch command",
            related=related,
        )


def _count(text: str | None) -> int:
    """The number of GPUs that a value lists; 0 when it hides all, or is not known."""
    items = [item.strip() for item in (text or "").split(",")]
    return len(items) if all(items) and "-1" not in items else 0
