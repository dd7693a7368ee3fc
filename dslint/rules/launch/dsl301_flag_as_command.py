r"""**What.** A line that begins with an option is a command of its own, because the line above does not end in `\`, or
because a comment or an empty line is between.

**Why it hurts.** bash starts the command without these options and then says `--option: command not found`, often
hours later and far up in the log. The run that was started trains with defaults: another learning rate, no
checkpoint folder, the wrong number of epochs. Unless it is the last line, the script still exits with 0.

**Fix.** End the line above with `\`; the fix adds it, or deletes the blank line. A comment has to move above the
command.

**When it stays quiet.** In usage texts (`usage: train.py [-h]`) and lists of options (`--lr <float> (required)`),
beside elided lines (`...`, `[more options]`), after blank lines that no `\` leads to, in documentation below a comment,
inside quotes and arrays, and where the text cannot be parsed. A command of a documentation of which no line ends in `\`
may be divided for reading: it is a warning, and nothing where the page says that the command is one line.

**Evidence.** bash 5.2; found in published scripts whose first run loses `--sharded_ddp` or `--save`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.continuation import FIRST_LOST, LostFlag, lost_flags
from dslint.model.shell.layout import Line
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL301",
    name="flag-as-command",
    kind="launch",
    severity=Severity.ERROR,
    summary="A line of options is run as a command because the line above lost its backslash",
    fix="safe",
    references=("https://www.gnu.org/software/bash/manual/html_node/Escape-Character.html",),
    needs=(f"/{FIRST_LOST}/",),
)

_BROKEN = """\
torchrun --nproc_per_node 8 train.py \\
  --lr 2e-5
  --output_dir out \\
  --bf16
"""

EXAMPLES = (
    bad(
        "the line before `--output_dir` does not end in a backslash",
        {"run.sh": _BROKEN, "train.py": "print()\n"},
        "run.sh:3 error",
        {"run.sh": _BROKEN.replace("2e-5\n", "2e-5 \\\n")},
    ),
    bad(
        "two lines lost it",
        {"README.md": "# Train\n\n```bash\ndeepspeed train.py\n  --epochs 3\n  --bf16\n```\n", "train.py": "print()\n"},
        "README.md:5 warning",
        {"README.md": "# Train\n\n```bash\ndeepspeed train.py \\\n  --epochs 3 \\\n  --bf16\n```\n"},
    ),
    bad(
        "a comment ends the command",
        {"run.sh": "torchrun train.py \\\n  --lr 2e-5\n  # evaluation\n  --bf16\n", "train.py": "print()\n"},
        "run.sh:4 error",
    ),
    bad(
        "a blank line ends the command",
        {"run.sh": "torchrun train.py \\\n  --lr 2e-5 \\\n\n  --bf16\n", "train.py": "print()\n"},
        "run.sh:4 error",
        {"run.sh": "torchrun train.py \\\n  --lr 2e-5 \\\n  --bf16\n"},
    ),
    good("every line ends in a backslash", {"run.sh": _BROKEN.replace("2e-5\n", "2e-5 \\\n"), "train.py": "print()\n"}),
    good(
        "a usage text lists options",
        {"README.md": "```\nusage: torchrun train.py [-h]\n\ntorchrun train.py\n  --lr LR  learning rate\n```\n"},
    ),
    good(
        "a listing and a choice of options in documentation",
        {
            "README.md": "```bash\nls -l\n-rw-r--r-- 1 me train.py\n```\n\n"
            "```bash\ntorchrun train.py\n# or\n--bf16\n```\n"
        },
    ),
    good(
        "elided lines",
        {
            "README.md": "```bash\ntorchrun train.py \\\n  ...\n  --lr 2e-5\n```\n\n"
            "```bash\ntorchrun\n  --nnodes 2\n  ...\n```\n\n"
            "```bash\ntorchrun train.py \\\n  --lr 2e-5 \\\n  [more options]\n  --bf16\n```\n"
        },
    ),
    good(
        "a list of options",
        {
            "README.md": "```bash\ntorchrun train.py\n\n  --lr <float> (required) the rate\n"
            "  --bf16 (optional) half\n```\n"
        },
    ),
    good(
        "the page says that its commands are one line",
        {"README.md": "Write it on one line.\n\n```bash\ntorchrun train.py\n  --lr 2e-5\n  --bf16\n```\n"},
    ),
    bad(
        "the command of a page, joined but for two lines",
        {"README.md": f"On one line.\n\n```bash\n{_BROKEN}```\n"},
        "README.md:6 error",
    ),
    good(
        "options in an array, a string and a heredoc",
        {
            "run.sh": "ARGS=(\n  --lr 1\n  --bf16\n)\nMORE='\n--epochs 3\n'\ncat <<EOF\nuse\n--help\nEOF\n"
            'torchrun train.py "${ARGS[@]}" $MORE\n',
            "train.py": "print()\n",
        },
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Lines of options that the shell runs as commands."""
    del context
    for lost in lost_flags(doc.shell, over_comments=not doc.in_docs):
        laid_out = doc.in_docs and lost.is_laid_out
        if laid_out and _ONE_LINE.search(doc.source.text):
            continue
        reason, hint = _REASONS[lost.between]
        count = len(lost.more)
        more = "" if not count else f" (and {count} more line{'s' if count > 1 else ''} below)"
        related = [doc.source.location(lost.above.span, "the command ends here")]
        related += [doc.source.location(other.span, "a separate command too") for other in lost.more]
        yield META.finding(
            doc.source.location(lost.span),
            f"`{lost.flag}` starts a new command because {reason}: bash reports `{lost.flag}: command not found`{more}",
            hint=hint if not count else "End the lines above with `\\`",
            related=tuple(related),
            fix=_fix(doc, lost),
            severity=Severity.WARNING if laid_out else None,
        )


# What pages say whose commands stand on several lines for reading.
_ONE_LINE = re.compile(r"\b(?:one|single) line\b|[1\u4e00]\s?\u884c(?:\u3067|\u306b|\u4e2d)")


_REASONS = {
    "": ("the line above does not end in `\\`", "End the line above with `\\`"),
    "comment": (
        "the command ends before the comment",
        "Move the comment above the command and end every line with `\\`",
    ),
    "blank": ("the blank line above ends the command", "Delete the blank line"),
}


def _fix(doc: LaunchDoc, lost: LostFlag) -> Fix | None:
    above = lost.above
    joined = [Edit(doc.source.path, Span(other.above.span.end, other.above.end), " \\") for other in lost.more]
    lines = [other.above for other in lost.more]
    if lost.between == "blank" and lost.gap is not None:
        edits = (Edit(doc.source.path, lost.gap, ""), *joined)
        return None if _has_comment(doc, lines) else Fix("Delete the blank line", edits, uncovers=True)
    if lost.between or _has_comment(doc, [above, *lines]):
        return None
    blanks = Span(above.span.end, above.end)
    return Fix("Join the line to the command above", (Edit(doc.source.path, blanks, " \\"), *joined), uncovers=True)


def _has_comment(doc: LaunchDoc, lines: list[Line]) -> bool:
    return any(line.start <= comment.start < line.end for line in lines for comment in doc.shell.comments)
