"""What a command line inside a word finds: variables, directory, conditions, and the programs that stand around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dslint.core.fact import Fact, unknown
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.commandlines import Around, Shell
from dslint.model.shell.batch import OF_TASK
from dslint.model.shell.batchjob import MACHINE, is_directive
from dslint.model.shell.commands import Invocation
from dslint.model.shell.flow.choices import Choice
from dslint.model.shell.flow.trees import tests_of
from dslint.model.shell.pieces import Value
from dslint.model.shell.scope import NOT_EXPORTED, Scope


def under(commands: list[LaunchCommand], invocation: Invocation) -> list[LaunchCommand]:
    """The commands with the conditions of what starts them, and the tests that led to it."""
    if isinstance(invocation.scope.directory, Choice):
        commands = [replace(command, cwd_is_certain=False) for command in commands]
    guards = tests_of(invocation.scope.guards)
    if guards:
        commands = [replace(command, guards=(*guards, *command.guards)) for command in commands]
    if not invocation.conditions:
        return commands
    return [replace(c, conditions=tuple(dict.fromkeys((*invocation.conditions, *c.conditions)))) for c in commands]


def exported(invocation: Invocation) -> Scope:
    """The state of a shell that inherits what the command exports, and nothing else."""
    state = invocation.scope
    scope = Scope(directory=state.cwd, open=state.open, script=state.script, world=state.world, flow=state.flow)
    scope.is_whole = state.is_whole
    for name, fact in invocation.env.items():
        if name and not (state.is_whole and fact.reason.endswith(NOT_EXPORTED)):
            scope.assign(name, Value(fact.get(), None, fact.origins) if fact.is_known else None, export=True)
    return scope


def inherited(call: Shell, invocation: Invocation) -> Scope:
    """The state of a script that a command starts; each task of a step has numbers of its own."""
    scope = exported(invocation)
    for variable in sorted(OF_TASK) if call.outer.name == "srun" else ():
        scope.assign(variable, None, export=True)
    return scope


def inside(read: Shell, invocation: Invocation) -> Invocation:
    """The command with the environment that the programs around leave to its command line."""
    env = read.around.env
    if env is None:
        return invocation
    return replace(invocation, env={name: fact for name, fact in env.items() if not is_directive(name)})


def machine_facts(read: Shell) -> dict[str, Fact[str]]:
    """What the programs around a command line say about the machine: the GPUs of a container."""
    return {name: fact for name, fact in (read.around.env or {}).items() if name.startswith(MACHINE)}


def within(commands: list[LaunchCommand], around: Around) -> list[LaunchCommand]:
    """The commands of a command line with the programs that stand before it."""
    if not (around.words or around.withheld):
        return commands
    changed = []
    for command in commands:
        cwd = command.cwd
        if around.cwd is not None and not command.cwd.get_or("").startswith("/"):
            cwd = around.cwd if cwd.is_absent else unknown(around.cwd.reason or "the directory is computed")
        withheld = {**around.withheld, **command.withheld}
        changed.append(replace(command, wrappers=(*around.words, *command.wrappers), withheld=withheld, cwd=cwd))
    return changed


def cut(scope: Scope, inner: Shell, invocation: Invocation, expands: Mapping[str, object]) -> Scope:
    """The state of a command line that runs elsewhere: what is exported here does not arrive, but what is handed in.

    ``expands`` are the variables that this shell puts into the text: there they may have other values.
    """
    env = inner.around.env or {}
    is_open = "" in env and not invocation.scope.open
    if inner.kind != "ssh" and not is_open:
        return scope
    scope = remote(scope)
    if inner.around.cwd is not None and inner.kind != "ssh":  # a container: its image holds the files of the project
        scope.directory = inner.around.cwd
    for name, fact in env.items():
        here = expands.get(name)
        if not name or not fact.is_known or is_directive(name):
            continue
        if here is None or (isinstance(here, Value) and here.text == fact.get()):
            scope.assign(name, Value(fact.get(), None, fact.origins), export=True)
    return scope


def remote(scope: Scope) -> Scope:
    """The text runs on another machine: nothing is exported there, anything may be set there."""
    scope.exports.clear()
    scope.open = scope.remote = True
    scope.directory = unknown("another machine")
    return scope
