"""A batch script as Slurm reads it: its directives as lines of text, and what bash expands before ``srun`` runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.source import Span
from dslint.parse.shell import ShellDoc, expansions, in_order

if TYPE_CHECKING:
    from tree_sitter import Node

# Different on every task: what bash puts in before ``srun`` starts them is the value of the batch shell.
OF_TASK = frozenset({"SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID"})
# A function may be exported and run by the tasks themselves.
_FUNCTIONS = frozenset({"function_definition"})
# What a text must hold for directives, and for ranks that bash expands.
FIRST_DIRECTIVE, FIRST_RANK = "#SBATCH", "SLURM_(?:PROCID|NODEID|LOCALID)"
# What stands before a rank: ``--node_rank=``, ``RANK=``.
_FLAG = re.compile(r"(--(?:node|machine|local|global)?[-_]?rank)(?:[ \t]+|=|\s*\\\n\s*)[\"']?$")
_VARIABLE = re.compile(r"(?:^|[\s;\"'(&|,])((?:NODE_|GROUP_|MACHINE_|LOCAL_|GLOBAL_)?RANK)=[\"']?$")
_RANK_NAME = re.compile(r"(?:NODE_|GROUP_|MACHINE_|LOCAL_|GLOBAL_)?RANK|\w*NODE_?(?:RANK|ID)", re.IGNORECASE)
_DYNAMIC = re.compile(r"--rdzv[-_]backend(?:\s+|=)[\"']?(?:c10d|etcd)")


@dataclass(frozen=True, slots=True)
class Directive:
    """A ``#SBATCH`` line without its comment; ``is_read``: no command stands before it."""

    span: Span
    text: str
    is_read: bool


@dataclass(frozen=True, slots=True)
class EarlyRank:
    """A rank of a task that bash expands before ``srun`` starts the tasks.

    ``variable`` is the one of Slurm, ``use`` where it ends up (``--node_rank``, ``RANK``). ``span`` is the expansion
    to change, ``srun`` the command that runs what it stands in, ``via`` an assignment in between. ``escapes``: a
    ``\\`` before the ``$`` hands the variable on to the shell that ``srun`` starts. ``is_exported``: the processes find
    it in their environment.
    """

    variable: str
    use: str
    span: Span
    srun: Span
    via: Span | None
    escapes: bool
    is_exported: bool = False


def directives(shell: ShellDoc) -> tuple[Directive, ...]:
    """All ``#SBATCH`` lines of a text, also those behind the first command, which Slurm ignores.

    A second ``#!`` line begins another script: what follows is not looked at.
    """
    if FIRST_DIRECTIVE not in shell.text:
        return ()
    first = next((c for c in shell.root.named_children if c.type != "comment"), None)
    end = shell.span(first).start if first is not None else shell.span_in_source.end
    found: list[Directive] = []
    heredoc = shell.text.find("<<") if shell.errors else -1
    for comment in shell.comments:
        text = shell.text[comment.start - shell.base : comment.end - shell.base]
        if text.startswith("#!") and (found or comment.start > end):
            break
        if 0 <= heredoc < comment.start - shell.base:
            break  # a text of another shell, whose heredocs are not seen as such
        begins = comment.start == shell.base or shell.text[comment.start - shell.base - 1] == "\n"
        if begins and re.match(r"#SBATCH[ \t]", text):
            body = re.split(r"[ \t]#", text)[0].rstrip()
            span = Span(comment.start, comment.start + len(body))
            found.append(Directive(span, body, comment.start < end))
    return tuple(found)


# ``srun python train.py``: no launcher gives the processes ranks of their own. Several tasks are asked for.
_SCRIPT_ALONE = re.compile(
    r"\A(?!.*(?:torchrun|torch\.distributed|deepspeed|accelerate|\.sh\b|--export)).*\bpython[\d.]*\s", re.DOTALL
)
_SEVERAL = re.compile(r"(?:--ntasks(?:-per-node)?[= ]|--nodes[= ]|\s-[nN][ ]?)(?:[2-9]|\d{2,})")


def early_ranks(shell: ShellDoc) -> Iterator[EarlyRank]:
    """Ranks of tasks in commands that ``srun`` runs, and in the variables that these commands are made of."""
    if "srun" not in shell.text or not any(name in shell.text for name in OF_TASK) or shell.anchor is not None:
        return
    # Variable -> the expansion in its value, whether a rank stands before it there, and the assignment.
    kept: dict[str, tuple[EarlyRank, bool]] = {}
    for node in in_order(shell.root, _FUNCTIONS):
        if node.type == "variable_assignment":
            _keep(node, shell, kept)
        elif _is_srun(node, shell):
            yield from _in_srun(node, shell, kept)


