r"""**What.** A variable that a launch uses is set with whitespace around the sign: `GPUS = 8`, `export PORT = 29500`.

**Why it hurts.** To bash that is the program `GPUS` with two arguments. It says `GPUS: command not found`, continues,
and the variable stays empty: `--nproc_per_node $GPUS train.py` takes the script for the number of processes.

**Fix.** `GPUS=8`. The fix writes it where the value is one word.

**When it stays quiet.** For `NAME= program`, which runs the program with an empty variable; for names that the text
does not use as `$NAME`; in strings, heredocs and arithmetic (`((A = 1))`), and in text without a launch command.

**Evidence.** bash 5.2; the same mistake as ShellCheck SC2283.
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

_FIRST = r"(?m)^[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*[ \t]+=(?![=~])"

META = RuleMeta(
    code="DSL358",
    name="assignment-with-blanks",
    kind="launch",
    severity=Severity.ERROR,
    summary="A variable of a launch script is set with whitespace around the sign, so that it stays empty",
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


def check(doc: LaunchDoc, _context: Context) -> Iterator[Finding]:
    """Lines that begin like an assignment and are none."""
    if not doc.commands:
        return
    layout = Layout(doc.shell)
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
