"""**What.** `accelerate launch` without `--config_file` and without the flags that decide how it runs.

**Why it hurts.** accelerate then reads `~/.cache/huggingface/accelerate/default_config.yaml` of whoever starts the job:
on another machine the same line runs with other processes, another precision, with or without DeepSpeed.

**Fix.** Commit a config and name it with `--config_file`, or say `--num_processes` and `--mixed_precision`.

**When it stays quiet.** With a config file, with `--num_processes`, in documentation, and when words before the script
cannot be read.

**Evidence.** accelerate 1.15, `_validate_launch_command`: the default file is read when it exists.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL354",
    name="accelerate-implicit-config",
    kind="launch",
    severity=Severity.INFO,
    summary="`accelerate launch` takes its settings from the home directory of whoever starts it",
    references=("https://huggingface.co/docs/accelerate/basic_tutorials/launch",),
    optional=True,
    no_experiment="what it does is in a file of the user's home directory",
    needs=("accelerate",),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("nothing is said", {"run.sh": "accelerate launch train.py\n", **_SCRIPT}, "run.sh:1"),
    good("a config", {"run.sh": "accelerate launch --config_file a.yaml train.py\n", **_SCRIPT,
                      "a.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n"
                      "num_machines: 1\nnum_processes: 8\n"}),
    good("the flags say it", {"run.sh": "accelerate launch --multi_gpu --num_processes 8 train.py\n", **_SCRIPT}),
    good("an example in documentation", {"README.md": "```bash\naccelerate launch train.py\n```\n", **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Commands that leave everything to the default config."""
    del context
    if doc.in_docs:
        return
    for command in doc.commands:
        if command.launcher != "accelerate" or command.may_hide_launcher_flags():
            continue
        if command.launcher_flag("--config_file", "--num_processes", "--cpu", "--tpu") is None:
            yield META.finding(
                command.location,
                "`accelerate launch` without `--config_file` reads each user's own `default_config.yaml`: runs differ",
                hint="Commit a config and name it with `--config_file`",
            )
