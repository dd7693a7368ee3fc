"""Hjson to plain JSON: Python's own reader is the judge, and the data stay the same."""

from __future__ import annotations

import json
import random

import pytest

from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.plainjson import as_plain_json, json_refusal
from dslint.parse.data import DataDoc
from dslint.parse.jsondoc import parse_json


def parse(text: str) -> DataDoc:
    return parse_json(SourceFile("ds.json", text))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1 // one\n}',
        '# head\n{"a": 1}\n',
        '{\n  /* two\n     lines */\n  "a": 1, /* b */ "b": 2,\n}\n',
        '{\r\n  "a": 1, # one\r\n  # two\r\n  "b": [1, 2,],\r\n}\r\n',
        "{a: 1, b: 'x', c: \"#\"}",
        "{\n  a: some text\n  b: 2\n}",
        '{"a": "x" /* in */, "t~/": {"b": true,},}',
        "{\"a\": '''\n  long\n  text\n'''}",
        '{"a/b": \'say "hi"\', ünd: 1}',
    ],
)
def test_what_hjson_allows_becomes_plain_json_with_the_same_data(text: str) -> None:
    doc = parse(text)
    assert json_refusal(doc) is not None
    plain = apply_edits(text, as_plain_json(doc))
    assert json.loads(plain) == doc.data
    assert json_refusal(parse(plain)) is None


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": "# no // comment /* here */,}"}', '{"a": NaN}', "[1, 2]"])
def test_plain_json_is_left_alone(text: str) -> None:
    assert json_refusal(parse(text)) is None


@pytest.mark.parametrize(
    "text", ['{"a": 1, # x\n "a": 2}', '{"a": tru # x\n, b}', "a: 1 # no braces\n", "[1, # x\n 2]"]
)
def test_no_edits_where_the_result_is_not_proved(text: str) -> None:
    assert as_plain_json(parse(text)) == ()


def test_any_mixture_of_the_liberties() -> None:
    dice = random.Random(3)
    for _ in range(300):
        data = {f"key{i}": dice.choice([1, True, None, "a # b", 'q"', [1, "x"], {"in": 2}]) for i in range(3)}
        lines = []
        for key, value in data.items():
            name = dice.choice([key, json.dumps(key), f"'{key}'"])
            lines += [
                dice.choice(["", "  # note", "// note, with }"]),
                f"  {name}: {json.dumps(value)}{dice.choice([',', ', # x', ''])}",
            ]
        text = "{\n" + "\n".join(lines) + dice.choice(["\n}", "\n} // end"]) + dice.choice(["", "\n"])
        doc = parse(text)
        if json_refusal(doc) is not None:
            assert json.loads(apply_edits(text, as_plain_json(doc))) == data, text
