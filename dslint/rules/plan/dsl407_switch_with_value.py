"""**What.** The command gives a value to an option that takes none: `--bf16 True` where the script declares
`add_argument("--bf16", action="store_true")`.

**Why it hurts.** argparse takes the value for a word of its own: `error: unrecognized arguments: True`, or `ignored
explicit argument 'True'` for `--bf16=True`, on every process, after the job was scheduled. `--bf16 False` would not
switch it off either.

**Fix.** Write the switch alone, or leave it out for `False`. The fix drops the value where it says what the switch
does.

**When it stays quiet.** When the parser may take more than its file shows, when an operand of the script may take the
word, and for HfArgumentParser, whose switches do take `True` and `False`.

**Evidence.** argparse of Python itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.command import Word
from dslint.model.plan.parser.options import Option
from dslint.model.plan.parser.places import is_cut_off, is_placeholder, place_of, previous
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL407",
    name="switch-with-value",
    kind="plan",
    severity=Severity.ERROR,
    summary="The command gives a value to a switch of the script that takes none",
    fix="safe",
    references=("https://docs.python.org/3/library/argparse.html#action",),
    depends_on_run=True,
    needs=("refused",),
)

_SCRIPT = (
    'import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument("--bf16", action="store_true")\n'
    'parser.add_argument("--lr", type=float)\nargs = parser.parse_args()\n'
)
_RUN = "torchrun --nproc_per_node 2 train.py --bf16 --lr 0.1\n"

EXAMPLES = (
    bad("True after a switch", {"run.sh": _RUN.replace("bf16", "bf16 True"), "train.py": _SCRIPT}, "run.sh:1 error",
        fixed={"run.sh": _RUN}),
    bad("glued to it", {"run.sh": _RUN.replace("bf16", "bf16=True"), "train.py": _SCRIPT}, "run.sh:1 error",
        fixed={"run.sh": _RUN}),
    bad("False after a switch", {"run.sh": _RUN.replace("bf16", "bf16 False"), "train.py": _SCRIPT}, "run.sh:1 error"),
    good("alone", {"run.sh": _RUN, "train.py": _SCRIPT}),
    good("an option that takes a value", {
        "run.sh": _RUN.replace("bf16", "bf16 True"),
        "train.py": _SCRIPT.replace('action="store_true"', "type=str"),
    }),
    good("an operand takes the word", {
        "run.sh": _RUN.replace("bf16", "bf16 True"),
        "train.py": _SCRIPT.replace("args =", 'parser.add_argument("config")\nargs ='),
    }),
    good("a field of a dataclass", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --output_dir out --bf16 True\n", "train.py": TRAINER,
    }),
    good("unknown words pass", {
        "run.sh": _RUN.replace("bf16", "bf16 True"), "train.py": _SCRIPT.replace("parse_args", "parse_known_args"),
    }),
)  # fmt: skip

_TRUE = ("true", "1", "yes", "on")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Report every value behind a switch."""
    parser, given = plan.parser, plan.given
    if parser is None or given is None or not parser.is_closed:
        return
    for problem in given.problems:
        word = problem.word
        if word is None or word.text is None or is_placeholder(word) or is_cut_off(word, plan.command):
            continue
        if problem.kind == "explicit":
            name, _, value = word.text.partition("=")
            option = parser.option(name)
            if option is not None and option.action in ("store_true", "store_false"):
                yield _finding(plan, option, word, value, word.raw.find("="))
        elif problem.kind == "leftover":
            before = previous(word, plan.command)
            option = parser.option(before.text) if before is not None and before.text is not None else None
            if before is not None and option is not None and option.action in ("store_true", "store_false"):
                yield _finding(plan, option, word, word.text, -1, before)


def _finding(plan: RunPlan, option: Option, word: Word, value: str, cut: int, before: Word | None = None) -> Finding:
    says = value.lower() in _TRUE if option.action == "store_true" else value.lower() in ("false", "0", "no", "off")
    error = f"ignored explicit argument '{value}'" if before is None else f"unrecognized arguments: {value}"
    return META.finding(
        place_of(word),
        f"`{option.name}` takes no value, but gets `{value}`: every process stops with `error: {error}`",
        hint=f"Write `{option.name}` alone"
        if says
        else f"Leave `{option.name}` out, or make it an option with a value",
        related=(option.location.labelled(f"`{option.name}` is declared as a switch"),),
        fix=_fix(option, word, cut, before) if says else None,
        severity=Severity.WARNING if plan.command.in_docs else None,
        facts={"flag": option.name, "value": value, "glued": before is None},
    )


def _fix(option: Option, word: Word, cut: int, before: Word | None) -> Fix | None:
    """Delete the value with the blanks or the sign in front of it."""
    span, path = word.location.span, word.location.path
    if word.origins or path.endswith(".ipynb"):
        return None
    start = span.start + cut if before is None else before.location.span.end
    if before is not None and (before.origins or before.location.path != path or not start < span.start < start + 8):
        return None
    return Fix(f"Write `{option.name}` alone", (Edit(path, Span(start, span.end), ""),))
