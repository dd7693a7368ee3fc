"""**What.** A script makes a process group over NCCL and never calls `dist.destroy_process_group()`.

**Why it hurts.** Little: torch warns at the end (`process group has NOT been destroyed before we destruct
ProcessGroupNCCL`), and a rank that ends while another still talks to it may turn a finished job into a failed one.

**Fix.** Call `dist.destroy_process_group()` at the end, in a `finally:`.

**When it stays quiet.** The rule is off unless it is selected. Modules that are not started as a program; other
backends; `destroy_process_group` anywhere in the program; DeepSpeed, accelerate and Lightning, which make and end the
group themselves.

**Evidence.** Read from torch 2.13 (`ProcessGroupNCCL` warns in its destructor), not run: it takes NCCL. Over gloo 2 of
about 70 runs without the call ended with an error after their work was done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import backend_words
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL241",
    name="process-group-not-destroyed",
    kind="script",
    severity=Severity.INFO,
    summary="The process group is never destroyed",
    markers=(r"distributed",),
    references=("https://pytorch.org/docs/stable/distributed.html#shutdown",),
    optional=True,
    no_experiment="the warning comes from the destructor of the NCCL group",
    depends_on_run=True,
)
_TORCH = "torch.distributed.init_process_group"
# A word of code that ends the group, or an import of a library that does.
_ENDS = re.compile(
    r"destroy_process_group|(?:^\s*(?:import|from)\s+|import\w*\(\s*[\"'])"
    r"(?:deepspeed|accelerate|lightning|pytorch_lightning)\b",
    re.MULTILINE,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first process group of a program, when nothing that it loads ends one."""
    if run.has("destroys-group") or any(m.search(_ENDS) for m in run.machine.program.modules()):
        return
    for entry, tree in run.trees():
        made = next((e for e in events(tree) if _is_nccl(run, e)), None) if entry.kind == "script" else None
        if made is not None:
            yield run.finding(
                META,
                made.module,
                made.node,
                "the process group is never destroyed: torch warns at the end, and a rank that ends early may fail"
                " another",
                hint="Call `dist.destroy_process_group()` at the end of the program",
            )
            return


def _is_nccl(run: RunQuery, event: Event) -> bool:
    return event.api == _TORCH and backend_words(run, event) == ("nccl",)


_MAIN = "if __name__ == '__main__':\n    dist.init_process_group('nccl')\n    train()\n"

EXAMPLES = (
    bad(
        "a program", {"train.py": "import torch.distributed as dist\n\n" + _MAIN}, at="train.py:4 info", select="DSL241"
    ),
    bad(
        "a program whose helper makes the group",
        {
            "train.py": "import torch.distributed as dist\nfrom groups import start\n\nstart('nccl')\ndist.barrier()\n",
            "groups.py": "import torch.distributed as dist\n\n\ndef start(kind):\n    dist.init_process_group(kind)\n",
        },
        at="groups.py:5 info",
        select="DSL241",
    ),
    good(
        "a helper of the program ends it",
        {
            "train.py": "import torch.distributed as dist\nfrom groups import stop\n\n"
            "dist.init_process_group('nccl')\nstop()\n",
            "groups.py": "import torch.distributed as dist\n\n\ndef stop():\n    dist.destroy_process_group()\n",
        },
        select="DSL241",
    ),
    good(
        "it ends the group",
        {"train.py": "import torch.distributed as dist\n\n" + _MAIN + "    dist.destroy_process_group()\n"},
        select="DSL241",
    ),
    good(
        "a module",
        {"groups.py": "import torch.distributed as dist\n\n\ndef start():\n    dist.init_process_group('nccl')\n"},
        select="DSL241",
    ),
)
