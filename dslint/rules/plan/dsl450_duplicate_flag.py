"""**What.** A command passes the same option twice, with different values.

**Why it hurts.** The last one wins silently: the learning rate, the number of steps or of processes is not the
one that is in the line that was edited.

**Fix.** Delete the one that is not meant.

**When it stays quiet.** For equal values; for options that collect values (`action="append"`); when one of the two
comes from a variable (`$COMMON_ARGS --lr 1` overrides on purpose) or is not known; and when nobody can say what the
parser of the script does with an option that the Trainer of transformers does not have.

**Evidence.** argparse keeps the last value of an option whose action is `store`; observed with HfArgumentParser too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import Flag, LaunchCommand, canonical
from dslint.model.plan.runplan import RunPlan
from dslint.model.trainerargs import fields_ever
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL450",
    name="duplicate-flag",
    kind="plan",
    severity=Severity.WARNING,
    depends_on_run=True,
    summary="An option occurs twice in a command, with different values",
    references=("https://docs.python.org/3/library/argparse.html#action",),
)

_RUN = """\
torchrun --nproc_per_node 8 train.py --output_dir out \\
  --learning_rate 1e-5 \\
  --bf16 \\
  --learning_rate 2e-5
"""
_OWN = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int)
parser.add_argument("--tag", action="append")
print(parser.parse_args())
"""

EXAMPLES = (
    bad("two learning rates", {"run.sh": _RUN, "train.py": TRAINER}, "run.sh:2"),
    bad("two numbers of processes", {
        "run.sh": "torchrun --nproc_per_node 4 --nproc-per-node=8 train.py\n", "train.py": "print()\n",
    }, "run.sh:1"),
    bad("an option of the script", {"run.sh": "python train.py --size 1 --size 2\n", "train.py": _OWN}, "run.sh:1"),
    good("twice the same", {"run.sh": _RUN.replace("2e-5", "1e-5"), "train.py": TRAINER}),
    good("an option that collects", {"run.sh": "python train.py --tag a --tag b\n", "train.py": _OWN}),
    good("a parser that is not known", {"run.sh": "python other.py --size 1 --size 2\n", "other.py": "import fire\n"}),
    good("an override", {
        "run.sh": 'COMMON="--learning_rate 1e-5"\n' + _RUN.replace("--learning_rate 1e-5", "$COMMON"),
        "train.py": TRAINER,
    }),
    good("a choice", {"README.md": "```bash\ntorchrun --nproc_per_node={4,8} train.py\n```\n", "train.py": _OWN}),
    good("mounts and variables of a container", {
        "run.sh": "mpirun -np 8 -x A=1 -x B=2 python train.py --size 1\n", "train.py": _OWN,
    }),
)  # fmt: skip

_HF_TOOLS = ("swift", "llamafactory")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Pairs of the same option in one command."""
    command = plan.command
    for of_script, flags in ((False, command.launcher_flags), (True, command.script_flags)):
        named: dict[str, list[Flag]] = {}
        for flag in flags:
            named.setdefault(canonical(flag.name), []).append(flag)
        for name, twice in named.items():
            if len(twice) > 1 and (_last_wins(plan, name, twice) if of_script else _is_launchers(command, name)):
                yield from _differing(plan, twice)


def _is_launchers(command: LaunchCommand, name: str) -> bool:
    return command.launcher in ("torchrun", "deepspeed", "accelerate") and name.startswith("--") and name != "--env"


def _last_wins(plan: RunPlan, name: str, flags: Sequence[Flag]) -> bool:
    """The parser of the script is known to keep the last value."""
    declared = [o for o in plan.parser.options if flags[0].name in o.flags] if plan.parser is not None else []
    if declared:
        return all(option.action == "store" and not option.is_opaque for option in declared)
    is_hf = plan.command.launcher in _HF_TOOLS or plan.consumer.get_or("") == "hf"
    if plan.parser is not None:
        is_hf = plan.parser.kind in ("hf", "trl")
    return is_hf and name[2:] in fields_ever(("transformers", "TrainingArguments"))


def _differing(plan: RunPlan, flags: Sequence[Flag]) -> Iterator[Finding]:
    for first, second in pairwise(flags):
        one, two = _text(first), _text(second)
        if one is None or two is None or one == two or not _in_the_line(plan.command, first, second):
            continue
        yield META.finding(
            first.location,
            f"`{first.name} {one}` has no effect: `{second.name} {two}` comes after it, and the last one wins",
            hint="Delete the unintended one",
            related=(second.location.labelled("this one wins"),),
            severity=Severity.INFO if plan.command.in_docs else None,
        )


def _text(flag: Flag) -> str | None:
    return flag.value.text if flag.value is not None else None


def _in_the_line(command: LaunchCommand, *flags: Flag) -> bool:
    """All of them stand in the command itself, and none comes from a variable."""
    words = {word.location: word for word in command.words}
    found = [words.get(flag.location) for flag in flags]
    # One word of the text with braces, ``--config={a,b}``, is a choice that documentation offers.
    apart = len({flag.location for flag in flags}) == len(flags)
    return apart and all(w is not None and w.raw.startswith("-") for w in found)
