"""**What.** The address at which the processes of a run meet is the name of no machine: it holds a port
(`--master_addr 10.0.0.1:29500`), a scheme (`http://node0`, `tcp://node0`), or several hosts (`"node0 node1"`).

**Why it hurts.** Every process tries to resolve the whole text as one name, again and again, and gives up when the
rendezvous times out, which takes minutes: the log says that the client socket has timed out, as if the other node
were not there.

**Fix.** The name or number of one host: `--master_addr 10.0.0.1 --master_port 29500`.

**When it stays quiet.** For addresses that are not known, IPv6, documentation, `torchrun --standalone`, and plain
`python` whose script may read the variable in a way of its own.

**Evidence.** torch 2.13, run: `TCPStore("127.0.0.1:29500", 29777, 1, True)`, and the same with `http://127.0.0.1` and
with two names, end in `DistNetworkError: The client socket has timed out`, in the process that holds the store, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.meeting import meeting
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL456",
    name="meeting-address-is-no-host",
    kind="plan",
    severity=Severity.WARNING,
    summary="The address at which a run meets holds a port, a URL or several hosts",
    depends_on_run=True,
    no_experiment="one process shows it, without a second arm: the store is the page's evidence",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes 2 --node_rank $R --master_addr %s --master_port 29500 --nproc_per_node 8 train.py\n"
_C10D = "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint %s --nproc_per_node 8 train.py\n"
_ACCELERATE = (
    "accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank $R --main_process_ip %s"
    " --main_process_port 29500 train.py\n"
)

EXAMPLES = (
    bad("a port", {"run.sh": _RUN % "10.0.0.1:29500", **_SCRIPT}, "run.sh:1"),
    bad("a variable with a port", {"run.sh": "HEAD=node0:29500\n" + _RUN % "$HEAD", **_SCRIPT}, "run.sh:2"),
    bad("a URL", {"run.sh": _C10D % "tcp://node0:29400", **_SCRIPT}, "run.sh:1"),
    bad("several hosts", {"run.sh": 'HOSTS="node0 node1"\n' + _RUN % '"$HOSTS"', **_SCRIPT}, "run.sh:2"),
    bad("a list", {"run.sh": "HOSTS=node0,node1\n" + _ACCELERATE % "$HOSTS", **_SCRIPT}, "run.sh:2"),
    bad("deepspeed", {
        "run.sh": "deepspeed --num_gpus 8 --master_addr localhost:29500 train.py\n", **_SCRIPT,
    }, "run.sh:1"),
    bad("the variable of the group", {
        "job.sh": "#!/bin/bash\n#SBATCH --ntasks=8\nexport MASTER_ADDR=http://node0 MASTER_PORT=29500\n"
        "srun python train.py\n", **_SCRIPT,
    }, "job.sh:3"),
    good("a host", {"run.sh": _RUN % "10.0.0.1", **_SCRIPT}),
    good("an end point", {"run.sh": _C10D % "node0.cluster:29400", **_SCRIPT}),
    good("IPv6", {"run.sh": _C10D % '"[fd00::1]:29400"', **_SCRIPT}),
    good("IPv6 without brackets", {"run.sh": _RUN % "fd00:1::2", **_SCRIPT}),
    good("not known", {"run.sh": _RUN % "$(cat head)", **_SCRIPT}),
    good("documentation", {"README.md": f"```bash\n{_RUN % '<ip>:<port>'}```\n", **_SCRIPT}),
)  # fmt: skip

_LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "srun", "mpirun", "swift", "llamafactory")
_PORT = re.compile(r"[^:\s]+:\d+")
_LIST = re.compile(r"\S+(?:\s+|,)\S.*", re.DOTALL)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The address beside what a name may hold."""
    command = plan.command
    if command.launcher not in _LAUNCHERS or command.in_docs:
        return
    how = meeting(command)
    address = how.address.get_or("").strip()
    if how.is_standalone or not how.address.is_known or not how.address.origins:
        return
    what = _wrong(address)
    if what:
        place, *others = how.address.origins
        yield META.finding(
            place,
            f"`{address}` is the name of no host, since it holds {what}: every process looks for it until it times out",
            hint="Write the name or number of one host; the port has an option of its own",
            related=tuple(others),
            facts={"address": address},
        )


def _wrong(address: str) -> str:
    """What an address holds that no name of a host does; ``""`` for one that may be a name."""
    if "://" in address:
        return "a scheme"
    if _PORT.fullmatch(address):
        return "a port"
    return "several hosts" if _LIST.fullmatch(address) else ""
