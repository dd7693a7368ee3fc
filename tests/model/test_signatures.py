"""Which optimizers and schedules a release of DeepSpeed knows, and what their classes take."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from dslint.model.context import VersionFact
from dslint.model.deepspeed.releases import RELEASES
from dslint.model.deepspeed.schema import NEWEST, load_data
from dslint.model.deepspeed.signatures import (
    OPTIMIZERS,
    SCHEDULES,
    accepted,
    own_names,
    presence,
    required,
    since,
    torch_names,
)


@pytest.mark.parametrize(
    ("kind", "name", "version", "known"),
    [
        (OPTIMIZERS, "adamw", "", "yes"),
        (OPTIMIZERS, "adamw", "==0.9.0", "yes"),
        (OPTIMIZERS, "adamx", "", "no"),
        (OPTIMIZERS, "onebitadam", "==0.19.6", "yes"),
        (OPTIMIZERS, "onebitadam", "==0.19.7", "no"),
        (OPTIMIZERS, "onebitadam", "", "maybe"),
        (OPTIMIZERS, "onebitadam", ">=0.12,<0.16", "yes"),
        (OPTIMIZERS, "lion", "==0.10.3", "no"),
        (OPTIMIZERS, "lion", ">=0.10", "maybe"),
        (OPTIMIZERS, "muon", "==0.17.5", "no"),
        (OPTIMIZERS, "muon", "==0.17.6", "yes"),
        (SCHEDULES, "WarmupCosineLR", "==0.12.2", "no"),
        (SCHEDULES, "WarmupCosineLR", "==0.12.3", "yes"),
        (SCHEDULES, "warmuplr", "", "no"),
    ],
)
def test_which_release_knows_a_name(kind: str, name: str, version: str, known: str) -> None:
    assert presence(kind, name, VersionFact(version)) == known


def test_what_a_class_takes_depends_on_the_class_that_the_engine_makes() -> None:
    newest = VersionFact(f"=={NEWEST}")
    own, torch, either = (accepted(OPTIMIZERS, "adamw", newest, flag) or frozenset() for flag in (False, True, None))
    assert "set_grad_none" in own - torch
    assert "foreach" in torch - own
    assert own | torch == either
    assert "adamw_mode" not in either  # the engine gives it itself
    assert "nesterov" in (accepted(OPTIMIZERS, "SGD", newest) or ())
    assert accepted(OPTIMIZERS, "muadam", newest) is None
    assert accepted(OPTIMIZERS, "AdamX", newest) is None
    assert "verbose" in (accepted(SCHEDULES, "StepLR", newest) or ())
    assert required(SCHEDULES, "WarmupDecayLR") == ("total_num_steps",)
    assert required(SCHEDULES, "WarmupLR") == ()
    assert required(SCHEDULES, "StepLR") == ("step_size",)


def test_the_data_speaks_of_releases_that_exist() -> None:
    data = load_data("signatures.json")
    assert data["last"] == NEWEST
    releases = set(RELEASES)
    for kind in (OPTIMIZERS, SCHEDULES):
        assert own_names(kind)
        assert torch_names(kind)
        for name in own_names(kind):
            assert {span["since"] for span in data[kind][name]} <= releases
            assert since(kind, name) == data[kind][name][0]["since"]


_CONFIG = 'ADAM = "adam"\nLAMB = "lamb"\nDEEPSPEED_OPTIMIZERS = [%s]\n'
_CLASS = "class %s:\n    def __init__(self, params, lr=1e-3, %s):\n        pass\n    def step(self):\n        pass\n"


def _release(folder: Path, names: str, lamb: str, schedules: str) -> None:
    files = {
        "runtime/config.py": _CONFIG % names,
        "runtime/engine.py": "parameters.pop('fp32_optimizer_states', None)\n",
        "runtime/lr_schedules.py": schedules,
        "ops/adam/fused_adam.py": _CLASS % ("FusedAdam", "bias_correction=True"),
        "ops/adam/cpu_adam.py": _CLASS % ("DeepSpeedCPUAdam", "adamw_mode=True, eps=1e-8"),
        "ops/lamb/fused_lamb.py": _CLASS % ("FusedLamb", lamb),
    }
    for name, text in files.items():
        path = folder / "deepspeed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_generator_notes_where_releases_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "scripts"))
    generator = importlib.import_module("generate_deepspeed_signatures")
    warm = _CLASS % ("WarmupLR", "warmup=1")
    decay = "class WarmupDecayLR(WarmupLR):\n    def __init__(self, optimizer, total, warmup=1):\n        pass\n"
    _release(tmp_path / "deepspeed-0.9.0", "ADAM, LAMB", "a=1", warm)
    _release(tmp_path / "deepspeed-0.10.0", "ADAM, LAMB", "a=1, b=2", warm + decay)
    _release(tmp_path / "deepspeed-0.11.0", "ADAM", "a=1, b=2", warm + decay)
    torch = tmp_path / "torch"
    (torch / "optim").mkdir(parents=True)
    (torch / "version.py").write_text('__version__ = "2.9.1+cpu"\n')
    (torch / "optim" / "adam.py").write_text(
        "class AdamW(Optimizer):\n    def __init__(self, params, lr=1e-3, *, foreach=None):\n        pass\n"
        "class StepLR(LRScheduler):\n    def __init__(self, optimizer, step_size, gamma=0.1):\n        pass\n"
    )
    found = json.loads(generator.render(tmp_path, tmp_path))
    assert found["optimizers"]["lamb"] == [
        {"since": "0.9.0", "params": ["lr", "a"]},
        {"since": "0.10.0", "params": ["lr", "a", "b"]},
        {"since": "0.11.0"},
    ]
    (adam,) = found["optimizers"]["adam"]
    assert adam["params"] == ["adam_w_mode", "bias_correction", "eps", "fp32_optimizer_states", "lr", "torch_adam"]
    assert adam["torch"] == ["adam_w_mode", "foreach", "fp32_optimizer_states", "lr", "torch_adam"]
    assert found["schedules"]["WarmupDecayLR"] == [
        {"since": "0.10.0", "params": ["total", "warmup"], "required": ["total"]}
    ]
    assert found["torch_schedules"] == {"StepLR": {"params": ["step_size", "gamma"], "required": ["step_size"]}}
    assert (found["torch"], found["first"], found["last"]) == ("2.9.1", "0.9.0", "0.11.0")
