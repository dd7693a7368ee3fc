"""Which variables a piece of shell code may change: after code that may or may not run, they are unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.model.shell.words import NAME
from dslint.parse.shell import ShellDoc

if TYPE_CHECKING:
    from tree_sitter import Node

_DEFAULT_ASSIGN = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[^]]*\])?:?=")
_CHANGES = re.compile(r"(?<![=!<>])=(?!=)|\+\+|--")
# Builtins whose operands are names that they set.
SETTERS = frozenset({"read", "mapfile", "readarray", "getopts", "let", "unset", "printf", "wait"})
OPENERS = frozenset({"eval", "source", "."})
_QUIET_SOURCES = re.compile(
    r"(activate|conda\.sh|\.bashrc|\.bash_profile|\.profile|/etc/profile\S*|setvars\.sh)['\"]?\s*$"
)


def opens_scope(command: str) -> bool:
    """Whether ``source X`` or ``eval X`` may set variables that matter to a launch (activating Python does not)."""
    return not _QUIET_SOURCES.search(command) and "conda" not in command


def assigned_names(doc: ShellDoc, root: Node) -> frozenset[str] | None:
    """Names that the code under ``root`` may set; ``None`` when that may be any."""
    known = doc.syntax.assigned
    if root.id not in known:
        known[root.id] = _assigned_names(doc, root)
    return known[root.id]


def _assigned_names(doc: ShellDoc, root: Node) -> frozenset[str] | None:
    names: set[str] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        kind = node.type
        if kind in ("variable_assignment", "for_statement", "declaration_command", "unset_command"):
            names |= {doc.raw(c).partition("[")[0] for c in node.children if c.type in _NAMES}
        elif kind == "command":
            found = command_names(doc.raw(node))
            if found is None:
                return None
            names |= found
        elif kind == "c_style_for_statement":
            names |= arithmetic_names(doc.raw(node))
        elif kind in ("arithmetic_expansion", "expansion") or _is_arithmetic(node):
            names |= side_effects(doc.raw(node))
            continue
        stack += node.named_children
    return frozenset(names)


def _is_arithmetic(node: Node) -> bool:
    return node.type == "compound_statement" and node.child_count > 0 and node.children[0].type == "(("


_NAMES = frozenset({"variable_name", "subscript", "word"})


def command_names(raw: str) -> set[str] | None:
    """Names that one simple command may set beside its effect as a program."""
    words = raw.split()
    head = next((w for w in words if not re.match(r"[A-Za-z_]\w*=", w)), "")
    if head in OPENERS:
        return None if opens_scope(raw) else set()
    if head in ("command", "builtin"):
        return set(NAME.findall(raw))
    if head in SETTERS:
        return set(NAME.findall(raw))
    return set()


def text_names(text: str) -> set[str] | None:
    """Names that a command line kept in a variable may set when ``eval`` runs it."""
    if set(re.findall(r"[\w.]+", text)) & (OPENERS - {"."} | SETTERS):
        return None
    return set(re.findall(r"([A-Za-z_]\w*)\+?=", text))


def side_effects(raw: str) -> set[str]:
    """Names that the expansions inside a statement set: ``${X:=1}``, ``$((i++))``."""
    names = set(_DEFAULT_ASSIGN.findall(raw)) if "${" in raw and "=" in raw else set()
    at = raw.find("((")
    while at >= 0:
        end = _closing(raw, at)
        names |= arithmetic_names(raw[at:end])
        at = raw.find("((", end)
    return names


def arithmetic_names(raw: str) -> set[str]:
    """Names in an arithmetic expression that assigns to something."""
    return set(NAME.findall(raw)) if _CHANGES.search(raw) else set()


def _closing(raw: str, at: int) -> int:
    depth = 0
    for index in range(at, len(raw)):
        depth += {"(": 1, ")": -1}.get(raw[index], 0)
        if not depth:
            return index + 1
    return len(raw)
