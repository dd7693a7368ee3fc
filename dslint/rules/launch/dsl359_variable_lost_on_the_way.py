"""**What.** A script exports a variable that the processes of the run read (`NCCL_SOCKET_IFNAME`,
`CUDA_VISIBLE_DEVICES`, `PYTORCH_CUDA_ALLOC_CONF`), and starts the launcher where it does not arrive: in a container
(`docker run` without `-e`), on another machine (`ssh`), in a Ray job, or through `sudo`.

**Why it hurts.** The run continues as if the variable were not there: NCCL takes another interface and the ranks never
meet, or all GPUs are used. The line that sets it is there for all to read.

**Fix.** Hand it on: `docker run -e NCCL_SOCKET_IFNAME ...`, `ssh host NCCL_SOCKET_IFNAME=eth0 torchrun ...`,
`--runtime-env-json` of Ray.

**When it stays quiet.** For variables that are passed on by name, from a file or in the command itself, for those that
only print (`NCCL_DEBUG`), and when words of the program that is around cannot be read.

**Evidence.** The programs themselves, run with a recorder in the place of the launcher
(`tests/launchers/test_programs_around.py`); for containers and Ray, their manuals.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import is_for_every_process
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL359",
    name="variable-lost-on-the-way",
    kind="launch",
    severity=Severity.WARNING,
    summary="A variable is exported, and the launcher runs where it does not arrive",
    references=("https://docs.docker.com/reference/cli/docker/container/run/#env",),
    needs=("/NCCL_|CUDA_VISIBLE_DEVICES|PYTORCH_/",),
    no_experiment="it takes a container or another machine; tests run the programs that can be had",
)

_SCRIPT = {"train.py": "print()\n"}
_SET = "export NCCL_SOCKET_IFNAME=eth0\n"
_RUN = "torchrun --nproc_per_node 8 train.py\n"

EXAMPLES = (
    bad("a container", {"run.sh": f"{_SET}docker run --gpus all image {_RUN}", **_SCRIPT}, "run.sh:1 warning"),
    bad("another machine", {"run.sh": f"{_SET}ssh node1 {_RUN}", **_SCRIPT}, "run.sh:1 warning"),
    bad(
        "a job of Ray",
        {"run.sh": f"{_SET}ray job submit --working-dir . -- {_RUN}", **_SCRIPT},
        "run.sh:1 warning",
    ),
    good("passed on by name", {"run.sh": f"{_SET}docker run --gpus all -e NCCL_SOCKET_IFNAME image {_RUN}", **_SCRIPT}),
    good("in the command", {"run.sh": f"{_SET}ssh node1 'NCCL_SOCKET_IFNAME=eth0 {_RUN.strip()}'\n", **_SCRIPT}),
    good("a file of variables", {"run.sh": f"{_SET}docker run --env-file env image {_RUN}", **_SCRIPT}),
    good("the same machine", {"run.sh": f"{_SET}nohup {_RUN}", **_SCRIPT}),
    good("it only prints", {"run.sh": f"export NCCL_DEBUG=INFO\nssh node1 {_RUN}", **_SCRIPT}),
)

# They change what is printed, and nothing else.
_ONLY_PRINT = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Exported variables that a launcher does not find."""
    del context
    told: set[str] = set()
    for command in doc.commands:
        for name in sorted(command.withheld):
            if name not in told and name not in _ONLY_PRINT and is_for_every_process(name):
                told.add(name)
                yield from _finding(doc, command, name)


def _finding(doc: LaunchDoc, command: LaunchCommand, name: str) -> Iterator[Finding]:
    fact = command.withheld[name]
    words = [word.raw for group in command.wrappers for word in group]
    if name in command.env or not fact.origins or any(name in raw for raw in words):
        return
    program = command.wrappers[-1][0].raw if command.wrappers and command.wrappers[-1] else "the program around it"
    yield META.finding(
        fact.origins[0],
        f"`{name}` does not reach `{command.launcher}`: `{program}` starts it without the variables of this shell",
        hint=f"Pass `{name}` on to the command",
        related=(command.location.labelled("the launcher that does not find it"),),
        severity=Severity.INFO if doc.in_docs else None,
        facts={"variable": name},
    )
