"""The places of nodes are those that LibCST's own provider finds, whichever node is asked for first."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from dslint.core.source import SourceFile, Span
from dslint.parse.places import places
from dslint.parse.python import ScriptDoc, parse_script
from dslint.parse.statements import Statements
from dslint.parse.tree import Tree

# Statements whose place the standard library says in bytes, lines of several kinds of breaks, or of more than one text.
ODD = (
    "é = 'ü'; b = (1,\n  2); c = 3\nclass A: x = 'é'; y = 1\n",
    "if a:\n\tif b: c(1)\n\telif d:\n\t\te(\n\t\t\tf,  # é\n\t\t)\n\telse: g\n",
    "try:\r\n    a()\r\nexcept B as c:\r\n    d(\r\n  1)\r\nelse:\r\n    e\r\nfinally:\r\n    f\r\n",
    'match a:\n    case {\'b\': [c, *_]} if c: d(c)\n    case _:\n        """x\n  é"""; e()\n',
    "async def f():\n    async with a as b, c: await d(\\\n        e)\n    for x in y: pass\n    else:\n      z()\n",
    "@f(1)\ndef g(a=h(2), *b: c) -> d:\n  # before\n\n  return {a: b for a in c}\n\x0c\nwhile x: y()\n",
)

ROOT = Path(__file__).resolve().parents[2]
TEXTS = (
    "",
    "\n",
    "# only a comment",
    "x = 1",
    "if a:\n    b = (\n        1,  # one\n    )\n\nelse: c ( d )\n",
    "@f\nclass A ( B ) :\n\n    def g(self, *, x=[i for i in y]): return lambda: (yield)\n",
    "\tfrom . import (a, b)\n".lstrip(),
)


@pytest.mark.parametrize("text", [*TEXTS, (ROOT / "dslint/engine/judge.py").read_text("utf-8")])
def test_places_are_those_of_the_provider(text: str) -> None:
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    spans = wrapper.resolve(ByteSpanPositionProvider)
    expected = {node: (span.start, span.start + span.length) for node, span in spans.items()}
    assert places(wrapper.module) == expected
    for node, place in list(expected.items())[:: max(1, len(expected) // 40)]:
        assert places(wrapper.module, node)[node] == place


def test_a_place_is_the_same_whoever_was_asked_for_before() -> None:
    source = SourceFile("a.py", (ROOT / "dslint/engine/judge.py").read_text("utf-8"))
    doc = parse_script(source)
    assert isinstance(doc, ScriptDoc)
    known = places(doc.module)
    nodes = [node for node in known if type(node) is cst.Call]
    for node in (nodes[40], nodes[3], nodes[-1], nodes[50], doc.module):
        assert doc.span(node) == Span(*known[node])
    assert doc.span(cst.Name("elsewhere")) == Span(0, 0)


@pytest.mark.parametrize("text", [*TEXTS, *ODD, (ROOT / "dslint/engine/judge.py").read_text("utf-8")])
def test_the_code_of_one_statement_says_where_its_nodes_stand(text: str) -> None:
    source = SourceFile("a.py", text)
    doc = parse_script(source)
    assert isinstance(doc, ScriptDoc)
    assert doc.tree is not None
    expected, tree = places(doc.module), Tree(doc.module)
    statements = Statements(source, doc.module, doc.tree)
    for node in tree.order[1:]:
        found = statements.place(node, tree.parents(node))
        is_decorator = type(node) is cst.Decorator or tree.enclosing(node, cst.Decorator) is not None
        assert found == (None if is_decorator else expected[node]), (type(node), expected[node])


def test_a_statement_that_is_not_written_as_the_source_is_has_no_place_of_its_own() -> None:
    text = "a = 1\nb = f(2)\n"
    doc = parse_script(SourceFile("a.py", text))
    assert isinstance(doc, ScriptDoc)
    assert doc.tree is not None
    tree = Tree(doc.module)
    call = tree.every(cst.Call)[0]
    other = Statements(SourceFile("a.py", text.replace("f(2", "g(2")), doc.module, doc.tree)
    assert other.place(call, tree.parents(call)) is None
    with pytest.raises(ValueError, match="other statements"):
        Statements(doc.source, doc.module, ast.parse("a = 1\n"))


def test_the_place_of_a_finding_does_not_cost_the_code_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    doc = parse_script(SourceFile("a.py", "x = 0\n" * 1000 + "@g\ndef f():\n    a(1)\n"))
    assert isinstance(doc, ScriptDoc)
    tree = Tree(doc.module)
    doc.parents = tree.parents
    called, decorator = tree.every(cst.Call)[0], tree.every(cst.Decorator)[0]
    before = doc.span(decorator)  # not found by its statement alone
    monkeypatch.setattr("dslint.parse.places.places", None)
    assert (before, doc.span(called)) == (Span(6000, 6002), Span(6016, 6020))
