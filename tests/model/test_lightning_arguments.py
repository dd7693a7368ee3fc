"""The table of the arguments of Lightning's Trainer: what its generator makes of wheels, and what it says."""

from __future__ import annotations

import importlib
import json
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def wheel(folder: Path, release: str, arguments: str) -> None:
    text = f"class Trainer:\n    def __init__(self, {arguments}):\n        pass\n"
    with zipfile.ZipFile(folder / f"pytorch_lightning-{release}-py3-none-any.whl", "w") as archive:
        archive.writestr("pytorch_lightning/trainer/trainer.py", text)


def test_arguments_that_come_and_go_are_found_in_the_order_of_the_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    generator = importlib.import_module("generate_lightning_arguments")
    wheel(tmp_path, "1.10.0", "logger=None, devices=None, strategy=None")
    wheel(tmp_path, "1.9.0", "logger=None, gpus=None, devices=None")
    wheel(tmp_path, "1.2.0", "logger=None, gpus=None")
    found = json.loads(generator.render(tmp_path))["lightning"]
    assert found["releases"] == ["1.2.0", "1.9.0", "1.10.0"]
    names = found["classes"]["Trainer"]["names"]
    assert names == {"gpus": ["1.2.0", "1.10.0"], "devices": ["1.9.0"], "strategy": ["1.10.0"]}


@pytest.mark.parametrize(
    ("name", "since", "until"),
    [
        ("gpus", "0.10.0", "2.0.0"),
        ("distributed_backend", "0.10.0", "1.5.0"),
        ("strategy", "1.5.0", ""),
        ("replace_sampler_ddp", "0.10.0", "2.0.0"),
        ("use_distributed_sampler", "2.0.0", ""),
    ],
)
def test_the_table_says_what_the_change_log_of_lightning_says(name: str, since: str, until: str) -> None:
    data = json.loads((ROOT / "schemas" / "lightning_arguments.json").read_text("utf-8"))
    span = data["lightning"]["classes"]["Trainer"]["names"][name]
    assert span == [since, *([until] if until else [])]
