"""**What.** A value on the command line that the parser of the script refuses: no member of `choices`, no number where
`type=int` wants one, no value at all where one is needed, or the beginning of an option that fits two.

**Why it hurts.** Every process stops with `error: argument --dtype: invalid choice: 'bfloat16'`, `invalid int value:
'3.5'` or `expected one argument`, after the job was scheduled.

**Fix.** Write a value that the declaration takes.

**When it stays quiet.** When the value is not known (`$LR`), the converter or the choices are computed or belong to
the script, and when the parser is one of a library; for metavariables of documentation (`--vendor VENDOR`,
`--port your_port`) and for choices that it lists (`--task train/eval`, `--task [train, eval]`). A value
that is not written (`--model_path \\`) and a variable that the file sets to nothing (`api_key=""`) are how scripts are
published to be filled in: advice. A warning stays where a value is written that turns out empty, as `${paths[$name]}`
with a name that the array does not have.

**Evidence.** argparse of Python itself, and transformers' HfArgumentParser, which is built on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.plan.parser.options import Option, Problem
from dslint.model.plan.parser.places import is_bracketed, is_cut_off, is_placeholder, place_of, set_to_nothing
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL419",
    name="script-argument-value",
    kind="plan",
    severity=Severity.ERROR,
    summary="A value on the command line that the parser of the script refuses",
    references=("https://docs.python.org/3/library/argparse.html#choices",),
    depends_on_run=True,
    needs=("refused",),
)

_SCRIPT = (
    'import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument("--dtype", choices=["bf16", "fp16"])\n'
    'parser.add_argument("--epochs", type=int)\nparser.add_argument("--data", nargs="+")\n'
    "args = parser.parse_args()\n"
)
_FIELDS = (
    "from dataclasses import dataclass\nfrom typing import Literal\n\nfrom transformers import HfArgumentParser\n\n\n"
    '@dataclass\nclass Arguments:\n    dtype: Literal["bf16", "fp16"] = "bf16"\n    epochs: int = 3\n'
    "    lazy: bool = False\n\n\n"
    "(arguments,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()\n"
)


def _run(words: str) -> str:
    return f"torchrun --nproc_per_node 2 train.py {words}\n"


EXAMPLES = (
    bad("no choice", {"run.sh": _run("--dtype float16"), "train.py": _SCRIPT}, "run.sh:1 error"),
    bad("no whole number", {"run.sh": _run("--epochs 3.5"), "train.py": _SCRIPT}, "run.sh:1 error"),
    bad("a field with a Literal", {"run.sh": _run("--dtype float16"), "train.py": _FIELDS}, "run.sh:1 error"),
    bad("a switch of a dataclass", {"run.sh": _run("--lazy maybe"), "train.py": _FIELDS}, "run.sh:1 error"),
    bad("a value that is not there", {
        "run.sh": _run("--epochs --dtype bf16"), "train.py": _SCRIPT,
    }, "run.sh:1 info"),
    bad("a value to fill in", {
        "run.sh": 'EPOCHS=""\n' + _run("--epochs $EPOCHS --dtype bf16"), "train.py": _SCRIPT,
    }, "run.sh:2 info"),
    bad("an array without this entry", {
        "run.sh": "declare -A sizes=([small]=1 [large]=3)\nname=medium\n"
        + _run("--epochs ${sizes[$name]} --dtype bf16"),
        "train.py": _SCRIPT,
    }, "run.sh:3 warning"),
    bad("the beginning of two options", {
        "run.sh": _run("--d bf16"), "train.py": _SCRIPT,
    }, "run.sh:1 error"),
    good("values that are taken", {"run.sh": _run("--dtype bf16 --epochs 3 --data a b"), "train.py": _SCRIPT}),
    good("a value that is not known", {"run.sh": _run("--dtype $DTYPE --epochs ${EPOCHS}"), "train.py": _SCRIPT}),
    good("a converter of the script", {
        "run.sh": _run("--dtype float16"),
        "train.py": _SCRIPT.replace("choices=", 'type=lambda text: text.replace("float", "fp"), choices='),
    }),
    good("a metavariable of documentation", {
        "README.md": f"```bash\n{_run('--dtype DTYPE --epochs N')}```\n", "train.py": _SCRIPT,
    }),
    good("values that the reader of a documentation chooses", {
        "README.md": f"```bash\n{_run('--dtype bf16/fp16 --epochs your_epochs')}{_run('--dtype [bf16, fp16, all]')}"
        f"{_run('--dtype dtype_of_the_data')}```\n",
        "train.py": _SCRIPT,
    }),
    bad("an alternative that is not a choice", {
        "README.md": f"```bash\n{_run('--dtype bf16/fp8')}```\n", "train.py": _SCRIPT,
    }, "README.md:2 warning"),
    bad("capitals in documentation", {
        "README.md": f"```bash\n{_run('--dtype BF16')}```\n", "train.py": _SCRIPT,
    }, "README.md:2 warning"),
    good("a number in another notation", {
        "run.sh": _run("--epochs 1_000"), "train.py": _SCRIPT,
    }),
    good("computed choices", {
        "run.sh": _run("--dtype float16"), "train.py": _SCRIPT.replace('["bf16", "fp16"]', "list(DTYPES)"),
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Report every value that argparse stops at."""
    if plan.parser is None or plan.given is None or not plan.parser.is_closed:
        return
    for problem in plan.given.problems:
        word = problem.word
        if word is None or is_placeholder(word) or is_cut_off(word, plan.command):
            continue
        if plan.command.in_docs and _stands_for_more(problem, word, plan.command):
            continue
        found = _judged(problem, word, plan.command)
        if found is not None:
            yield _finding(plan, problem, word, *found)


