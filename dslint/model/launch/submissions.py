"""Jobs that a shell text hands to a queue by ``sbatch`` or ``qsub``: with which options, and with which variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, known
from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.command import Flag, Word
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.launch.launchers.base import parse_options
from dslint.model.launch.launchers.programs import QSUB, SBATCH
from dslint.model.launch.launchers.wrappers import unwrap
from dslint.model.plan.tree import files_by_name
from dslint.model.shell.commands import Invocation
from dslint.model.shell.effects import assigned_names
from dslint.model.shell.scope import NOT_EXPORTED, Scope
from dslint.model.shell.slurm import slurm_options
from dslint.model.shell.values import read_statements
from dslint.model.shell.words import fixed_text, is_plain
from dslint.parse.shell import ShellDoc, as_bash_reads, in_order, parse_shell
from dslint.parse.shelllex import UnfinishedWordError, simple_command

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.model.workspace import Workspace

Locate = Callable[[str, Scope, str], "SourceFile | None"]
_PROGRAMS = {"sbatch": SBATCH, "qsub": QSUB}
_SUBMITS = re.compile(r"\b(?:sbatch|qsub)\s")
_ENDINGS = (".sh", ".bash", ".slurm", ".sbatch", ".pbs", ".job")
_HANDED = re.compile(r"(?:^|[,=\s\"'])(?P<name>[A-Za-z_]\w*)=(?P<value>\$\([^)]*\)|`[^`]*`|[^,\"']*)")
# More scripts than this are no project of one team, and longer ones no scripts.
_MOST, _LONGEST = 400, 100_000


@dataclass(frozen=True, slots=True)
class Submission:
    """``script`` is the file of the project that becomes the job, named at ``name``; ``--wrap`` has none.

    ``facts`` are the options as directives say them. ``handed`` is the text of each variable that the call itself
    gives the job and where, ``inherited`` the names that it has from the shell. ``sets``: what the script sets itself,
    ``None`` for anything. ``is_open``: a word before the script may be any option.
    """

    place: Location
    name: Location
    script: str | None
    flags: tuple[Flag, ...]
    facts: Mapping[str, Fact[str]]
    handed: Mapping[str, tuple[str, Location]]
    inherited: frozenset[str]
    sets: frozenset[str] | None
    is_open: bool


def submissions(shell: ShellDoc, locate: Locate) -> tuple[Submission, ...]:
    """The jobs of one text, in its order; also those whose number a variable keeps (``id=$(sbatch ...)``)."""
    if not _SUBMITS.search(shell.text) or len(shell.text) > _LONGEST or shell.anchor is not None:
        return ()
    path = shell.source.path
    scope = Scope(script=path)
    items = read_statements(shell, _is_wanted, scope, lambda name, state: locate(name, state, path))
    found: list[Submission] = []
    for node in (each for each in in_order(shell.root) if each.type == "command"):
        # A function is run once for each call.
        run = [item for item in items if isinstance(item, Invocation) and item.node.start_byte == node.start_byte]
        for invocation in run or _as_written(shell, node, scope):
            made = _submission(shell, invocation, locate)
            found += [made] if made is not None else []
    return tuple(found)


def submitted_as(path: str, workspace: Workspace | None, locate: Locate) -> Iterator[Submission]:
    """The calls in the scripts of the project that hand this script to a queue."""
    names = files_by_name(path, workspace) if workspace is not None else {}
    scripts = [found for name in names if name.endswith(_ENDINGS) for found in names[name] if found != path]

    def read(source: SourceFile) -> tuple[Submission, ...]:
        return submissions(parse_shell(source, as_bash_reads(source.text)), locate)

    for script in scripts if workspace is not None and len(scripts) <= _MOST else ():
        found = workspace.memo("submissions", script, read) if workspace is not None else None
        yield from (each for each in found or () if each.script == path)


def _is_wanted(raw: str) -> bool:
    return _SUBMITS.search(raw) is not None


def _as_written(shell: ShellDoc, node: Node, scope: Scope) -> list[Invocation]:
    """A command that the reader of values has not run, with what its words say as they stand there."""
    if not _SUBMITS.search(f"{shell.raw(node)} "):
        return []
    try:
        spans = simple_command(shell.text, shell.start(node)).words
    except UnfinishedWordError:
        return []
    raws = [(shell.text[span.start : span.end], span) for span in spans]
    words = []
    for raw, span in raws:
        text = raw if is_plain(raw) else fixed_text(raw)
        words.append(Word(text, raw, shell.source.location(span.shifted(shell.base)), spreads=text is None))
    first = next((at for at, (raw, _) in enumerate(raws) if not re.match(r"[A-Za-z_]\w*\+?=", raw)), None)
    return [Invocation(node, tuple(words[first:]), scope.environment(), scope)] if first is not None else []


def _submission(shell: ShellDoc, invocation: Invocation, locate: Locate) -> Submission | None:
    words = unwrap(invocation.words, dict(invocation.env)).rest
    name = program_name(words[0]) if words else ""
    if name not in _PROGRAMS or len(words) < 2:
        return None
    parsed = parse_options(words[1:], _PROGRAMS[name])
    own = words[1 : len(words) - len(parsed.rest)]
    script = parsed.rest[0] if parsed.rest else None
    job = locate(script.text, invocation.scope, shell.source.path) if script is not None and script.text else None
    read = parse_shell(job, as_bash_reads(job.text)) if job is not None else None
    return Submission(
        invocation.words[0].location,
        script.location if script is not None else words[0].location,
        job.path if job is not None else None,
        parsed.flags,
        slurm_options(own) if name == "sbatch" else _of_qsub(parsed.flags),
        dict(_handed(shell, invocation.node, parsed.flags)),
        frozenset(n for n, fact in invocation.env.items() if n and not fact.reason.endswith(NOT_EXPORTED)),
        assigned_names(read, read.root) if read is not None else None,
        parsed.open or script is None or any(w.text is None and w.raw.lstrip("\"'").startswith("$") for w in own),
    )


def _of_qsub(flags: tuple[Flag, ...]) -> dict[str, Fact[str]]:
    facts: dict[str, Fact[str]] = {}
    for flag in flags:
        text = (flag.value.text or flag.value.raw) if flag.value is not None else ""
        if flag.name in ("-J", "-t") and text[:1].isdigit():
            facts["PBSJOB_ARRAY"] = known(text, flag.location)
        elif "excl" in text and flag.name == "-l":
            facts["PBSJOB_ALONE"] = known("1", flag.location)
        elif flag.name == "-hold_jid" or (flag.name == "-W" and "depend" in text):
            facts["PBSJOB_DEPENDENCY"] = known(text, flag.location)
    return facts


def _handed(shell: ShellDoc, node: Node, flags: tuple[Flag, ...]) -> Iterator[tuple[str, tuple[str, Location]]]:
    """``NAME=value sbatch``, ``--export=ALL,NAME=value``, ``qsub -v NAME=value``."""
    for child in node.children:
        if child.type == "variable_assignment":
            name, _, value = shell.raw(child).partition("=")
            yield name, (value, shell.source.location(shell.span(child)))
    for flag in flags:
        if flag.name in ("--export", "-v") and flag.value is not None:
            place, raw = flag.value.location, flag.value.raw
            at = shell.source.text.find(raw, place.span.start)
            for found in _HANDED.finditer(raw):
                start = (at if at >= 0 else place.span.start) + found.start("name")
                span = Span(start, start + len(found["name"]) + 1 + len(found["value"]))
                yield found["name"], (found["value"], shell.source.location(span))
