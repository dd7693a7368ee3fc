"""**What.** A loop over the lines of a file, `while read host; do ssh $host ...; done < hosts`, whose body starts a
program that reads its standard input: `ssh`, `srun`, `mpirun`, `docker run -i`, `kubectl exec -i`.

**Why it hurts.** The program takes the rest of the file as its input. The loop ends after the first line: the first
node, or the first experiment, is started, and no other; nothing reports it.

**Fix.** `ssh -n`, `srun --input none`, or `< /dev/null` after the program; or let the loop read from another place
(`while read -u 3 host; do ...; done 3< hosts`).

**When it stays quiet.** When the program is started with `&` or has an input of its own, and for loops that read from
another descriptor.

**Evidence.** bash 5.2 and the manuals of ssh (`-n`), srun (`--input`) and mpirun (`--stdin`); ShellCheck SC2095.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.around import is_behind
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.values import REDIRECTS
from dslint.parse.shell import in_order
from dslint.rules.base import RuleMeta, bad, good

if TYPE_CHECKING:
    from tree_sitter import Node

META = RuleMeta(
    code="DSL391",
    name="loop-loses-its-lines",
    kind="launch",
    severity=Severity.WARNING,
    summary="A loop over lines whose body hands the rest of them to ssh, srun or mpirun: only the first one is started",
    references=("https://www.shellcheck.net/wiki/SC2095", "https://slurm.schedmd.com/srun.html#OPT_input"),
    no_experiment="bash and the programs decide, and their manuals say it",
    needs=(r"/\bwhile\b[^\n]*\bread\b/",),
)

_SCRIPT = {"train.py": "print()\n"}
_LOOP = "while %s; do\n  %s\ndone %s\n"
_SSH = 'ssh "$host" "cd /work && python train.py"'


def _loop(body: str, head: str = "read -r host", source: str = "< hosts.txt") -> dict[str, str]:
    return {"run.sh": _LOOP % (head, body, source), **_SCRIPT}


EXAMPLES = (
    bad("ssh", _loop(_SSH), "run.sh:2"),
    bad("a pipe", {"run.sh": "cat hosts.txt | " + _LOOP % ("IFS= read -r host", _SSH, ""), **_SCRIPT}, "run.sh:2"),
    bad("srun", _loop("srun --ntasks=1 python train.py --lr $host"), "run.sh:2"),
    bad("mpirun, in a test", _loop('if [ -n "$host" ]; then\n    mpirun -np 4 python train.py\n  fi'), "run.sh:3"),
    good("-n", _loop(_SSH.replace("ssh", "ssh -n"))),
    good("in the background", {"run.sh": _LOOP % ("read -r host", f"{_SSH} &", "< hosts") + "wait\n", **_SCRIPT}),
    good("an input of its own", _loop(f"{_SSH} < /dev/null")),
    good("another descriptor", _loop(_SSH, "read -r -u 3 host", "3< hosts.txt")),
    good("a program that reads nothing", _loop("python train.py --lr $host")),
    good("a loop over words", {"run.sh": f"for host in $(cat hosts.txt); do\n  {_SSH}\ndone\n", **_SCRIPT}),
)  # fmt: skip

_READS = re.compile(
    r"(?:\w+=\S*\s+)*(?:ssh\s(?!(?:[^\"']*\s)?-[a-zA-Z]*[nf]\b)|srun\s(?!.*(?:--input|-i\s))|mpi(?:run|exec)\s(?!.*--?stdin)"
    r"|(?:docker|podman)\s+(?:run|exec)\s+(?:\S+\s+)*?-[a-z]*i[a-z]*\s|kubectl\s+exec\s+(?:\S+\s+)*?-[a-z]*i[a-z]*\s)",
    re.DOTALL,
)
_READ = re.compile(r"(?:^|[\s;])read\b(?!.*-u\s*\d)")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Programs in the bodies of loops that read lines."""
    del context
    for loop in _loops(doc.shell.root):
        condition, body = loop.child_by_field_name("condition"), loop.child_by_field_name("body")
        head = doc.shell.raw(condition) if condition is not None else ""
        if body is None or not _READ.search(head) or "<" in head or not _is_fed(loop):
            continue
        for command in _commands(body):
            if _READS.match(doc.shell.raw(command)) and not _has_input(command):
                name = re.sub(r"^(?:\w+=\S*\s+)*", "", doc.shell.raw(command)).split()[0]
                yield META.finding(
                    doc.source.location(doc.shell.span(command)),
                    f"`{name}` reads the other lines of this loop as its input: only the first one is started",
                    hint="Add `< /dev/null`, or `-n` for ssh",
                    related=(doc.source.location(doc.shell.span(condition), "the loop"),)
                    if condition is not None
                    else (),
                    severity=Severity.INFO if doc.in_docs else None,
                )
                break


def _loops(root: Node) -> Iterator[Node]:
    return (node for node in in_order(root) if node.type == "while_statement")


def _is_fed(loop: Node) -> bool:
    """The lines come from a file or a pipe, by the descriptor 0."""
    parent = loop.parent
    if parent is not None and parent.type == "pipeline":
        return parent.named_children[0].id != loop.id
    if parent is None or parent.type != "redirected_statement":
        return False
    if parent.parent is not None and parent.parent.type == "pipeline":
        return True
    return any(node.child_by_field_name("descriptor") is None and _reads(node) for node in parent.children)


def _reads(node: Node) -> bool:
    """The node is a redirection from somewhere."""
    return node.type in REDIRECTS and (node.type != "file_redirect" or any(c.type == "<" for c in node.children))


def _commands(body: Node) -> Iterator[Node]:
    pending = [body]
    while pending:
        node = pending.pop(0)
        if node.type == "command":
            yield node
        elif node.type not in ("function_definition", "while_statement", "command_substitution"):
            pending = [*node.children, *pending]


def _has_input(command: Node) -> bool:
    """The program runs in the background, in a pipe that feeds it, or with an input of its own."""
    node: Node | None = command
    while node is not None and node.type != "do_group":
        if is_behind(node):
            return True
        parent = node.parent
        if parent is not None and parent.type == "pipeline" and parent.named_children[0].id != node.id:
            return True
        if node.type == "redirected_statement" and any(map(_reads, node.children)):
            return True
        node = parent
    return False
