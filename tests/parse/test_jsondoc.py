"""The JSON reader: exact positions, what hjson accepts, and a clear word about everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from document_helpers import cut, same, walk
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dslint.core.source import SourceFile
from dslint.parse.data import DataDoc, split_pointer
from dslint.parse.jsondoc import parse_json
from dslint.parse.limits import MAX_DEPTH


def read(text: str) -> DataDoc:
    return parse_json(SourceFile("ds_config.json", text))


def messages(text: str) -> list[tuple[str, str]]:
    doc = read(text)
    return [(cut(doc, p.span), p.message) for p in doc.problems]


def nested(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=25,
    )


json_values = nested(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12))


@settings(deadline=None)
@given(json_values, st.sampled_from([None, 2]), st.booleans())
def test_generated_json_reads_as_json_loads_does_and_every_span_slices_back(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    doc = read(text)
    assert doc.problems == ()
    assert doc.relaxed == ()
    assert same(doc.data, json.loads(text))
    places = walk(doc.data)
    assert set(doc.values) == {pointer for pointer, _ in places}
    for pointer, part in places:
        assert same(json.loads(cut(doc, doc.values[pointer])), part)
        assert same(doc.get(pointer), part)
    for pointer, span in doc.keys.items():
        assert json.loads(cut(doc, span)) == split_pointer(pointer)[-1]
        member = json.loads("{" + cut(doc, doc.members[pointer]) + "}")
        assert same(next(iter(member.values())), doc.get(pointer))


marks = list("{}[]:,\"'\\#/*\n\r\t \0;=")
words = ["1", "-", "1e5", "true", "nul", "NaN", "//", "/*", "*/", "'''", "{{", "}}", "${", "\ud800", "é", "\\u12"]
words += ["\\u0041", "key", "zero_optimization", "True", "0x"]
pieces = st.sampled_from([*marks, *words, '"a"', "\u00a0"])
hjson_pieces = st.sampled_from(["\n", " ", "# c\n", "// c\n", "/* c */", "x y", '"a"', "'b'", "key", *"{}[]:,1"])


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(pieces, max_size=40).map("".join), st.text(st.characters(codec=None), max_size=40)))
@example("{" * 10_000)
@example("[" * 10_000)
@example('{"a":' * 10_000)
@example("[" * 10_000 + "]" * 10_000)
@example('[{"a":' * 10_000 + "1" + "}]" * 10_000)
@example('"\ud800')
@example("\0" * 100)
@example("")
def test_no_text_makes_the_reader_raise_and_every_span_lies_in_the_text(text: str) -> None:
    doc = read(text)
    spans = [*doc.keys.values(), *doc.values.values(), *doc.members.values(), *doc.comments, *doc.trailing_commas]
    spans += [p.span for p in doc.problems] + [p.span for p in doc.relaxed]
    spans += [s for d in doc.duplicates for s in (d.first, d.second)]
    assert all(0 <= s.start <= s.end <= len(text) for s in spans)
    assert {p for p, _ in walk(doc.data)} <= set(doc.values)
    assert set(doc.members) == set(doc.keys)
    assert all("\n" not in p.message for p in doc.problems)
    try:
        wanted = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not any(p.message.startswith("nested deeper") for p in doc.problems):
        assert same(doc.data, wanted)
        assert doc.problems == ()


@settings(max_examples=300, deadline=None)
@given(st.lists(hjson_pieces, max_size=25).map("".join))
@example('{a: 1\n"b": [1,2,\n3,]\n# c\n}')
@example("a: 1\nb: x y\n")
@example("{a: {b: {c: d\n}}}")
def test_text_that_hjson_reads_gives_the_same_data_without_a_problem(text: str) -> None:
    hjson = pytest.importorskip("hjson")
    try:
        wanted = json.loads(json.dumps(hjson.loads(text)))
    except Exception:  # hjson has IndexErrors of its own
        return
    doc = read(text)
    if doc.problems:
        # dslint is stricter only where hjson swallows what follows into a text without quotes, or reads nothing.
        swallowed = [v for _, v in walk(wanted) if isinstance(v, str) and set(v) & set(" ,}]:\"'")]
        assert swallowed or wanted == {}, doc.problems
    else:
        assert same(doc.data, wanted)


def test_comments_of_every_kind_and_trailing_commas_are_known() -> None:
    doc = read('{ // one\n  "a": "# no // comment", # two\n  /* three */ "b": [1, 2,],\n}')
    assert doc.data == {"a": "# no // comment", "b": [1, 2]}
    assert [cut(doc, c) for c in doc.comments] == ["// one", "# two", "/* three */"]
    assert [doc.source.line_column(c.start) for c in doc.trailing_commas] == [(3, 25), (3, 27)]
    assert doc.problems == ()


def test_a_duplicate_key_is_kept_and_the_later_value_wins_with_its_own_spans() -> None:
    doc = read('{"fp16": {"enabled": true}, "x": 1, "fp16": {"hysteresis": 2}}')
    assert doc.data == {"fp16": {"hysteresis": 2}, "x": 1}
    assert "/fp16/enabled" not in doc.values
    assert [(d.pointer, d.first.start, d.second.start) for d in doc.duplicates] == [("/fp16", 1, 36)]
    assert cut(doc, doc.members["/fp16"]) == '"fp16": {"hysteresis": 2}'


def test_positions_count_code_points_not_bytes() -> None:
    doc = read('{"é𝄞": "ü",\n "stage": 2}')
    assert cut(doc, doc.values["/é𝄞"]) == '"ü"'
    assert doc.value("/stage").region.line == 2
    assert doc.key("/stage").region.column == 2


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ('{"a": }', ":", "expected a value after `:`"),
        ('{"a" 1}', '"a"', "expected `:` and a value after the key `a`"),
        ('{"a": 1 "b": 2}', " ", "missing `,` between members"),
        ("[1 2]", " ", "missing `,` between items"),
        ('{"a": 1', "{", "unclosed `{`: no `}` ends it"),
        ('{"a": [1}', "[", "unclosed `[`: no `]` ends it"),
        ('{"a": 1}}', "}", "this `}` closes nothing"),
        ('{"a": 1,, "b": 2}', ",", "expected a key before this `,`"),
        ('{"a": True, "b": 2}', "True", "`True` is Python: JSON writes `true`"),
        ('{"a": cpu, "b": 2}', "cpu", "the text `cpu` needs quotes"),
        ('{"a": .5, "b": 2}', ".5", "`.5` is not how JSON writes a number"),
        ('{"a": "x\n}', '"x', "the string is never closed on its line"),
        ('{"a": "x\\q"}', "\\q", "no such escape in a JSON string: a backslash itself is written `\\\\`"),
        ('{"a" = 1}', "=", "expected `:` between key and value, found `=`"),
        ('{"a": 1; "b": 2}', ";", "expected `,`, found `;`"),
        ('{"a": 1} {"b": 2}', '{"b": 2}', "text after the end of the document"),
        ('{"a": ${X}}', "${X}", "a template placeholder is no JSON value"),
        ('{"a":\u00a01}', "\u00a0", "the character U+00A0 is no white space in JSON"),
        ('{"a": 1\0}', "\0", "the file holds a NUL byte: it is no text"),
        ("/* x\n{}", "/*", "the comment opened by `/*` is never closed"),
    ],
)
def test_a_mistake_is_named_at_its_place(text: str, where: str, message: str) -> None:
    assert (where, message) in messages(text)


def test_an_empty_file_is_one_problem_and_holds_nothing() -> None:
    for text in ("", " \n", "// only a comment"):
        doc = read(text)
        assert doc.data is None
        assert [p.message for p in doc.problems] == ["the file is empty: a JSON value is needed"]


def test_the_keys_around_a_mistake_survive() -> None:
    doc = read('{\n  "a": ,\n  "b": "open,\n  "c": {"d" 1, "e": 2},\n  "f": [1, 2\n}')
    assert doc.data == {"b": "open", "c": {"d": 1, "e": 2}, "f": [1, 2]}


def test_python_words_and_odd_numbers_keep_the_value_the_author_means() -> None:
    doc = read('{"a": True, "b": 0x10, "c": +1, "d": None, "e": 1_000, "f": 5.}')
    assert doc.data == {"a": True, "b": 16, "c": 1, "d": None, "e": 1000, "f": 5.0}
    assert len(doc.problems) == 6


@pytest.mark.parametrize("text", ['"a"# c\n:"a"', '"a" // c\n : "a"', '"a" /* c */ : "a"', '"a"\n: "a"'])
def test_a_comment_may_stand_between_the_first_key_and_its_colon(text: str) -> None:
    doc = parse_json(SourceFile("ds.json", text))
    assert (doc.data, doc.problems) == ({"a": "a"}, ())


def test_hjson_without_braces_and_quotes_is_read_and_marked_as_no_plain_json() -> None:
    doc = read("# config\ntrain_batch_size: 8\nfp16: {\n  enabled: true\n}\n")
    assert doc.data == {"train_batch_size": 8, "fp16": {"enabled": True}}
    assert doc.problems == ()
    assert cut(doc, doc.keys["/fp16/enabled"]) == "enabled"
    assert doc.relaxed


def test_an_integer_of_ten_thousand_digits_is_a_problem_and_no_crash() -> None:
    assert [p.message for p in read('{"a": ' + "9" * 10_000 + "}").problems] == ["the number has too many digits"]


def test_nesting_beyond_the_limit_ends_the_reading_with_one_problem() -> None:
    fine = read("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert fine.problems == ()
    deep = read("[" * 10_000)
    assert [p.message for p in deep.problems] == [f"nested deeper than {MAX_DEPTH} levels: the rest is not read"]


@given(nested(st.none() | st.booleans() | st.integers() | st.text(max_size=12)))
@settings(max_examples=50, deadline=None)
def test_tree_sitter_sees_the_same_keys_at_the_same_places(value: Any) -> None:
    tree_sitter = pytest.importorskip("tree_sitter")
    grammar = pytest.importorskip("tree_sitter_json")
    text = json.dumps(value)  # ASCII, so bytes are code points; no floats, because the grammar cannot read 1e+16
    root = tree_sitter.Parser(tree_sitter.Language(grammar.language())).parse(text.encode()).root_node
    pairs, stack = set(), [root]
    while stack:
        node = stack.pop()
        if node.type == "pair":
            pairs.add((node.start_byte, node.end_byte))
        stack.extend(node.children)
    doc = read(text)
    assert {(s.start, s.end) for s in doc.members.values()} == pairs


def test_a_second_colon_is_named_and_the_value_is_kept() -> None:
    text = '{"stage":: 2, "a": 1}'
    assert messages(text) == [(":", "expected a value after `:`, found another `:`")]
    assert read(text).data == {"stage": 2, "a": 1}
