"""What DeepSpeed does without a word, and that dslint says it: the library proves each effect, the rules warn."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from harness.asking import ORACLE
from harness.effects import EFFECTS, Effect, results, text_of
from harness.sizes import NEWEST
from harness.verdicts import findings

from dslint.core.finding import Severity


@pytest.mark.skipif(
    sys.executable == ORACLE and importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed"
)
def test_deepspeed_does_something_else_than_the_file_says() -> None:
    wrong = []
    for effect, written, same, meant in results():
        if not isinstance(written, dict):
            wrong.append(f"{effect.name}: refused: {written}")
        elif written != same:
            wrong.append(f"{effect.name}: not the effect that is claimed: {_difference(written, same)}")
        elif written == meant:
            wrong.append(f"{effect.name}: does what is meant")
    assert not wrong, "\n".join(wrong)


def _difference(one: object, other: object) -> str:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return f"{one} / {other}"
    return "; ".join(f"{key}: {one.get(key)} / {other.get(key)}" for key in one if one.get(key) != other.get(key))[:600]


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.name)
def test_dslint_warns(effect: Effect) -> None:
    found = findings(text_of(effect), 1, NEWEST)
    loud = {f.code for f in found if f.severity in (Severity.ERROR, Severity.WARNING)}
    assert loud & set(effect.codes), [(f.code, f.severity.value, f.message) for f in found]


def test_there_are_enough() -> None:
    assert len(EFFECTS) >= 30
