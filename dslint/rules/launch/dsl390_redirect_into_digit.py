"""**What.** A launch command whose redirection misses an `&` or has it in the wrong place: `2>1`, `2&>1`, or `2>&1 >
train.log`, where the order is wrong.

**Why it hurts.** `2>1` writes the errors into a file that is called `1`, `2&>1` all output, and hands the script the
word `2`. With `2>&1 > train.log` errors go to where output went before: the traceback of a run that died is not in its
log.

**Fix.** `> train.log 2>&1`, or `&> train.log`.

**When it stays quiet.** For `2>&1`, for files of other names, and for `2>&1 > file | program`, which hands the errors
to the program on purpose.

**Evidence.** bash 5.2, run with a program that prints its words: `2>1` leaves a file `1` with the errors, `2&>1` one
with both and the word `2` for the program, and with `2>&1 > t.log` the errors are not in the file. ShellCheck SC2069.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.around import enclosing
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.batch import child_text
from dslint.rules.base import RuleMeta, bad, good

if TYPE_CHECKING:
    from tree_sitter import Node

META = RuleMeta(
    code="DSL390",
    name="redirect-into-digit",
    kind="launch",
    severity=Severity.WARNING,
    summary="A redirection of a launch command without its `&`, or in the wrong order: errors are not in the log",
    references=("https://www.shellcheck.net/wiki/SC2069",),
    no_experiment="bash alone decides, and it was run",
    needs=(r"/>>?[ \t]*[12](?:[ \t\n|;)]|$)|2>&1[^\n|]*>/",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nproc_per_node 8 train.py %s\n"


def _run(redirection: str) -> dict[str, str]:
    return {"run.sh": _RUN % redirection, **_SCRIPT}


EXAMPLES = (
    bad("without &", _run("> train.log 2>1"), "run.sh:1"),
    bad("& before", _run("2&>1"), "run.sh:1"),
    bad("in a pipe", {"run.sh": "set -o pipefail\n" + _RUN % "2>1 | tee log", **_SCRIPT}, "run.sh:2"),
    bad("in the wrong order", {"run.sh": "nohup " + _RUN[:-1] % "2>&1 > train.log" + " &\nwait\n", **_SCRIPT},
        "run.sh:1"),
    bad("plain Python", {"run.sh": "python train.py >> out.txt 2>1\n", **_SCRIPT}, "run.sh:1"),
    good("with &", _run("> train.log 2>&1")),
    good("both at once", _run("&> train.log")),
    good("errors for a program", {
        "run.sh": "set -o pipefail\n" + _RUN % "2>&1 > train.log | grep -v Warning", **_SCRIPT,
    }),
    good("a file for errors", _run("2> err.log")),
)  # fmt: skip

_WRITES = (">", ">>", "&>", "&>>")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The redirections of each launch command."""
    del context
    told: set[Location] = set()
    for command in doc.commands:
        if command.called_from:
            continue
        around = list(enclosing(doc, command))
        node = next((n for n in around if n.type == "redirected_statement"), None)
        if node is None or any(n.type == "heredoc_redirect" for n in node.children):
            continue
        redirects = [n for n in node.children if n.type == "file_redirect"]
        is_piped = any(n.type == "pipeline" and n.named_children[-1].id != node.id for n in around)
        for message, bad_one in _slips(doc, redirects, is_piped):
            place = doc.source.location(doc.shell.span(bad_one))
            if place not in told:
                told.add(place)
                severity = Severity.INFO if doc.in_docs else None
                yield META.finding(place, message, hint="Write `> FILE 2>&1`", severity=severity)


def _slips(doc: LaunchDoc, redirects: list[Node], is_piped: bool) -> Iterator[tuple[str, Node]]:
    merged = False
    for node in redirects:
        operator, target = _operator(node), child_text(node, "destination", doc.shell)
        raw = doc.shell.raw(node).strip()
        number = child_text(node, "descriptor", doc.shell)
        if operator in _WRITES and target in ("1", "2"):
            both = operator.startswith("&")
            what = "all output" if both else "the errors" if number == "2" else "the output"
            yield f"`{raw}` writes {what} into a file that is called `{target}`: an `&` is missing", node
        elif operator == ">&" and number == "2" and target == "1":
            merged = True
        elif merged and operator in (">", ">>") and number in ("", "1") and not is_piped:
            yield f"`2>&1` comes before `{raw}`: errors go where output went before, and are not in this file", node
            merged = False


def _operator(node: Node) -> str:
    return next((c.type for c in node.children if not c.is_named), "")
