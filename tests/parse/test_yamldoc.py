"""The YAML reader: the values of ``yaml.safe_load``, exact positions, and no crash on any text."""

from __future__ import annotations

from typing import Any

import pytest
from document_helpers import cut, same, walk
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dslint.core.source import SourceFile
from dslint.parse.data import DataDoc
from dslint.parse.limits import MAX_DEPTH
from dslint.parse.yamldoc import parse_yaml


def read(text: str) -> DataDoc:
    return parse_yaml(SourceFile("config.yaml", text))


def is_plain(value: Any) -> bool:
    """Whether PyYAML's data has the types that a DataDoc holds: no dates, no keys that are numbers."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (str, int, float, bool))


text_values = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029\ufeff"), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | text_values
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text_values, inner, max_size=4), max_leaves=20
)


@settings(max_examples=150, deadline=None)
@given(
    values,
    st.sampled_from([None, False, True]),
    st.sampled_from([None, "'", '"', "|", ">"]),
    st.sampled_from([2, 4]),
    st.booleans(),
)
@example([{"a": {" x\ny\n": 1, "\n b": [{"  c\n d": 2}]}}], False, "|", 4, True)
@example([{"\xa0": None}, "a\u2003"], None, None, 2, True)  # blanks of Unicode are no blanks of YAML
def test_dumped_yaml_reads_as_safe_load_does_and_scalars_slice_back(
    value: Any, flow: bool | None, style: str | None, indent: int, unicode_text: bool
) -> None:
    yaml = pytest.importorskip("yaml")
    text = yaml.safe_dump(
        value, default_flow_style=flow, default_style=style, indent=indent, allow_unicode=unicode_text, width=30
    )
    wanted = yaml.safe_load(text)
    if not is_plain(wanted):
        return
    doc = read(text)
    assert doc.problems == ()
    assert same(doc.data, wanted, in_order=False)
    assert {p for p, _ in walk(doc.data)} == set(doc.values)
    for pointer, part in walk(doc.data):
        place = cut(doc, doc.values[pointer])
        # A block scalar means nothing without its indentation, nor a tagged one without its tag.
        if not isinstance(part, (dict, list)) and place[:1] not in ("|", ">", "") and "!!" not in text:
            assert same(yaml.safe_load(place), part, in_order=False)
    for pointer, span in doc.keys.items():
        assert cut(doc, doc.members[pointer]).removeprefix("? ").startswith(cut(doc, span))


@pytest.mark.parametrize(
    "text",
    [
        "a: yes\nb: No\nc: on\nd: off\ne: y\nf: TRUE\n",
        "a: 1e-5\nb: 1.0e-5\nc: 1e5\nd: 1.5e+3\ne: .5\nf: 5.\ng: -.inf\nh: .NaN\n",
        "a: 1_000\nb: 0x1F\nc: 012\nd: 0b11\ne: 1:30\nf: 1:30.5\ng: 0o17\nh: +3\ni: 08\n",
        "a: ~\nb: null\nc:\nd: ''\ne: NULL\n",
        "a: |\n  x\n   y\n\nb: >-\n  one\n  two\n\n  three\nc: |+\n  z\n\n\nd: >\n\n  a\n    b\n  c\n",
        "a: |2\n    x\n  y\nb:\n  - |1\n    z\n  - >+\n    q\n\n",
        "a: \"x\\ty\\n\\u00e9 \\x41 \\\n   z\n\n   w\"\nb: 'it''s\n  two'\n",
        "a: one\n  two\n\n  three\nb: x # comment\n",
        "a: {b: 1, 'c': [1, 2, {d: e}], f, \"g\": }\nh: [a: b, c]\n",
        "base: &b {x: 1, y: {z: 2}}\nd:\n  <<: *b\n  x: 3\ne: *b\nf:\n  <<: [*b, {w: 1}]\n",
        "a: !!str 5\nb: !!int '7'\nc: !!float 3\nd: !!bool 'yes'\ne: !!null ''\nf: ! 12\n",
        "%YAML 1.1\n---\na: 1\n...\n---\nb: 2\n",
        "? a\n: b\n? c\n",
        "- a\n-\n- - b\n  - c\n- d: 1\n  e: 2\n",
        "a:\n- b\n- c\nd: 1\n",
        "a: 1\r\nb: |\r\n  x\r\n  y\r\nc: 'p\r\n  q'\r\n",
        "just text\n",
        "# only a comment\n",
        "",
        "key with spaces: a:b\nurl: http://x/y#z\n",
    ],
)
def test_what_yaml_1_1_means_is_what_pyyaml_says(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    wanted = next(iter(yaml.safe_load_all(text)), None)
    doc = read(text)
    assert doc.problems == ()
    assert same(doc.data, wanted, in_order=False), doc.data


marks = list("\n\n\n  :-[]{},\"'|>#&*!%@?~\t\0\r")
tidy = [
    "a",
    "b",
    ": ",
    "- ",
    "\n",
    "\n  ",
    "\n    ",
    "1",
    "yes",
    "'q'",
    '"d"',
    " # c",
    "text",
    "|\n  x\n",
    ", ",
    "[",
    "]",
    "é",
]
words = ["a", "b", ": ", "- ", "\n  ", "yes", "1.5", "1e-5", "&m ", "*m", "<<: *m", "!!str ", "---\n", "...", "é"]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(st.sampled_from([*marks, *words]), max_size=20).map("".join), st.text(max_size=30)))
@example("[" * 10_000)
@example("[" * 10_000 + "]" * 10_000)
@example("{a: " * 10_000)
@example("- " * 10_000)
@example("? " * 10_000)
@example("\r".join(" " * i + "a:" for i in range(400)))
@example("\n".join(" " * i + "a:" for i in range(400)))
@example("".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)))
@example("a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)))
@example("a: &a [*a]\n")
@example("\ud800: 1")
def test_no_text_makes_the_reader_raise_and_every_span_lies_in_the_text(text: str) -> None:
    doc = read(text)
    spans = [*doc.keys.values(), *doc.values.values(), *doc.members.values(), *doc.comments]
    spans += [p.span for p in doc.problems] + [s for d in doc.duplicates for s in (d.first, d.second)]
    assert all(0 <= s.start <= s.end <= len(text) for s in spans)
    assert {p for p, _ in walk(doc.data)} <= set(doc.values)
    assert set(doc.members) == set(doc.keys)
    assert all("\n" not in p.message for p in doc.problems)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(tidy), max_size=12).map("".join))
def test_text_without_a_problem_has_the_values_of_safe_load(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    doc = read(text)
    try:
        wanted = next(iter(yaml.safe_load_all(text)), None)
    except yaml.YAMLError:
        return
    if not doc.problems and is_plain(wanted):
        assert same(doc.data, wanted, in_order=False)


def test_keys_values_members_and_comments_have_exact_places() -> None:
    doc = read(
        "# é 𝄞\ncompute_environment: LOCAL_MACHINE # here\ndeepspeed_config:\n  zero_stage: 3\n  names: [é, b]\n"
    )
    assert [cut(doc, c) for c in doc.comments] == ["# é 𝄞", "# here"]
    assert cut(doc, doc.keys["/deepspeed_config/zero_stage"]) == "zero_stage"
    assert cut(doc, doc.values["/deepspeed_config/zero_stage"]) == "3"
    assert cut(doc, doc.members["/deepspeed_config"]) == "deepspeed_config:\n  zero_stage: 3\n  names: [é, b]"
    assert cut(doc, doc.values["/deepspeed_config/names/1"]) == "b"
    assert doc.key("/deepspeed_config/zero_stage").region.line == 4
    assert doc.value("/deepspeed_config/names/1").region.column == 14


def test_a_duplicate_key_is_kept_and_the_later_value_wins() -> None:
    doc = read("a:\n  x: 1\nb: 2\na:\n  y: 3\n")
    assert doc.data == {"a": {"y": 3}, "b": 2}
    assert "/a/x" not in doc.values
    assert [(d.pointer, doc.source.line_column(d.second.start)) for d in doc.duplicates] == [("/a", (4, 1))]


def test_a_merged_member_has_the_place_of_its_anchor() -> None:
    doc = read("base: &b\n  lr: 1.0e-5\nrun:\n  <<: *b\n  steps: 2\n")
    assert doc.data["run"] == {"steps": 2, "lr": 1.0e-5}
    assert doc.value("/run/lr").region.line == 2


@pytest.mark.parametrize(
    ("text", "left_out", "message"),
    [
        ("a: !vault x\nb: 1\n", "/a", "the tag `!vault` has no meaning here"),
        ("a: *nobody\nb: 1\n", "/a", "no anchor `&nobody` comes before this"),
        ("? [x, y]\n: 1\nb: 1\n", "/a", "a key of this kind cannot be read"),
        ("a: [1, 2\nb: 1\n", "/a", "unclosed `[`"),
    ],
)
def test_what_cannot_be_told_is_left_out_with_a_problem(text: str, left_out: str, message: str) -> None:
    doc = read(text)
    assert message in [p.message for p in doc.problems]
    assert not doc.has(left_out)
    assert doc.get("/b") == 1


def test_a_tab_that_indents_and_a_wrong_escape_are_named_where_they_stand() -> None:
    def only(text: str) -> tuple[int, str]:
        doc = read(text)
        (problem,) = doc.problems
        return doc.source.line_column(problem.span.start)[0], problem.message

    assert only("a:\n\tb: 1\n") == (2, "a tab cannot indent YAML")
    assert only('x: 1\na: "\\q"\nb: 1\n') == (
        2,
        "no such escape in a YAML string: a backslash itself is written `\\\\`",
    )


def test_nesting_beyond_the_limit_is_cut_with_a_problem() -> None:
    assert read("[" * (MAX_DEPTH // 2) + "]" * (MAX_DEPTH // 2)).problems == ()
    for text in ("[" * 10_000 + "]" * 10_000, "- " * 10_000, "\n".join(" " * i + "a:" for i in range(400))):
        assert any("deep" in p.message for p in read(text).problems)


def test_a_nul_byte_is_a_problem() -> None:
    assert "the file holds a NUL byte: it is no text" in [p.message for p in read("a: 1\0\n").problems]
