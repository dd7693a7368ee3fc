r"""**What.** The lines of a launch script end as Windows ends them, in a carriage return and a line feed.

**Why it hurts.** To bash the carriage return is a letter like any other. Behind a `\` it is what the backslash escapes:
the command ends there with an argument `"\r"` more, and the options on the next lines are run as commands of their own.
Otherwise the last word of the line has it at its end: `train.py\r` is not a file, `8\r` no number, `then\r` no `then`.
Nothing in an editor shows why.

**Fix.** Delete the carriage returns (`sed -i 's/\r$//'`), and let git keep it so: `*.sh text eol=lf` in
`.gitattributes`. The fix deletes them.

**When it stays quiet.** In documentation, whose readers copy the text and not its line ends, where no line of a launch
command ends so, and in scripts that hold no launch command.

**Evidence.** bash 5.2; the same mistake as ShellCheck SC1017. `dslint plan` shows what bash makes of such a script;
what else is wrong with it is said when the line ends are right.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL357",
    name="windows-line-ends",
    kind="launch",
    severity=Severity.ERROR,
    summary="A launch script with the line ends of Windows, which bash takes for letters",
    fix="safe",
    references=("https://www.shellcheck.net/wiki/SC1017",),
    needs=(r"/\ue00d/",),
)

_RUN = "#!/bin/bash\r\ntorchrun --nproc_per_node 8 train.py \\\r\n  --lr 2e-5\r\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("every line", {"run.sh": _RUN, **_SCRIPT}, "run.sh:2 error", {"run.sh": _RUN.replace("\r", "")}),
    bad(
        "a single line, and a variable",
        {"run.sh": "GPUS=8\r\ntorchrun --nproc_per_node $GPUS train.py\r\n", **_SCRIPT},
        "run.sh:2 error",
        {"run.sh": "GPUS=8\ntorchrun --nproc_per_node $GPUS train.py\n"},
    ),
    bad(
        "a loop that bash cannot read",
        {"run.sh": "for i in 1 2; do\r\n  torchrun train.py --seed $i\r\ndone\r\n", **_SCRIPT},
        "run.sh:2 error",
        {"run.sh": "for i in 1 2; do\n  torchrun train.py --seed $i\ndone\n"},
    ),
    good("the line ends of Unix", {"run.sh": _RUN.replace("\r", ""), **_SCRIPT}),
    good("in a comment only", {"run.sh": "# train\r\ntorchrun train.py --lr 2e-5\n", **_SCRIPT}),
    good("in documentation", {"README.md": "```bash\r\ntorchrun train.py\r\n```\r\n", **_SCRIPT}),
    good("no launch", {"run.sh": "# python train.py\r\nls\r\n", **_SCRIPT}),
)


def check(doc: LaunchDoc, _context: Context) -> Iterator[Finding]:
    """The first launch command of the script with a carriage return at the end of one of its lines."""
    text = doc.source.text
    for command in doc.meant:
        span = command.location.span
        last = text.find("\n", span.end)
        end = len(text) if last < 0 else last + 1
        if command.location.path != doc.source.path or "\r\n" not in text[span.start : end]:
            continue
        yield META.finding(
            command.location,
            "the lines end in `\\r\\n`: bash adds `\\r` to the last word, and no `\\` joins two lines",
            hint="Delete the carriage returns, and write `*.sh text eol=lf` into `.gitattributes`",
            fix=Fix("Delete the carriage returns", tuple(_edits(doc)), uncovers=True),
        )
        return


def _edits(doc: LaunchDoc) -> Iterator[Edit]:
    text = doc.source.text
    at = text.find("\r\n")
    while at >= 0:
        yield Edit(doc.source.path, Span(at, at + 1), "")
        at = text.find("\r\n", at + 2)
