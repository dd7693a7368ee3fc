"""The places of nodes are those that LibCST's own provider finds, whichever node is asked for first."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from dslint.core.source import SourceFile, Span
from dslint.parse.places import places
from dslint.parse.python import ScriptDoc, parse_script

ROOT = Path(__file__).resolve().parents[1]
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
