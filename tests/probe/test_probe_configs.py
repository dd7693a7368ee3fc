"""Which experiment a finding in a config gets, with which parameters, and what is judged of a file with several
mistakes. The parsers of DeepSpeed and transformers are asked by the library test, not here."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from dslint.cli import _subjects
from dslint.probe.config_cases import config_case
from dslint.probe.experiment import Expect
from dslint.probe.experiments import (
    config_key_dropped,
    config_other_effect,
    config_value_taken_as_it_is,
    duplicate_key_under_trainer,
)
from dslint.probe.parts import ds_config, ds_engine
from dslint.probe.registry import entries, of_finding
from dslint.rules.registry import load_rule


def _probed(folder: Path, files: dict[str, str], code: str, **stated: Any) -> list[tuple[str, Any]]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    given = Namespace(**{"world_size": None, "deepspeed_version": None, **stated})
    found = []
    for subject in _subjects([str(folder)], given):
        if subject.finding.code == code:
            chosen = of_finding(subject)
            if chosen is None and subject.finding.fact("shows") in ("later", "engine"):
                continue  # Neither the parser nor the comparison of the Trainer stops there.
            assert chosen is not None, subject.finding
            found.append((f"{chosen[0].experiment.name}/{chosen[1].name}", chosen[1]))
    return found


_KEY = "unknown-section-key"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("DSL101", ["config-key-dropped/unknown-key"] * 3),
        (
            "DSL102",
            [f"config-refused/{_KEY}"] * 6 + [f"config-key-dropped/{_KEY}"] * 2,
        ),
        ("DSL107", ["config-refused/removed-section"] * 3),
        ("DSL108", ["config-refused/removed-zero-key"] * 3),
        (
            "DSL110",
            [
                "config-refused/wrong-type",
                "config-value-taken-as-it-is/wrong-type",
                "config-refused/wrong-type",
                "config-refused/wrong-type",
                "config-refused/wrong-type",
                "config-value-taken-as-it-is/wrong-type",
                "config-value-taken-as-it-is/wrong-type",
                *["config-refused/wrong-type"] * 3,
            ],
        ),
        ("DSL111", ["config-refused/duplicate-key", "duplicate-key-under-trainer/duplicate-key"]),
        ("DSL130", ["config-refused/batch-sizes"] * 8),
        ("DSL140", ["config-refused/fp16-and-bf16"] * 2),
        ("DSL408", [f"config-refused{name}/batch-sizes-of-the-run" for name in ("-under-trainer", *[""] * 4)]),
        ("DSL409", ["config-refused-under-trainer/value-and-argument-differ"] * 4),
    ],
)  # fmt: skip
def test_the_bad_examples_of_a_rule_are_probed_with_their_own_text(code: str, names: list[str], tmp_path: Path) -> None:
    chosen = []
    for number, example in enumerate(e for e in load_rule(code).module.EXAMPLES if e.at):
        stated = {name.replace("-", "_"): value for name, value in example.settings.items()}
        for name, case in _probed(tmp_path / str(number), dict(example.files), code, **stated):
            chosen.append(name)
            assert case.params["text"] in example.files.values()
            # Two pipeline stages halve the ranks that share a batch.
            ranks = 4 if "pipeline" in example.title else 8
            # A run whose command says no number has none.
            assert case.params["world"] in (stated.get("world_size") or ranks * (code > "DSL400"), 0)
    assert chosen == names


def test_the_arguments_of_the_command_come_along(tmp_path: Path) -> None:
    example = load_rule("DSL409").module.EXAMPLES[0]
    ((_, case),) = _probed(tmp_path, dict(example.files), "DSL409")
    assert case.params["arguments"] == {"gradient_accumulation_steps": 2}
    assert json.loads(case.params["fixed"])["gradient_accumulation_steps"] == "auto"
    example = load_rule("DSL408").module.EXAMPLES[0]
    ((_, case),) = _probed(tmp_path, dict(example.files), "DSL408")
    assert case.params["arguments"] == {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}


def test_a_key_that_is_too_new_needs_the_release_that_the_project_asks_for(tmp_path: Path) -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "enable_sanity_checks": true}}\n'
    ((_, case),) = _probed(tmp_path, {"ds.json": text}, "DSL102", deepspeed_version="0.12.6")
    assert case.needs is not None
    assert case.needs.versions[0].startswith("deepspeed<0.1")


def _params(text: str, pointer: str, keep: list[str], world: int = 1, fixed: str | None = None) -> dict[str, Any]:
    return {"text": text, "fixed": fixed, "pointer": pointer, "world": world, "keep": keep, "beside": []}


def _reader(*bad: str) -> Any:
    """Refuses a text that holds one of these words, or no batch size."""

    def read(text: str, world: int) -> str:
        if any(word in text for word in (*bad,)) or "batch" not in text:
            raise ValueError(text)
        return text

    return read


MANY = '{"train_batch_size": 8, "a": {"one": 1, "two": 2}, "b": {"three": 3}}'


@pytest.mark.parametrize(
    ("bad", "judged"),
    [
        (("one",), "the whole file"),
        (("one", "train_batch_size"), "the file, with one sample a rank"),
        (("one", "three"), "the section of the key"),
        (("one", "two", "three"), "the key in its section"),
        (("one", "a"), "the whole file"),
    ],
)
def test_a_file_is_reduced_until_the_repaired_one_is_accepted(bad: tuple[str, ...], judged: str) -> None:
    pytest.importorskip("hjson")
    params = _params(MANY, "/a/one", ["a"])
    written, fixed, what, world = ds_config.settle(params, _reader(*bad))
    assert (what, world) == (judged, 1)
    assert "one" in written
    assert "one" not in fixed


def test_an_unknown_world_size_is_searched_and_a_mistake_must_fail_at_all_of_them() -> None:
    pytest.importorskip("hjson")

    def read(text: str, world: int) -> None:
        assert "bad" not in text
        assert world == 6

    assert ds_config.judge(_params('{"x": 1}', "/x", ["x"], 0), False, read)["world"] == 6
    with pytest.raises(AssertionError):
        ds_config.judge(_params('{"bad": 1}', "/bad", ["bad"], 0), False, read)


def test_what_is_left_out_leaves_a_config_with_a_batch_size() -> None:
    assert ds_config.without({"train_batch_size": 4, "x": 1}, "/train_batch_size") == {
        "x": 1,
        "train_micro_batch_size_per_gpu": 1,
    }
    assert ds_config.without({"train_batch_size": 4, "a/b": {"c": 1}}, "/a~1b/c")["a/b"] == {}
    assert ds_config.without({"train_batch_size": 4}, "/no/such") == {"train_batch_size": 4}


def test_a_key_is_dropped_when_it_changes_nothing() -> None:
    meant = [{"key": "clip", "stands": False, "changes": {"gradient_clipping": "1.0"}}]
    dropped = {"key": "clipp", "stands": True, "changes": {}}
    told = config_key_dropped.wrong([dropped], meant)
    assert told == "DeepSpeed reads the file as if `clipp` were not in it; as fixed it reads gradient_clipping 1.0"
    assert config_key_dropped.wrong(meant, meant) is None
    assert config_key_dropped.wrong([{**dropped, "changes": {"x": "1"}}], meant) is None
    assert duplicate_key_under_trainer.wrong([{"lost": []}], []) is None
    assert duplicate_key_under_trainer.wrong([{"lost": ["`stage: 2`"]}], []) is not None


def test_a_switch_in_quotes_means_the_opposite_when_the_fix_says_so() -> None:
    def judged(written: object, right: object) -> str | None:
        sizes = {"train_micro_batch_size_per_gpu": 2}
        return config_value_taken_as_it_is.wrong([{**sizes, "x": written}], [{**sizes, "x": right}])

    assert judged("false", False) == "`x` is the text 'false' for DeepSpeed, which counts as true"
    assert judged("true", True) is None
    assert judged(False, False) is None
    assert judged("1", 1) is None
    half = [{"train_micro_batch_size_per_gpu": 1.5}]
    assert config_value_taken_as_it_is.wrong(half, half) is not None


@pytest.mark.parametrize(
    ("command", "script", "case", "path"),
    [
        ("torchrun train.py --deepspeed {}.json", "TrainingArguments", "TrainingArguments", "configs/zero_2.json"),
        ("deepspeed train.py --deepspeed_config {}.json", "", "deepspeed.initialize", "configs/zero_2.json"),
        ("accelerate launch --config_file {}.yaml train.py", "", "accelerate-launch", "configs/zero_2.yaml"),
    ],
)
def test_a_missing_config_is_opened_by_who_reads_it(
    command: str, script: str, case: str, path: str, tmp_path: Path
) -> None:
    example = load_rule("DSL443").module.EXAMPLES[0]
    plain = "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\n"
    plain += "parser.add_argument('--deepspeed_config')\nengine = deepspeed.initialize(args=parser.parse_args())\n"
    text = example.files["train.py"] if script else plain
    files = {"run.sh": command.format("configs/zero_2") + "\n", "train.py": text, "configs/zero2.json": "{}"}
    ((name, chosen),) = _probed(tmp_path, files, "DSL443")
    assert name == f"config-path-missing/{case}"
    assert chosen.params["path"] == path


def test_what_a_device_cannot_do_confirms_nothing() -> None:
    refusals = (
        "ValueError: Type fp16 is not supported on your device.\n_do_sanity_check (engine.py:2004)",
        "NotImplementedError: Lamb is not implemented on CPU\n_configure_basic_optimizer (engine.py:2300)",
    )
    mine = [e for e in entries() if e.experiment.name.startswith(("config-", "engine-refuses", "accelerate-config"))]
    assert len(mine) >= 6
    for entry in mine:
        for case in entry.experiment.cases:
            match = entry.experiment.expectation(case).match
            assert not [text for text in refusals if re.search(match, text, re.DOTALL)], case.name


def test_what_the_mistake_consists_of_elsewhere_is_kept() -> None:
    pytest.importorskip("hjson")
    text = '{"optimizer": {"type": "Muon", "params": {"lr": 1}}, "z": {"stage": 3, "bad": 1, "x": 1}, "y": 1}'
    places = ("/z/bad", "/z/stage", "/optimizer/type")
    case = config_case("a", "", places[0], text, beside=places[1:], expect=Expect(()))
    assert case.params["keep"] == ["optimizer", "z"]
    parts = dict(ds_config._parts(json.loads(text), dict(case.params)))
    assert parts["the key in its section"] == {
        "optimizer": {"type": "Muon"}, "z": {"stage": 3, "bad": 1}, "train_micro_batch_size_per_gpu": 1,
    }  # fmt: skip


def test_a_case_may_have_ranks_of_its_own() -> None:
    (entry,) = (entry for entry in entries() if entry.experiment.name == "config-refused-by-engine")
    case = entry.experiment.case("unknown-optimizer-on-two-ranks")
    assert (entry.experiment.ranks, entry.sized(case).experiment.ranks) == (1, 2)


ADAPTED = """{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "optimizer": {"type": "Lamb", "params": {}},
"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}, "wandb": {"enabled": true}}"""


@pytest.mark.parametrize(
    ("keep", "pointer", "left"),
    [
        (["zero_optimization"], "/zero_optimization/stage", (False, False, "cpu")),
        (["fp16"], "/fp16/enabled", (True, False, "cpu")),
        (["zero_optimization"], "/zero_optimization/offload_param/device", (False, False, "nvme")),
        (["wandb"], "/wandb", (False, True, "cpu")),
    ],
)
def test_what_a_cpu_cannot_do_is_replaced_unless_the_mistake_is_there(
    keep: list[str], pointer: str, left: tuple[object, ...]
) -> None:
    params = {"keep": keep, "pointer": pointer, "beside": [], "trainer": True}
    data, told = ds_engine.adapted(json.loads(ADAPTED), params, "cpu")
    device = data["zero_optimization"]["offload_param"]["device"]
    assert ("fp16" in data, "wandb" in data, device) == left
    assert data["train_micro_batch_size_per_gpu"] == 1
    assert len(told) == 2 + left.count(False) + (left[2] == "cpu")


@pytest.mark.parametrize(
    ("written", "fixed", "says"),
    [
        ({"facts": {"lr": 1e-3}, "meant": {}}, {"facts": {"lr": 2e-5}}, "`lr` in effect is 0.001, and 2e-05 is meant"),
        ({"facts": {"lr": 2e-5}, "meant": {}}, {"facts": {"lr": 2e-5}}, None),
        ({"facts": {"engine.a": False}, "meant": {"engine.a": True}}, {"facts": {"engine.a": False}},
         "`a` in effect is False, and True is meant"),
        ({"facts": {"engine.a": True}, "meant": {"engine.a": True}}, {"facts": {"engine.a": False}}, None),
        ({"facts": {"lrs": [0, 1.0]}, "meant": {}}, {"facts": {"lrs": [0, 0.5]}},
         "`lrs` in effect is [0, ... 1], and [0, ... 0.5] is meant"),
    ],
)  # fmt: skip
def test_the_oracle_of_other_effects(written: Any, fixed: Any, says: str | None) -> None:
    assert config_other_effect.wrong([written], [fixed]) == says
