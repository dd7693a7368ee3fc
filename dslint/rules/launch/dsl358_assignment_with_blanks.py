r"""**What.** A variable that a launch uses is set with whitespace around the sign (`GPUS = 8`, `export PORT = 29500`),
or by its value: `$MASTER_ADDR=$(hostname)`.

**Why it hurts.** To bash that is the program `GPUS` with two arguments. It says `GPUS: command not found`, continues,
and the variable stays empty: `--nproc_per_node $GPUS train.py` takes the script for the number of processes. With `$`
in front, bash looks for a program named by both values (`localhost=node7: command not found`).

**Fix.** `GPUS=8`, `MASTER_ADDR=$(hostname)`. The fix writes it where the value is one word.

**When it stays quiet.** For `NAME= program`, which runs the program with an empty variable; for names that the text
does not use as `$NAME`; in strings, heredocs and arithmetic (`((A = 1))`), and in text without a launch command.

**Evidence.** bash 5.2; the same mistakes as ShellCheck SC2283 and SC2281.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.layout import Layout
from dslint.rules.base import RuleMeta, bad, good

_FIRST = r"(?m)^[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*[ \t]+=(?![=~])|\$\{?[A-Za-z_]\w*\}?=(?![=~])"

META = RuleMeta(
    code="DSL358",
    name="assignment-with-blanks",
    kind="launch",
    severity=Severity.ERROR,
    summary="A variable of a launch script is set with whitespace around the sign, or by its value: it stays as it was",
    fix="safe",
    references=("https://www.shellcheck.net/wiki/SC2283",),
    needs=(f"/{_FIRST}/",),
)

_RUN = "torchrun --nproc_per_node $GPUS train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("a number", {"run.sh": f"GPUS = 8\n{_RUN}", **_SCRIPT}, "run.sh:1 error", {"run.sh": f"GPUS=8\n{_RUN}"}),
    bad(
        "exported, with a comment after",
        {"run.sh": f'export GPUS = "8"  # all\n{_RUN}', **_SCRIPT},
        "run.sh:1 error",
        {"run.sh": f'export GPUS="8"  # all\n{_RUN}'},
    ),
    bad("two words", {"run.sh": f"ARGS = --lr 1\nGPUS=8\n{_RUN[:-1]} $ARGS\n", **_SCRIPT}, "run.sh:1 error"),
    bad("in documentation", {"README.md": f"```bash\nGPUS = 8\n{_RUN}```\n", **_SCRIPT}, "README.md:2 warning"),
    bad(
        "by its value, after a test",
        {
            "run.sh": 'if [ "$HOST" == "localhost" ]; then $HOST=`hostname`; fi\n'
            f"torchrun --nnodes 2 --master_addr $HOST {_RUN[9:]}",
            **_SCRIPT,
        },
        "run.sh:1 error",
        {
            "run.sh": 'if [ "$HOST" == "localhost" ]; then HOST=`hostname`; fi\n'
            f"torchrun --nnodes 2 --master_addr $HOST {_RUN[9:]}",
        },
    ),
    bad(
        "by its value, in braces",
        {"run.sh": f"${{GPUS}}=8\n{_RUN}", **_SCRIPT},
        "run.sh:1 error",
        {"run.sh": f"GPUS=8\n{_RUN}"},
    ),
    good("a word that holds a sign", {"run.sh": f"GPUS=8\necho $GPUS=8\nenv A=$GPUS=1 {_RUN}", **_SCRIPT}),
    good(
        "the name of a variable in a variable", {"run.sh": f'GPUS=8\nexport $NAME=1\neval "$NAME=2"\n{_RUN}', **_SCRIPT}
    ),
    good("no blanks", {"run.sh": f"GPUS=8\n{_RUN}", **_SCRIPT}),
    good(
        "an empty variable in front of a program",
        {"run.sh": f"DEBUG= python train.py $DEBUG\nGPUS=8\n{_RUN}", **_SCRIPT},
    ),
    good("a name that nobody uses", {"run.sh": f"python = 3.11\nGPUS=8\n{_RUN}", **_SCRIPT}),
    good("in a string", {"run.sh": f"GPUS=8\npython -c '\nGPUS = 8\n'\n{_RUN}", **_SCRIPT}),
    good("arithmetic", {"run.sh": f"(( GPUS = 8 ))\nlet 'GPUS = 8'\n{_RUN}", **_SCRIPT}),
    good("the middle of a command", {"run.sh": f"GPUS=8\npython train.py \\\nGPUS = 8\n{_RUN}", **_SCRIPT}),
)

_SET = re.compile(
    r"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)(?P<sign>[ \t]+=[ \t]*)(?![=~])"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s;&|<>()#]+)?(?P<rest>.*)",
    re.ASCII,
)


# Where a command may begin: a line, after `;`, `&&`, `then` and the like.
_BY_VALUE = re.compile(
    r"(?m)(?:^|[;&|(){]|\b(?:then|do|else)\b)[ \t]*(?P<text>\$\{?(?P<name>[A-Za-z_]\w*)\}?)=(?![=~])", re.ASCII
)


def check(doc: LaunchDoc, _context: Context) -> Iterator[Finding]:
    """Lines that begin like an assignment and are none."""
    if not doc.commands:
        return
    layout = Layout(doc.shell)
    yield from _by_value(doc, layout)
    for row, line in enumerate(layout.lines):
        match = _SET.fullmatch(line.text)
        if match is None or (row > 0 and layout.continues(layout.lines[row - 1])):
            continue
        name, sign = match["name"], line.start + match.start("sign")
        if not layout.is_code(sign) or not re.search(rf"\$\{{?{name}\b", doc.shell.text):
            continue
        edit = Edit(doc.source.path, Span(sign, line.start + match.end("sign")), "=")
        is_whole = match["value"] is not None and re.match(r"\s*(?:#.*)?$", match["rest"]) is not None
        yield META.finding(
            doc.source.location(Span(line.start + match.start("name"), line.start + match.end("sign"))),
            f"`{name} =` runs a program named `{name}`, which does not exist, and `${name}` keeps its old value",
            hint=f"Write `{name}=` without whitespace around the sign",
            fix=Fix("Delete the whitespace around the sign", (edit,), uncovers=True) if is_whole else None,
            severity=Severity.WARNING if doc.in_docs else None,
        )


def _by_value(doc: LaunchDoc, layout: Layout) -> Iterator[Finding]:
    """Commands that begin with `$NAME=`."""
    starts = {line.start for row, line in enumerate(layout.lines) if row and layout.continues(layout.lines[row - 1])}
    for match in _BY_VALUE.finditer(doc.shell.text):
        name, at = match["name"], match.start("text")
        if not layout.is_code(at) or match.start() in starts:
            continue
        if not re.search(rf"\$\{{?{name}\b(?!\}}?=)", doc.shell.text):
            continue
        span = Span(at, match.end("text"))
        yield META.finding(
            doc.source.location(Span(at, match.end("text") + 1)),
            f"`{match['text']}=` runs a program named by the values, which does not exist: `{name}` stays as it was",
            hint=f"Write `{name}=`",
            fix=Fix("Delete the `$`", (Edit(doc.source.path, span, name),), uncovers=True),
            severity=Severity.WARNING if doc.in_docs else None,
        )
