"""Cases whose verdict needs a launch command: dslint reads a project of them, as a user has it on the disk."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dslint.core.finding import Finding
from dslint.engine.run import check_paths
from dslint.settings import make_settings

_SCRIPT = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, args=args, train_dataset=load())
trainer.train()
"""
_NUMBER = re.compile(r"_(\d+)\.\w+$")


def trainer_runs(runs: Sequence[tuple[str, int, Mapping[str, Any]]]) -> list[list[Finding]]:
    """The findings about each run of the Trainer: the text of its config, its ranks, its arguments."""
    files: dict[str, str] = {"train.py": _SCRIPT}
    for number, (text, world, arguments) in enumerate(runs):
        flags = " ".join(f"--{name} {value}" for name, value in arguments.items())
        files[f"ds_config_{number}.json"] = text
        files[f"run_{number}.sh"] = (
            f"deepspeed --num_gpus {world} train.py --deepspeed ds_config_{number}.json --output_dir out {flags}\n"
        )
    return findings(files, len(runs))


_PREPARED = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model, loader = accelerator.prepare(build(), torch.utils.data.DataLoader(rows(), batch_size=2))
for batch in loader:
    accelerator.backward(model(batch).sum())
"""


def launcher_runs(runs: Sequence[tuple[str, str]]) -> list[list[Finding]]:
    """The findings about each run of ``accelerate launch``: its YAML file, and the DeepSpeed config beside it or ""."""
    files: dict[str, str] = {"train.py": _PREPARED}
    for number, (text, beside) in enumerate(runs):
        files[f"accelerate_{number}.yaml"] = text.replace("ds.json", f"ds_config_{number}.json")
        if beside:
            files[f"ds_config_{number}.json"] = beside
        files[f"run_{number}.sh"] = f"accelerate launch --config_file accelerate_{number}.yaml train.py\n"
    return findings(files, len(runs))


def findings(files: Mapping[str, str], count: int) -> list[list[Finding]]:
    """The findings of a project with numbered files, by their numbers."""
    libraries = ("deepspeed", "transformers", "accelerate")
    pins = "".join(f"{name}=={version(name)}\n" for name in libraries)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**files, "requirements.txt": pins}.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        found = check_paths([folder], make_settings({"no-cache": True, "jobs": 1})).findings
    sorted_out: dict[int, list[Finding]] = defaultdict(list)
    for finding in found:
        for number in _numbers(finding):
            sorted_out[number].append(finding)
    return [sorted_out[number] for number in range(count)]


def _numbers(finding: Finding) -> Iterable[int]:
    places = [finding.location.path, *(place.path for place in finding.related)]
    found = [int(match[1]) for path in places if (match := _NUMBER.search(path))]
    return set(found[:1])
