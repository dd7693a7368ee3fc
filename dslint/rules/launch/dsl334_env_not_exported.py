"""**What.** A line sets a variable that only programs read (`CUDA_VISIBLE_DEVICES=0,1`, `NPROC_PER_NODE=8`,
`NCCL_...`, `PYTORCH_...`), without `export` and not in front of a command, and a launcher follows.

**Why it hurts.** The variable stays in the shell. The launcher starts on all GPUs, with one process, with the default
allocator: as if the line were not there. Often the line was meant to belong to the command and lost its `\\`.

`A=1\\ B=2` (a backslash and a space between two variables) is found too: the space becomes part of the value of `A`,
and `B` is never set.

**Fix.** `export` it, or put it in front of the command. Delete a backslash that glues two variables.

**When it stays quiet.** When the variable is exported before or after, when `set -a` is on, when the file uses it
(`$NAME`), when a file that is sourced may export it, and for names that shell scripts use for themselves
(`MASTER_PORT`, `NODE_RANK`, `WORLD_SIZE`). A variable that the surroundings export already is exported with the new
value: the rule cannot see that.

**Evidence.** bash 5.2, with a recorder in the place of the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Location, Span
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import is_for_every_process, kept
from dslint.model.launch.traits import NCCL, PYTORCH, XTUNER
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL334",
    name="env-not-exported",
    kind="launch",
    severity=Severity.WARNING,
    summary="A variable for the launcher is set in the shell and never exported",
    fix="safe",
    references=("https://www.gnu.org/software/bash/manual/html_node/Environment.html",),
    needs=(NCCL, PYTORCH, XTUNER, "CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE", "NNODES", r"/\\ +[A-Z_][A-Z0-9_]*=/"),
)

_SCRIPT = {"train.py": "print()\n"}
_LINES = "CUDA_VISIBLE_DEVICES=0,1 \\\nNPROC_PER_NODE=2\nswift sft --model m\n"

EXAMPLES = (
    bad("the line of variables lost its backslash", {"run.sh": _LINES}, "run.sh:1",
        {"run.sh": _LINES.replace("=2\n", "=2 \\\n")}),
    bad("a line of its own", {"run.sh": "CUDA_VISIBLE_DEVICES=0,1\necho go\ndeepspeed train.py\n", **_SCRIPT},
        "run.sh:1", {"run.sh": "export CUDA_VISIBLE_DEVICES=0,1\necho go\ndeepspeed train.py\n"}),
    bad("after a semicolon", {"run.sh": "NCCL_P2P_LEVEL=NVL; torchrun --nproc_per_node 2 train.py\n", **_SCRIPT},
        "run.sh:1", {"run.sh": "export NCCL_P2P_LEVEL=NVL; torchrun --nproc_per_node 2 train.py\n"}),
    bad("a backslash glues two variables", {"run.sh": "NPROC_PER_NODE=8\\ MAX_PIXELS=9 swift sft --model m\n"},
        "run.sh:1", {"run.sh": "NPROC_PER_NODE=8 MAX_PIXELS=9 swift sft --model m\n"}),
    good("exported", {"run.sh": "export CUDA_VISIBLE_DEVICES=0,1\ndeepspeed train.py\n", **_SCRIPT}),
    good("exported afterwards", {
        "run.sh": "CUDA_VISIBLE_DEVICES=0,1\nexport CUDA_VISIBLE_DEVICES\ndeepspeed train.py\n", **_SCRIPT,
    }),
    good("all variables are exported", {"run.sh": "set -a\nCUDA_VISIBLE_DEVICES=0,1\ndeepspeed train.py\n", **_SCRIPT}),
    good("in front of the command", {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 deepspeed train.py\n", **_SCRIPT}),
    good("a variable of the shell script", {
        "run.sh": "NPROC_PER_NODE=2\ntorchrun --nproc_per_node $NPROC_PER_NODE train.py\n", **_SCRIPT,
    }),
    good("left over from another launcher", {
        "run.sh": "MASTER_PORT=29501\nWORLD_SIZE=2\ntorchrun --nproc_per_node 2 train.py\n", **_SCRIPT,
    }),
    good("another machine runs the launcher", {
        "run.sh": "export NCCL_DEBUG=INFO\nfor host in a b; do\n"
        '    ssh $host "cd /job && torchrun --nproc_per_node 2 train.py"\ndone\n', **_SCRIPT,
    }),
    good("a launcher that does not read it", {
        "run.sh": "NNODES=1\nNPROC_PER_NODE=2\ntorchrun --nproc_per_node 2 train.py\n", **_SCRIPT,
    }),
)  # fmt: skip

_GLUE = re.compile(r"(?<![\w$\"'])([A-Z_][A-Z0-9_]*)=([\w,.:/-]*)(\\) +([A-Z_][A-Z0-9_]*)=")
# What only these launchers read.
_COUNTS = re.compile(r"NPROC_PER_NODE|NNODES|XTUNER_[A-Z_]+")
_READ_COUNTS = ("swift", "xtuner", "llamafactory")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Statements that set variables for a launcher and keep them."""
    del context
    yield from _glued(doc)
    seen: set[Span] = set()
    for command in doc.commands:
        wanted = [(n, place) for n, place in kept(command) if _is_read(n, command) and place.path == doc.source.path]
        free = [(n, place) for n, place in wanted if not re.search(rf"\$\{{?#?{n}\b|\b{n}\b[^=\w]", doc.source.text)]
        for names in _statements(doc, free):
            first = names[0][1]
            if first.span in seen or first.span.start > command.location.span.start:
                continue
            seen.add(first.span)
            yield _finding(doc, command, names)


