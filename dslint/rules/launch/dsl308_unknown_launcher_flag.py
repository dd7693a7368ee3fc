"""**What.** A launcher gets an option that it does not have: `torchrun --num_gpus 8 train.py`.

**Why it hurts.** It stops at once with `error: unrecognized arguments: --num_gpus`, after the job has waited in the
queue.

**Fix.** The hint names the option that this launcher has for the same thing, or the one that is spelled most like it.
An option of the script has to come after the script.

**When it stays quiet.** For options of any release in use (without a stated version: of any release from torch 1.9,
deepspeed 0.3 or accelerate 0.1 on), for beginnings of options where the launcher takes them, when words before the
option cannot be read, and in commands without a script.

**Evidence.** The parsers of the released launchers; torch 2.13, deepspeed 0.19.8 and accelerate 1.15 run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context, VersionFact
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.launchers.releases import accepts, has_table, library_of, nearest, since, until
from dslint.model.launch.misplaced import counterpart
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL308",
    name="unknown-launcher-flag",
    kind="launch",
    severity=Severity.ERROR,
    summary="A launcher gets an option that it does not have",
    references=(
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        "https://huggingface.co/docs/accelerate/package_reference/cli",
    ),
    depends_on_run=True,
    needs=("torchrun", "deepspeed", "accelerate"),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "an option of deepspeed",
        {"run.sh": "torchrun --num_gpus 8 train.py\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "an option of torchrun, in documentation",
        {"README.md": "```bash\naccelerate launch --nproc_per_node=8 train.py\n```\n", **_SCRIPT},
        "README.md:2 warning",
    ),
    bad(
        "hyphens, which deepspeed does not know",
        {"run.sh": "deepspeed --num-gpus 8 train.py\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "an option that a later release brings",
        {"run.sh": "torchrun --numa-binding node train.py\n", "requirements.txt": "torch==2.1.0\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    good(
        "both spellings, and an abbreviation",
        {
            "run.sh": "torchrun --nproc-per-node 8 --nnodes=1 train.py\ndeepspeed --num_gpu 8 train.py\n",
            "requirements.txt": "torch==2.13.0\ndeepspeed==0.19.8\n",
            **_SCRIPT,
        },
    ),
    good(
        "options of the script",
        {"run.sh": "torchrun --nproc_per_node 8 train.py --num_gpus 8\npip install deepspeed -U\n", **_SCRIPT},
    ),
    good(
        "words that cannot be read",
        {"run.sh": "torchrun $ARGS --num_gpus 8 train.py\n$LAUNCHER --num_gpus 8 train.py\n", **_SCRIPT},
    ),
    good(
        "a wrapper that takes the name of a launcher",
        {"run.sh": 'bash run_bench.sh "deepspeed" --model a\n', **_SCRIPT},
    ),
    good("a placeholder", {"README.md": "```bash\ntorchrun --<options> train.py\n```\n", **_SCRIPT}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The first option of each command that its launcher does not have."""
    for command in doc.commands:
        if not has_table(command.launcher) or command.program == "ds" or not _has_script(command):
            continue
        library = library_of(command.launcher)
        version = context.deepspeed if library == "deepspeed" else context.libraries.get(library) or VersionFact()
        for flag in command.launcher_flags:
            typed = _typed(doc, flag)
            if typed in ("-m", "") or command.hides_options:
                continue
            if accepts(command.launcher, typed, version, command.program) == "no":
                yield _finding(doc, command, flag, typed, version)
                break


def _has_script(command: LaunchCommand) -> bool:
    return command.script is not None and bool(command.script.text)


def _typed(doc: LaunchDoc, flag: Flag) -> str:
    """The option as it stands in the file; a short one with its value glued on is no long one."""
    match = re.match(r"--?[\w.-]+", doc.source.text[flag.location.span.start : flag.location.span.end])
    typed = match[0] if match is not None else flag.name
    return flag.name if not typed.startswith("--") else typed


def _finding(doc: LaunchDoc, command: LaunchCommand, flag: Flag, typed: str, version: VersionFact) -> Finding:
    launcher, program = command.launcher, command.program
    name = "torch.distributed.launch" if program.endswith("distributed.launch") else launcher
    meant = counterpart(launcher, typed) or nearest(launcher, typed, version, program)
    if meant and accepts(launcher, meant, version, program) == "no":
        meant = ""
    begun, ended = since(launcher, typed, program), until(launcher, typed, program)
    library = library_of(launcher)
    span = f" ({library} {begun} adds it)" if begun else f" ({library} {ended} removed it)" if ended else ""
    stated = (version.origin.labelled(f"{library} {version.specifier}"),) if version.origin is not None else ()
    return META.finding(
        flag.location,
        f"{name} has no option `{typed}`{span}: it stops with `unrecognized arguments`",
        hint=f"Write `{meant}`" if meant else "Put it after the script, if the script has it",
        related=stated if span else (),
        severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
        facts={"flag": typed, "launcher": launcher, "meant": meant},
    )