def _keep(node: Node, shell: ShellDoc, kept: dict[str, tuple[EarlyRank, bool]]) -> None:
    name = child_text(node, "name", shell)
    value = node.child_by_field_name("value")
    appends = "+=" in shell.raw(node)[: len(name) + 2]
    if name and not appends:
        kept.pop(name, None)
    if not name or value is None or _DYNAMIC.search(shell.raw(node)):
        return
    for expansion, variable in _expansions(value, shell):
        span = shell.span(expansion)
        use = _use(shell, span.start, shell.span(node).start)
        if variable in OF_TASK and (use or (_RANK_NAME.fullmatch(name) and _is_all(expansion, value))):
            own = use not in ("", name)
            exported = node.parent is not None and shell.raw(node.parent).startswith("export")
            kept[name] = (EarlyRank(variable, use or name, span, span, shell.span(node), own, exported), own)
        elif use and variable in kept and not kept[variable][1]:
            first = kept[variable][0]
            kept[name] = (EarlyRank(first.variable, use, span, span, first.via, False), True)
        elif variable in kept and kept[variable][1]:
            kept[name] = kept[variable]


def _in_srun(node: Node, shell: ShellDoc, kept: dict[str, tuple[EarlyRank, bool]]) -> Iterator[EarlyRank]:
    body, srun = _with_heredoc(node), shell.span(node)
    text = shell.raw(body)
    if _DYNAMIC.search(text):
        return
    has_shell = re.search(r"\b(?:ba|z)?sh\s+(?:-\w+\s+)*-\w*c\b|<<", text) is not None
    seen: set[str] = set()
    for expansion, variable in _expansions(body, shell):
        span = shell.span(expansion)
        use = _use(shell, span.start, srun.start)
        if variable in OF_TASK and use:
            inside = expansion.parent is not None and expansion.parent.type in ("string", "heredoc_body")
            yield EarlyRank(variable, use, span, srun, None, has_shell and inside)
        elif variable in kept and variable not in seen:
            early, carries = kept[variable]
            seen.add(variable)
            if carries:
                yield EarlyRank(early.variable, early.use, early.span, srun, _other(early), has_shell and early.escapes)
            elif use:
                yield EarlyRank(early.variable, use, span, srun, early.via, False)
    if not has_shell and _SCRIPT_ALONE.search(text) and _SEVERAL.search(shell.text):
        for name in ("RANK", "LOCAL_RANK"):
            found = kept.get(name)
            if found is not None and found[0].is_exported and name not in text:
                yield EarlyRank(found[0].variable, name, found[0].span, srun, None, False, True)


def _other(early: EarlyRank) -> Span | None:
    """The assignment in between, where it is another place than the expansion."""
    inside = early.via is not None and early.via.start <= early.span.start < early.via.end
    return None if inside else early.via


def _is_srun(node: Node, shell: ShellDoc) -> bool:
    name = node.child_by_field_name("name") if node.type == "command" else None
    return name is not None and re.fullmatch(r"(?:\S*/)?srun", shell.raw(name)) is not None


def _with_heredoc(node: Node) -> Node:
    parent = node.parent
    if parent is not None and parent.type == "redirected_statement":
        return parent
    return node


def _is_all(expansion: Node, value: Node) -> bool:
    """The value is the variable and nothing else."""
    return value.end_byte - value.start_byte <= expansion.end_byte - expansion.start_byte + 2


def _use(shell: ShellDoc, at: int, begin: int) -> str:
    """``--node_rank`` or ``RANK``, when the expansion at this place is the value of such a thing."""
    before = shell.text[max(begin, at - 80) - shell.base : at - shell.base]
    found = _FLAG.search(before) or _VARIABLE.search(before)
    return found[1] if found else ""


def _expansions(root: Node, shell: ShellDoc) -> Iterator[tuple[Node, str]]:
    # ``${X:-1}`` and the like do more than expand.
    for node, name in expansions(root, shell, _FUNCTIONS):
        if re.fullmatch(r"\$\{?\w+\}?", shell.raw(node)):
            yield node, name


def child_text(node: Node, field: str, shell: ShellDoc) -> str:
    """Return what a field of a node says; empty where it has none."""
    child = node.child_by_field_name(field)
    return shell.raw(child) if child is not None else ""
