"""**What.** `deepspeed --no_ssh` without `--node_rank`; or with a hostfile and without `--master_addr`.

**Why it hurts.** With `--no_ssh` the command is started on every node by hand and must be told which one it is:
`AssertionError: Launching training without ssh, but --node_rank is not set correctly`. And without an address the
launcher asks the first host for it, over ssh.

**Fix.** `--node_rank $NODE_RANK --master_addr $HOST0`, with the variables of the scheduler.

**When it stays quiet.** Without `--no_ssh`, and when words before the script cannot be read.

**Evidence.** `deepspeed/launcher/runner.py`, `main`, run with DeepSpeed 0.19.8: without hostfile, with one of two
hosts, with a rank of 2 for two hosts.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL327",
    name="deepspeed-no-ssh-node-rank",
    kind="launch",
    severity=Severity.ERROR,
    summary="`deepspeed --no_ssh` is not told which node it is on",
    versions=("deepspeed>=0.14.5",),
    references=("https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py",),
    needs=("--no_ssh",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "deepspeed --hostfile hosts --no_ssh train.py\n"

EXAMPLES = (
    bad("no rank", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1 error"),
    bad("no rank, one node", {"run.sh": "deepspeed --no_ssh --num_gpus 8 train.py\n", **_SCRIPT}, "run.sh:1 error"),
    bad("no address", {"run.sh": _RUN.replace("--no_ssh", "--no_ssh --node_rank $RANK"), **_SCRIPT},
        "run.sh:1 warning"),
    good("both", {
        "run.sh": _RUN.replace("--no_ssh", "--no_ssh --node_rank $RANK --master_addr $HOST0"), **_SCRIPT,
    }),
    good("over ssh", {"run.sh": _RUN.replace("--no_ssh ", ""), **_SCRIPT}),
    good("words that cannot be read", {"run.sh": _RUN.replace("--no_ssh", "--no_ssh $NODE_ARGS"), **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Commands that are started by hand on every node."""
    del context
    for command in doc.commands:
        flag = command.launcher_flag("--no_ssh") if command.launcher == "deepspeed" else None
        if flag is None or command.may_hide_launcher_flags():
            continue
        if command.launcher_flag("--node_rank") is None:
            yield META.finding(
                flag.location,
                "`--no_ssh` without `--node_rank`: the command does not know its node and stops with `AssertionError`",
                hint="Add `--node_rank` with the number of the node",
                severity=Severity.WARNING if doc.in_docs else None,
                facts={"missing": "node_rank"},
            )
        elif command.launcher_flag("-H", "--hostfile") and command.launcher_flag("--master_addr") is None:
            yield META.finding(
                flag.location,
                "`--no_ssh` without `--master_addr`: the launcher asks the first host for its address, over ssh",
                hint="Add `--master_addr` with the address of the first node",
                severity=Severity.INFO if doc.in_docs else Severity.WARNING,
                facts={"missing": "master_addr"},
            )