def _glued(doc: LaunchDoc) -> Iterator[Finding]:
    """``A=1\\ B=2``."""
    shell = doc.shell
    for match in _GLUE.finditer(shell.text if shell.anchor is None else ""):
        at = match.start(3) + shell.base
        if any(comment.start <= at < comment.end for comment in shell.comments):
            continue
        yield META.finding(
            doc.source.location(Span(match.start(1) + shell.base, match.end(4) + shell.base)),
            f"the backslash makes `{match[4]}=` part of the value of `{match[1]}`: `{match[4]}` is never set",
            hint="Delete the backslash",
            fix=Fix("Delete the backslash", (Edit(doc.source.path, Span(at, at + 1), ""),)),
        )


def _is_read(name: str, command: LaunchCommand) -> bool:
    return is_for_every_process(name) or bool(command.launcher in _READ_COUNTS and _COUNTS.fullmatch(name))


def _statements(doc: LaunchDoc, names: Sequence[tuple[str, Location]]) -> Iterator[list[tuple[str, Location]]]:
    """Assignments that stand beside each other in one statement, in the order of the text."""
    group: list[tuple[str, Location]] = []
    for name, place in sorted(names, key=lambda pair: pair[1].span):
        if group and _joined(doc.source.text[group[-1][1].span.end : place.span.start]):
            group.append((name, place))
            continue
        if group:
            yield group
        group = [(name, place)]
    if group:
        yield group


def _joined(between: str) -> bool:
    """Only blanks, escaped line ends and other assignments stand between two assignments of one statement."""
    return re.fullmatch(r"(?:[ \t]|\\\r?\n|[A-Za-z_]\w*=[^\s;&|]*)*", between) is not None


def _finding(doc: LaunchDoc, command: LaunchCommand, names: list[tuple[str, Location]]) -> Finding:
    text, first, last = doc.source.text, names[0][1], names[-1][1]
    listed = " and ".join([", ".join(f"`{n}`" for n, _ in names[:-1]), f"`{names[-1][0]}`"][len(names) == 1 :])
    tail = text[last.span.end : command.location.span.start]
    # The command stands on the next line: the line of variables was meant to be a part of it.
    lost = re.fullmatch(r"((?:[ \t]|\\\r?\n|[A-Za-z_]\w*=[^\s;&|]*)*)\r?\n((?:[A-Za-z_]\w*=\S*|[ \t]|\\\r?\n)*)", tail)
    is_lost = lost is not None and "\n" in text[first.span.start : last.span.end]
    if is_lost and lost is not None:
        at = last.span.end + len(lost[1].rstrip())
        fix = Fix("Join the line to the command", (Edit(first.path, Span(at, at), " \\"),))
    else:
        start = _start(text, first.span.start)
        fix = Fix("Export it", (Edit(first.path, Span(start, start), "export "),))
    usable = text.startswith(f"{names[0][0]}=", first.span.start) and not first.path.endswith(".ipynb")
    return META.finding(
        first,
        f"{listed} {'is' if len(names) == 1 else 'are'} set but not exported: `{command.program}` starts without"
        f" {'it' if len(names) == 1 else 'them'}",
        hint="End the line with `\\`, so that it belongs to the command" if is_lost else "Write `export` before it",
        related=(command.location.labelled("this command does not see it"),),
        fix=fix if usable else None,
        severity=Severity.INFO if doc.in_docs and not is_lost else None,
        facts={"names": " ".join(name for name, _ in names)},
    )


def _start(text: str, offset: int) -> int:
    """Where the statement begins: other assignments may stand in front on the same line."""
    before = re.search(r"(?:[A-Za-z_]\w*=[^\s;&|]*(?:[ \t]|\\\r?\n)+)*\Z", text[:offset])
    return before.start() if before is not None else offset
