"""**What.** `torchrun`, or `accelerate launch` with `--num_machines`, runs on several nodes, and the address at which
they meet (`--master_addr`, `--rdzv_endpoint`, `--main_process_ip`) is `localhost`.

**Why it hurts.** Every node but the one that owns the store connects to itself: node 0 waits for the others, they wait
for a store at their own loopback, and all give up when the rendezvous times out.

**Fix.** Name the address of node 0, the same on every node.

**When it stays quiet.** For config files of `accelerate launch`, and its launchers of DeepSpeed. For node 0 of a static
rendezvous, whose own address it is; when the same file also starts node 0 at that address (several agents on one
machine, as in a test); for one node; and when options may be hidden.

**Evidence.** torch 2.13 on two hosts (network namespaces), each with a loopback of its own: both wait. accelerate hands
`--main_process_ip` to torchrun as the address (read in `utils/launch.py` of 1.15).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.meeting import launcher_is_open, meeting
from dslint.model.launch.rendezvous import owners_of_loopback, places, rendezvous
from dslint.model.launch.traits import NODES
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL312",
    name="torchrun-multinode-localhost",
    kind="launch",
    severity=Severity.WARNING,
    summary="Several nodes are told to meet at localhost",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=(NODES,),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes 2 --node_rank %s --master_addr %s --nproc_per_node 8 train.py\n"
_ACCELERATE = (
    "accelerate launch --multi_gpu --num_machines=2 --num_processes=16 --machine_rank=%s --main_process_ip=%s"
    " --main_process_port=9999 train.py\n"
)

EXAMPLES = (
    bad("node 1 connects to itself", {"node1.sh": _RUN % (1, "localhost"), **_SCRIPT}, "node1.sh:1"),
    bad("the same script on every node", {"run.sh": _RUN % ("$1", "127.0.0.1"), **_SCRIPT}, "run.sh:1"),
    bad(
        "c10d has no node 0",
        {
            "run.sh": "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500"
            " train.py\n",
            **_SCRIPT,
        },
        "run.sh:1",
    ),
    bad("accelerate", {"run.sh": _ACCELERATE % ("$R", "127.0.0.1"), **_SCRIPT}, "run.sh:1 warning"),
    bad(
        "accelerate, by variables",
        {
            "run.sh": "NODES=2\nHOST=localhost\n"
            + (_ACCELERATE % ("$1", "$HOST")).replace("machines=2", "machines=$NODES"),
            **_SCRIPT,
        },
        "run.sh:3",
    ),
    good("accelerate, machine 0", {"node0.sh": _ACCELERATE % (0, "127.0.0.1"), **_SCRIPT}),
    good(
        "accelerate, two launchers on one machine",
        {
            "test.sh": (_ACCELERATE % (0, "localhost")).replace(".py", ".py &") + _ACCELERATE % (1, "localhost"),
            **_SCRIPT,
        },
        select="DSL312",
    ),
    good("accelerate, an address", {"run.sh": _ACCELERATE % ("$R", "$HOST"), **_SCRIPT}),
    good("node 0", {"node0.sh": _RUN % (0, "localhost"), **_SCRIPT}),
    good(
        "node 0 by its own word, whatever c10d makes of it",
        {
            "README.md": "```bash\ntorchrun --nnodes=2 --node_rank=0 --rdzv_backend=c10d "
            "--rdzv_endpoint=localhost:29400 train.py\n```\n",
            **_SCRIPT,
        },
    ),
    good("an address", {"run.sh": _RUN % ("$1", "10.0.0.1"), **_SCRIPT}),
    good(
        "two agents on one machine",
        {"test.sh": _RUN.replace(".py\n", ".py &\n") % (0, "localhost") + _RUN % (1, "localhost"), **_SCRIPT},
        select="DSL312",
    ),
    bad(
        "each node by its own host",
        {
            "run.sh": "for i in 0 1; do\n  ssh node$i " + (_RUN % ("$i", "localhost")).strip() + " &\ndone\nwait\n",
            **_SCRIPT,
        },
        "run.sh:2 warning",
    ),
    good(
        "one node",
        {
            "run.sh": "torchrun --nnodes 1 --node_rank $R --master_addr localhost --nproc_per_node 8 train.py\n",
            **_SCRIPT,
        },
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Rendezvous of several nodes at a loopback."""
    del context
    yield from _of_accelerate(doc)
    owners = owners_of_loopback(doc.commands)
    for number, command in enumerate(doc.commands):
        how = rendezvous(command)
        if how is None or how.is_standalone or not how.meets_at_loopback or command.nodes.get_or(1) < 2:
            continue
        if how.node_rank.get_or("") == "0" or (how.is_static and how.node_rank.is_absent):
            continue
        if how.backend.is_unknown or how.host is None or owners - {number}:
            continue
        yield META.finding(
            how.host.location,
            f"{command.nodes.get()} nodes are told to meet at `{_host(how.host.value.raw if how.host.value else '')}`,"
            " which is each node itself: they time out",
            hint="Name the address of node 0",
            related=places(command, "--nnodes", "--node_rank", "--rdzv_backend"),
            severity=Severity.INFO if doc.in_docs else Severity.WARNING,
            facts={"nodes": command.nodes.get(), "backend": how.backend.get_or("")},
        )


def _of_accelerate(doc: LaunchDoc) -> Iterator[Finding]:
    """Machines of `accelerate launch` that torchrun brings together at a loopback."""
    commands = [command for command in doc.commands if _is_of_several(command)]
    told = [meeting(command) for command in commands]
    if any(how.node_rank.get_or("") == "0" for how in told):
        return  # the file starts machine 0 there: the others are launchers on the same one
    for command, how in zip(commands, told, strict=True):
        flag, address = command.launcher_flag("--main_process_ip"), how.address.get_or("")
        if flag is None or how.node_rank.is_absent or not (address == "localhost" or address.startswith("127.")):
            continue
        yield META.finding(
            flag.location,
            f"{command.nodes.get()} nodes are told to meet at `{address}`, which is each node itself: they time out",
            hint="Name the address of machine 0",
            related=places(command, "--num_machines", "--machine_rank"),
            severity=Severity.INFO if doc.in_docs else Severity.WARNING,
            facts={"nodes": command.nodes.get(), "backend": "static"},
        )


def _is_of_several(command: LaunchCommand) -> bool:
    if command.launcher != "accelerate" or launcher_is_open(command) or command.nodes.get_or(1) < 2:
        return False
    return command.launcher_flag("--config_file", "--use_deepspeed", "--rdzv_backend") is None


def _host(raw: str) -> str:
    return raw.strip("\"'`")
