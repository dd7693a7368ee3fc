"""DeepSpeed judges what dslint says about keys, and what its safe fixes leave."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

import pytest
from harness.asking import ORACLE, Verdict, ask
from harness.sizes import NEWEST
from harness.verdicts import errors, findings

from dslint.core.fix import Safety, apply_edits

pytestmark = pytest.mark.skipif(
    sys.executable == ORACLE and importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed"
)

BASE: dict[str, Any] = {"train_batch_size": 8, "zero_optimization": {"stage": 1}}
UNKNOWN = ("zero_optimisation", "gradient_clipp1ng", "Fp16", "max_grad_norm", "overlap_comm", "train_batchsize", "zero")
MENDABLE: tuple[dict[str, Any], ...] = (
    {"train_batch_size": "32"},
    {"train_batch_size": 8, "fp16": True},
    {"train_batch_size": 8, "amp": {"enabled": False}},
    {"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_shard_size": -1}},
    {"train_batch_size": 8, "bf16": {"enabled": True, "loss_scale": 0, "hysteresis": 2}},
    {"train_batch_size": 8, "zero_optimization": {"stage": 1, "reduce_bucket_size": "5e8"}},
)


def judged(texts: list[str]) -> list[Verdict]:
    return ask("parse", [{"text": text, "world": 1, "wants_state": True} for text in texts])


def mended(text: str) -> str:
    """The config after all safe fixes of its errors, one after the other."""
    while fixes := [f.fix for f in errors(findings(text, 1, NEWEST)) if f.fix and f.fix.safety is Safety.SAFE]:
        text = apply_edits(text, fixes[0].edits)
    return text


def test_a_key_that_is_called_unknown_changes_nothing_in_deepspeed() -> None:
    texts = [json.dumps(BASE), *(json.dumps({**BASE, key: {"stage": 3}}) for key in UNKNOWN)]
    expected, *others = judged(texts)
    assert expected["raised"] is False
    for text, verdict in zip(texts[1:], others, strict=True):
        assert "DSL101" in [f.code for f in findings(text, 1, NEWEST)], text
        assert verdict == expected


def test_the_safe_fixes_of_a_refused_config_make_deepspeed_accept_it() -> None:
    broken = [json.dumps(config) for config in MENDABLE]
    verdicts = judged([*broken, *map(mended, broken)])
    assert [v["raised"] for v in verdicts] == [True] * len(broken) + [False] * len(broken)
