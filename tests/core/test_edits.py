"""Edits on JSON texts: the result parses again and differs from the original by the intended change only."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.edits import delete_member, delete_members, insert_member, rename_key, replace_value
from dslint.parse.data import DataDoc, join_pointer, split_pointer
from dslint.parse.jsondoc import parse_json


def parse(text: str) -> DataDoc:
    return parse_json(SourceFile("ds.json", text))


KEYS = st.sampled_from(["stage", "fp16", "a/b", "t~", "überschlag", "lr", "betas"])
SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.none(), st.text(',{}[]: #/\\"x', max_size=4))
DATA = st.dictionaries(
    KEYS, st.recursive(SCALARS, lambda v: st.dictionaries(KEYS, v, max_size=3), max_leaves=8), max_size=4
)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[object, str]:
    """Data and one of the many ways to write it: indents, comments, trailing commas, line ends."""
    data = draw(DATA)
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    compact = draw(st.booleans())
    trailing = draw(st.booleans())

    def write(value: object, depth: int) -> str:
        if not isinstance(value, dict):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        if not value:
            return draw(st.sampled_from(["{}", "{ }", "{" + newline + "}"]))
        pairs = [f"{json.dumps(k)}: {write(v, depth + 1)}" for k, v in value.items()]
        if compact and draw(st.booleans()):
            return "{" + ", ".join(pairs) + ("," if trailing else "") + "}"
        pad = "  " * (depth + 1)
        lines = []
        for at, pair in enumerate(pairs):
            comma = "," if at < len(pairs) - 1 or trailing else ""
            note = draw(st.sampled_from(["", "", " // note, with } marks", " /* note */", " # note"]))
            above = draw(st.sampled_from(["", "", f"{pad}// above{newline}"]))
            lines.append(f"{above}{pad}{pair}{comma}{note}{newline}")
        return "{" + newline + "".join(lines) + "  " * depth + "}"

    return data, write(data, 0)


def remove(data: object, pointer: str) -> object:
    out = copy.deepcopy(data)
    at = out
    *parents, last = split_pointer(pointer)
    for part in parents:
        at = at[part]  # type: ignore[index]
    del at[last]  # type: ignore[attr-defined]
    return out


def put(data: object, pointer: str, value: object) -> object:
    out = copy.deepcopy(data)
    at = out
    *parents, last = split_pointer(pointer)
    for part in parents:
        at = at[part]  # type: ignore[index]
    at[last] = value  # type: ignore[index]
    return out


def comments_of(doc: DataDoc) -> list[str]:
    return [doc.source.text[c.start : c.end] for c in doc.comments]


@settings(max_examples=300, deadline=None)
@given(layouts())
def test_deleting_any_member_removes_that_member_and_nothing_else(drawn: tuple[object, str]) -> None:
    data, text = drawn
    doc = parse(text)
    assert doc.data == data
    assert not doc.problems
    for pointer in doc.members:
        after = parse(apply_edits(text, delete_member(doc, pointer)))
        assert not after.problems, after.source.text
        assert after.data == remove(data, pointer), after.source.text
        if not isinstance(doc.get(pointer), dict):
            assert comments_of(after) == comments_of(doc)


@settings(max_examples=300, deadline=None)
@given(layouts(), st.data())
def test_deleting_several_members_of_an_object_leaves_the_others(
    drawn: tuple[object, str], choice: st.DataObject
) -> None:
    data, text = drawn
    doc = parse(text)
    for section in [p for p in doc.values if isinstance(doc.get(p), dict) and doc.get(p)]:
        pointers = [p for _, p, _ in doc.children(section)]
        gone = choice.draw(st.lists(st.sampled_from(pointers), unique=True, min_size=1))
        expected = data
        for pointer in gone:
            expected = remove(expected, pointer)
        after = parse(apply_edits(text, delete_members(doc, gone)))
        assert not after.problems, after.source.text
        assert after.data == expected, after.source.text
        assert len(after.trailing_commas) <= len(doc.trailing_commas), after.source.text


@settings(max_examples=300, deadline=None)
@given(layouts())
def test_inserting_into_any_object_adds_that_member_and_nothing_else(drawn: tuple[object, str]) -> None:
    data, text = drawn
    doc = parse(text)
    for parent in doc.values:
        if not isinstance(doc.get(parent), dict):
            continue
        edits = insert_member(doc, parent, "new_key", "true")
        if not edits:
            continue
        result = apply_edits(text, edits)
        after = parse(result)
        assert not after.problems, result
        assert after.data == put(data, join_pointer(parent, "new_key"), True), result
        assert sorted(comments_of(after)) == sorted(comments_of(doc))
        assert len(after.trailing_commas) == len(doc.trailing_commas), result


@settings(max_examples=150, deadline=None)
@given(layouts())
def test_replacing_and_renaming_change_one_member(drawn: tuple[object, str]) -> None:
    data, text = drawn
    doc = parse(text)
    for pointer in doc.members:
        after = parse(apply_edits(text, replace_value(doc, pointer, "42")))
        assert after.data == put(data, pointer, 42)
        renamed = parse(apply_edits(text, rename_key(doc, pointer, "renamed")))
        parent = pointer.rpartition("/")[0]
        expected = put(remove(data, pointer), join_pointer(parent, "renamed"), doc.get(pointer))
        assert renamed.data == expected


@pytest.mark.parametrize(
    ("text", "pointer", "expected"),
    [
        ('{\n  "a": 1,\n  "b": 2\n}\n', "/a", '{\n  "b": 2\n}\n'),
        ('{\n  "a": 1,\n  "b": 2\n}\n', "/b", '{\n  "a": 1\n}\n'),
        ('{"a": 1, "b": 2}', "/a", '{"b": 2}'),
        ('{"a": 1, "b": 2}', "/b", '{"a": 1}'),
        ('{"a": 1}', "/a", "{}"),
        ('{\n  "a": {\n    "x": 1\n  },\n  "b": 2,\n}', "/a", '{\n  "b": 2,\n}'),
    ],
)
def test_deletion_leaves_no_empty_line_and_no_dangling_comma(text: str, pointer: str, expected: str) -> None:
    assert apply_edits(text, delete_member(parse(text), pointer)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n  "z": {\n    "stage": 3\n  }\n}', '{\n  "z": {\n    "stage": 3,\n    "k": true\n  }\n}'),
        ('{\n\t"z": {\n\t\t"stage": 3,\n\t},\n}', '{\n\t"z": {\n\t\t"stage": 3,\n\t\t"k": true,\n\t},\n}'),
        ('{"z": {"stage": 3}}', '{"z": {"stage": 3, "k": true}}'),
        ('{"z": {}}', '{"z": {"k": true}}'),
        ('{\n  "z": {\n  }\n}', '{\n  "z": {\n    "k": true\n  }\n}'),
        ('{\n  "z": {\n    "stage": 3 // all\n  }\n}', '{\n  "z": {\n    "stage": 3, // all\n    "k": true\n  }\n}'),
    ],
)
def test_insertion_copies_indent_and_comma_style(text: str, expected: str) -> None:
    assert apply_edits(text, insert_member(parse(text), "/z", "k", "true")) == expected


def test_no_edit_where_the_text_is_broken_or_the_key_stands_twice() -> None:
    broken = parse('{"a": 1, "b" 2}')
    assert delete_member(broken, "/a") == ()
    twice = parse('{"a": 1, "a": 2}')
    assert delete_member(twice, "/a") == ()
    assert replace_value(twice, "/a", "3") == ()
    assert insert_member(parse('{"a": 1}'), "", "a", "2") == ()
    assert rename_key(parse('{"a": 1, "b": 2}'), "/a", "b") == ()
