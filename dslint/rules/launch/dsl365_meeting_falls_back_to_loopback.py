"""**What.** The address at which several nodes meet is looked up by a command, with the node itself as the answer
where that fails: `HOST=$(scontrol show hostnames ... | head -n 1 || echo localhost)`, `HOST=$(hostname -i || echo
127.0.0.1)`. Or it is `${MASTER_ADDR:-localhost}` in a launch that says how many nodes it has, more than one.

**Why it hurts.** The look-up fails on all nodes alike, in a container that has no `scontrol` above all. Then every
node is told to meet at itself: each waits for the others until the rendezvous times out, and nothing says why.

**Fix.** Look the address up outside of the container and hand it in, or stop where there is none: `:
"${MASTER_ADDR:?}"`.

**When it stays quiet.** For one node, also where the number of nodes falls back to 1 together with the address and
nothing else says several; where the launcher is told another address.

**Evidence.** torch 2.13 on two hosts, each with a loopback of its own (DSL312): both wait. bash: the pipe fails, and
`||` answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location, Span
from dslint.model.context import Context
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL365",
    name="meeting-falls-back-to-loopback",
    kind="launch",
    severity=Severity.WARNING,
    summary="Where the look-up of the meeting point fails, every node meets at itself",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    depends_on_run=True,
    no_experiment="what follows is the experiment of DSL312",
    needs=(r"/\|\|\s*echo\s+[\"']?(?:localhost|127\.0\.0\.1)/", r"/:-(?:localhost|127\.0\.0\.1)\}/"),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = 'torchrun --nnodes=%s --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint="$HOST:29500" \\\n  train.py\n'
_LOOKED_UP = 'HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1 || echo localhost)\n'

EXAMPLES = (
    bad("scontrol may be missing", {
        "node.sh": 'set -euo pipefail\nNNODES=${SLURM_NNODES:-1}\n' + _LOOKED_UP + _RUN % '"$NNODES"', **_SCRIPT,
    }, "node.sh:3 warning"),
    bad("and four nodes are stated", {"node.sh": _LOOKED_UP + _RUN % 4, **_SCRIPT}, "node.sh:1 warning"),
    bad("another look-up, in an export", {
        "node.sh": "export HOST=`getent hosts head-node || echo 127.0.0.1`\n" + _RUN % "$WORLD_SIZE", **_SCRIPT,
    }, "node.sh:1 warning"),
    bad("a default for several nodes", {
        "node.sh": "HOST=${MASTER_ADDR:-localhost}\n" + _RUN % 2, **_SCRIPT,
    }, "node.sh:1 warning"),
    bad("a default in the command", {
        "node.sh": (_RUN % 2).replace("$HOST:", "${MASTER_ADDR:-127.0.0.1}:"), **_SCRIPT,
    }, "node.sh:1 warning"),
    bad("the address of torchrun", {
        "node.sh": _LOOKED_UP + "torchrun --nnodes $N --node_rank $R --master_addr $HOST --nproc_per_node 8 train.py\n",
        **_SCRIPT,
    }, "node.sh:1 warning"),
    good("both fall back to one node", {
        "node.sh": "HOST=${MASTER_ADDR:-localhost}\n" + _RUN % "${NNODES:-1}", **_SCRIPT,
    }),
    good("one node", {"node.sh": _LOOKED_UP + _RUN % 1, **_SCRIPT}),
    good("it stops", {"node.sh": _LOOKED_UP.replace("|| echo localhost", "|| exit 1") + _RUN % 4, **_SCRIPT}),
    good("another address", {"node.sh": _LOOKED_UP + (_RUN % 4).replace("$HOST", "head-node"), **_SCRIPT}),
)  # fmt: skip

_LOOPBACK = r"[\"']?(?:localhost|127\.0\.0\.1)\b"
_SETS = r"^[ \t]*(?:export[ \t]+)?NAME="
_ANSWERS = _SETS + r"(?:\"?\$\(|`)[^\n]*\|\|\s*echo\s+" + _LOOPBACK + r"[^\n]*$"
_DEFAULTS = _SETS + r"\"?\$\{\w+:?-" + _LOOPBACK + r"\}\"?[ \t]*$"
_DEFAULT_HERE = re.compile(r"\$\{\w+:?-" + _LOOPBACK + r"\}")
_OPTIONS = ("--rdzv_endpoint", "--master_addr", "--main_process_ip")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Addresses of several nodes that may be the node itself."""
    del context
    told: set[Span] = set()
    for command in doc.commands:
        flag = command.launcher_flag(*_OPTIONS)
        if flag is None or flag.value is None or command.hides_options or _is_one_node(command):
            continue
        place = _falls_back(doc, flag, is_several=command.nodes.get_or(0) > 1)
        if place is None or place.span in told:
            continue
        told.add(place.span)
        yield META.finding(
            place,
            "if this look-up fails, every node meets at itself, and all time out",
            hint='Pass the address in, or stop without it: `: "${MASTER_ADDR:?}"`',
            related=(flag.location.labelled("the meeting point"),),
            severity=Severity.INFO if doc.in_docs else None,
        )


def _is_one_node(command: LaunchCommand) -> bool:
    """One node is stated, and not as what a variable falls back to; or nobody speaks of several."""
    flag = command.launcher_flag("--nnodes", "--num_machines", "--num_nodes")
    is_written = flag is None or flag.value is None or "$" not in flag.value.raw
    return is_written and (command.nodes.get_or(2) == 1 or command.nodes.is_absent)


def _falls_back(doc: LaunchDoc, flag: Flag, *, is_several: bool) -> Location | None:
    """Where the address of an option answers with the node itself."""
    assert flag.value is not None
    raw = flag.value.raw
    if is_several and _DEFAULT_HERE.search(raw):
        return flag.location
    name = re.search(r"\$\{?(\w+)", raw)
    if name is None or doc.shell.anchor is not None:
        return None
    patterns = (_ANSWERS, _DEFAULTS) if is_several else (_ANSWERS,)
    for pattern in patterns:
        found = re.search(pattern.replace("NAME", name[1]), doc.shell.text, re.MULTILINE)
        if found is not None:
            begin = found.start() + len(found[0]) - len(found[0].lstrip())
            return doc.source.location(Span(begin + doc.shell.base, found.end() + doc.shell.base))
    return None
