"""Variables that a command line in quotes asks for, which its shell does not inherit: they are set and not exported.

``srun bash -c '... $NAME ...'``: the text is expanded by the shell that ``srun`` starts, not by the one that sets
``NAME``. The reader of the shell says what is set and what is exported where the command stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.source import Location
from dslint.model.launch.commandlines import Shell
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.shell.commands import Invocation
from dslint.model.shell.effects import assigned_names, command_names
from dslint.model.shell.pieces import Value
from dslint.model.shell.scope import NOT_EXPORTED
from dslint.parse.shell import ShellDoc, expansions, in_order

if TYPE_CHECKING:
    from tree_sitter import Node

# Other machines whose shell is asked for; what a container finds is up to its image.
_REMOTE = frozenset({"ssh", "pdsh", "clush", "pssh", "parallel-ssh"})
# Names that the surroundings of a job export already, so that a new value is exported, too.
_COMMON = re.compile(
    r"(?:SLURM|PBS|LSB|CUDA|NVIDIA|CONDA|XDG|LC|HF|WANDB|NCCL|OMP)_\w+|PATH|HOME|USER|SHELL|PWD|LANG|TERM|HOSTNAME"
    r"|TMPDIR|LOGNAME|PYTHONPATH|LD_LIBRARY_PATH|VIRTUAL_ENV|EDITOR|SCRATCH|WORK|RANDOM|SECONDS|LINENO|IFS|OPTARG"
)
_PLAIN_USE = re.compile(r"\$(?:\w+|\{\w+(?:[%#/^,\[@:]\S*)?\})", re.DOTALL)
_DEFAULT = re.compile(r"\$\{\w+:?[-=+?]")
_FORS = frozenset({"for_statement", "c_style_for_statement"})


@dataclass(frozen=True, slots=True)
class Unseen:
    """``assigned`` is where this shell sets the variable, ``used`` where the text in quotes asks for it."""

    name: str
    assigned: Location
    used: Location
    program: str
    is_loop: bool = False
    # On another machine an export would not help.
    is_remote: bool = False


@dataclass(frozen=True, slots=True)
class Quoted:
    """A command line in single quotes that starts a run: the text inside, what runs it, and the state it is run in.

    ``before`` is the command as this shell runs it, ``inside`` what the programs around leave of its environment.
    """

    text: ShellDoc
    call: Shell
    before: Invocation
    inside: Invocation


def unseen_variables(
    shell: ShellDoc, every: Sequence[Quoted], handed: Callable[[], frozenset[str]]
) -> Iterator[Unseen]:
    """Each variable once for each text in quotes; ``handed`` are the names that the caller of the script exports."""
    for quoted in every:
        if not _is_shell(quoted):
            continue
        for name, use in _asked(quoted.text):
            if not _is_unseen(name, quoted):
                continue
            found = _assigned(shell, name, quoted.before)
            if found is None or name in handed():
                continue
            used = quoted.text.source.location(quoted.text.span(use), "asks for it")
            place = shell.source.location(shell.span(found), f"sets `{name}`")
            program = quoted.before.words[0].raw
            yield Unseen(name, place, used, program, found.type in _FORS, quoted.call.kind == "ssh")


def _is_shell(quoted: Quoted) -> bool:
    """A shell of its own runs the text, here or on another machine, and nothing may have set further names."""
    names = {program_name(words[0]) for words in quoted.call.around.words if words}
    if "" in quoted.before.env or quoted.call.kind not in ("-c", "ssh"):
        return False
    return bool(names & _REMOTE) if quoted.call.kind == "ssh" else "" not in quoted.inside.env


def _is_unseen(name: str, quoted: Quoted) -> bool:
    """The shell has the variable and does not hand it over, and no word of the command speaks of it."""
    fact = quoted.before.env.get(name)
    if fact is None or not fact.reason.endswith(NOT_EXPORTED) or _COMMON.fullmatch(name):
        return False
    inside = quoted.inside.env.get(name)
    if inside is not None and not inside.reason.endswith(NOT_EXPORTED):
        return False
    held = quoted.before.scope.values.get(name)
    if quoted.before.scope.exports.get(name, False) is not False:
        return False  # one way leads past an export
    if isinstance(held, Value) and held.is_default:
        return False
    line = quoted.call.words[0].location
    others = [word.raw for word in quoted.before.words if word.location != line]
    return not any(re.search(rf"(?<![\w${{]){name}\b", raw) for raw in others)


def _asked(text: ShellDoc) -> Iterator[tuple[str, Node]]:
    """The variables that a text asks for and that nothing in it may set, with their places."""
    sets = assigned_names(text, text.root)
    seen: set[str] = set()
    for node, name in expansions(text.root, text) if sets is not None else ():
        raw = text.raw(node)
        if _DEFAULT.match(raw) or not _PLAIN_USE.fullmatch(raw):
            seen.add(name)  # the text knows that it may be empty
        elif name not in seen and sets is not None and name not in sets:
            seen.add(name)
            yield name, next(child for child in node.children if child.type == "variable_name")


def _assigned(shell: ShellDoc, name: str, before: Invocation) -> Node | None:
    """The first place where the shell sets a variable; ``None`` where its caller may have set it, too."""
    end, first = before.node.start_byte, None
    for node in in_order(shell.root):
        if node.start_byte >= end:
            break
        if node.type in ("simple_expansion", "expansion") and first is None:
            if any(child.type == "variable_name" and shell.raw(child) == name for child in node.children):
                return None  # it is read before it is set
        elif _sets(node, name, shell) and first is None:
            value = node.child_by_field_name("value")
            if value is not None and any(each == name for _, each in expansions(value, shell)):
                return None
            declared = node.parent is not None and node.parent.type == "declaration_command"
            first = node.parent if declared else node
    return first


def _sets(node: Node, name: str, shell: ShellDoc) -> bool:
    if node.type == "variable_assignment":
        is_prefix = node.parent is not None and node.parent.type == "command"
        target = node.child_by_field_name("name")
        return not is_prefix and target is not None and shell.raw(target) == name
    if node.type == "for_statement":
        target = node.child_by_field_name("variable")
        return target is not None and shell.raw(target) == name
    if node.type == "command" and re.match(r"(?:IFS=\S*\s+)?read\s", shell.raw(node)):
        return name in (command_names(shell.raw(node)) or ())
    return node.type == "c_style_for_statement" and re.match(rf"for\s*\(\(\s*{name}\s*=", shell.raw(node)) is not None
