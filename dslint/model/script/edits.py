"""Edits of a script: a statement that leaves the ``if`` around it."""

from __future__ import annotations

import libcst as cst

from dslint.core.fix import Edit
from dslint.core.source import Span
from dslint.model.script.tree import Tree
from dslint.parse.python import ScriptDoc


def only_statement_dedented(doc: ScriptDoc, tree: Tree, owner: cst.CSTNode, call: cst.Call) -> Edit | None:
    """Writes a call in place of the ``if`` that holds nothing else; ``None`` where a text edit may change more.

    That is so with an ``else`` or ``elif``, a comment between the test and the call, and a triple-quoted text.
    """
    if not isinstance(owner, cst.If) or owner.orelse or isinstance(tree.parent(owner), cst.If):
        return None
    if not isinstance(owner.body, cst.IndentedBlock) or len(owner.body.body) != 1:
        return None
    line = owner.body.body[0]
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(statement, cst.Expr) or statement.value is not call:
        return None
    text = doc.source.text
    outer, inner = doc.span(owner), doc.span(statement)
    head, body = text[outer.start : inner.start], text[inner.start : inner.end]
    if "#" in head or '"""' in body or "'''" in body:
        return None
    step = len(head) - head.rfind("\n") - 1 - (outer.start - text.rfind("\n", 0, outer.start) - 1)
    return Edit(doc.path, Span(outer.start, inner.end), body.replace("\n" + " " * step, "\n"))
