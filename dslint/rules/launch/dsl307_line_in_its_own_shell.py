"""**What.** A recipe of make or just, or a notebook, changes the folder or sets a variable on one line (`cd train`,
`export MASTER_PORT=29501`, `conda activate env`, `!cd train`), and starts a run on another. Each of these lines has a
shell of its own, which ends with the line.

**Why it hurts.** The run starts in the old folder, without the variable, or with another Python: it does not find its
script or its config, or it trains with settings that nobody chose.

**Fix.** Write both on one line (`cd train && torchrun ...`); in a notebook `%cd train` and `%env NAME=value`; in a
Makefile `.ONESHELL:`, or `export NAME = value` outside of the recipe.

**When it stays quiet.** With `.ONESHELL`, in recipes of just that begin with `#!`, and for lines that go on with `&&`,
`;` or a backslash.

**Evidence.** GNU make 4.3, "Recipe Execution": each line is executed by a new shell; the manual of just, "Changing
the working directory in a recipe"; IPython, "the effect of `!cd` is lost".
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.lonelylines import lonely_lines
from dslint.model.launch.traits import REWRITTEN
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL307",
    name="line-in-its-own-shell",
    kind="launch",
    severity=Severity.WARNING,
    summary="A line of a recipe or notebook changes a shell that ends with it, and the run starts on another line",
    references=("https://www.gnu.org/software/make/manual/html_node/Execution.html",),
    no_experiment="the manuals of make, just and IPython say so; a test runs make",
    needs=(REWRITTEN,),
)

_RUN = "torchrun --nproc_per_node 8 train.py"
_SCRIPT = {"train.py": "print()\n"}
_CELL = """\
{"cells": [{"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [], "source": [%s]}],
 "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
"""

EXAMPLES = (
    bad("cd in a Makefile", {"Makefile": f"train:\n\tcd part\n\t{_RUN}\n", **_SCRIPT}, "Makefile:2 warning"),
    bad("a variable in a Makefile", {
        "Makefile": f"train:\n\t@export NCCL_SOCKET_IFNAME=eth0\n\t{_RUN}\n", **_SCRIPT,
    }, "Makefile:2 warning"),
    bad("just", {"justfile": f"train:\n    export NCCL_IB_HCA=mlx5\n    {_RUN}\n", **_SCRIPT}, "justfile:2 warning"),
    good("on one line", {"Makefile": f"train:\n\tcd part && {_RUN}\n", "part/train.py": "print()\n"}),
    good("one shell", {"Makefile": f".ONESHELL:\ntrain:\n\tcd part\n\t{_RUN}\n", "part/train.py": "print()\n"}),
    good("another recipe", {"Makefile": f"data:\n\tcd part\n\ntrain:\n\t{_RUN}\n", **_SCRIPT}),
    good("a continued line", {
        "Makefile": f"train:\n\texport NCCL_IB_HCA=mlx5 && \\\n\t{_RUN}\n", **_SCRIPT,
    }),
    good("a recipe that is a script", {
        "justfile": f"train:\n    #!/bin/bash\n    export NCCL_IB_HCA=mlx5\n    {_RUN}\n", **_SCRIPT,
    }),
    good("the magic of IPython", {"a.ipynb": _CELL % f'"%cd part\\n", "!{_RUN}"', "part/train.py": "print()\n"}),
    good("a shell script", {"run.sh": f"cd part\n{_RUN}\n", "part/train.py": "print()\n"}),
)  # fmt: skip


def check(doc: LaunchDoc, _context: Context) -> Iterator[Finding]:
    """Lines that change nothing for the run below them."""
    told: set[Span] = set()
    for command in doc.commands:
        for span in lonely_lines(doc, command):
            if span in told:
                continue
            told.add(span)
            what = doc.source.text[span.start : span.end].strip()
            yield META.finding(
                doc.source.location(span),
                f"`{_short(what)}` has no effect on the run below it: each line here has a shell of its own",
                hint="Write both on one line, with `&&`",
                related=(command.location.labelled("the run that it is meant for"),),
            )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 40
