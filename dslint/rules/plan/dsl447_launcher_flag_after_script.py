"""**What.** An option of the launcher comes after the script, and the script does not declare it:
`torchrun train.py --nproc_per_node 8`.

**Why it hurts.** Whatever comes after the script goes to the script. The launcher starts one process (or meets at its
default port), and that process stops with `unrecognized arguments: --nproc_per_node 8`. A script with
`parse_known_args` drops the option silently and trains on one GPU: a warning.

**Fix.** Put the option before the script. The fix does, where the launcher does not have it already.

**When it stays quiet.** When the script declares the option, when its parser may take more than its files show
(subparsers, hydra ...), for options that a variable of the shell holds, and, with `parse_known_args`, for options that
come before the script too or do not decide how many processes start.

**Evidence.** torch 2.13: `torchrun train.py --nproc_per_node 2` starts one process that gets both words; argparse.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Location, Span
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.misplaced import own_option
from dslint.model.plan.parser.options import ScriptParser
from dslint.model.plan.parser.places import is_placeholder, place_of
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL447",
    name="launcher-flag-after-script",
    kind="plan",
    severity=Severity.ERROR,
    summary="An option of the launcher comes after the script, which does not know it",
    fix="safe",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    depends_on_run=True,
    needs=("parser",),
)

_COUNTS = frozenset(["--nproc_per_node", "--nnodes", "--num_gpus", "--num_nodes", "--num_processes", "--num_machines"])
_SCRIPT = (
    "import argparse\n\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--lr", type=float)\nargs = parser.parse_args()\n'
)
_OPEN = _SCRIPT.replace("args = parser.parse_args()", "args, rest = parser.parse_known_args()")
_OWN = _SCRIPT.replace("args =", 'parser.add_argument("--master_port")\nparser.add_argument("--num_gpus")\nargs =')

EXAMPLES = (
    bad(
        "one process instead of eight",
        {"run.sh": "torchrun train.py --nproc_per_node 8 --lr 0.1\n", "train.py": _SCRIPT},
        "run.sh:1 error",
        {"run.sh": "torchrun --nproc_per_node 8 train.py --lr 0.1\n"},
    ),
    bad(
        "on a line of its own, at the end",
        {"run.sh": "deepspeed train.py \\\n  --lr 0.1 \\\n  --num_gpus=4\n", "train.py": _SCRIPT.replace(
            '"--lr"', '"--local_rank", type=int)\nparser.add_argument("--lr"')},
        "run.sh:3 error",
    ),
    bad(
        "in documentation",
        {"README.md": "```bash\naccelerate launch train.py --num_processes 4\n```\n", "train.py": _SCRIPT},
        "README.md:2 warning",
        {"README.md": "```bash\naccelerate launch --num_processes 4 train.py\n```\n"},
    ),
    bad(
        "the launcher has another value already",
        {"run.sh": "torchrun --nproc_per_node 2 train.py --nproc_per_node 8\n", "train.py": _SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "the script drops what it does not know",
        {"run.sh": "torchrun train.py --lr 0.1 --nproc_per_node 8\n", "train.py": _OPEN},
        "run.sh:1 warning",
        {"run.sh": "torchrun --nproc_per_node 8 train.py --lr 0.1\n"},
    ),
    good("before the script", {"run.sh": "torchrun --nproc_per_node 8 train.py --lr 0.1\n", "train.py": _SCRIPT}),
    good(
        "the script declares it",
        {"run.sh": "torchrun --nproc_per_node 8 train.py --master_port 29600 --num_gpus 8\n", "train.py": _OWN},
    ),
    good(
        "the script takes whatever comes",
        {"run.sh": "torchrun --nproc_per_node 8 train.py --max_restarts 2 --nproc_per_node 8\n", "train.py": _OPEN},
    ),
    good(
        "a script that nobody can read",
        {"run.sh": "torchrun --nproc_per_node 1 /opt/train.py --nnodes 2\n"},
    ),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Options of the launcher among those that the parser of the script refuses."""
    parser, given, command = plan.parser, plan.given, plan.command
    if parser is not None and parser.lets_pass:
        yield from _dropped(plan, parser)
    if parser is None or given is None or not parser.is_closed:
        return
    for problem in given.problems:
        word = problem.word
        option = own_option(command.launcher, word.text or "") if word is not None else ""
        if word is None or problem.kind != "unknown" or not option or is_placeholder(word):
            continue
        typed = (word.text or "").partition("=")[0]
        yield META.finding(
            place_of(word),
            f"`{typed}` comes after the script: {command.launcher} does not see it, and `{plan.script}` stops with"
            " `unrecognized arguments`",
            hint=f"Put `{typed}` before the script",
            related=_related(plan),
            fix=_fix(command, word, option),
            severity=Severity.WARNING if command.in_docs else None,
            facts={"flag": typed, "launcher": command.launcher},
        )


def _dropped(plan: RunPlan, parser: ScriptParser) -> Iterator[Finding]:
    """Numbers of processes that a script with ``parse_known_args`` drops."""
    command = plan.command
    if command.hides_options or command.may_hide_flags():
        return
    declared = {flag for option in parser.options for flag in option.flags}
    for word in command.script_args:
        option = own_option(command.launcher, word.text or "")
        typed = (word.text or "").partition("=")[0]
        if option not in _COUNTS or command.launcher_flag(option) is not None or is_placeholder(word):
            continue
        if any(flag.startswith(typed) for flag in declared):
            continue
        yield META.finding(
            place_of(word),
            f"`{typed}` comes after the script: {command.launcher} does not see it, and `{plan.script}` silently"
            " ignores"
            " it",
            hint=f"Put `{typed}` before the script",
            related=_related(plan),
            fix=_fix(command, word, option),
            severity=Severity.INFO if command.in_docs else Severity.WARNING,
            facts={"flag": typed, "launcher": command.launcher},
        )


def _related(plan: RunPlan) -> tuple[Location, ...]:
    places = []
    if plan.command.script is not None:
        places.append(plan.command.script.location.labelled("what follows goes to this script"))
    if plan.parser is not None and plan.parser.location is not None:
        places.append(plan.parser.location.labelled("the command line is parsed here"))
    return tuple(places)


def _fix(command: LaunchCommand, word: Word, option: str) -> Fix | None:
    """Take the words out with the blank before them, and put them in front of the script."""
    script, words = command.script, command.script_args
    if script is None or command.is_module or command.launcher_flag(option) is not None or word not in words:
        return None
    at = words.index(word)
    taken = [word]
    following = words[at + 1] if at + 1 < len(words) else None
    if "=" not in (word.text or "") and following is not None and not (following.text or "-").startswith("-"):
        taken.append(following)
    before = words[at - 1] if at else script
    placed = [script, before, *taken]
    if any(w.origins or w.location.path != script.location.path or w.text is None for w in placed):
        return None
    ends = [w.location.region for w in placed]
    if any(r.line != ends[0].line for r in ends) or any(w.raw != w.text for w in taken):
        return None
    path, start = script.location.path, script.location.span.start
    text = " ".join(w.raw for w in taken)
    gone = Span(before.location.span.end, taken[-1].location.span.end)
    edits = (Edit(path, Span(start, start), f"{text} "), Edit(path, gone, ""))
    return Fix(f"Put `{option}` before the script", edits)
