"""Rules about optimizer, schedule and clipping beyond their examples: releases, readers, unknown values, fixes."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.finding import Finding
from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.context import Context, VersionFact
from dslint.parse.jsondoc import parse_json
from dslint.rules.index import RULES

CODES = {*(f"DSL{n}" for n in range(117, 130)), *(f"DSL{n}" for n in range(168, 173))}
CHECKS = {r.code: importlib.import_module(r.module) for r in RULES if r.kind == "config" and r.code in CODES}


def run(config: Any, version: str = "", consumer: str = "", without: tuple[str, ...] = ()) -> list[Finding]:
    text = config if isinstance(config, str) else json.dumps(config, indent=2)
    facts: dict[str, Any] = {"deepspeed": VersionFact(version)}
    if consumer:
        facts["consumer"] = known(consumer)
    doc = parse_json(SourceFile("ds.json", text))
    context = Context(**facts)
    return [f for code, rule in CHECKS.items() if code not in without for f in rule.check(doc, context)]


def told(findings: list[Finding]) -> list[str]:
    """Codes and severities, without the rules that are off by default."""
    return sorted(f"{f.code} {f.severity.value}" for f in findings if not CHECKS[f.code].META.optional)


def with_optimizer(kind: Any, stage: int = 0, **more: Any) -> dict[str, Any]:
    return {"train_batch_size": 8, "optimizer": {"type": kind, **more}, "zero_optimization": {"stage": stage}}


def with_schedule(kind: str, **params: Any) -> dict[str, Any]:
    return {"train_batch_size": 8, "scheduler": {"type": kind, "params": params}}


@pytest.mark.parametrize(
    ("config", "version", "expected"),
    [
        (with_optimizer("OneBitAdam"), "==0.19.8", ["DSL118 error"]),
        (with_optimizer("OneBitAdam"), ">=0.19.7", ["DSL118 error"]),
        (with_optimizer("OneBitAdam"), "", ["DSL118 warning"]),
        (with_optimizer("OneBitAdam"), ">=0.14", ["DSL118 warning"]),
        (with_optimizer("OneBitAdam"), "==0.16.9", ["DSL118 info"]),
        (with_optimizer("OneBitAdam", 1), "==0.16.9", ["DSL118 error"]),
        (with_optimizer("Lion"), "==0.10.3", ["DSL117 error"]),
        (with_optimizer("Lion"), ">=0.10", []),
        (with_optimizer("Lion"), "", []),
        (with_optimizer("FusedAdam"), "", ["DSL117 error"]),
        (with_optimizer("Muon", 2), "==0.19.8", []),
        (with_optimizer("Muon", 2), "==0.19.2", ["DSL125 warning"]),
        (with_optimizer("Muon", 2), "", []),
        (with_optimizer("Muon", 3), "==0.18.8", ["DSL125 error"]),
        (with_schedule("WarmupLR", warmup_num_steps=0), "==0.19.8", ["DSL129 error"]),
        (with_schedule("WarmupLR", warmup_num_steps=0), ">=0.18", ["DSL129 warning"]),
        (with_schedule("WarmupLR", warmup_num_steps=0), "==0.19.2", ["DSL129 info"]),
        (with_schedule("WarmupLR", warmup_num_steps="10"), "==0.9.0", ["DSL129 error"]),
        (with_schedule("OneCycle", cycle_min_lr=0, warmup_num_steps=0), "",
         ["DSL122 error", "DSL128 error"]),
        ({"train_batch_size": 8, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}}, "==0.19.5", []),
        ({"train_batch_size": 8, "gradient_allreduce_op": "SUM", "zero_optimization": {"stage": 3}}, "==0.19.6",
         ["DSL172 error"]),
        ({"train_batch_size": 8, "prescale_gradients": True, "zero_optimization": {"stage": 1}}, ">=0.12", []),
    ],
)  # fmt: skip
def test_the_release_decides(config: dict[str, Any], version: str, expected: list[str]) -> None:
    assert told(run(config, version, "deepspeed")) == expected


@pytest.mark.parametrize("consumer", ["deepspeed", "hf"])
def test_the_switch_of_untested_optimizers_is_looked_at(consumer: str) -> None:
    # The engine asks this rule for plain DeepSpeed only; asked for a Trainer, it knows nothing of the switch.
    found = told(run(with_optimizer("SGD", 2), consumer=consumer))
    assert found == (["DSL119 error"] if consumer == "deepspeed" else [])
    allowed = {**with_optimizer("SGD", 2), "zero_allow_untested_optimizer": "${ALLOW}"}
    assert run(allowed, consumer=consumer) == []


@pytest.mark.parametrize("reader", ["deepspeed", "unknown", "hf", "accelerate"])
def test_only_a_reader_of_plain_json_keeps_a_whole_fraction(reader: str) -> None:
    found = run(with_schedule("WarmupLR", warmup_num_steps=10.0), "==0.19.8", reader)
    assert told(found) == (["DSL129 error"] if reader in ("hf", "accelerate") else [])


QUIET: list[Any] = [
    with_optimizer(None),
    with_optimizer(3),
    with_optimizer("auto"),
    with_optimizer("${TYPE}"),
    with_optimizer("AdamW", params=None),
    with_optimizer("AdamW", params=[1]),
    with_optimizer("AdamW", params="x"),
    {"optimizer": None, "scheduler": None},
    {"optimizer": [], "scheduler": "WarmupLR"},
    {"optimizer": {}, "scheduler": {}},
    {"optimizer": {"params": {"lr": 1}}},
    [],
    3,
    "",
    "{",
    '{"optimizer": {"type": "AdamW", "type": "Adam"}}',
    '{"gradient_clipping": NaN, "optimizer": {"type": "Lamb"}, "fp16": {"loss_scale": NaN}}',
    with_schedule("WarmupLR", warmup_num_steps=True),
    with_schedule("WarmupLR", warmup_num_steps="auto"),
    with_schedule("WarmupDecayLR", total_num_steps=10, warmup_max_lr=[0.1, 0.2]),
]


@pytest.mark.parametrize("config", QUIET)
def test_what_nobody_knows_is_left_alone(config: Any) -> None:
    assert run(config, "==0.19.8") == []


def test_a_schedule_that_is_open_may_have_what_it_needs() -> None:
    config = {"scheduler": {"type": "WarmupDecayLR", "params": "auto"}}
    assert run(config) == []


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{"optimizer": {"type": "SGD", "lr": 1, "momentum": 0.9}}',
         '{"optimizer": {"type": "SGD", "params": {"lr": 1, "momentum": 0.9}}}'),
        ('{"optimizer": {"type": "SGD", "lr": 1, /* hot */ "momentum": 0.9}}', None),
        ('{"optimizer": {"lr": 1, "type": "SGD", "momentum": 0.9}}', None),
        ('{"optimizer": {"type": "SGD", "lr": 1, "momentum": 0.9, "params": {}}}', None),
        ('{"optimizer": {"type": "SGD", "lr": 1, "params": {}}}',
         '{"optimizer": {"type": "SGD", "params": {"lr": 1}}}'),
        ('{\n  "optimizer": {\n    "type": "Adam", // mine\n    "params": {"lr": 1, "max_grad_norm": 2.5}\n  }\n}',
         '{\n  "optimizer": {\n    "type": "Adam", // mine\n    "params": {"lr": 1}\n  },\n'
         '  "gradient_clipping": 2.5\n}'),
        ('{"optimizer": {"type": "Adam", "params": {"max_grad_norm": "x"}}}', None),
        ('{"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -3}}}', None),
        ('{"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2.5}}}', None),
    ],
)  # fmt: skip
def test_fixes_keep_what_they_do_not_understand(text: str, after: str | None) -> None:
    (finding,) = run(text)
    if after is None:
        assert finding.fix is None
    else:
        assert finding.fix is not None
        assert apply_edits(text, finding.fix.edits) == after
        assert run(after) == []


def test_the_word_that_is_meant_is_named() -> None:
    found = run(with_schedule("WarmupDecayLR", warmup_steps=10, total_num_steps=100))
    assert [f.hint for f in found] == ["Did you mean `warmup_num_steps`?"]
    found = run(with_schedule("WarmupCosineLR", warmup_max_lr=0.1, total_num_steps=100))
    assert found[0].hint.startswith("Delete `warmup_max_lr`; known are `cos_min_ratio`")


def test_names_of_classes_are_compared_as_deepspeed_does() -> None:
    assert run(with_optimizer("ADAMW", params={"lr": 0.1})) == []
    assert [f.hint for f in run(with_optimizer("adadelta"))] == ["Write `Adadelta`"]
    assert [f.hint for f in run(with_schedule("steplr", step_size=3))] == ["Write `StepLR`"]
    assert [f.hint for f in run(with_schedule("cosine"))] == ["Did you mean `WarmupCosineLR`?"]


@pytest.mark.parametrize(
    ("client", "consumer", "severity"),
    [
        (absent(), "deepspeed", ["error"]),
        (absent(), "hf", ["error"]),
        (absent(), "", ["warning"]),
        (unknown("computed"), "deepspeed", []),
        (known("torch.optim.SGD"), "deepspeed", []),
    ],
)
@pytest.mark.parametrize("config", [
    with_optimizer("AdamX"),
    with_optimizer("OneBitAdam", 1),
    with_optimizer("AdamW", params={"learning_rate": 1}),
    with_optimizer("AdamW", params={"max_grad_norm": 0}),
])  # fmt: skip
def test_an_optimizer_of_the_script_takes_the_place_of_the_section(
    config: Any, client: Fact[str], consumer: str, severity: list[str]
) -> None:
    context = Context(client_optimizer=client, consumer=known(consumer) if consumer else absent())
    doc = parse_json(SourceFile("ds.json", json.dumps(config)))
    found = [f for code, rule in CHECKS.items() if code != "DSL119" for f in rule.check(doc, context)]
    assert [f.severity.value for f in found] == severity
