"""**What.** `deepspeed` gets `--include` or `--exclude` together with `--num_gpus` or `--num_nodes`, or both of the
former.

**Why it hurts.** It refuses them before anything starts: `ValueError: Cannot specify num_nodes/gpus with
include/exclude`, or `include_str and exclude_str are mutually exclusive`.

**Fix.** Keep one of them; `--include localhost:0,1` says hosts and GPUs at once.

**When it stays quiet.** For values that are empty or not known, and for `--num_gpus -1`, the default.

**Evidence.** DeepSpeed 0.19.8 `runner.py::main` and `parse_resource_filter`, run.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import Flag
from dslint.model.launch.devices import filters, number
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL324",
    name="deepspeed-include-num-conflict",
    kind="launch",
    severity=Severity.ERROR,
    summary="deepspeed refuses --include or --exclude beside --num_gpus or --num_nodes",
    references=("https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node",),
    needs=("-i", "--include", "-e", "--exclude"),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "a filter and a number",
        {"run.sh": "deepspeed --include localhost:0,1 --num_gpus 2 train.py\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "the number of nodes",
        {"run.sh": "N=2\ndeepspeed -H hosts --num_nodes=$N \\\n  --exclude worker-2 train.py\n", **_SCRIPT},
        "run.sh:3 error",
    ),
    bad(
        "both filters, in documentation",
        {"README.md": "```bash\ndeepspeed -H hosts -i a -e b train.py\n```\n", **_SCRIPT},
        "README.md:2 warning",
    ),
    good("one filter", {"run.sh": "deepspeed --include localhost:0,1 train.py\n", **_SCRIPT}),
    good("numbers", {"run.sh": "deepspeed -H hosts --num_nodes 2 --num_gpus 8 train.py\n", **_SCRIPT}),
    good("an empty filter", {"run.sh": 'deepspeed --include "" --num_gpus 8 train.py\n', **_SCRIPT}),
    good(
        "values that are not known",
        {"run.sh": "deepspeed --include $HOSTS --num_gpus 8 train.py\n", **_SCRIPT},
    ),
    good(
        "options of the script",
        {"run.sh": "deepspeed --include localhost:0 train.py --num_gpus 1\n", **_SCRIPT},
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Options of which DeepSpeed takes one."""
    del context
    for command in doc.commands:
        if command.launcher != "deepspeed":
            continue
        chosen = [f for f in (filters(command, "-i", "--include"), filters(command, "-e", "--exclude")) if f]
        numbers = (command.launcher_flag("--num_nodes"), command.launcher_flag("--num_gpus", "--num_accelerators"))
        given = [flag for flag in numbers if flag is not None and (number(flag) or -1) >= 0]
        if not chosen or len(chosen) + len(given) < 2:
            continue
        error = (
            "Cannot specify num_nodes/gpus with include/exclude"
            if given
            else "include_str and exclude_str are mutually exclusive"
        )
        names = " beside ".join(f"`{flag.name}`" for flag in (*chosen, *given))
        yield META.finding(
            chosen[-1].location,
            f"deepspeed refuses {names}: `ValueError: {error}`",
            hint="Keep one of them",
            related=tuple(flag.location.labelled(_text(flag)) for flag in (*chosen[:-1], *given)),
            severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
            facts={"options": " ".join(flag.name for flag in (*chosen, *given))},
        )


def _text(flag: Flag) -> str:
    return f"{flag.name} {flag.value.raw if flag.value is not None else ''}".strip()
