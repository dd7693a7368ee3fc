"""Variables that a command line in quotes asks for, which its shell does not inherit: they are set and not exported.

``srun bash -c '... $NAME ...'``: the text is expanded by the shell that ``srun`` starts, not by the one that sets
``NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.source import Location, Span
from dslint.model.launch.around import nodes_at
from dslint.model.launch.document import LaunchDoc

if TYPE_CHECKING:
    from tree_sitter import Node

_USE = re.compile(r"(?<!\\)\$(?:\{(?P<braced>[A-Za-z_]\w*)(?P<rest>[^}]*)\}|(?P<plain>[A-Za-z_]\w*))")
# They run the text themselves, or only print it. What a container finds is up to its image.
_OTHERS = frozenset({"eval", "trap", "alias", "echo", "printf", "docker", "podman", "nerdctl", "kubectl", "awk", "sed"})
# Other machines: they may set variables of their own.
_RUNS = re.compile(r"(?:^|[\s/])(?:srun|bash|sh|zsh|ssh|pdsh|clush|mpirun|mpiexec|xargs|parallel|setsid|nohup)\b")
# Names that the surroundings of a job export already, so that a new value is exported, too.
_COMMON = re.compile(
    r"(?:SLURM|PBS|LSB|CUDA|NVIDIA|CONDA|XDG|LC|HF|WANDB|NCCL|OMP)_\w+|PATH|HOME|USER|SHELL|PWD|LANG|TERM|HOSTNAME"
    r"|TMPDIR|LOGNAME|PYTHONPATH|LD_LIBRARY_PATH|VIRTUAL_ENV|EDITOR|SCRATCH|WORK|RANDOM|SECONDS|LINENO|IFS|OPTARG"
)
_ALL_EXPORTED = re.compile(r"\bset\s+-\w*a|\ballexport\b|\bexport\s+[\"']?\$")
_SOURCES = re.compile(r"(?:^|[;&|({]|\bthen\b|\bdo\b)[ \t]*(?:source|\.)[ \t]+(?P<file>\S+)", re.MULTILINE)
_KNOWN_SOURCE = re.compile(r"activate|bashrc|profile|conda\.sh|/etc/|setvars|/modules?/")


@dataclass(frozen=True, slots=True)
class Unseen:
    """``assigned`` is where this shell sets the variable, ``used`` where the text in quotes asks for it."""

    name: str
    assigned: Location
    used: Location
    program: str
    is_loop: bool = False


def unseen_variables(doc: LaunchDoc) -> Iterator[Unseen]:
    """Each variable once for each text in quotes in which a launch command of the document stands."""
    text = doc.shell.text
    if doc.shell.anchor is not None or doc.is_inner or doc.is_rewritten or _ALL_EXPORTED.search(text):
        return
    if any(not _KNOWN_SOURCE.search(found["file"]) for found in _SOURCES.finditer(text)):
        return
    seen: set[tuple[str, int]] = set()
    for command in doc.commands:
        quoted, program = _quoted(doc, command.location)
        if quoted is None or program is None:
            continue
        for name, at in _asked(doc, quoted):
            if (name, quoted.id) in seen:
                continue
            seen.add((name, quoted.id))
            found = _assigned(doc, name, program)
            if found is not None:
                use = doc.source.location(doc.shell.source_span(at, at + len(name)), "asks for it")
                first = doc.shell.raw(program).split(None, 1)[0]
                yield Unseen(name, found[0], use, first, found[1])


def _quoted(doc: LaunchDoc, place: Location) -> tuple[Node | None, Node | None]:
    """The single quotes around a command, and the command that gets them as a word."""
    nodes = list(nodes_at(doc, place))
    if not nodes or nodes[0].type != "raw_string" or len(nodes) < 2 or nodes[1].type != "command":
        return None, None
    head = doc.shell.raw(nodes[1])[: doc.shell.local(nodes[0]).start - doc.shell.local(nodes[1]).start]
    words = head.split()
    if not words or _OTHERS & {word.rpartition("/")[2] for word in words} or not _RUNS.search(head):
        return None, None
    return nodes[0], nodes[1]


def _asked(doc: LaunchDoc, quoted: Node) -> Iterator[tuple[str, int]]:
    """The variables that a text in quotes asks for and does not set, with their offsets in the text of the document."""
    span = doc.shell.local(quoted)
    body = doc.shell.text[span.start : span.end]
    for found in _USE.finditer(body):
        name = found["braced"] or found["plain"]
        sets = rf"(?<![\w-]){name}\+?=|\b(?:for|read|select)\b[^\n;]*\b{name}\b|\bmapfile\b[^\n;]*\b{name}\b"
        if _COMMON.fullmatch(name) or (found["rest"] or "").startswith((":-", "-", ":=", "=", ":+", "+", ":?", "?")):
            continue
        if not re.search(sets, body) and not re.search(r"\bsource |(?:^|[\s;&'])\. |\beval\b|\bgetopts\b", body):
            yield name, span.start + found.start("braced" if found["braced"] else "plain")


def _assigned(doc: LaunchDoc, name: str, program: Node) -> tuple[Location, bool] | None:
    """Where the shell sets a variable before a command that does not find it; ``None`` where it may be exported."""
    text, start = doc.shell.text, doc.shell.local(program).start
    exports = rf"\b(?:export|declare[ \t]+-\w*x\w*|typeset[ \t]+-\w*x\w*)\b(?:[^\n;|&]|\\\n)*(?<![\w$]){name}(?!\w)"
    handed_on = rf"(?<![\w${{]){name}\b"
    if re.search(exports, text) or re.search(handed_on, _without_quotes(doc, program)):
        return None
    loop = re.compile(
        rf"^[ \t]*for[ \t]+(?P<name>{name})[ \t]+in\b|\bfor[ \t]*\(\([ \t]*(?P<other>{name})=", re.MULTILINE
    )
    sets = list(re.finditer(rf"^[ \t]*(?:local[ \t]+)?{name}=(?P<value>[^\n]*)", text[:start], re.MULTILINE))
    if any(f"${name}" in found["value"] or f"${{{name}" in found["value"] for found in sets):
        return None
    turn = next((found for found in loop.finditer(text[:start])), None)
    first = sets[0] if sets else turn
    if first is None or (sets and _is_prefix(sets[0]["value"])):
        return None
    begin = first.start() + len(first[0]) - len(first[0].lstrip())
    return doc.source.location(doc.shell.source_span(begin, first.end()), f"sets `{name}`"), not sets


def _is_prefix(value: str) -> bool:
    """A command follows on the same line, which finds the variable; or the line goes on."""
    bare = re.sub(r"\$\([^()]*(?:\([^()]*\)[^()]*)*\)|\$\{[^}]*\}|\"[^\"]*\"|'[^']*'|`[^`]*`|\([^)]*\)", "x", value)
    return bare.rstrip().endswith("\\") or re.match(r"\S*[ \t]+[^\s#;&|]", bare) is not None


def _without_quotes(doc: LaunchDoc, program: Node) -> str:
    """The words of a command that are not in single quotes: ``-x NAME``, ``--export=NAME``, ``env NAME=...``."""
    base = doc.shell.local(program).start
    raw = doc.shell.raw(program)
    for child in reversed(program.children):
        if child.type == "raw_string":
            span: Span = doc.shell.local(child)
            raw = raw[: span.start - base] + raw[span.end - base :]
    return raw
