"""**What.** `accelerate launch --use_deepspeed --num_machines 2` or more, started by DeepSpeed's own launcher (`pdsh`,
the default, or another one than `standard`), and no `--deepspeed_hostfile`. For a number that is in a config file
`accelerate-hostfile-missing` (DSL187) says the same.

**Why it hurts.** accelerate runs `deepspeed --hostfile None`, which says `Unable to find hostfile, will proceed
with training with local resources only` and continues with `num_processes // num_machines` processes on **one machine
only**. Two machines of 8 processes train as one of 8, with half of the global batch, and nothing fails. Where the
command is started on every machine, each of them trains a model of its own; with the launcher `nossh` all but machine
0 stop.

**Fix.** `--deepspeed_multinode_launcher standard` and the command on each machine with its `--machine_rank`, or
`--deepspeed_hostfile FILE` and the command on one machine.

**When it stays quiet.** With a hostfile, with the launcher `standard` or one that cannot be read; with `--config_file`,
which may say both; without `--machine_rank`, where accelerate stops (DSL345); for one machine or a number that nobody
knows. A `default_config.yaml` in the cache of accelerate may name a hostfile: the rule cannot see it, therefore it is
a warning.

**Evidence.** `prepare_deepspeed_cmd_env` of accelerate 1.15 and `runner.py` of DeepSpeed 0.19.8, run for `pdsh`,
`openmpi` and `nossh`; the same lines are in accelerate 0.12 to 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.rendezvous import places
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL355",
    name="accelerate-machines-without-hostfile",
    kind="launch",
    severity=Severity.WARNING,
    summary="`accelerate launch` with DeepSpeed on several machines runs on one only, for want of a hostfile",
    versions=("accelerate>=0.11",),
    references=(
        "https://github.com/huggingface/accelerate/issues/2601",
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/381",
    ),
    needs=("--num_machines",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = (
    "accelerate launch --use_deepspeed --num_machines 2 --num_processes 16 --machine_rank $RANK \\\n"
    "    --main_process_ip $HOST0 --main_process_port 29501 train.py\n"
)


def _with(option: str) -> dict[str, str]:
    return {"run.sh": _RUN.replace("--use_deepspeed", f"--use_deepspeed {option}"), **_SCRIPT}


EXAMPLES = (
    bad("the default launcher", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1 warning"),
    bad("a launcher by name", _with("--deepspeed_multinode_launcher pdsh"), "run.sh:1 warning"),
    bad("the number is elsewhere", {"run.sh": "NNODES=2\n" + _RUN.replace("2 ", "$NNODES "), **_SCRIPT},
        "run.sh:2 warning"),
    bad("in documentation", {"README.md": f"```bash\n{_RUN}```\n", **_SCRIPT}, "README.md:2 info"),
    good("torchrun on each machine", _with("--deepspeed_multinode_launcher standard")),
    good("a hostfile", _with("--deepspeed_hostfile hosts")),
    good("a launcher that nobody knows", _with("--deepspeed_multinode_launcher $LAUNCHER")),
    good("a file may say it", _with("--config_file $CONFIG")),
    good("options that are not known", _with("$DEEPSPEED_ARGS")),
    good("one machine", {"run.sh": _RUN.replace("2 ", "1 "), **_SCRIPT}),
    good("without DeepSpeed", {"run.sh": _RUN.replace("--use_deepspeed", "--multi_gpu"), **_SCRIPT}),
    good("a number that is not known", {"run.sh": _RUN.replace("2 ", "$SLURM_NNODES "), **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Machines, launcher, hostfile."""
    del context
    for command in doc.commands:
        machines = command.launcher_flag("--num_machines") if command.launcher == "accelerate" else None
        if machines is None or command.nodes.get_or(1) < 2 or command.may_hide_launcher_flags():
            continue
        starter = _starter(command)
        if not starter or command.launcher_flag("--machine_rank") is None:
            continue
        if command.launcher_flag("--deepspeed_hostfile", "--config_file") is not None:
            continue
        count = command.nodes.get()
        yield META.finding(
            machines.location,
            f"{count} machines, launcher `{starter}`, but no `--deepspeed_hostfile`: DeepSpeed"
            f" {_what_runs(command, count)} on one machine only",
            hint="Add `--deepspeed_multinode_launcher standard` and start the command on each machine, or name a"
            " hostfile",
            related=places(command, "--num_machines", "--deepspeed_multinode_launcher")[1:],
            severity=Severity.INFO if doc.in_docs else None,
            facts={"machines": count, "starter": starter},
        )


def _starter(command: LaunchCommand) -> str:
    """The launcher of DeepSpeed that reaches the machines; empty where torchrun starts, and where nobody knows."""
    if command.launcher_flag("--use_deepspeed") is None or command.launcher_flag("--cpu", "--use_cpu") is not None:
        return ""
    flag = command.launcher_flag("--deepspeed_multinode_launcher")
    text = flag.value.text or "" if flag is not None and flag.value is not None else "pdsh"
    return "" if text == "standard" else text


def _what_runs(command: LaunchCommand, machines: int) -> str:
    total = command.world_size.get_or(0)
    return f"starts {total // machines} of {total} processes" if total >= machines else "starts"
