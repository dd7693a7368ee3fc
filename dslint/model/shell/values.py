"""Static reading of a shell script: the commands it runs, with the words and the environment they receive.

The script is walked once in the order of the text. A variable has a value where the last assignment before it is
certain to have run; what a branch, a loop, a function or a sourced file may have changed is unknown afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dslint.core.source import SourceFile
from dslint.model.shell.commands import CommandReader, FindFile, Heredoc, Invocation
from dslint.model.shell.effects import assigned_names, side_effects
from dslint.model.shell.functions import Function
from dslint.model.shell.scope import Scope
from dslint.parse.shell import ShellDoc, parse_shell

if TYPE_CHECKING:
    from tree_sitter import Node

_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
# Scripts nest a handful of blocks; each costs several calls.
_MAX_DEPTH = 50
_SEQUENCES = frozenset({"program", "do_group", "compound_statement", "then", "negated_command"})


def read_invocations(
    doc: ShellDoc, wanted: Callable[[str], bool], scope: Scope | None = None, find_file: FindFile | None = None
) -> list[Invocation]:
    """The commands whose raw text is ``wanted``, in the order of the text."""
    found = read_statements(doc, wanted, scope, find_file)
    return [item for item in found if isinstance(item, Invocation)]


def read_statements(
    doc: ShellDoc, wanted: Callable[[str], bool], scope: Scope | None = None, find_file: FindFile | None = None
) -> list[Invocation | Heredoc]:
    """The commands and heredocs whose raw text is ``wanted``, in the order of the text.

    ``find_file`` finds the files that the script sources; without it they are unknown.
    """
    reader = _Reader(doc, wanted, find_file)
    reader.visit(doc.tree.root_node, scope or Scope())
    reader.functions.finish()
    return sorted([*reader.found, *reader.heredocs], key=lambda item: item.node.start_byte)


class _Reader(CommandReader):
    """One walk over one document."""

    def __init__(self, doc: ShellDoc, *others: Any) -> None:
        super().__init__(doc, *others)
        # Names that are set behind a function, by the identity of its node.
        self.assigned: dict[int, set[str] | None] = {}

    def read_other(self, source: SourceFile, scope: Scope) -> None:
        """Run another file in this state, for what it sets; its commands are read with the file itself."""
        other = _Reader(parse_shell(source), _nothing, self.find_file, self.functions)
        other.visit(other.doc.tree.root_node, scope)

    def visit(self, node: Node, scope: Scope) -> None:
        """Run one statement in ``scope``."""
        if self.depth >= _MAX_DEPTH:
            scope.forget(assigned_names(self.doc, node))
            return
        self.depth += 1
        self._visit(node, scope)
        self.depth -= 1

    def _visit(self, node: Node, scope: Scope) -> None:
        kind = node.type
        handler = getattr(self, f"_{kind}", None)
        if handler is not None:
            handler(node, scope)
        elif node.is_error or kind == "ERROR":
            scope.forget(assigned_names(self.doc, node))
        elif kind in _SEQUENCES:
            if kind == "compound_statement" and node.children[0].type == "((":
                scope.forget(side_effects(self.doc.raw(node)))
            else:
                self._sequence(node.children, scope)
        elif node.is_named and kind != "comment":
            scope.forget(side_effects(self.doc.raw(node)))

    def _sequence(self, nodes: list[Node], scope: Scope) -> None:
        for index, child in enumerate(nodes):
            if not child.is_named:
                continue
            background = index + 1 < len(nodes) and nodes[index + 1].type == "&"
            self.visit(child, scope.copy() if background else scope)

    def _branch(self, nodes: list[Node], scope: Scope) -> Scope:
        inner = scope.copy()
        self._sequence(nodes, inner)
        return inner

    def _simple(self, node: Node, scope: Scope) -> None:
        self.simple(node, scope)

    _command = _variable_assignment = _variable_assignments = _declaration_command = _unset_command = _simple

    def _list(self, node: Node, scope: Scope) -> None:
        operands: list[tuple[str, Node]] = []
        while node.type == "list":
            parts = [c for c in node.children if c.type != "comment"]
            if len(parts) < 3:
                break
            operands.append((parts[1].type, parts[2]))
            node = parts[0]
        self.visit(node, scope)
        success = scope.copy()
        for operator, operand in reversed(operands):
            if operator == "&&":
                self.visit(operand, success)
            else:
                other = success.copy()
                self.visit(operand, other)
                if not re.match(r"(exit|return)\b", self.doc.raw(operand)):
                    success.merge(other)
        scope.merge(success)

    def _pipeline(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            self.visit(child, scope.copy())

    def _subshell(self, node: Node, scope: Scope) -> None:
        self._sequence(node.children, scope.copy())

    def _redirected_statement(self, node: Node, scope: Scope) -> None:
        extra = [c for c in node.named_children if c.type in _REDIRECTS]
        for child in node.named_children:
            if child.type == "command":
                self.simple(child, scope, extra)
            elif child.type not in _REDIRECTS:
                self.visit(child, scope)
        self._heredocs(node, extra, scope)
        # ``cmd <<EOF | tee log``: the grammar hangs the rest of the line on the heredoc.
        for child in extra:
            for inner in child.named_children:
                if inner.type in ("pipeline", "list"):
                    self._sequence(inner.children, scope.copy())

    def _heredocs(self, node: Node, redirects: list[Node], scope: Scope) -> None:
        for redirect in redirects:
            body = next((c for c in redirect.children if c.type == "heredoc_body"), None)
            start = next((c for c in redirect.children if c.type == "heredoc_start"), None)
            if body is None or start is None or not self.wanted(self.doc.raw(body)):
                continue
            span = self.doc.local(body)
            head = self.doc.text[self.doc.local(node).start : span.start].partition("\n")[0]
            literal = bool(set(self.doc.raw(start)) & set("\"'\\"))
            found = Heredoc(node, head, self.doc.text[span.start : span.end], span.start, literal, scope.copy())
            self.heredocs.append(found)

    def _if_statement(self, node: Node, scope: Scope) -> None:
        children = node.children
        at = next((i for i, c in enumerate(children) if c.type == "then"), len(children))
        self._sequence(children[:at], scope)
        branches = [c for c in children[at:] if c.type in ("elif_clause", "else_clause")]
        ends = [self._branch([c for c in children[at:] if c not in branches], scope)]
        for clause in branches:
            if clause.type == "elif_clause":
                then = next((i for i, c in enumerate(clause.children) if c.type == "then"), 0)
                self._sequence(clause.children[:then], scope)
                ends.append(self._branch(clause.children[then:], scope))
            else:
                ends.append(self._branch(clause.children, scope))
        if branches and branches[-1].type == "else_clause":
            first = ends.pop(0)
            scope.values, scope.exported, scope.cwd = first.values, first.exported, first.cwd
            scope.open, scope.export_all = first.open, first.export_all
        for end in ends:
            scope.merge(end)

    def _case_statement(self, node: Node, scope: Scope) -> None:
        ends = [self._branch(c.named_children[1:], scope) for c in node.named_children if c.type == "case_item"]
        for end in ends:
            scope.merge(end)

    def _loop(self, node: Node, scope: Scope) -> None:
        # From the second turn on, a variable may hold what the body gave it.
        scope.forget(assigned_names(self.doc, node))
        scope.merge(self._branch(node.children, scope))

    _while_statement = _for_statement = _c_style_for_statement = _loop

    def _set_after(self, node: Node) -> set[str] | None:
        """Names that the statements behind ``node`` set."""
        if node.id not in self.assigned and node.parent is not None:
            names: set[str] | None = set()
            for sibling in reversed(node.parent.children):
                if sibling.type == "function_definition":
                    self.assigned[sibling.id] = None if names is None else set(names)
                more = assigned_names(self.doc, sibling)
                names = None if names is None or more is None else names | more
        return self.assigned.get(node.id)

    def _function_definition(self, node: Node, scope: Scope) -> None:
        names = assigned_names(self.doc, node)
        body = node.child_by_field_name("body")
        if body is None:
            return
        # Run by some call below: whatever the rest of the file sets may have been set by then.
        outer = scope.copy()
        outer.forget(names)
        outer.forget(self._set_after(node))
        self.functions.define(self.doc.raw(node.named_children[0]), Function(self, body, names, outer))


def _nothing(_: str) -> bool:
    return False
