"""**What.** `--module` together with `--no_python` for deepspeed, torchrun or accelerate; or `deepspeed -m package`,
which torchrun and python know and deepspeed does not.

**Why it hurts.** `--module` means `python -m`, `--no_python` means that no Python is put in front: the launcher stops
with a ValueError. `deepspeed -m` ends with `unrecognized arguments: -m`.

**Fix.** Keep `--module` for a dotted name, `--no_python` for a program; `--module` instead of `-m` for deepspeed.

**When it stays quiet.** With one of the two, and for options after the script.

**Evidence.** DeepSpeed 0.19.8, torch 2.13 and accelerate 1.15 run with both: `ValueError`, and exit code 2 for `-m`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.flagedits import without_flag
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL329",
    name="module-with-no-python",
    kind="launch",
    severity=Severity.ERROR,
    summary="`--module` and `--no_python` exclude each other; deepspeed has no `-m`",
    fix="safe",
    references=("https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/launch.py",),
    needs=("--module", "-m"),
)

EXAMPLES = (
    bad("both", {"run.sh": "deepspeed --module --no_python pkg.train --lr 1\n"}, "run.sh:1",
        {"run.sh": "deepspeed --module pkg.train --lr 1\n"}),
    bad("both, under torchrun", {"run.sh": "torchrun --nproc_per_node 8 --no-python -m pkg.train\n"}, "run.sh:1",
        {"run.sh": "torchrun --nproc_per_node 8 -m pkg.train\n"}),
    bad("the option of python", {"run.sh": "deepspeed --num_gpus 8 -m pkg.train --lr 1\n"}, "run.sh:1",
        {"run.sh": "deepspeed --num_gpus 8 --module pkg.train --lr 1\n"}),
    good("a module", {"run.sh": "deepspeed --num_gpus 8 --module pkg.train\ntorchrun -m pkg.train\n"}),
    good("a program", {"run.sh": "deepspeed --num_gpus 8 --no_python ./train --lr 1\n"}),
    good("an option of the script", {
        "run.sh": "deepspeed --num_gpus 8 train.py -m large --no_python\n", "train.py": "print()\n",
    }),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Options that say two things about what is started."""
    del context
    for command in doc.commands:
        if command.launcher not in ("deepspeed", "torchrun", "accelerate"):
            continue
        module, program = command.launcher_flag("--module", "-m"), command.launcher_flag("--no_python")
        if module is None:
            continue
        if program is not None:
            yield _both(doc, command, module, program)
        elif command.launcher == "deepspeed" and module.name == "-m":
            yield _short(doc, command, module)


def _both(doc: LaunchDoc, command: LaunchCommand, module: Flag, program: Flag) -> Finding:
    name = command.script.text if command.script is not None else None
    dotted = name is not None and "/" not in name and not name.endswith(".py")
    return META.finding(
        program.location,
        f"`{program.name}` and `{module.name}` exclude each other: {command.program} stops with a ValueError",
        hint="Keep `--module` for a dotted name, `--no_python` for a program",
        related=(module.location.labelled("the other option"),),
        fix=without_flag(command, program) if dotted else None,
        severity=Severity.WARNING if doc.in_docs else None,
        facts={"launcher": command.launcher, "options": "module no_python"},
    )


def _short(doc: LaunchDoc, command: LaunchCommand, flag: Flag) -> Finding:
    span = flag.location.span
    stands = doc.source.text[span.start : span.end] == "-m" and not doc.source.path.endswith(".ipynb")
    return META.finding(
        flag.location,
        "`deepspeed` has no option `-m`: it stops with `unrecognized arguments: -m`",
        hint="Write `--module`",
        fix=Fix("Write `--module`", (Edit(command.location.path, span, "--module"),), uncovers=True)
        if stands
        else None,
        severity=Severity.WARNING if doc.in_docs else None,
        facts={"launcher": command.launcher, "options": "m"},
    )
