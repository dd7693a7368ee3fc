"""**What.** `deepspeed --launcher X` with an X that DeepSpeed has no backend for; or with openmpi, mpich, impi or
mvapich beside `--include`, `--exclude`, `--num_nodes` or `--num_gpus`, which these backends refuse.

**Why it hurts.** On several nodes DeepSpeed stops with `NotImplementedError: Unknown launcher X`; on one node the
option is ignored and the mistake waits for the day the hostfile grows. `pytorch` is the usual mix-up: it is the value
of the *script's* `--launcher` in OpenMMLab projects and belongs after the script.

MPI backends start on every slot of the hostfile: `ValueError: openmpi backend does not support worker
include/exclusion`, or `... limiting num nodes/gpus`.

**Fix.** Use one of pdsh, openmpi, mpich, impi, slurm, mvapich, in any case, or move the option after the script.
With an MPI backend write the hosts and slots into the hostfile, or use pdsh or slurm.

Where one node is certain or no hostfile is named it is a warning: DeepSpeed then ignores the option.

**When it stays quiet.** For a `--launcher` after the script, with `--no_ssh` (every node starts its own processes and
no backend is used), and when the value is not readable.

**Evidence.** DeepSpeed 0.19.8, `deepspeed/launcher/runner.py`, `main`: the value is lower-cased and compared only when
more than one node takes part or `--force_multi` is given; observed with every value on one node, with a hostfile of one
and of two hosts, with `--num_nodes 1` and with `--no_ssh`. `validate_args` of the backends in
`deepspeed/launcher/multinode_runner.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL328",
    name="deepspeed-launcher-value",
    kind="launch",
    severity=Severity.ERROR,
    summary="`deepspeed --launcher` names no backend of DeepSpeed",
    references=("https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py",),
    needs=("--launcher",),
)

_MPI = ("openmpi", "mpich", "impi", "mvapich")
_BACKENDS = ("pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich")
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "the value of OpenMMLab's script option given to DeepSpeed",
        {"run.sh": "deepspeed --hostfile hosts --num_nodes 2 --launcher pytorch train.py\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "nobody says how many nodes",
        {"run.sh": "deepspeed --launcher=torch train.py\n", **_SCRIPT},
        "run.sh:1 warning",
    ),
    bad(
        "one node of the hostfile",
        {"run.sh": "deepspeed --hostfile hosts --num_nodes 1 --launcher pytorch train.py\n", **_SCRIPT},
        "run.sh:1 warning",
    ),
    bad(
        "an MPI backend cannot choose",
        {"run.sh": "deepspeed -H hosts --launcher openmpi --include a:0,1@b:0,1 train.py\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "nor limit",
        {"run.sh": "deepspeed -H hosts --num_gpus 4 --launcher mpich train.py\n", **_SCRIPT},
        "run.sh:1 warning",
    ),
    good(
        "pdsh and slurm can, MPI without a limit",
        {
            "run.sh": "deepspeed -H hosts --include a@b train.py\n"
            "deepspeed -H hosts --launcher slurm --num_nodes 2 train.py\n"
            "deepspeed -H hosts --launcher openmpi train.py\n",
            **_SCRIPT,
        },
    ),
    good("a backend, in capitals", {"run.sh": "deepspeed -H hosts --launcher OpenMPI train.py\n", **_SCRIPT}),
    good("an option of the script", {"run.sh": "deepspeed --num_gpus 8 train.py --launcher pytorch\n", **_SCRIPT}),
    good(
        "a value that is not known, and no backend in use",
        {
            "run.sh": "deepspeed -H hosts --launcher $LAUNCHER train.py\n"
            "deepspeed -H hosts --no_ssh --node_rank 0 --master_addr a --launcher pytorch train.py\n",
            **_SCRIPT,
        },
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Backends that DeepSpeed does not know."""
    del context
    for command in doc.commands:
        flag = command.launcher_flag("--launcher") if command.launcher == "deepspeed" else None
        if flag is None or flag.value is None or not flag.value.text or command.launcher_flag("--no_ssh") is not None:
            continue
        value = flag.value.text
        if value.lower() in _MPI:
            yield from _limited(doc, command, flag)
        if value.lower() in _BACKENDS or not value.replace("_", "").replace("-", "").isalnum():
            continue
        place = "put it after the script if it is meant for the script" if value in ("pytorch", "none") else ""
        several = _several_nodes(command)
        yield META.finding(
            flag.value.location,
            f"`--launcher {value}` is not a DeepSpeed backend: on several nodes it stops with `Unknown launcher"
            f" {value.lower()}`",
            hint=f"Use one of DeepSpeed's backends ({', '.join(_BACKENDS)})" + (f", or {place}" if place else ""),
            severity=Severity.ERROR if several and not doc.in_docs else Severity.WARNING,
            facts={"launcher": value, "several_nodes": several},
        )


def _limited(doc: LaunchDoc, command: LaunchCommand, backend: Flag) -> Iterator[Finding]:
    """MPI backends take all slots of the hostfile."""
    chosen = command.launcher_flag("-i", "--include", "-e", "--exclude")
    flag = chosen or command.launcher_flag("--num_nodes", "--num_gpus", "--num_accelerators")
    if flag is None or backend.value is None:
        return
    yield META.finding(
        flag.location,
        f"the backend {backend.value.text} uses every slot of the hostfile: with `{flag.name}` it stops with"
        " `ValueError`",
        hint="Write the hosts and slots into the hostfile, or use pdsh",
        related=(backend.location.labelled("the backend"),),
        severity=Severity.ERROR if _several_nodes(command, 1) and not doc.in_docs else Severity.WARNING,
        facts={"case": "openmpi-with-include" if chosen else "mpich-with-num-gpus"},
    )


def _several_nodes(command: LaunchCommand, of_hostfile: int = 2) -> bool:
    """``--num_nodes 1`` keeps one host of the hostfile, and DeepSpeed then starts the processes itself."""
    if command.launcher_flag("--force_multi") is not None:
        return True
    named = command.launcher_flag("-H", "--hostfile") is not None
    return command.nodes.get_or(of_hostfile if named else 1) > 1
