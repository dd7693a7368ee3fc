"""**What.** The command leaves out an argument that the parser of the script requires: `required=True`, an operand, or
a field of a dataclass without a default.

**Why it hurts.** Every process stops with `error: the following arguments are required: --data_path`, after the job
was scheduled.

**Fix.** Pass the argument.

**When it stays quiet.** When some words of the command are not known (`$EXTRA_ARGS`, `"$@"`) and may hold it, when
the parser may get it from elsewhere (`set_defaults`, a file of arguments), when it is added under a condition, and
when a word is a variable that the file sets to nothing (`data=`), for its user to fill in, and when the command
passes the script nothing at all in documentation, or one or two options of which it requires none: there it shows how
the script is started, or these options.

**Evidence.** argparse of Python itself, and transformers' HfArgumentParser, which is built on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.parser.options import ARGUMENT_FILES
from dslint.model.plan.parser.places import set_to_nothing
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL420",
    name="required-argument-missing",
    kind="plan",
    severity=Severity.ERROR,
    summary="The command leaves out an argument that the script requires",
    references=("https://docs.python.org/3/library/argparse.html#required",),
    depends_on_run=True,
    needs=("refused",),
)

_SCRIPT = (
    'import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument("--data_path", required=True)\n'
    'parser.add_argument("--lr", type=float, default=0.1)\nargs = parser.parse_args()\n'
)
_FIELDS = (
    "from dataclasses import dataclass, field\n\nfrom transformers import HfArgumentParser\n\n\n"
    "@dataclass\nclass Arguments:\n    data_path: str\n    lr: float = 0.1\n"
    "    names: list[str] = field(default_factory=list)\n\n\n"
    "(arguments,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()\n"
)


def _run(words: str) -> str:
    return f"torchrun --nproc_per_node 2 train.py {words}\n"


EXAMPLES = (
    bad("a required option", {"run.sh": _run("--lr 0.2"), "train.py": _SCRIPT}, "run.sh:1 error"),
    bad("an operand", {
        "run.sh": _run("--lr 0.2"), "train.py": _SCRIPT.replace('"--data_path", required=True', '"config"'),
    }, "run.sh:1 error"),
    bad("a field without a default", {"run.sh": _run("--lr 0.2"), "train.py": _FIELDS}, "run.sh:1 error"),
    good("passed", {"run.sh": _run("--lr 0.2 --data_path d"), "train.py": _SCRIPT}),
    good("by the beginning of its name", {"run.sh": _run("--data d"), "train.py": _SCRIPT}),
    good("words that nobody knows", {"run.sh": _run("--lr 0.2 $EXTRA_ARGS"), "train.py": _SCRIPT}),
    good("the words of the caller", {"run.sh": _run('"$@"'), "train.py": _SCRIPT}),
    good("only under a condition", {
        "run.sh": _run("--lr 0.2"),
        "train.py": _SCRIPT.replace('parser.add_argument("--d', 'if TRAIN:\n    parser.add_argument("--d'),
    }),
    bad("a default that comes later does not make up for it", {
        "run.sh": _run("--lr 0.2"), "train.py": _SCRIPT.replace("args =", 'parser.set_defaults(data_path="d")\nargs ='),
    }, "run.sh:1 error"),
    bad("in documentation, which may show a part of the command only", {
        "README.md": f"```bash\n{_run('--lr 0.2 --out o')}```\n",
        "train.py": _SCRIPT.replace("parser.add", 'parser.add_argument("--out", required=True)\nparser.add', 1),
    }, "README.md:2 info"),
    good("an option that a documentation shows", {
        "README.md": f"```bash\n{_run('--lr 0.2')}```\n", "train.py": _SCRIPT,
    }),
    good("a variable to fill in", {
        "run.sh": f"data=  # a folder\n{_run('$data')}",
        "train.py": _SCRIPT.replace('"--data_path", required=True', '"data_path"'),
    }),
    good("it is asked for its options", {"run.sh": _run("--help"), "train.py": _SCRIPT}),
    good("the field is asked about", {"run.sh": _run("-h"), "train.py": _FIELDS}),
    good("how the script is started", {
        "README.md": "```bash\ntorchrun --nproc_per_node 2 train.py\n```\n", "train.py": _SCRIPT,
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Report what is missing, once for a command."""
    parser, given, command = plan.parser, plan.given, plan.command
    if parser is None or given is None or not parser.is_closed or plan.recipe is not None or command.script is None:
        return
    if not command.script_args and command.in_docs:
        return
    if any(word.text is not None and not word.text.strip() for word in command.script_args):
        return  # `\\ # why`: the rest of the command is cut off, which is another finding
    if any(p.kind in ("no-value", "explicit", "ambiguous") for p in given.problems):
        return
    if any(set_to_nothing(word, command) for word in (command.script, *command.script_args)):
        return  # ``data=``, which the user of the script fills in
    missing = [p.option for p in given.problems if p.kind == "missing" and p.option is not None]
    if not missing or _reads_file(plan) or (command.in_docs and _is_excerpt(plan)):
        return
    names = ", ".join(f"`{option.name}`" for option in missing)
    yield META.finding(
        command.script.location,
        f"`{plan.script}` requires {names}, which this command does not pass: every process stops with a usage error",
        hint=f"Pass {names}",
        related=tuple(option.location.labelled(f"`{option.name}` is required here") for option in missing[:4]),
        severity=Severity.INFO if command.in_docs else None,
        facts={"missing": missing[0].name, "operand": not missing[0].flags, "parser": parser.kind},
    )


def _is_excerpt(plan: RunPlan) -> bool:
    """One or two options are shown, and none of those that the script requires."""
    parser, given = plan.parser, plan.given
    if parser is None or given is None or not 0 < len(plan.command.script_flags) <= 2:
        return False
    return not any(option.required and option.dest in given.seen for option in parser.options)


def _reads_file(plan: RunPlan) -> bool:
    """``train.py args.json``: the fields of an HfArgumentParser stand in the file."""
    words = plan.command.script_args
    is_file = len(words) == 1 and (words[0].text or ".json").endswith(ARGUMENT_FILES)
    return plan.parser is not None and plan.parser.kind == "hf" and is_file
