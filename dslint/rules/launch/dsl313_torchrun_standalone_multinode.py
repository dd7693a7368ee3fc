"""**What.** `torchrun --standalone` with `--nnodes` above 1.

**Why it hurts.** `--standalone` replaces the address of the rendezvous by `localhost` with a free port, whatever else
is given. The agent then waits for a second node that cannot come, silently, until the rendezvous times out.

**Fix.** Drop `--standalone` and give the nodes an address, or drop `--nnodes`. The fix drops `--standalone` where an
address is there already.

**When it stays quiet.** With `--nnodes 1`, with a number that is not known, and with a range whose lower end is 1.

**Evidence.** torch 2.13: the agents wait until they are killed.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.command import Flag
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.rendezvous import Rendezvous, places, rendezvous
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL313",
    name="torchrun-standalone-multinode",
    kind="launch",
    severity=Severity.ERROR,
    summary="torchrun --standalone waits for a second node that cannot come",
    fix="safe",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html#single-node-multi-worker",),
    needs=("--standalone",),
)

_SCRIPT = {"train.py": "print()\n"}
_RIGHT = "torchrun --nnodes 2 --node_rank $RANK --master_addr $HOST0 train.py\n"

EXAMPLES = (
    bad("two nodes", {"run.sh": "torchrun --standalone --nnodes 2 train.py\n", **_SCRIPT}, "run.sh:1 error"),
    bad(
        "the address is overwritten",
        {"run.sh": _RIGHT.replace("--nnodes", "--standalone --nnodes"), **_SCRIPT},
        "run.sh:1 error",
        {"run.sh": _RIGHT},
    ),
    bad(
        "the number is a variable of the script",
        {"README.md": "```bash\nexport N=2\ntorchrun --nnodes=$N --standalone train.py\n```\n", **_SCRIPT},
        "README.md:3 warning",
    ),
    good("one node", {"run.sh": "torchrun --standalone --nnodes=1 --nproc_per_node 8 train.py\n", **_SCRIPT}),
    good("a range from 1", {"run.sh": "torchrun --standalone --nnodes=1:4 --nproc_per_node 8 train.py\n", **_SCRIPT}),
    good("not known", {"run.sh": "torchrun --standalone --nnodes=$NNODES --nproc_per_node 8 train.py\n", **_SCRIPT}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """``--standalone`` for more than one node."""
    del context
    for command in doc.commands:
        how = rendezvous(command)
        if how is None or how.standalone is None or command.nodes.get_or(1) < 2:
            continue
        flag = how.standalone
        yield META.finding(
            flag.location,
            f"`--standalone` meets at `localhost`, but {command.nodes.get()} nodes are asked for: the agent waits until"
            " the timeout",
            hint="Drop `--standalone`" + ("" if _fix(doc, flag, how) else " and give all nodes one address"),
            related=places(command, "--nnodes", "--master_addr", "--rdzv_endpoint"),
            fix=_fix(doc, flag, how),
            severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
            facts={"nodes": command.nodes.get()},
        )


def _fix(doc: LaunchDoc, flag: Flag, how: Rendezvous) -> Fix | None:
    complete = not how.master_addr.is_absent and not how.node_rank.is_absent
    span, text = flag.location.span, doc.source.text
    if not (complete or not how.endpoint.is_absent) or not text.startswith(flag.name, span.start):
        return None
    end = span.end
    while end < len(text) and text[end] in " \t":
        end += 1
    return Fix("Drop `--standalone`", (Edit(doc.source.path, Span(span.start, end), ""),))
