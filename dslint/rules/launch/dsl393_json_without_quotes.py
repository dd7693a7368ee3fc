"""**What.** JSON on the command line that bash changes: `--kwargs {"min_lr": 1e-6}` without quotes, `"{"min_lr":
1e-6}"` in double ones, or a variable between single ones (`'{"batch": $BATCH}'`).

**Why it hurts.** bash takes the inner quotes away and splits at spaces: the script gets `{min_lr:` and `1e-6}` as two
words, and stops with a `JSONDecodeError` or `unrecognized arguments`. Between single quotes `$BATCH` stays as it is
written.

**Fix.** `'{"min_lr": 1e-6}'`; with a variable `"{\\"batch\\": $BATCH}"` or `'{"batch": '"$BATCH"'}'`.

**When it stays quiet.** For single quotes without variables, escaped quotes, braces without quotes, and commands in
lists of words, which no shell reads.

**Evidence.** bash 5.2, run: the words that a program gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import Word
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL393",
    name="json-without-quotes",
    kind="launch",
    severity=Severity.WARNING,
    summary="JSON on the command line that bash changes: its quotes are taken away, or its variable stays",
    references=("https://www.gnu.org/software/bash/manual/html_node/Quoting.html",),
    no_experiment="bash alone decides, and it was run",
    needs=(r"/\{\"|'\{/",),
)

_SCRIPT = {"train.py": "import sys\nprint(sys.argv)\n"}
_RUN = "torchrun --nproc_per_node 8 train.py --kwargs%s --bf16\n"


def _run(value: str) -> dict[str, str]:
    return {"run.sh": _RUN % value, **_SCRIPT}


EXAMPLES = (
    bad("no quotes", _run(' {"min_lr": 1e-6}'), "run.sh:1"),
    bad("in one word", _run('={"min_lr":1e-6}'), "run.sh:1"),
    bad("double quotes", _run(' "{"min_lr": 1e-6}"'), "run.sh:1"),
    bad("a variable between single quotes", {
        "run.sh": "LR=1e-6\n" + _RUN % " '{\"min_lr\": $LR}'", **_SCRIPT,
    }, "run.sh:2"),
    good("single quotes", _run(" '{\"min_lr\": 1e-6}'")),
    good("escaped quotes", _run(' "{\\"min_lr\\": 1e-6}"')),
    good("a variable outside of the quotes", {"run.sh": "LR=1\n" + _RUN % " '{\"min_lr\": '\"$LR\"'}'", **_SCRIPT}),
    good("braces alone", {"run.sh": "torchrun train.py --files data/{a,b}.json\n", **_SCRIPT}),
)  # fmt: skip

_BARE = re.compile(r"(?:--?[\w-]+=)?\{\"[\w./-]+\":")
_DOUBLE = re.compile(r"(?:--?[\w-]+=)?\"\{\"[\w./-]+\":")
_SINGLE = re.compile(r"(?:--?[\w-]+=)?'\{[^']*\"[^']*:\s*\"?\$\{?(?P<name>[A-Z_]\w*)\}?[^']*\}'")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The words of launch commands as they are written."""
    del context
    told: set[int] = set()
    for command in () if doc.is_rewritten else doc.commands:
        for word in command.words:
            span = word.location.span
            if span.start in told or word.location.path != doc.source.path:
                continue
            message = _slip(doc, word)
            if message:
                told.add(span.start)
                yield META.finding(
                    word.location,
                    message,
                    hint="Put single quotes around the JSON, and a variable outside of them",
                    severity=Severity.INFO if doc.in_docs else None,
                )


def _slip(doc: LaunchDoc, word: Word) -> str:
    # What the file says: a word out of a variable or of another text is read there.
    span = word.location.span
    raw = doc.source.text[span.start : span.end]
    if not raw.startswith(word.raw[:4]):
        return ""
    if _BARE.match(raw):
        return "bash takes the quotes out of this JSON and splits it at spaces: it has no quotes around it"
    if _DOUBLE.match(raw):
        return "bash ends the double quotes at the first quote of this JSON, and takes all of them out"
    found = _SINGLE.match(raw)
    if found is not None:
        return f"`${found['name']}` stays as it is written between single quotes: the JSON does not get its value"
    return ""
