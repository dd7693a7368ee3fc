r"""**What.** There is whitespace after the `\` at the end of a line.

**Why it hurts.** The backslash then escapes a space, not the line end: the command ends there with an argument
`" "`, and the next line is run as a command of its own. The options on it are lost, and nothing in an editor shows why.
Where no option follows, the argument `" "` remains: argparse stops with `unrecognized arguments`.

**Fix.** Delete the whitespace, or the backslash too where the command ends anyway. The fix does.

**When it stays quiet.** In quotes, comments and arrays, and above a line in brackets.

**Evidence.** bash 5.2 and argparse; the same mistake as ShellCheck SC1101.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.continuation import FIRST_BLANK, trailing_blanks
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL302",
    name="continuation-trailing-space",
    kind="launch",
    severity=Severity.ERROR,
    summary="Whitespace after a backslash ends the command on that line",
    fix="safe",
    references=("https://www.shellcheck.net/wiki/SC1101",),
    needs=(f"/{FIRST_BLANK}/",),
)

EXAMPLES = (
    bad(
        "a blank after the backslash cuts off the options",
        {"run.sh": "torchrun --nproc_per_node 8 train.py \\ \n  --lr 2e-5\n", "train.py": "print()\n"},
        "run.sh:1 error",
        {"run.sh": "torchrun --nproc_per_node 8 train.py \\\n  --lr 2e-5\n"},
    ),
    bad(
        "in a fenced block",
        {"README.md": "```bash\ndeepspeed train.py \\\t\n  --bf16\n```\n", "train.py": "print()\n"},
        "README.md:2 error",
        {"README.md": "```bash\ndeepspeed train.py \\\n  --bf16\n```\n"},
    ),
    good("no blank", {"run.sh": "torchrun train.py \\\n  --lr 2e-5\n", "train.py": "print()\n"}),
    bad(
        "nothing follows, and the script gets one argument more",
        {"run.sh": "torchrun train.py --lr 2e-5 \\ \n\necho done\n", "train.py": "print()\n"},
        "run.sh:1 warning",
        {"run.sh": "torchrun train.py --lr 2e-5 \n\necho done\n"},
    ),
    good(
        "a template to be filled in",
        {"run.sh": "OUT=<path> \\ \n    (e.g. out/run1)\ntorchrun train.py --out $OUT\n", "train.py": "print()\n"},
    ),
    good(
        "in a comment and in quotes",
        {"run.sh": "# torchrun old.py \\ \n#  --x\ntorchrun train.py --note 'a \\ \n b'\n", "train.py": "print()\n"},
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Blanks between a backslash and the end of its line."""
    del context
    for found in trailing_blanks(doc.shell):
        yield _joins(doc, found.span) if found.joins else _ends(doc, Span(found.backslash, found.span.end))


def _joins(doc: LaunchDoc, span: Span) -> Finding:
    return META.finding(
        doc.source.location(span),
        "trailing whitespace after `\\` ends the command here; the next line runs on its own",
        hint="Delete the whitespace after the `\\`",
        fix=Fix("Delete the whitespace after the backslash", (Edit(doc.source.path, span, ""),), uncovers=True),
        facts={"joins": True},
    )


def _ends(doc: LaunchDoc, span: Span) -> Finding:
    return META.finding(
        doc.source.location(span),
        'the `\\` escapes the space after it: the command gets an argument `" "` that argparse does not recognise',
        hint="Delete the `\\` and the whitespace",
        fix=Fix("Delete the backslash and the whitespace", (Edit(doc.source.path, span, ""),), uncovers=True),
        severity=Severity.WARNING,
        facts={"joins": False},
    )
