"""The config rules beyond their examples: versions, consumers, odd documents, and the layout that fixes keep."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.core.fact import known
from dslint.core.finding import Finding, Severity
from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.context import Context, VersionFact
from dslint.parse.jsondoc import parse_json
from dslint.rules.index import RULES

CONFIG_RULES = {r.code: importlib.import_module(r.module) for r in RULES if r.kind == "config"}


def run(config: Any, *codes: str, version: str = "", world: int | None = None, consumer: str = "") -> list[Finding]:
    """Findings of some (or all) config rules in a config given as data or text."""
    text = config if isinstance(config, str) else json.dumps(config, indent=2)
    facts: dict[str, Any] = {"deepspeed": VersionFact(version)}
    if world is not None:
        facts["world_size"] = known(world)
    if consumer:
        facts["consumer"] = known(consumer)
    doc = parse_json(SourceFile("ds.json", text))
    rules = [rule for code, rule in CONFIG_RULES.items() if not codes or code in codes]
    return [f for rule in rules for f in rule.check(doc, Context(**facts))]


def levels(findings: list[Finding]) -> list[str]:
    return [f.severity.value for f in findings]


def zero(stage: int, **more: Any) -> dict[str, Any]:
    return {"train_batch_size": 8, "zero_optimization": {"stage": stage, **more}}


@pytest.mark.parametrize(
    ("stage", "version", "expected"),
    [
        (2, "==0.12.6", ["warning"]),
        (2, "==0.9.5", ["warning"]),
        (2, "==0.17.4", ["warning"]),
        (2, "==0.17.5", ["info"]),
        (2, "==0.19.8", []),
        (2, ">=0.12,<0.15", ["warning"]),
        (2, ">=0.12", ["info"]),
        (2, ">=0.18", []),
        (2, "", ["info"]),
        (1, "==0.12.6", []),
        (1, "==0.13.0", ["warning"]),
        (1, ">=0.12,<0.14", ["info"]),
        (1, "", ["info"]),
        (3, "==0.12.6", ["info"]),
        (3, "==0.18.5", []),
        (0, "==0.12.6", []),
    ],
)
def test_overlap_comm_is_judged_by_stage_and_release(stage: int, version: str, expected: list[str]) -> None:
    assert levels(run(zero(stage, overlap_comm=True), "DSL160", version=version)) == expected


@pytest.mark.parametrize("value", [False, "auto", None, "false", 0, "maybe"])
def test_overlap_comm_that_is_not_on_is_never_reported(value: Any) -> None:
    assert run(zero(2, overlap_comm=value), "DSL160", version="==0.12.6") == []


def test_overlap_comm_at_stage_3_says_how_much_is_known() -> None:
    (finding,) = run(zero(3, overlap_comm=True), "DSL160", version="==0.12.6")
    assert "5545" in finding.hint
    assert "fixed in" not in finding.message


def test_the_place_that_states_the_version_is_related() -> None:
    requirements = SourceFile("requirements.txt", "deepspeed==0.12.6\n")
    from dslint.core.source import Span

    version = VersionFact("==0.12.6", requirements.location(Span(0, 17)), "requirements.txt")
    doc = parse_json(SourceFile("ds.json", json.dumps(zero(2, overlap_comm=True))))
    (finding,) = CONFIG_RULES["DSL160"].check(doc, Context(deepspeed=version))
    assert [str(place) for place in finding.related] == ["requirements.txt:1"]
    assert "DeepSpeed 0.12.6 " in finding.message


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [
        ("nebula", "==0.19.7", "error"),
        ("nebula", "==0.19.6", "info"),
        ("amp", "==0.19.7", "info"),
        ("amp", ">=0.19.8", "error"),
        ("amp", ">=0.14", "warning"),
        ("amp", "", "warning"),
        ("elasticity", "==0.19.8", "error"),
    ],
)
def test_removed_sections_by_release(key: str, version: str, expected: str) -> None:
    assert levels(run({"train_batch_size": 8, key: {"enabled": False}}, "DSL107", version=version)) == [expected]


@pytest.mark.parametrize(
    ("config", "version", "expected"),
    [
        ({"bf16": {"enabled": True, "loss_scale": 0}}, "", ["error"]),
        ({"bf16": {"enabled": True, "loss_scale": 0}}, "==0.17.0", ["info"]),
        ({"bf16": {"enabled": True, "loss_scale": 0}}, ">=0.16", ["warning"]),
        ({"bf16": {"enabled": True, "loss_scale": 0}}, "==0.17.1", ["error"]),
        ({"bf16": {"enabled": True, "loss_scale": "auto"}}, "", ["warning"]),
        ({"compile": {"enabled": True}}, "==0.14.0", ["info"]),
        ({"compile": {"disable": True}}, "==0.14.0", ["error"]),
        ({"compile": {"disable": True}}, "==0.16.6", ["error"]),
        ({"zero_optimization": {"stage": 2, "zenflow": {}}}, "==0.16.9", ["error"]),
        ({"zero_optimization": {"stage": 2, "zenflow": {}}}, "==0.18.3", []),
        ({"zero_optimization": {"stage": 2, "zenflow": {}}}, ">=0.16", []),
        ({"zero_optimization": {"stage": 3, "stage3_module_granularity_threshold": 0}}, "==0.14.5", ["error"]),
        ({"bf16": {"enabled": True, "bf16_optimizer_states": False}}, "==0.16.0", ["warning"]),
    ],
)
def test_section_keys_by_release(config: dict[str, Any], version: str, expected: list[str]) -> None:
    assert levels(run({"train_batch_size": 8, **config}, "DSL102", version=version)) == expected


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("gradient_clipp1ng", "Write `gradient_clipping`"),
        ("zero_optimisation", "Write `zero_optimization`"),
        ("max_grad_norm", "Write `gradient_clipping`"),
        ("overlap_comm", "Move `overlap_comm` into `zero_optimization`"),
        ("grad_accum_dtype", "Move `grad_accum_dtype` into `data_types`"),
        ("my_own_setting", "Delete the key"),
    ],
)
def test_unknown_keys_come_with_the_right_place(key: str, hint: str) -> None:
    (finding,) = run({"train_batch_size": 8, key: 1}, "DSL101")
    assert finding.hint.startswith(hint)
    assert finding.pointer == f"/{key}"


def test_a_copied_section_is_one_finding_that_names_all_its_keys() -> None:
    copied = {"enabled": True, "loss_scale": 0, "hysteresis": 2, "min_loss_scale": 1, "initial_scale_power": "auto"}
    stops, dropped = run({"train_batch_size": 8, "bf16": copied, "fp16": {"enabled": False}}, "DSL102")
    assert stops.message.startswith("`bf16` has no keys `loss_scale`, `hysteresis` and `min_loss_scale`: DeepSpeed")
    assert [place.label for place in stops.related] == ["the same", "the same"]
    assert dropped.message.startswith("`bf16` has no key `initial_scale_power`: DeepSpeed ignores it")
    (older,) = run(
        {"train_batch_size": 8, "bf16": {"enabled": True, "loss_scale": 0, "hysteresis": 2}},
        "DSL102",
        version="==0.17.0",
    )
    assert "`loss_scale` and `hysteresis`: DeepSpeed 0.17.0 silently ignores them, and" in older.message


def test_a_misspelling_beside_the_right_key_is_not_renamed_onto_it() -> None:
    (finding,) = run({"train_batch_size": 8, "gradient_clipping": 1.0, "gradient_cliping": 2.0}, "DSL101")
    assert finding.fix is None
    assert finding.hint == "Delete `gradient_cliping`: `gradient_clipping` is set as well"


def test_a_key_of_another_section_is_sent_home() -> None:
    (finding,) = run(zero(2, gradient_clipping=1.0), "DSL102")
    assert finding.hint == "Move `gradient_clipping` to the top level"
    (finding,) = run(zero(2, aio={"block_size": 1}), "DSL102")
    assert finding.hint == "Move `aio` to the top level"


@pytest.mark.parametrize(
    ("config", "world", "consumer", "expected"),
    [
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}, 8, "", []),
        ({"train_batch_size": 36, "train_micro_batch_size_per_gpu": 4}, 8, "", ["error"]),
        ({"train_batch_size": 36, "train_micro_batch_size_per_gpu": "auto"}, 8, "hf", ["error"]),
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto"}, 8, "hf", []),
        ({"gradient_accumulation_steps": 4}, None, "", ["info"]),
        ({"gradient_accumulation_steps": 4}, None, "deepspeed", ["error"]),
        ({"train_batch_size": 16, "tensor_parallel": {"autotp_size": 2}}, 32, "", ["error"]),
        ({"train_batch_size": 32, "tensor_parallel": {"autotp_size": 2}}, 32, "", []),
        ({"train_batch_size": 16, "pipeline": {}}, 32, "", []),
    ],
)
def test_batch_sizes_with_what_is_known(
    config: dict[str, Any], world: int | None, consumer: str, expected: list[str]
) -> None:
    assert levels(run(config, "DSL130", world=world, consumer=consumer)) == expected


def test_z3_gather_depends_on_who_saves() -> None:
    config = zero(3)
    assert levels(run(config, "DSL161")) == ["info"]
    assert levels(run(config, "DSL161", consumer="hf")) == ["warning"]
    assert levels(run(config, "DSL161", consumer="accelerate")) == ["info"]
    assert levels(run(config, "DSL161", consumer="deepspeed")) == ["info"]
    assert levels(run({**config, "train_batch_size": "auto"}, "DSL161")) == ["warning"]
    assert run(zero(3, gather_16bit_weights_on_model_save=True), "DSL161") == []
    assert run(zero(3, stage3_gather_fp16_weights_on_model_save=True), "DSL161") == []


@pytest.mark.parametrize(
    ("value", "pointer", "written"),
    [
        ('"32"', "train_batch_size", "32"),
        ('"1.0"', "gradient_clipping", "1.0"),
        ('"100"', "steps_per_print", "100"),
        ('"False"', "zero_allow_untested_optimizer", "false"),
    ],
)
def test_quotes_are_taken_away_and_the_rest_of_the_text_stays(value: str, pointer: str, written: str) -> None:
    text = f'{{\n  // tuned by hand\n  "{pointer}": {value},  // keep\n  "wall_clock_breakdown": false,\n}}\n'
    (finding,) = run(text, "DSL110")
    assert finding.fix is not None
    assert apply_edits(text, finding.fix.edits) == text.replace(value, written)


@pytest.mark.parametrize("value", ["auto", "$BATCH", "{{ batch }}", "<batch size>", "TRAIN_BATCH_SIZE", "${BATCH}"])
def test_values_that_somebody_fills_in_are_left_alone(value: str) -> None:
    assert run({"train_batch_size": value, "gradient_clipping": value}, "DSL110", "DSL130") == []


def test_a_choice_that_nobody_fills_in_may_not_be_auto() -> None:
    assert levels(run({"train_batch_size": 8, "communication_data_type": "auto"}, "DSL110")) == ["error"]
    assert run({"train_batch_size": 8, "steps_per_print": "auto"}, "DSL110") == []


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "null", '"fp16"', "{", '{"a": [', '{"zero_optimization": }', "[" * 500]
)
def test_texts_that_are_no_config_object_raise_nothing(text: str) -> None:
    run(text)


KEYS = (
    "zero_optimization stage fp16 bf16 enabled optimizer params train_batch_size train_micro_batch_size_per_gpu "
    "gradient_accumulation_steps overlap_comm amp x~/ sequence_parallel_size tensor_parallel autotp_size offload_param "
    "timers throughput"
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("auto")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["", *KEYS.split()]), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(max_examples=400, deadline=None)
@given(JSON, st.integers(1, 8), st.sampled_from(["", "==0.12.6", "==0.19.8", ">=0.9"]))
def test_no_config_makes_a_rule_fail_and_every_finding_has_a_place(data: Any, world: int, version: str) -> None:
    for finding in run(data, world=world, version=version):
        assert finding.pointer is not None
        assert "\n" not in finding.message
        assert not finding.message.endswith(".")
        assert finding.location.path == "ds.json"


@settings(max_examples=200, deadline=None)
@given(JSON, st.sampled_from(["==0.12.6", "==0.19.8"]))
def test_a_fix_ends_its_finding_and_breaks_nothing_else(data: Any, version: str) -> None:
    text = json.dumps(data, indent=2)
    before = run(text, version=version)
    for finding in before:
        if finding.fix is None:
            continue
        after = run(apply_edits(text, finding.fix.edits), version=version)
        assert (finding.code, finding.pointer) not in {
            (f.code, f.pointer) for f in after if f.message == finding.message
        }
        assert not parse_json(SourceFile("ds.json", apply_edits(text, finding.fix.edits))).problems


def test_severities_of_the_first_rules_stay_as_promised() -> None:
    promised = {
        "DSL101": Severity.WARNING,
        "DSL102": Severity.ERROR,
        "DSL107": Severity.ERROR,
        "DSL108": Severity.ERROR,
        "DSL110": Severity.ERROR,
        "DSL111": Severity.ERROR,
        "DSL130": Severity.ERROR,
        "DSL140": Severity.ERROR,
        "DSL160": Severity.WARNING,
        "DSL161": Severity.WARNING,
    }
    assert {code: CONFIG_RULES[code].META.severity for code in promised} == promised


def test_a_template_may_lack_the_batch_size() -> None:
    for path, expected in (("config_templates/zero.json", 0), ("zero.json", 1)):
        doc = parse_json(SourceFile(path, '{"zero_optimization": {"stage": 1}}'))
        assert len(list(CONFIG_RULES["DSL130"].check(doc, Context()))) == expected


def test_findings_name_the_release_that_refuses_or_ignores() -> None:
    config = zero(2, zenflow={"topk_ratio": 0.1}) | {"torch_autocast": {"enabled": True}}
    said = [f.message for f in run(config, "DSL101", "DSL102", version="==0.16.9")]
    assert said == [
        "`torch_autocast` is newer than DeepSpeed 0.16.9, which silently ignores it: DeepSpeed reads it since 0.17.2",
        "`zero_optimization.zenflow` exists since DeepSpeed 0.17.5: DeepSpeed 0.16.9 stops with "
        "`Extra inputs are not permitted`",
    ]
    assert run(config, "DSL101", "DSL102", version="==0.17.5") == []
    assert run(config, "DSL101", "DSL102", version=">=0.16.9") == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"fp16": "true"}, '{"enabled": true}'),
        ({"zero_optimization": 3}, '{"stage": 3}'),
        ({"zero_optimization": "stage2"}, '{"stage": 2}'),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": "cpu"}}, '{"device": "cpu"}'),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "CPU"}}}, '"cpu"'),
        ({"communication_data_type": "torch.float16"}, '"fp16"'),
        ({"optimizer": "AdamW"}, '{"type": "AdamW"}'),
    ],
)
def test_a_short_or_misspelled_value_is_written_as_deepspeed_reads_it(value: dict[str, Any], text: str) -> None:
    (finding,) = run({"train_batch_size": 8, **value}, "DSL110")
    assert finding.severity is Severity.ERROR
    assert finding.fix is not None
    assert finding.fix.edits[0].text == text


@pytest.mark.parametrize(
    ("value", "expected"), [(0, ["error"]), (False, ["error"]), (10, []), (None, []), (-1, ["warning"])]
)
def test_a_step_count_of_zero_stops_the_first_step(value: object, expected: list[str]) -> None:
    assert levels(run({"train_batch_size": 8, "steps_per_print": value}, "DSL110")) == expected


@pytest.mark.parametrize("value", [[], {}, [1], {"a": 1}, None, "x", True])
def test_no_value_breaks_the_rule_about_values(value: object) -> None:
    for key in ("steps_per_print", "zero_optimization", "optimizer", "communication_data_type", "fp16"):
        run({"train_batch_size": 8, key: value}, "DSL110")
    run(zero(2, offload_optimizer={"device": value}, reduce_bucket_size=value, stage3_prefetch_bucket_size=value))
