"""Only the first character of a number is read from a variable of the launcher.

**What.** `int(os.environ["SLURM_TASKS_PER_NODE"][0])`, `os.environ["SLURM_NNODES"][0]`,
`int(os.environ["WORLD_SIZE"][:1])`, also through variables and helpers.

**Why it hurts.** From 10 on it is another number: 16 tasks become 1, and 10 machines 1. The group is made for fewer
processes than there are, and the others fail or wait until the timeout. `SLURM_TASKS_PER_NODE` also has the forms
`8(x2)` and `8,4`: with uneven machines the first number is not that of all.

**Fix.** `int(os.environ["SLURM_NNODES"])`; `SLURM_NTASKS` for the number of all processes.

**When it stays quiet.** What is before a comma or bracket (`.split("(")[0]`), lists of GPUs, of names and of nodes,
and characters that are only compared.

**Evidence.** By Slurm's manual of `sbatch` (`SLURM_TASKS_PER_NODE`); `int("16"[0])` is 1. Read in the code of SwAV.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL743",
    name="first-digit-of-number",
    kind="script",
    severity=Severity.WARNING,
    summary="only the first character of a number of the launcher is read: wrong from 10 on",
    markers=(r"environ|getenv", r"\[\s*0?\s*:?\s*[01]\s*\]", r"torch|deepspeed|accelerat|lightning|horovod"),
    references=("https://slurm.schedmd.com/sbatch.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES",),
    no_experiment="Python alone decides what the first character is; the tasks of a node need Slurm",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each first character that becomes a value."""
    for found in run.happenings("takes-first-digit"):
        event = found.event
        if _is_asked(event):
            continue
        name = (event.arguments["name"].constants or ("",))[0]
        what = f"`{name}`" if name else "a number of the launcher"
        yield run.finding(
            META,
            event.module,
            event.node,
            f"only the first character of {what} is read: 16 becomes 1",
            hint="Take `SLURM_NTASKS` for the number of processes, or what is before the first `(` or `,`"
            if "TASKS_PER" in str(name)
            else "Convert the whole text: `int(...)` without the index",
            facts={"variable": str(name)},
        )


def _is_asked(event: Event) -> bool:
    """Return whether the character is only compared, or asked what it is."""
    parent = event.module.parents.get(event.node)
    return isinstance(parent, ast.Compare | ast.Attribute | ast.BoolOp | ast.If | ast.IfExp | ast.Assert)


_SCRIPT = """\
import os

import torch.distributed as dist

%s
dist.init_process_group("nccl", rank=int(os.environ["SLURM_PROCID"]), world_size=world)
"""
_HELPER = """\
def number(name):
    return int(os.environ.get(name, "1")[0])


world = number("SLURM_NNODES") * 4"""

EXAMPLES = (
    bad("tasks of a node", {
        "train.py": _SCRIPT % 'world = int(os.environ["SLURM_NNODES"]) * int(os.environ["SLURM_TASKS_PER_NODE"][0])',
    }, "train.py:5 warning"),
    bad("the number of nodes", {"train.py": _SCRIPT % 'world = 8 * int(os.environ["SLURM_NNODES"][0])'}, "train.py:5"),
    bad("the number of ranks, as a part", {"train.py": _SCRIPT % 'world = int(os.getenv("WORLD_SIZE")[:1])'},
        "train.py:5"),
    bad("a variable", {
        "train.py": _SCRIPT % 'text = os.environ["SLURM_NTASKS"]\nfirst = text[0]\nworld = int(first)',
    }, "train.py:6"),
    bad("a helper", {"train.py": _SCRIPT % _HELPER}, "train.py:6"),
    good("the whole number", {"train.py": _SCRIPT % 'world = int(os.environ["SLURM_NTASKS"])'}),
    good("before a bracket", {
        "train.py": _SCRIPT % 'world = 4 * int(os.environ["SLURM_TASKS_PER_NODE"].split("(")[0])',
    }),
    good("a list of devices", {"train.py": _SCRIPT % 'print(os.environ["SLURM_JOB_GPUS"][0])\n'
                               'world = int(os.environ["SLURM_NTASKS"])'}),
    good("a test of the form", {
        "train.py": _SCRIPT % 'assert os.environ["SLURM_NTASKS"][0] != "-"\nworld = int(os.environ["SLURM_NTASKS"])',
    }),
)  # fmt: skip
