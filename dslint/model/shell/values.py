"""Static reading of a shell script: the commands it runs, with the words and the environment they receive.

The script is walked once in the order in which bash runs it. Tests that the text decides are decided; where nobody
knows, both arms are walked, and what they leave differently is a choice between them (:mod:`.flow.choices`). What a
sourced file that is not here or a loop without known turns may have changed is unknown afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dslint.core.source import SourceFile
from dslint.model.shell.assigning import FindFile
from dslint.model.shell.commands import Heredoc, Invocation
from dslint.model.shell.effects import assigned_names, side_effects
from dslint.model.shell.flow.loops import LoopReader
from dslint.model.shell.functions import Function
from dslint.model.shell.scope import Scope
from dslint.parse.shell import ShellDoc, parse_shell

if TYPE_CHECKING:
    from tree_sitter import Node

REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
# Scripts nest a handful of blocks; each costs several calls.
_MAX_DEPTH = 50
_SEQUENCES = frozenset({"program", "do_group", "then"})


def read_statements(
    doc: ShellDoc,
    wanted: Callable[[str], bool],
    scope: Scope | None = None,
    find_file: FindFile | None = None,
    may_begin: Callable[[str], bool] | None = None,
) -> list[Invocation | Heredoc]:
    """The commands and heredocs whose raw text is ``wanted``, in the order of the text.

    ``find_file`` finds the files that the script sources; without it they are unknown. Commands whose first word as
    written is none that ``may_begin`` are left out.
    """
    reader = _Reader(doc, wanted, find_file)
    reader.may_begin = may_begin
    reader.visit(doc.root, scope or Scope())
    reader.functions.finish()
    return sorted([*reader.found, *reader.heredocs], key=lambda item: item.node.start_byte)


class _Reader(LoopReader):
    """One walk over one document."""

    def __init__(self, doc: ShellDoc, *others: Any) -> None:
        super().__init__(doc, *others)
        # Names that are set behind a function, by the identity of its node.
        self.assigned: dict[int, set[str] | None] = {}

    def read_other(self, source: SourceFile, scope: Scope) -> None:
        """Run another file in this state, for what it sets; its commands are read with the file itself."""
        other = _Reader(parse_shell(source), _nothing, self.find_file, self.functions)
        with self.functions.sourcing(scope):
            other.visit(other.doc.root, scope)

    def visit(self, node: Node, scope: Scope) -> Any:
        """Run one statement in ``scope``; its status as a tree of booleans, ``None`` when nobody knows."""
        if self.depth >= _MAX_DEPTH:
            scope.forget(assigned_names(self.doc, node))
            return None
        self.depth += 1
        status = self._visit(node, scope)
        self.depth -= 1
        return status

    def _visit(self, node: Node, scope: Scope) -> Any:
        kind = node.type
        handler = getattr(self, f"_{kind}", None)
        if handler is not None:
            return handler(node, scope)
        if node.is_error or kind == "ERROR":
            scope.forget(assigned_names(self.doc, node))
        elif kind in _SEQUENCES:
            return self.sequence(node.children, scope)
        elif node.is_named and kind != "comment":
            scope.forget(side_effects(self.doc.raw(node)))
        return None

    def sequence(self, nodes: Sequence[Node], scope: Scope) -> Any:
        """Run statements one after the other; the status of the last."""
        status = None
        for index, child in enumerate(nodes):
            if scope.ended:
                return None
            if not child.is_named or child.type == "comment":
                continue
            if index + 1 < len(nodes) and nodes[index + 1].type == "&":
                self._apart([child], scope)
                status = None
            else:
                status = self.visit(child, scope)
        return status

    def _apart(self, nodes: Sequence[Node], scope: Scope) -> None:
        """Run statements in a shell of their own."""
        inner = scope.copy()
        loops, self.loops = self.loops, []
        with self.functions.apart():
            self.sequence(nodes, inner)
        self.loops = loops

    def _simple(self, node: Node, scope: Scope) -> Any:
        return self.simple(node, scope)

    _command = _variable_assignment = _variable_assignments = _declaration_command = _unset_command = _simple

    def _compound_statement(self, node: Node, scope: Scope) -> Any:
        if not node.children or node.children[0].type != "((":
            return self.sequence(node.children, scope)
        raw = self.doc.raw(node)
        if self.calculate(raw[2:].rstrip().removesuffix("))"), scope):
            return None
        if side_effects(raw):
            scope.forget(side_effects(raw), "computed by an arithmetic command")
            return None
        return self.test(raw, self.doc.local(node).start, scope)

    def _pipeline(self, node: Node, scope: Scope) -> Any:
        for child in node.named_children:
            self._apart([child], scope)

    def _subshell(self, node: Node, scope: Scope) -> Any:
        self._apart(node.children, scope)

    def _redirected_statement(self, node: Node, scope: Scope) -> Any:
        status = None
        extra = [c for c in node.named_children if c.type in REDIRECTS]
        for child in node.named_children:
            if child.type == "command":
                status = self.simple(child, scope, extra)
            elif child.type not in REDIRECTS:
                status = self.visit(child, scope)
        self._heredocs(node, extra, scope)
        # ``cmd <<EOF | tee log``: the grammar hangs the rest of the line on the heredoc.
        for child in extra:
            for inner in child.named_children:
                if inner.type in ("pipeline", "list"):
                    self._apart(inner.children, scope)
        return status

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
