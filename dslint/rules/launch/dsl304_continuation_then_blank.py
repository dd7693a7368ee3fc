r"""**What.** A line of a launch command ends in `\`, and the next line is empty.

**Why it hurts.** The empty line ends the command. When the script and its options are below it, the launcher starts
without them, and the shell runs `train.py` as a command of its own: `command not found`. (When options follow, DSL301
says so.) A `\` after the last option does no harm until somebody adds a line.

**Fix.** Delete the empty line, or the `\` where the command ends. The fix does.

**When it stays quiet.** When the line below begins another command, in strings and comments, and where whitespace
comes after the `\` (DSL302).

**Evidence.** bash 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.continuation import FIRST_BREAK, Break, breaks
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL304",
    name="continuation-then-blank",
    kind="launch",
    severity=Severity.ERROR,
    summary="An empty line ends a command in its middle",
    fix="safe",
    references=("https://www.gnu.org/software/bash/manual/html_node/Escape-Character.html",),
    needs=(f"/{FIRST_BREAK}/",),
)

_SCRIPT = {"train.py": "print()\n"}
_RIGHT = "torchrun --nproc_per_node 8 \\\n  train.py --lr 2e-5\n"

EXAMPLES = (
    bad(
        "the launcher never sees its script",
        {"run.sh": _RIGHT.replace("\\\n", "\\\n\n"), **_SCRIPT},
        "run.sh:1 error",
        {"run.sh": _RIGHT},
    ),
    bad(
        "nothing follows",
        {"run.sh": "torchrun --nproc_per_node 8 train.py \\\n  --lr 2e-5 \\\n\necho done\n", **_SCRIPT},
        "run.sh:2 info",
        {"run.sh": "torchrun --nproc_per_node 8 train.py \\\n  --lr 2e-5\n\necho done\n"},
    ),
    bad(
        "at the end of the file",
        {"run.sh": "torchrun --nproc_per_node 8 train.py \\\n  --lr 2e-5 \\\n", **_SCRIPT},
        "run.sh:2 info",
        {"run.sh": "torchrun --nproc_per_node 8 train.py \\\n  --lr 2e-5\n"},
    ),
    good("no empty line", {"run.sh": _RIGHT, **_SCRIPT}),
    good(
        "in a string, a comment, and a command that starts no training",
        {
            "run.sh": "# torchrun \\\n\nARGS='--lr 1 \\\n\n'\ndocker build -t a \\\n\n.\n" + _RIGHT,
            **_SCRIPT,
        },
    ),
    good("two commands", {"run.sh": f"{_RIGHT}\n./eval.py\n", **_SCRIPT, "eval.py": "print()\n"}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Lines that end in a backslash above an empty line."""
    del context
    for found in breaks(doc.shell):
        yield _middle(doc, found) if found.follows is not None else _last(doc, found)


def _middle(doc: LaunchDoc, found: Break) -> Finding:
    assert found.follows is not None
    word = found.follows.text.split()[0].replace("`", "'")
    return META.finding(
        doc.source.location(Span(found.backslash, found.backslash + 1)),
        f"the empty line ends the command: it starts without its script, and `{word}` runs as a separate command",
        hint="Delete the empty line",
        related=(doc.source.location(found.follows.span, "cut off"),),
        fix=Fix("Delete the empty line", (Edit(doc.source.path, found.gap, ""),), uncovers=True),
        severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
        facts={"follows": word},
    )


def _last(doc: LaunchDoc, found: Break) -> Finding:
    text, start = doc.source.text, found.backslash
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    return META.finding(
        doc.source.location(Span(found.backslash, found.backslash + 1)),
        "nothing follows this `\\`: the command ends here, and options added below it would be lost",
        hint="Delete the `\\`",
        fix=Fix("Delete the backslash", (Edit(doc.source.path, Span(start, found.backslash + 1), ""),), uncovers=True),
        severity=Severity.INFO,
    )
