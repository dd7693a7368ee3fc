"""**What.** A number is passed as the `timeout` of a process group, where a `datetime.timedelta` is needed; or a
`timedelta` as `ddp_timeout` of the Hugging Face `TrainingArguments`, where a number of seconds is.

**Why it hurts.** The call raises on every rank, after the job has queued and started: `torch.distributed` says
`TypeError: Expected timeout argument to be of type datetime.timedelta`, DeepSpeed stops at an assertion, and
accelerate and the strategies of Lightning fail when they hand the value to torch. transformers fails when it makes a
`timedelta` of the `timedelta`.

**Fix.** `timeout=timedelta(seconds=1800)`. The safe fix reads the number as seconds, which is what every other
timeout of PyTorch means, and adds the import when the file has none. `ddp_timeout` gets the seconds of the `timedelta`.

**When it stays quiet.** `monitored_barrier` takes a float as seconds (an integer raises); values that cannot be read.
An argument of the command line that is a number or, when it is not given, `None` is a warning, and so is a parameter
whose default is a number.

**Evidence.** torch 2.13 `distributed_c10d._check_valid_timeout`; DeepSpeed 0.19.8 `comm/comm.py: init_distributed`
(`assert isinstance(timeout, timedelta)`). Two gloo ranks: `init_process_group`, `new_group`,
`monitored_barrier(timeout=30)`, `InitProcessGroupKwargs`, `PartialState` and `init_distributed` raise on both, and so
does `TrainingArguments(ddp_timeout=timedelta(...))`; `init_distributed` does not where a process group exists
already, since it then ignores the timeout.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.timeouts import wrong_timeouts
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL221",
    name="timeout-not-timedelta",
    kind="script",
    severity=Severity.ERROR,
    summary="The timeout of a process group is a number instead of a `timedelta`",
    fix="safe",
    markers=(
        # The ends of `new_group`, `monitored_barrier` and the like: one cheap pass over every file.
        r"_(?:group|subgroups\w*|distributed|barrier|timeout)\b|InitProcessGroupKwargs|PartialState|Strategy\(",
        r"timeout|init_process_group\([^)\n]*,[^)\n]*,|init_distributed\((?:[^)\n]*,){4}|new_group\([^\n]*,"
        r"|monitored_barrier\([^)\n]*,|new_subgroups\w*\([^\n]*,|split_group\([^\n]*,",
    ),
    versions=("torch>=1.8",),
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on timeouts that reach a call as numbers or texts, by whatever way."""
    yield from wrong_timeouts(run, META)


EXAMPLES = (
    bad(
        "a parameter whose default is a number",
        {
            "train.py": "import deepspeed\n\n\ndef setup(backend, timeout=3600):\n"
            "    deepspeed.init_distributed(backend, timeout=timeout)\n"
        },
        at="train.py:5 warning",
    ),
    bad(
        "minutes from the environment, in a dictionary that the call unpacks",
        {
            "train.py": (
                "import os\n\nimport torch.distributed as dist\n\n"
                "options = dict(backend='nccl', timeout=int(os.environ['MINUTES']) * 60)\n"
                "dist.init_process_group(**options)\n"
            )
        },
        at="train.py:5 error",
    ),
    bad(
        "seconds as an integer",
        {
            "train.py": (
                "import torch.distributed as dist\n\ndist.init_process_group('nccl', timeout=7200)  # two hours\n"
            )
        },
        at="train.py:3 error",
        fixed={
            "train.py": (
                "from datetime import timedelta\nimport torch.distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(seconds=7200))  # two hours\n"
            )
        },
    ),
    bad(
        "a constant, in a file that imports datetime",
        {
            "train.py": (
                "import datetime\n\nimport deepspeed\n\nTIMEOUT = 60 * 60\n"
                "deepspeed.init_distributed(timeout=TIMEOUT)\n"
            )
        },
        at="train.py:6",
        fixed={
            "train.py": (
                "import datetime\n\nimport deepspeed\n\nTIMEOUT = 60 * 60\n"
                "deepspeed.init_distributed(timeout=datetime.timedelta(seconds=TIMEOUT))\n"
            )
        },
    ),
    bad(
        "an integer for `monitored_barrier`",
        {"train.py": "import datetime\n\nimport torch.distributed as dist\n\ndist.monitored_barrier(timeout=30)\n"},
        at="train.py:5",
        fixed={
            "train.py": (
                "import datetime\n\nimport torch.distributed as dist\n\n"
                "dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))\n"
            )
        },
    ),
    bad(
        "a timedelta for the Trainer, which wants seconds",
        {
            "train.py": (
                "from datetime import timedelta\n\nfrom transformers import TrainingArguments\n\n"
                "args = TrainingArguments('out', ddp_timeout=timedelta(hours=2))\n"
            )
        },
        at="train.py:5 error",
        fixed={
            "train.py": (
                "from datetime import timedelta\n\nfrom transformers import TrainingArguments\n\n"
                "args = TrainingArguments('out', ddp_timeout=int(timedelta(hours=2).total_seconds()))\n"
            )
        },
    ),
    bad(
        "a strategy of Lightning, and an argument that is a number when it is given",
        {
            "train.py": (
                "import argparse\n\nimport torch.distributed as dist\n"
                "from lightning.pytorch.strategies import DDPStrategy\n\n"
                "parser = argparse.ArgumentParser()\nparser.add_argument('--timeout', type=int)\n"
                "args = parser.parse_args()\nstrategy = DDPStrategy(timeout=7200)\n"
                "dist.init_process_group('nccl', timeout=args.timeout)\n"
            )
        },
        at=("train.py:9 error", "train.py:10 warning"),
    ),
    bad(
        "a field, and a helper of another file that passes its keywords on",
        {
            "train.py": "from groups import start\nimport torch.distributed as dist\n\n\nclass Settings:\n"
            "    def __init__(self):\n        self.limit = 30 * 60\n\n\n"
            "start('nccl', timeout=Settings().limit)\ndist.barrier()\n",
            "groups.py": "import torch.distributed as dist\n\n\ndef start(kind, **options):\n"
            "    dist.init_process_group(kind, **options)\n",
        },
        at="groups.py:5 error",
    ),
    good(
        "a field that holds a timedelta, for a helper of another file",
        {
            "train.py": "from datetime import timedelta\nfrom groups import start\nimport torch.distributed as dist\n\n"
            "limits = {'timeout': timedelta(seconds=1800)}\nstart('nccl', **limits)\ndist.barrier()\n",
            "groups.py": "import torch.distributed as dist\n\n\ndef start(kind, **options):\n"
            "    dist.init_process_group(kind, **options)\n",
        },
    ),
    good(
        "a timedelta",
        {
            "train.py": (
                "from datetime import timedelta\n\nfrom torch import distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            )
        },
    ),
    good(
        "calls that take seconds",
        {
            "train.py": (
                "import torch.distributed as dist\nfrom transformers import TrainingArguments\n\n"
                "args = TrainingArguments('out', ddp_timeout=7200)\ndist.monitored_barrier(timeout=30.0)\n"
            )
        },
    ),
    good(
        "a value from the caller",
        {
            "train.py": (
                "import torch.distributed as dist\n\n\ndef setup(timeout):\n"
                "    dist.init_process_group('nccl', timeout=timeout)\n"
            )
        },
    ),
)
