"""The quick search for markers gives the answer of the regular expressions that the rules state."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.model.firstlook import may_name
from dslint.rules.index import RULES
from dslint.rules.markers import BY_RUN, _alternatives, _hints, _split, rules_by_marker, rules_of_all

SCRIPT_RULES = [rule for rule in RULES if rule.kind == "script"]
EVERY_CODE = frozenset(rule.code for rule in RULES)
# What markers are made of, and what they are made to tell apart.
PIECES = sorted(
    {word for rule in SCRIPT_RULES for marker in rule.markers for word in re.findall(r"[A-Za-z_]{3,}", marker)}
    | {
        "rank",
        " == ",
        "0",
        "(",
        ")",
        ", ",
        "\n",
        "range(",
        "::",
        "timedelta(",
        "600",
        "_",
        ".",
        "if ",
        "not ",
        "@",
        " ",
    }
)


@given(
    st.lists(st.sampled_from(PIECES), max_size=25), st.sets(st.sampled_from(sorted(EVERY_CODE))) | st.just(EVERY_CODE)
)
@settings(max_examples=600, deadline=None)
def test_a_rule_is_named_when_all_its_expressions_match(pieces: list[str], enabled: frozenset[str]) -> None:
    raw = "".join(pieces).encode()
    expected = {
        rule.code for rule in SCRIPT_RULES if all(re.search(marker.encode(), raw) for marker in rule.markers)
    } & set(enabled)
    found = rules_by_marker(raw, frozenset(enabled))
    assert {code for code in found if not code.endswith(BY_RUN)} == expected


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=9), max_size=9))
@settings(max_examples=200, deadline=None)
def test_many_files_at_once_have_the_rules_that_each_has_alone(files: list[list[str]]) -> None:
    texts = ["".join(pieces).encode() for pieces in files]
    assert list(rules_of_all(texts, EVERY_CODE)) == [rules_by_marker(raw, EVERY_CODE) for raw in texts]


@pytest.mark.parametrize(
    ("alternatives", "hints"),
    [
        ([r"\btrl\b"], {"trl"}),
        ([r"n_?gpu"], {"gpu"}),
        ([r"timeout\s*="], {"timeout"}),
        ([r"(?:save|load_all)\w*\("], {"save", "load_all"}),
        ([r"(?:save|load)?_x"], {"_x"}),
        ([r"(?i:rank)"], set()),
        ([r"(?!\w*rank)\w+ ="], {" ="}),
        ([r"trl\b", r"[a-z]\d"], set()),
        ([r"ab{2}c"], {"a"}),
    ],
)
def test_what_a_match_needs_is_known(alternatives: list[str], hints: set[str]) -> None:
    assert _hints(alternatives) == hints


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a|b", ["a", "b"]),
        (r"a\|b", [r"a\|b"]),
        ("(?:a|b)|c", ["(?:a|b)", "c"]),
        ("[|(]|[]|]|[^]|]", ["[|(]", "[]|]", "[^]|]"]),
        (r"\(|\)", [r"\(", r"\)"]),
        ("", [""]),
    ],
)
def test_only_alternatives_at_the_top_level_are_told_apart(pattern: str, parts: list[str]) -> None:
    assert _alternatives(pattern) == parts


def test_a_word_that_contains_another_word_is_not_searched_for() -> None:
    found = _split(r"get_world_size|world_size|torch\.distributed|n_?gpu")
    assert (found.words, found.rest) == ((b"torch.distributed", b"world_size"), "n_?gpu")


def test_flags_that_hold_for_all_alternatives_keep_them_together() -> None:
    found = _split("(?i)rank|world")
    assert (found.words, found.rest) == ((), "(?i)rank|world")


def test_flags_that_change_no_letter_leave_the_words_known() -> None:
    found = _split(r"(?s)(?:init_process_group|PartialState)\(.*?Kwargs")
    assert (found.words, found.hints) == ((), (b"PartialState", b"init_process_group"))


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"from trl import SFTTrainer\n", True),
        (b"class MySFTTrainer2: pass\n", False),
        ('größe = 1\nSFTTrainer("größe")\n'.encode(), True),
        (b' {"cells": [{"source": "x = 1\\nSFTTrainer()"}]}', True),
        (b"", False),
    ],
)
def test_a_name_stands_alone_in_a_script_and_anywhere_in_a_notebook(raw: bytes, found: bool) -> None:
    assert may_name(raw, {b"SFTTrainer"}) is found


def test_a_rule_about_runs_is_asked_where_a_run_begins() -> None:
    raw = b"import torch.distributed as dist\ndist.init_process_group('nccl')\nfrom loop import train\ntrain()\n"
    found = rules_by_marker(raw, EVERY_CODE)
    assert {f"{rule.code}{BY_RUN}" for rule in SCRIPT_RULES if rule.asks_runs} & set(found)
    assert {code.removesuffix(BY_RUN) for code in found} >= {rule.code for rule in SCRIPT_RULES if rule.asks_runs}
    assert not [code for code in rules_by_marker(b"import json\n", EVERY_CODE) if code.endswith(BY_RUN)]
