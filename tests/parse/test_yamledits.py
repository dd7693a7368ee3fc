"""Edits on YAML texts: the result parses again and differs from the original by the intended change only."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.yamledits import delete_member, insert_member, rename_key, replace_value
from dslint.parse.data import DataDoc
from dslint.parse.yamldoc import parse_yaml

FILE = """\
# launch with 8 GPUs
distributed_type: DEEPSPEED   # ZeRO
deepspeed_config:
    # the stage
    zero_stage: 2  # weights fit
    offload: cpu
num_processes: 8
"""


def parse(text: str) -> DataDoc:
    return parse_yaml(SourceFile("a.yaml", text))


def test_a_value_is_replaced_and_its_comment_stays() -> None:
    doc = parse(FILE)
    assert apply_edits(FILE, replace_value(doc, "/deepspeed_config/zero_stage", "3")) == FILE.replace(": 2 ", ": 3 ")


def test_a_key_is_renamed_unless_the_name_is_taken() -> None:
    doc = parse(FILE)
    renamed = apply_edits(FILE, rename_key(doc, "/deepspeed_config/offload", "offload_param_device"))
    assert renamed == FILE.replace("offload:", "offload_param_device:")
    assert rename_key(doc, "/deepspeed_config/offload", "zero_stage") == ()


def test_a_line_is_deleted_and_a_comment_behind_it_stays() -> None:
    doc = parse(FILE)
    assert apply_edits(FILE, delete_member(doc, "/num_processes")) == FILE.replace("num_processes: 8\n", "")
    kept = apply_edits(FILE, delete_member(doc, "/deepspeed_config/zero_stage"))
    assert kept == FILE.replace("zero_stage: 2  # weights", "# weights")


def test_a_line_is_inserted_with_the_indentation_of_the_others() -> None:
    doc = parse(FILE)
    grown = apply_edits(FILE, insert_member(doc, "/deepspeed_config", "zero3_init_flag", "true"))
    assert grown == FILE.replace("offload: cpu\n", "offload: cpu\n    zero3_init_flag: true\n")
    assert insert_member(doc, "/deepspeed_config", "zero_stage", "3") == ()
    assert insert_member(doc, "/no_such_section", "a", "1") == ()


@pytest.mark.parametrize(
    "text",
    [
        "a: {zero_stage: 2}\n",
        "a: {\n  zero_stage: 2\n}\n",
        "a:\n  zero_stage: &stage 2\n",
        "b: &b\n  zero_stage: 2\na:\n  <<: *b\n",
        "a:\n  zero_stage: |\n    2\n",
        "a:\n  zero_stage: two\n    lines\n",
        "a:\n  zero_stage: !!int 2\n",
        "a:\n  zero_stage: 2\n  zero_stage: 3\n",
        "a:\n  zero_stage:\n",
        "a:\n  zero_stage: 2\n b: [\n",
    ],
)
def test_where_it_is_not_sure_there_is_no_edit(text: str) -> None:
    doc = parse(text)
    at = "/a/zero_stage"
    assert replace_value(doc, at, "3") == delete_member(doc, at) == rename_key(doc, at, "x") == ()


KEYS = st.sampled_from(["zero_stage", "offload", "num_processes", "überschlag", "gpu_ids"])
SCALARS = st.sampled_from(["2", "true", "'no'", '"x: y"', "DEEPSPEED", "1e-5", "a # b".replace(" #", "#"), "~"])


@st.composite
def layouts(draw: st.DrawFn) -> str:
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    lines: list[str] = []
    for key in draw(st.lists(KEYS, min_size=1, max_size=4, unique=True)):
        lines += draw(st.sampled_from([[], ["# above"], [""]]))
        if draw(st.booleans()):
            lines.append(f"{key}: {draw(SCALARS)}{draw(st.sampled_from(['', '  # note']))}")
        else:
            pad = " " * draw(st.sampled_from([1, 2, 4]))
            inner = draw(st.lists(KEYS, min_size=1, max_size=3, unique=True))
            lines += [f"{key}:", *(f"{pad}{k}: {draw(SCALARS)}{draw(st.sampled_from(['', ' # n']))}" for k in inner)]
    return newline.join(lines) + draw(st.sampled_from(["", newline]))


@given(layouts(), st.data())
@settings(max_examples=200, deadline=None)
def test_every_edit_changes_what_it_says_and_nothing_else(text: str, data: st.DataObject) -> None:
    doc = parse(text)
    pointer = data.draw(st.sampled_from(sorted(doc.members)))
    parts = pointer.split("/")[1:]

    def expected(change: str) -> object:
        whole = yaml.safe_load(text)
        at = whole
        for part in parts[:-1]:
            at = at[part]
        if change == "delete":
            del at[parts[-1]]
        elif change == "insert":
            at["new"] = 7
        else:
            at[parts[-1]] = 7
        return _plain(whole)

    parent = pointer.rpartition("/")[0]
    for change, edits in (
        ("replace", replace_value(doc, pointer, "7")),
        ("delete", delete_member(doc, pointer)),
        ("insert", insert_member(doc, parent, "new", "7")),
    ):
        if edits:
            assert _plain(yaml.safe_load(apply_edits(text, edits))) == expected(change), change
        else:
            assert isinstance(doc.get(pointer), dict) or doc.get(pointer) is None or change == "insert"


def _plain(value: object) -> object:
    """A section that has lost its last entry is null in YAML."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()} or None
    return value
