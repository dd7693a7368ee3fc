r"""**What.** A comment is between the lines of one command: below a line that ends in `\`, or after the `\`.

**Why it hurts.** The backslash joins the comment line to the command, so the comment ends the command. What follows
is run as a command of its own, and its options are lost. Behind a backslash the text is not even a comment:
`torchrun \ # on one node` gives torchrun the words `" #"`, `on`, `one` and `node`, and it takes `" #"` for the script.

**Fix.** Move the comment above the command. The fix moves whole-line comments.

**When it stays quiet.** When the comment is the last line of the command (nothing is lost), inside arrays (bash allows
comments there), and when the line below begins another command.

**Evidence.** bash 5.2; found in published documentation and launch scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Location, Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.cuts import FIRST_COMMENT, Comments, comments_behind, comments_inside
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL303",
    name="comment-inside-continuation",
    kind="launch",
    severity=Severity.ERROR,
    summary="A comment in the middle of a command cuts off the rest of it",
    fix="safe",
    references=("https://www.gnu.org/software/bash/manual/html_node/Comments.html",),
    needs=(f"/{FIRST_COMMENT}/",),
)

_BROKEN = """\
torchrun --nproc_per_node 8 train.py \\
  --bf16 \\
  # --max_steps 10 \\
  --lr 2e-5
"""
_FIXED = """\
# --max_steps 10 \\
torchrun --nproc_per_node 8 train.py \\
  --bf16 \\
  --lr 2e-5
"""

EXAMPLES = (
    bad(
        "an option is commented out in the middle",
        {"run.sh": "set -e\n" + _BROKEN, "train.py": "print()\n"},
        "run.sh:4 error",
        {"run.sh": "set -e\n" + _FIXED},
    ),
    bad(
        "a comment after the backslash",
        {"README.md": "```bash\ntorchrun \\ # on one node\n  train.py\n```\n", "train.py": "print()\n"},
        "README.md:2 error",
    ),
    bad(
        "comments after every backslash: one finding",
        {
            "README.md": "```bash\ntorchrun \\ # on one node\n  --nproc_per_node 8 \\ # GPUs\n  train.py\n```\n",
            "train.py": "print()\n",
        },
        "README.md:2 error",
    ),
    good(
        "the comment is the last line",
        {"run.sh": "torchrun train.py \\\n  --lr 1 \\\n  # --bf16\n", "train.py": "print()\n"},
    ),
    good("comments above the command", {"run.sh": _FIXED, "train.py": "print()\n"}),
    good(
        "comments in an array",
        {"run.sh": 'ARGS=(--a \\\n # why\n --b)\ntorchrun train.py "${ARGS[@]}"\n', "train.py": "print()\n"},
    ),
    good(
        "a place to fill in documentation",
        {"README.md": "```bash\ntorchrun train.py \\\n# more parameters...\n  --lr 1\n```\n", "train.py": "print()\n"},
    ),
    good(
        "the line below is another command",
        {"run.sh": "torchrun train.py --lr 1 \\\n# evaluate\npython eval.py\n", "train.py": "\n", "eval.py": "\n"},
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Comments that cut a command."""
    del context
    for found in comments_inside(doc.shell):
        if doc.in_docs and all(_stands_for_more(line.text) for line in found.lines):
            continue
        yield META.finding(
            doc.source.location(found.lines[0].span),
            f"this comment ends the command above: `{_short(found.follows.text)}` runs as a separate command",
            hint="Move the comment above the command",
            related=(doc.source.location(found.follows.span, "cut off"),),
            fix=_fix(doc, found),
        )
    for places in _commands(doc, comments_behind(doc.shell)):
        more = f" (and at {len(places) - 1} more below)" if len(places) > 1 else ""
        yield META.finding(
            places[0],
            f"the `\\` before this comment escapes a space, not the line end: the command ends here{more}",
            hint="Move the comments above the command and end each of its lines with `\\`",
            related=tuple(place.labelled("the same here") for place in places[1:]),
        )


def _commands(doc: LaunchDoc, spans: Iterable[Span]) -> Iterator[list[Location]]:
    """Yield the comments by the command that they cut: those on lines that follow each other."""
    found: list[Location] = []
    for place in (doc.source.location(span) for span in spans):
        if found and place.region.line != found[-1].region.line + 1:
            yield found
            found = []
        found.append(place)
    if found:
        yield found


def _stands_for_more(comment: str) -> bool:
    """``# other arguments ...`` in documentation: a place that the reader fills."""
    return "..." in comment or "…" in comment


def _short(text: str) -> str:
    text = text.strip().rstrip("\\").strip().replace("`", "'")
    return text if len(text) <= 40 else text[:39] + "…"


def _fix(doc: LaunchDoc, found: Comments) -> Fix | None:
    text = doc.source.text
    # A prompt or the mark of a quotation stands before the lines: moving them would lose it.
    if any(text[line.start : line.end] != line.text for line in (found.first, *found.lines)):
        return None
    body = found.first.text
    indent = body[: len(body) - len(body.lstrip())]
    moved = "".join(f"{indent}{line.text.strip()}\n" for line in found.lines)
    edits = [Edit(doc.source.path, Span(found.first.start, found.first.start), moved)]
    edits += [Edit(doc.source.path, Span(line.start, doc.source.line_after(line.end)), "") for line in found.lines]
    return Fix("Move the comments above the command", tuple(edits), uncovers=True)
