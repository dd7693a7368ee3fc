"""A command that is started here and now: its words, the scripts that it runs, and the real environment.

The readers are those of launch files. What they cannot know of a file is known here: the environment to its end, the
working directory, the arguments of scripts, and which files there are.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslint.core.fact import Fact, known
from dslint.core.source import SourceFile, Span
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.commandlines import Outer, Shell
from dslint.model.launch.document import LaunchDoc, locator
from dslint.model.launch.innerstate import exported, under
from dslint.model.launch.launchers.counts import MACHINE_GPUS
from dslint.model.launch.launchers.environment import SETS
from dslint.model.launch.nested import DEPTH, LONGEST, MOST_CALLED, TextReader
from dslint.model.launch.read import may_begin
from dslint.model.shell.assigning import DECLARING
from dslint.model.shell.batchjob import directives_of
from dslint.model.shell.builtins import BUILTINS, CONTROL, NAME_OPERANDS
from dslint.model.shell.commands import Invocation
from dslint.model.shell.flow.choices import Flow, Unknown
from dslint.model.shell.functions import bind_words
from dslint.model.shell.pieces import Value
from dslint.model.shell.scope import Scope
from dslint.model.workspace import Workspace
from dslint.parse.shell import ShellDoc, parse_shell

COMMAND = "<command line>"
# Words that mean something else to a shell than a program of this name.
_SHELL_WORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "function",
     "select", "time", "coproc", "test", "eval", "source", ".", *DECLARING, *BUILTINS, *CONTROL, *NAME_OPERANDS}
)  # fmt: skip
# Variables that rules speak of by themselves.
_OF_LIBRARIES = re.compile(r"\w*NCCL|TORCH_|PYTORCH_|CUDA_LAUNCH|GLOO_|XTUNER_")
_DRIVER = "/proc/driver/nvidia/gpus"
_SHEBANG = re.compile(r"#!.*\b(?:ba|z|da)?sh\b")
_PYTHON = re.compile(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(?P<program>\S*python[\d.]*)\s*$")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Variables of the shell that has started this: its folder, its depth, its last command.
_OF_SHELL = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "IFS"})
# What Slurm sets for a job, beside what its directives say.
_OF_JOB = (
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_SUBMIT_DIR", "SLURM_JOB_NAME",
    "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_PROCID",
    "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE", "SLURM_TASKS_PER_NODE", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT",
    "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_PARTITION", "SLURM_CLUSTER_NAME", "SLURM_TMPDIR", "TMPDIR",
)  # fmt: skip


def command_text(argv: Sequence[str]) -> str:
    """The words as one line of a shell that hands on exactly these."""
    if not argv:
        return ""
    first = argv[0]
    is_other = first in _SHELL_WORDS or "=" in first
    return " ".join(
        [f"'{first}'" if is_other and "'" not in first else shlex.quote(first), *map(shlex.quote, argv[1:])]
    )


def started_words(argv: Sequence[str]) -> list[str]:
    """The words that the system starts: in front of a script of Python the interpreter of its first line."""
    try:
        with open(argv[0] if "/" in argv[0] else "", "rb") as file:
            first = _PYTHON.match(file.readline(200).decode("utf-8", "replace"))
    except (OSError, IndexError):
        first = None
    is_tool = first is not None and not argv[0].endswith(".py")
    return list(argv) if first is None or is_tool else [first["program"], *argv]


def environment_facts(environ: Mapping[str, str]) -> dict[str, Fact[str]]:
    """The variables that a program finds here, each with the environment as its place."""
    found = {}
    for name, text in environ.items():
        if _NAME.fullmatch(name) and name not in _OF_SHELL:
            source = SourceFile(f"<${name}>", f"{name}={text}")
            found[name] = known(text, source.location(Span(0, len(source.text)), f"{name}={text}"))
    return found


def read_started(argv: Sequence[str], environ: Mapping[str, str], workspace: Workspace) -> list[LaunchDoc]:
    """The launch documents of a command: its own words first, then those of each shell script that it runs.

    ``workspace`` begins in the working directory.
    """
    source = workspace.read(COMMAND) or SourceFile(COMMAND, command_text(argv))
    facts = environment_facts(environ)
    scope = Scope(is_whole=True, flow=Flow(is_there=workspace.exists))
    for name, fact in facts.items():
        scope.assign(name, Value(fact.get(), None, fact.origins), export=True)
    reader = _Reader(False, locator(workspace), (COMMAND,))
    shell = parse_shell(source)
    job = {**(directives_of(facts) if "SLURM_JOB_ID" in facts else {}), **_gpus()}
    commands = reader.commands(shell, scope, job, Outer(), 0)
    docs = [LaunchDoc(source, shell, tuple(commands), written=tuple(reader.written), is_rewritten=True)]
    docs[0].left_out = tuple(reader.left_out)
    docs += [LaunchDoc(source, text, (), is_inner=True) for text in reader.inner]
    return [*docs, *(doc for text in reader.texts for doc in text.docs())]


def environment_docs(docs: Sequence[LaunchDoc]) -> Iterator[LaunchDoc]:
    """The variables of libraries that a launch finds in the environment, each as if a launch file set it."""
    command = next((command for doc in docs for command in doc.commands), None)
    if command is None:
        return
    for name, fact in command.env.items():
        if fact.is_known and fact.origins and fact.origins[0].path == f"<${name}>" and _OF_LIBRARIES.match(name):
            source = SourceFile(f"<${name}>", f"{name}={fact.get()}")
            yield LaunchDoc(source, parse_shell(source), (command,), is_rewritten=True)


def _gpus() -> dict[str, Fact[str]]:
    """How many GPUs the driver of this machine has found; nothing where there is no such driver."""
    try:
        count = len(os.listdir(_DRIVER))
    except OSError:
        return {}
    source = SourceFile("<this machine>", f"{count} GPUs in {_DRIVER}")
    place = source.location(Span(0, len(source.text)), f"{count} GPUs")
    return {MACHINE_GPUS: known(str(count), place)} if count else {}


@dataclass(frozen=True, slots=True)
class _Text:
    """A script that a command runs, with its commands as it is run there."""

    shell: ShellDoc
    commands: tuple[LaunchCommand, ...]
    reader: _Reader

    def docs(self) -> list[LaunchDoc]:
        source = self.shell.source
        own = LaunchDoc(source, self.shell, self.commands, written=tuple(self.reader.written))
        return [own, *(LaunchDoc(source, text, (), is_inner=True) for text in self.reader.inner)]


@dataclass(slots=True)
class _Reader(TextReader):
    """Reads every script that is called as it is called, for nobody reads it by itself."""

    texts: list[_Text] = field(default_factory=list)

    def wanted(self, raw: str) -> bool:  # noqa: ARG002
        return True

    def may_begin(self, first: str) -> bool:
        return "/" in first or may_begin(first) or first in self.programs

    def program(self, invocation: Invocation, outer: Outer) -> Shell | None:
        """A shell script that is run by its path, whatever its name is."""
        name = (invocation.words[0].text if invocation.words else None) or ""
        source = self.locate(name, invocation.scope, self.chain[-1]) if "/" in name else None
        is_script = source is not None and _SHEBANG.match(source.text) is not None
        return Shell("script", invocation.words, outer) if is_script else None

    def started(self, call: Shell, invocation: Invocation) -> Scope:
        """The state of a new shell; what the program around it sets for each of its processes is not known."""
        scope = exported(invocation)
        for name in SETS.get(call.outer.name, ()):
            scope.assign(name, Unknown(f"{call.outer.name} sets `{name}` for each of its processes"), export=True)
        for name in _OF_JOB if call.is_job else ():
            scope.assign(name, Unknown(f"Slurm sets `{name}` when the job starts"), export=True)
        return scope

    def call(self, call: Shell, invocation: Invocation, directives: Mapping[str, Fact[str]], depth: int) -> None:
        """Read a script as this command runs it; only Slurm reads its directives."""
        name, *arguments = call.words
        source = self.locate(name.text or "", invocation.scope, self.chain[-1])
        if source is None or source.path in self.chain or len(source.text) > LONGEST or source.text.count("\0"):
            return
        if len(self.chain) > DEPTH or len(self.texts) >= MOST_CALLED:
            self.left_out.append(name.location)
            return
        scope = self.started(call, invocation)
        scope.script = source.path
        bind_words(arguments, scope)
        reader = _Reader(self.in_docs, self.locate, (*self.chain, source.path))
        shell = parse_shell(source)
        if call.is_job:
            directives = {name: fact for name, fact in directives.items() if name != MACHINE_GPUS}
            found = reader.script(shell, scope, call.outer, directives, depth + 1, call.directives)
        else:
            found = reader.commands(shell, scope, directives, call.outer, depth + 1)
        self.left_out += reader.left_out
        called = [replace(c, called_from=(name.location, *c.called_from)) for c in under(found, invocation)]
        self.texts += [_Text(shell, tuple(called), reader), *reader.texts]
