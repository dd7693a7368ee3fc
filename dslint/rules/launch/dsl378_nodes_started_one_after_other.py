"""**What.** A script starts the nodes of one run over `ssh`, one after the other: each command stays in the
foreground, and the next node is only started when it is over.

**Why it hurts.** The first agent waits for the others, which nobody starts before it ends: the rendezvous times out
(after 10 to 30 minutes), then the script goes on to the next node, which waits in its turn.

**Fix.** `ssh $host "..." &` for every node but the last, and `wait` at the end; or `pdsh`, `srun`, `deepspeed
--hostfile`, which start all nodes at once.

**When it stays quiet.** For one node, with `&`, `ssh -f` or `nohup ... &` in the remote command, and in
documentation, where each command is for another terminal.

**Evidence.** torch 2.13, run: an agent whose partner is missing waits in the rendezvous. `ssh` without `-f` ends with
its command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.around import LOOPS, enclosing, in_background
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL378",
    name="nodes-started-one-after-other",
    kind="launch",
    severity=Severity.WARNING,
    summary="The nodes of a run are started over `ssh` one after the other, and the first waits for the rest",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    no_experiment="what follows is that of a node whose partner is missing (DSL311)",
    needs=(r"/\bssh\b/",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes=2 --node_rank=%s --nproc_per_node=8 --master_addr=node1 --master_port=29500 train.py"
_LOOP = 'RANK=0\nfor host in node1 node2; do\n  ssh $host "cd $PWD && %s"%s\n  RANK=$((RANK+1))\ndone\n'
_READ = 'RANK=0\nwhile read host; do\n  ssh -n $host "%s"\n  ((RANK++))\ndone < hosts\n'

EXAMPLES = (
    bad("a loop", {"run.sh": _LOOP % (_RUN % "$RANK", ""), **_SCRIPT}, "run.sh:3"),
    bad("one line for each node", {
        "run.sh": f"ssh node1 '{_RUN % 0}'\nssh node2 '{_RUN % 1}'\n", **_SCRIPT,
    }, "run.sh:1"),
    bad("hosts of a file", {
        "run.sh": _READ % (_RUN % "$RANK"), **_SCRIPT,
    }, "run.sh:3"),
    good("at once", {"run.sh": _LOOP % (_RUN % "$RANK", " &") + "wait\n", **_SCRIPT}),
    good("the last one in the foreground", {
        "run.sh": f"ssh node1 '{_RUN % 0}' &\nssh node2 '{_RUN % 1}'\n", **_SCRIPT,
    }),
    good("in the background there", {"run.sh": _LOOP % (f"nohup {_RUN % '$RANK'} > log 2>&1 &", ""), **_SCRIPT}),
    good("ssh itself goes on", {"run.sh": (_LOOP % (_RUN % "$RANK", "")).replace("ssh ", "ssh -f "), **_SCRIPT}),
    good("one node", {"run.sh": "ssh node1 'torchrun --standalone --nproc_per_node=8 train.py'\n", **_SCRIPT}),
)  # fmt: skip

_AMPERSAND = re.compile(r"(?<![&>\d<])&(?![&>\d])")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Nodes over ``ssh`` of which the first one holds the script up."""
    del context
    if doc.in_docs or doc.is_rewritten:
        return
    remote = [command for command in doc.commands if _waits(doc, command)]
    for number, command in enumerate(remote):
        in_loop = any(node.type in LOOPS for node in enclosing(doc, command))
        is_followed = number + 1 < len(remote) and remote[number + 1].location != command.location
        if not (in_loop or is_followed):
            continue
        yield META.finding(
            command.location,
            "this node holds the script up while it waits for the others, which only start after it: all wait"
            " until the rendezvous times out",
            hint="Put `&` after each `ssh`, and `wait` at the end",
            facts={"nodes": command.nodes.get()},
        )
        return


def _waits(doc: LaunchDoc, command: LaunchCommand) -> bool:
    """The command is one node of several, started over ``ssh`` in the foreground."""
    words = next((w for w in command.wrappers if (w[0].text or "").rpartition("/")[2] == "ssh"), None)
    if words is None or command.nodes.get_or(1) < 2 or command.launcher not in ("torchrun", "accelerate"):
        return False
    if any(re.fullmatch(r"-[A-Za-z]*f[A-Za-z]*", word.text or "") for word in words):
        return False
    node = next((n for n in enclosing(doc, command) if n.type == "command"), None)
    return node is not None and not in_background(doc, command) and not _AMPERSAND.search(doc.shell.raw(node))
