"""**What.** There is whitespace around the `=` of an option: `--lr = 2e-5`, `--lr =2e-5`, `--lr= 2e-5`.

**Why it hurts.** The shell hands over two or three words. The option takes `=` (or nothing) for its value, and the real
value is left over: `error: argument --lr: invalid float value: '='`, or `unrecognized arguments: 2e-5`. An option
that takes a text or a list takes `=` silently, and a script with `parse_known_args` trains with it.

**Fix.** `--lr=2e-5` or `--lr 2e-5`. The fix deletes the whitespace.

**When it stays quiet.** For a `=` that is not a word of a launch command (`[ "$a" = b ]`), for `--option=` with nothing
after it but another option, and for settings of the kind `key=value` after it.

**Evidence.** bash 5.2; torch 2.13: `torchrun --nproc_per_node = 2` stops with `Unsupported nproc_per_node value: =`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.launchers.base import flag_name
from dslint.model.launch.traits import COMMAND
from dslint.model.shell.typing import FIRST_LOOSE, loose_equals
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL305",
    name="flag-space-equals",
    kind="launch",
    severity=Severity.ERROR,
    summary="Whitespace around the `=` of an option",
    fix="safe",
    references=("https://docs.python.org/3/library/argparse.html#option-value-syntax",),
    needs=(COMMAND, f"/{FIRST_LOOSE}/"),
)

_SCRIPT = {"train.py": "print()\n"}
_RIGHT = {"run.sh": "torchrun --nproc_per_node=8 train.py \\\n  --lr=2e-5\n"}

EXAMPLES = (
    bad(
        "whitespace on both sides",
        {"run.sh": "torchrun --nproc_per_node = 8 train.py \\\n  --lr = 2e-5\n", **_SCRIPT},
        ("run.sh:1 error", "run.sh:2 error"),
        _RIGHT,
    ),
    bad(
        "on one side",
        {"run.sh": "torchrun --nproc_per_node =8 train.py \\\n  --lr= 2e-5\n", **_SCRIPT},
        ("run.sh:1 error", "run.sh:2 error"),
        _RIGHT,
    ),
    bad(
        "in documentation",
        {"README.md": "```bash\npython train.py --model = llama\n```\n", **_SCRIPT},
        "README.md:2 warning",
        {"README.md": "```bash\npython train.py --model=llama\n```\n"},
    ),
    good("no blanks", {**_RIGHT, **_SCRIPT}),
    good(
        "a test, an empty value, and a setting",
        {
            "run.sh": 'if [ "$1" = x ]; then\n  torchrun --nproc_per_node=8 train.py --tag= --lr=1\nfi\n'
            "python train.py --set a.b = c\npython train.py --config= model.lr=1\n",
            **_SCRIPT,
        },
    ),
    good("a value that begins with the sign", {"run.sh": "python train.py --mark '=x='\n", **_SCRIPT}),
    good(
        "a placeholder", {"README.md": "```\ntorchrun --nproc_per_node=<# GPUs> train.py <arguments>\n```\n", **_SCRIPT}
    ),
    good("in a table", {"README.md": "```\npython train.py --lr  = learning rate\n```\n", **_SCRIPT}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Options of launch commands whose ``=`` stands alone."""
    del context
    done: set[int] = set()
    for command in doc.commands:
        for words in (_launcher_words(command), command.script_args):
            for at in range(len(words) - 1):
                is_loose = words[at + 1].raw[:1] == "=" or words[at].raw[-1:] == "="
                parts = _parts(words, at, doc.in_docs) if is_loose else None
                span = _stretch(doc, parts) if parts is not None else None
                if parts is not None and span is not None and span.start not in done:
                    done.add(span.start)
                    yield _finding(doc, parts, span)
    for loose in loose_equals(doc.shell):
        if loose.span.start not in done:
            yield _report(doc, loose.span, loose.option, "`=`", loose.value)


def _launcher_words(command: LaunchCommand) -> tuple[Word, ...]:
    """The words before the script; with a ``=`` among them the launcher takes the value for the script."""
    words = command.argv or command.words
    return words[: len(words) - len(command.script_args)]


def _parts(words: Sequence[Word], at: int, in_docs: bool) -> list[Word] | None:
    """The words that were meant as one ``--option=value``."""
    word, following = words[at], words[at + 1]
    if flag_name(word) is None or not (word.text or "").startswith("--"):
        return None
    plain = following.text is not None and following.raw == following.text
    if "=" not in (word.text or ""):
        if following.raw == "=" and at + 2 < len(words) and _is_value(words[at + 2]):
            # ``--lr = learning rate`` is a line of a table.
            is_text = in_docs and at + 3 < len(words) and flag_name(words[at + 3]) is None
            return None if is_text else [word, following, words[at + 2]]
        return [word, following] if plain and following.raw[:1] == "=" and len(following.raw) > 1 else None
    ends = word.raw.endswith("=") and word.raw.count("=") == 1
    return [word, following] if ends and _is_value(following) and "=" not in following.raw else None


def _is_value(word: Word) -> bool:
    return not word.spreads and flag_name(word) is None and not word.raw.startswith(("-", "=", "[", "<", "("))


def _stretch(doc: LaunchDoc, parts: list[Word]) -> Span | None:
    """Where the words stand with nothing but blanks between them; ``None`` when they stand elsewhere."""
    begin, end = parts[0].location.span.start, parts[-1].location.span.end
    if doc.shell.anchor is not None or doc.source.path != parts[0].location.path:
        return None
    pattern = r"[ \t]+".join(re.escape(word.raw) for word in parts)
    return Span(begin, end) if re.fullmatch(pattern, doc.source.text[begin:end]) else None


def _finding(doc: LaunchDoc, parts: list[Word], span: Span) -> Finding:
    takes = "nothing" if parts[0].raw.endswith("=") else f"`{parts[1].raw}`"
    return _report(doc, span, parts[0].raw.rstrip("="), takes, parts[-1].raw.removeprefix("="))


def _report(doc: LaunchDoc, span: Span, name: str, takes: str, value: str) -> Finding:
    return META.finding(
        doc.source.location(span),
        f"`{name}` gets {takes} as its value because of whitespace around the `=`",
        hint=f"Write `{name}={value.replace('`', '')}`",
        fix=Fix("Delete the whitespace", (Edit(doc.source.path, span, f"{name}={value}"),), uncovers=True),
        severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
        facts={"option": name},
    )