def _judged(problem: Problem, word: Word, command: LaunchCommand) -> tuple[str, str, Severity | None] | None:
    """The message, a hint, and a severity of its own."""
    option, text = problem.option, word.text or ""
    if problem.kind == "ambiguous":
        return (
            f"`{text}` abbreviates several options: every process stops with `error: ambiguous option`",
            "Write the whole option",
            None,
        )
    if problem.kind == "no-value":
        because = f", because `{word.lost}` is empty" if word.lost else ""
        return (
            f"`{text}` has no value{because}: every process stops with `error: expected one argument`",
            "Write a value after it",
            Severity.INFO if not word.lost or set_to_nothing(word, command) else Severity.WARNING,
        )
    if option is None:
        return None
    value = text.partition("=")[2] if text.startswith("--") else text
    if problem.kind == "choice":
        choices = ", ".join(f"`{choice}`" for choice in (option.choices or ())[:6])
        return (
            f"`{value}` is not a choice of `{option.name}`: every process stops with `error: invalid choice:"
            f" '{value}'`",
            f"Write one of {choices}",
            None,
        )
    if problem.kind == "type":
        return (
            f"`{value}` is not a valid `{option.type}` for `{option.name}`: every process stops with `error: invalid"
            f" {option.type} value`",
            f"Write {_ARTICLE[option.type]}",
            None,
        )
    return None


def _stands_for_more(problem: Problem, word: Word, command: LaunchCommand) -> bool:
    """``--vendor VENDOR``, ``--port your_port``, ``--model model_to_use``, ``--task train/eval``: a form."""
    value, option = (word.text or "").rpartition("=")[2], problem.option
    choices = option.choices if option is not None and option.choices else ()
    if re.fullmatch(r"[A-Z][A-Z0-9_]*", value) is not None:
        return value.lower() not in choices
    parts = re.split(r"[/|]", value)
    if len(parts) > 1 and set(parts) <= set(choices):
        return True
    name = option.name.lstrip("-") if option is not None else ""
    return value.startswith(("your_", "your-", f"{name}_", f"{name}-")) or is_bracketed(word, command)


_ARTICLE = {"int": "a whole number", "float": "a number", "bool": "`True` or `False`"}


def _finding(
    plan: RunPlan, problem: Problem, word: Word, message: str, hint: str, severity: Severity | None
) -> Finding:
    option: Option | None = problem.option
    docs = Severity.WARNING if severity is None else Severity.INFO
    return META.finding(
        place_of(word),
        message,
        hint=hint,
        related=(option.location.labelled(f"`{option.name}` is declared here"),) if option is not None else (),
        severity=docs if plan.command.in_docs else severity,
        facts={"problem": problem.kind, "type": option.type if option is not None else "", "value": word.text or ""},
    )
