"""**What.** `accelerate launch --num_machines 2` or more, without `--machine_rank` and without a config file.

**Why it hurts.** Every machine must say which one it is. accelerate stops with `TypeError: int() argument must be a
string, ... not 'NoneType'`, which names nothing; without GPUs with `AssertionError: ... you need to specify the main
process IP`.

**Fix.** `--machine_rank $NODE_RANK` with the number of the machine, and `--main_process_ip`, `--main_process_port`.

**When it stays quiet.** With `--config_file` (the file may hold the rank), when words before the script cannot be read,
and for one machine. A `default_config.yaml` in the cache of accelerate may hold a rank too; the rule cannot see it.

**Evidence.** accelerate 1.15, `prepare_multi_gpu_env` and `prepare_deepspeed_cmd_env`: run with `--multi_gpu`,
`--use_deepspeed` (pdsh, standard, nossh), `--use_fsdp` and `--rdzv_backend c10d`: all of them stop.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL345",
    name="accelerate-multinode-rank",
    kind="launch",
    severity=Severity.ERROR,
    summary="`accelerate launch` on several machines is not told which one it is on",
    references=("https://huggingface.co/docs/accelerate/basic_tutorials/launch",),
    needs=("--num_machines",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "accelerate launch --multi_gpu --num_machines 2 --num_processes 16 train.py\n"

EXAMPLES = (
    bad("no rank", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1 error"),
    bad("a dynamic rendezvous needs it too", {
        "run.sh": _RUN.replace("train", "--rdzv_backend c10d --main_process_ip $H --main_process_port 29501 train"),
        **_SCRIPT,
    }, "run.sh:1 error"),
    good("the rank is said", {
        "run.sh": _RUN.replace("train", "--machine_rank $RANK --main_process_ip $H --main_process_port 29501 train"),
        **_SCRIPT,
    }),
    good("the config may say it", {"run.sh": _RUN.replace("--multi_gpu", "--config_file $CONFIG"), **_SCRIPT}),
    good("one machine", {"run.sh": _RUN.replace("2", "1"), **_SCRIPT}),
    good("words that cannot be read", {"run.sh": _RUN.replace("--multi_gpu", "$NODE_ARGS"), **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Commands for several machines that all machines would start alike."""
    del context
    for command in doc.commands:
        machines = command.launcher_flag("--num_machines") if command.launcher == "accelerate" else None
        if machines is None or command.may_hide_launcher_flags() or command.nodes.get_or(1) < 2:
            continue
        if command.launcher_flag("--machine_rank", "--config_file") is None:
            yield META.finding(
                machines.location,
                f"{command.nodes.get()} machines but no `--machine_rank`: accelerate stops with `TypeError`",
                hint="Add `--machine_rank`, `--main_process_ip` and `--main_process_port`",
                related=_origins(command),
                severity=Severity.WARNING if doc.in_docs else None,
                facts={"machines": command.nodes.get()},
            )


def _origins(command: LaunchCommand) -> tuple[Location, ...]:
    return tuple(place for place in command.nodes.origins[1:])
