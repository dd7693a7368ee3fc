"""**What.** `CUDA_VISIBLE_DEVICES` is set for `deepspeed --num_nodes 1`, without `--num_gpus`.

**Why it hurts.** DeepSpeed turns the variable into `--include localhost:...` and then refuses that beside
`--num_nodes`: `ValueError: Cannot specify num_nodes/gpus with include/exclude`. The message names an option that nobody
wrote.

**Fix.** Drop `--num_nodes 1`, which says what is the case anyway. The fix does.

**When it stays quiet.** With `--num_gpus`, `--include` or `--exclude` (DeepSpeed then ignores the variable: DSL322,
DSL324), with a hostfile, and when the variable is empty or not known.

**Evidence.** DeepSpeed 0.19.8 `runner.py::main`, run.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.command import Flag
from dslint.model.launch.devices import filters, number, visible_devices
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL323",
    name="deepspeed-cvd-num-nodes-1",
    kind="launch",
    severity=Severity.ERROR,
    summary="deepspeed --num_nodes 1 stops when CUDA_VISIBLE_DEVICES is set",
    fix="safe",
    references=("https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py",),
    needs=("--num_nodes",),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "one node, and the GPUs by the variable",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_nodes 1 --master_port 29600 train.py\n", **_SCRIPT},
        "run.sh:1 error",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 deepspeed --master_port 29600 train.py\n"},
    ),
    bad(
        "exported",
        {"run.sh": "export CUDA_VISIBLE_DEVICES=3\ndeepspeed \\\n  --num_nodes=1 \\\n  train.py\n", **_SCRIPT},
        "run.sh:3 error",
        {"run.sh": "export CUDA_VISIBLE_DEVICES=3\ndeepspeed \\\n  train.py\n"},
    ),
    bad(
        "in documentation",
        {"README.md": "```bash\nCUDA_VISIBLE_DEVICES=0 deepspeed --num_nodes 1 train.py\n```\n", **_SCRIPT},
        "README.md:2 warning",
    ),
    good("without the option", {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 deepspeed train.py\n", **_SCRIPT}),
    good("without the variable", {"run.sh": "deepspeed --num_nodes 1 train.py\n", **_SCRIPT}),
    good(
        "the variable is ignored, and the GPU is the same",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0 deepspeed --num_nodes 1 -H hosts train.py\n", **_SCRIPT},
    ),
    good("an empty variable", {"run.sh": "CUDA_VISIBLE_DEVICES= deepspeed --num_nodes 1 train.py\n", **_SCRIPT}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """``--num_nodes 1`` beside the variable."""
    del context
    for command in doc.commands:
        flag = command.launcher_flag("--num_nodes") if command.launcher == "deepspeed" else None
        if flag is None or number(flag) not in (0, 1) or command.hides_options:
            continue
        if command.launcher_flag("-H", "--hostfile", "--num_gpus", "--num_accelerators") is not None:
            continue
        visible = visible_devices(command)
        if visible is None or filters(command, "-i", "--include") or filters(command, "-e", "--exclude"):
            continue
        yield META.finding(
            flag.location,
            f"deepspeed turns `CUDA_VISIBLE_DEVICES={visible.text}` into `--include`, which excludes"
            f" `--num_nodes {number(flag)}`: `ValueError`",
            hint="Drop `--num_nodes`",
            related=visible.origins,
            fix=_fix(doc, flag),
            severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
            facts={"visible": visible.text},
        )


def _fix(doc: LaunchDoc, flag: Flag) -> Fix | None:
    """Drop the option with what joins it to the next word: a blank, or the end of its line."""
    text, span = doc.source.text, flag.location.span
    if flag.value is None or not text.startswith("--", span.start) or flag.value.origins:
        return None
    end = max(span.end, flag.value.location.span.end)
    while end < len(text) and text[end] in " \t":
        end += 1
    start, line = span.start, text.rfind("\n", 0, span.start) + 1
    if text.startswith("\\\n", end) and not text[line:start].strip():
        start, end = line, end + 2
    return Fix("Drop `--num_nodes`", (Edit(doc.source.path, Span(start, end), ""),))
