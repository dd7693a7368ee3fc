"""Launch documents: the shell text of a file (or of one fenced block) and the launch commands in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dslint.core.fact import Fact
from dslint.core.source import SourceFile, Span
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.read import Outer, Shell, read_command
from dslint.model.shell.commands import Invocation, kept_template
from dslint.model.shell.scope import Scope
from dslint.model.shell.slurm import sbatch_directives
from dslint.model.shell.values import read_invocations
from dslint.model.shell.words import Value
from dslint.parse.markdown import fences, without_prompts
from dslint.parse.shell import ShellDoc, parse_shell

_LAUNCHER = (
    r"torchrun|torch\.distributed|deepspeed|accelerate|srun|mpirun|mpiexec|xtuner|swift|megatron|llamafactory|lmf|axolotl"
    r"|python[\d.]*[\"']?\s+(?:-|\S*\.py|[\"'$<{])"
)
_MAY_LAUNCH = re.compile(_LAUNCHER.encode())
_WANTED = re.compile(_LAUNCHER + r"|^\s*[\"']?\$|\beval\b")
# A fence without a language is a shell block when a line of it begins like a launch.
_BEGINS = re.compile(
    r"^[ \t]*(?:\$[ \t]+)?(?:export[ \t]|(?:\w+=\S*[ \t]+)*(?:\S*/)?"
    r"(?:torchrun|deepspeed|accelerate[ \t]+launch|srun|mpirun|mpiexec|xtuner[ \t]+train"
    r"|swift[ \t]+\w+|llamafactory-cli|axolotl[ \t]+train"
    r"|python3?[ \t]+(?:-m[ \t]|\S+\.py)))",
    re.MULTILINE,
)
# Command lines inside words inside words: nobody writes more.
_DEPTH = 3


@dataclass(slots=True)
class LaunchDoc:
    """One shell text with its launch commands, in the order of the text."""

    source: SourceFile
    shell: ShellDoc
    commands: tuple[LaunchCommand, ...]
    in_docs: bool = False


def may_launch(raw: bytes) -> bool:
    """Whether a file can hold a launch command; the rest is not parsed."""
    return _MAY_LAUNCH.search(raw) is not None


def read_launch_docs(source: SourceFile, kind: str) -> list[LaunchDoc]:
    """The launch documents of a file: one of a ``shell`` script, one per fenced block of ``markdown``."""
    if kind == "shell":
        return [_read(source, source.text, 0, in_docs=False)]
    docs = []
    for fence in fences(source.text):
        wanted = fence.is_shell or (fence.language in ("", "text") and _BEGINS.search(fence.text))
        if wanted and may_launch(fence.text.encode("utf-8", "surrogatepass")):
            docs.append(_read(source, without_prompts(fence.text), fence.span.start, in_docs=True))
    return docs


def _read(source: SourceFile, text: str, base: int, in_docs: bool) -> LaunchDoc:
    shell = parse_shell(source, text, base)
    scope = Scope()
    directives = sbatch_directives(shell)
    for name, value in _slurm_variables(directives).items():
        scope.assign(name, value, export=True)
    commands = _commands(shell, scope, directives, in_docs, Outer(), 0)
    return LaunchDoc(source, shell, tuple(commands), in_docs)


def _commands(
    shell: ShellDoc, scope: Scope, directives: Mapping[str, Fact[str]], in_docs: bool, outer: Outer, depth: int
) -> list[LaunchCommand]:
    out: list[LaunchCommand] = []
    for invocation in read_invocations(shell, lambda raw: _WANTED.search(raw) is not None, scope):
        raws = [w.raw for w in invocation.words]
        kept = kept_template(raws[1:] if raws[:1] == ["eval"] else raws, invocation.scope)
        if kept is not None and depth < _DEPTH:
            inner = parse_shell(shell.source, kept.text, kept.start)
            out += _commands(inner, kept.scope.copy(), directives, in_docs, outer, depth + 1)
            continue
        env = {**invocation.env, **directives}
        read = read_command(invocation.words, env, shell.source, outer, invocation.scope.cwd, in_docs)
        if isinstance(read, LaunchCommand):
            out.append(read)
        elif read is not None and depth < _DEPTH:
            nested = _nested(read, shell, invocation)
            if nested is not None:
                out += _commands(*nested, directives, in_docs, read.outer, depth + 1)
    return out


def _nested(inner: Shell, shell: ShellDoc, invocation: Invocation) -> tuple[ShellDoc, Scope] | None:
    """The command line inside a word, with the variables that it sees."""
    if not inner.words:
        return None
    word = inner.words[0]
    raw, start = word.raw, word.location.span.start
    literal = len(inner.words) == 1 and len(raw) > 1 and raw[0] == raw[-1] and shell.anchor is None
    body = raw[1:-1]
    if literal and raw[0] == "'" and "'" not in body:
        scope = invocation.scope.copy() if inner.kind == "eval" else _exported(invocation)
        return parse_shell(shell.source, body, start + 1), scope
    # Between double quotes the outer shell expands first; without escapes the text reads the same.
    if literal and raw[0] == '"' and not re.search(r'\\(?!\n)|["`]', body):
        return parse_shell(shell.source, body, start + 1), invocation.scope.copy()
    return _reassembled(inner.words, shell, invocation)


def _reassembled(words: tuple[Word, ...], shell: ShellDoc, invocation: Invocation) -> tuple[ShellDoc, Scope] | None:
    if any(w.text is None for w in words):
        return None
    first, last = words[0].location.span, words[-1].location.span
    text = " ".join(w.text or "" for w in words)
    return parse_shell(shell.source, text, 0, Span(first.start, last.end)), invocation.scope.copy()


def _exported(invocation: Invocation) -> Scope:
    scope = Scope(cwd=invocation.scope.cwd, open=invocation.scope.open)
    for name, fact in invocation.env.items():
        if name:
            scope.assign(name, Value(fact.get(), None, fact.origins) if fact.is_known else None, export=True)
    return scope


def _slurm_variables(directives: Mapping[str, Fact[str]]) -> dict[str, Value]:
    """What Slurm puts into the environment of a batch script because of its directives."""
    names = {
        "SBATCH_NODES": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        "SBATCH_NTASKS": ("SLURM_NTASKS", "SLURM_NPROCS"),
        "SBATCH_NTASKS_PER_NODE": ("SLURM_NTASKS_PER_NODE",),
        "SBATCH_GPUS_PER_NODE": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    }
    return {
        variable: Value(fact.get(), None, fact.origins)
        for name, variables in names.items()
        if (fact := directives.get(name)) is not None and fact.is_known and fact.get().isdigit()
        for variable in variables
    }
