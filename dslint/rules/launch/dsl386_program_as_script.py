"""**What.** A launcher is given a program in place of a script: `torchrun ... python train.py`, `accelerate launch
bash run.sh`, `deepspeed torchrun train.py`.

**Why it hurts.** The launcher starts Python with the next word as its file: `can't open file 'python': No such file
or directory` in every process. A shell script is read as Python, and ends in a `SyntaxError`.

**Fix.** Leave `python` out, or `--no-python` (`--no_python` of accelerate and deepspeed) for a program.

**When it stays quiet.** With `--no-python`, and with `-m`.

**Evidence.** torchrun of torch 2.13 and accelerate 1.15, run: `can't open file '.../python'`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.launchers.interpreter import is_python
from dslint.model.launch.slurmjob import PER_NODE
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL386",
    name="program-as-script",
    kind="launch",
    severity=Severity.WARNING,
    summary="A launcher that starts Python is given a program in place of a script",
    fix="safe",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    no_experiment="the launcher says it at once",
    needs=PER_NODE,
)

_SCRIPT = {"train.py": "print()\n", "run.sh": "echo\n"}

EXAMPLES = (
    bad("python", {"go.sh": "torchrun --standalone --nproc_per_node=8 python train.py --lr 1\n", **_SCRIPT}, "go.sh:1",
        {"go.sh": "torchrun --standalone --nproc_per_node=8 train.py --lr 1\n"}),
    bad("accelerate", {"go.sh": "accelerate launch --num_processes 2 python3 -u train.py\n", **_SCRIPT}, "go.sh:1"),
    bad("a shell script", {"go.sh": "torchrun --standalone --nproc_per_node=8 run.sh\n", **_SCRIPT}, "go.sh:1"),
    bad("a shell", {"go.sh": "deepspeed --num_gpus 8 bash run.sh\n", **_SCRIPT}, "go.sh:1"),
    bad("another launcher", {"go.sh": "accelerate launch torchrun --nproc_per_node 8 train.py", **_SCRIPT}, "go.sh:1"),
    good("the script", {"go.sh": "torchrun --standalone --nproc_per_node=8 train.py\n", **_SCRIPT}),
    good("a program on purpose", {
        "go.sh": "torchrun --standalone --nproc_per_node=8 --no-python python train.py\n", **_SCRIPT,
    }),
    good("a module", {"go.sh": "torchrun --standalone --nproc_per_node=8 -m train\n", **_SCRIPT}),
)  # fmt: skip

_PROGRAMS = frozenset({"bash", "sh", "zsh", "torchrun", "deepspeed", "accelerate", "srun", "mpirun"})
_FREES = ("--no_python", "-m", "--module")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Scripts that are programs."""
    del context
    for command in doc.commands:
        name = _program(command)
        if not name or command.location.path != doc.source.path:
            continue
        assert command.script is not None
        script = name.endswith(".sh")
        yield META.finding(
            command.script.location,
            f"`{command.launcher}` starts Python by itself, with `{name}` as the script"
            + (": a shell script is no Python" if script else ", and there is no such file"),
            hint="Write `--no-python` before it, if a program is meant" if not is_python(name) else f"Delete `{name}`",
            fix=_fix(doc, command, name),
            severity=Severity.INFO if doc.in_docs else None,
            facts={"launcher": command.launcher},
        )


def _program(command: LaunchCommand) -> str:
    """The name of a program, or of a shell script, that stands in place of the script."""
    text = (command.script.text or "") if command.script is not None else ""
    if command.launcher not in PER_NODE or command.is_module or command.launcher_flag(*_FREES) is not None:
        return ""
    return text if is_python(text) or text in _PROGRAMS or text.endswith(".sh") else ""


def _fix(doc: LaunchDoc, command: LaunchCommand, name: str) -> Fix | None:
    """Without the word ``python``, where a script follows it."""
    after = command.script_args[0] if command.script_args else None
    if command.script is None or not is_python(name) or after is None or (after.text or "-").startswith("-"):
        return None
    span = Span(command.script.location.span.start, after.location.span.start)
    between = doc.source.text[span.start : span.end]
    return Fix(f"Delete `{name}`", (Edit(doc.source.path, span, ""),)) if between.split() == [name] else None
