"""**What.** The launch file gives the command a variable whose name is one letter away from one that launchers and
libraries read: `NPROC_PER_NOED=8`, `MASTER_PROT=29501`, `CUDA_VISIBLE_DEVICE=0,1`.

**Why it hurts.** Nobody reads it. The run starts with one process, on the default port, on all GPUs, as if the line
were not there.

**Fix.** Correct the name.

**When it stays quiet.** When the command or its script uses the name, when the right name is set as well, and for
names that are no near miss of a known one. Variables of NCCL are `nccl-env-unknown`.

**Evidence.** The names are in the sources of torch 2.13, DeepSpeed 0.19.8, accelerate 1.15, transformers 5.23,
xtuner and ms-swift.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL416",
    name="launch-variable-misspelt",
    kind="plan",
    severity=Severity.WARNING,
    summary="A variable of the launch whose name is one letter away from the one that is read",
    depends_on_run=True,
    no_experiment="that nobody reads a name cannot be shown by running one program",
)

_SCRIPT = "import os\n\nprint(os.environ.get('RANK'))\n"
_RUN = "NPROC_PER_NODE=8 MASTER_PORT=29501 xtuner train config.py\n"
_TORCHRUN = "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py\n"

EXAMPLES = (
    bad("two letters changed places", {"run.sh": _RUN.replace("NODE=", "NOED=")}, "run.sh:1 warning"),
    bad("a letter is missing", {
        "run.sh": _TORCHRUN.replace("DEVICES", "DEVICE"), "train.py": _SCRIPT,
    }, "run.sh:1 warning"),
    good("the names that are read", {"run.sh": _RUN + _TORCHRUN, "train.py": _SCRIPT}),
    good("a name that the file uses itself", {
        "run.sh": "export MASTER_PORTS=29501\ntorchrun --nproc_per_node 2 --master_port $MASTER_PORTS train.py\n",
        "train.py": _SCRIPT,
    }),
    good("a name that the script reads", {
        "run.sh": _TORCHRUN.replace("DEVICES", "DEVICE"),
        "train.py": _SCRIPT.replace("'RANK'", "'CUDA_VISIBLE_DEVICE'"),
    }),
    good("both names", {
        "run.sh": _TORCHRUN.replace("CUDA", "CUDA_VISIBLE_DEVICE=0,1 CUDA"), "train.py": _SCRIPT,
    }),
    good("a name of its own", {"run.sh": _TORCHRUN.replace("CUDA", "MASTER_PATH=a CUDA"), "train.py": _SCRIPT}),
)  # fmt: skip

_READ = (
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "NPROC_PER_NODE", "MASTER_ADDR",
    "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TORCH_DISTRIBUTED_DEBUG", "TORCH_EXTENSIONS_DIR",
    "TORCH_CUDA_ARCH_LIST",
    "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "WANDB_DISABLED", "WANDB_PROJECT", "WANDB_API_KEY",
    "ACCELERATE_USE_DEEPSPEED", "DEEPSPEED_TIMEOUT", "XTUNER_DATASET_TIMEOUT", "GLOO_SOCKET_IFNAME",
)  # fmt: skip
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Look at every variable that the launch file sets for the command."""
    command = plan.command
    for name, fact in command.env.items():
        if not fact.is_known or not fact.origins or len(name) < 9 or name in _READ:
            continue
        meant = _meant(name)
        if meant is None or not command.variable(meant).is_absent or name in plan.reads:
            continue
        origin = fact.origins[0]
        if any(origin in word.origins for word in command.words) or any(name in word.raw for word in command.words):
            continue
        yield META.finding(
            origin,
            f"nobody reads `{name}`; `{meant}`, one letter away, is read and not set",
            hint=f"Write `{meant}`",
            related=(command.location.labelled("the command that starts this run"),),
            severity=Severity.INFO if command.in_docs else None,
        )


@lru_cache(maxsize=10_000)
def _meant(name: str) -> str | None:
    return next((known for known in _READ if _is_near(name, known)), None)


def _is_near(name: str, known: str) -> bool:
    """One letter more, less or other, or two that changed places. A number at the end is a name of its own."""
    if name == known or abs(len(name) - len(known)) > 1 or name[-1].isdigit() or not set(name) <= _LETTERS:
        return False
    at = next((i for i, (a, b) in enumerate(zip(name, known, strict=False)) if a != b), min(len(name), len(known)))
    if len(name) != len(known):
        longer, shorter = (name, known) if len(name) > len(known) else (known, name)
        return longer[at + 1 :] == shorter[at:]
    same_rest = name[at + 1 :] == known[at + 1 :]
    swapped = name[at : at + 2] == known[at : at + 2][::-1] and name[at + 2 :] == known[at + 2 :]
    return same_rest or swapped
