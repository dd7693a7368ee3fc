"""What is read of a script for the questions of plans, and what one interpretation answers."""

from __future__ import annotations

from pathlib import Path

from dslint.model.plan.parser.reader import script_parser
from dslint.model.plan.questions import profile_question
from dslint.model.plan.scriptprofile import profile_of
from dslint.model.plan.scriptrun import script_run
from dslint.model.workspace import Workspace

TRAIN = """\
import argparse

from accelerate import Accelerator
from torch.distributed import barrier


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=0.5)
    return parser.parse_args()


def main():
    args = options()
    accelerator = Accelerator(mixed_precision="bf16")
    barrier()  # `options` calls parse_args, as this text says


if __name__ == "__main__":
    main()
"""
ENGINE = "import deepspeed\n\n\ndef build(model):\n    return deepspeed.initialize(model=model, config='ds.json')\n"
TRAINER = """\
from helper import train
from transformers import HfArgumentParser, TrainingArguments

(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
train(args)
"""


def workspace(files: dict[str, str]) -> Workspace:
    return Workspace(Path("/nonexistent"), files)


def test_nothing_is_read_behind_the_last_answer() -> None:
    run = script_run("train.py", workspace({"train.py": TRAIN}), profile_question())
    assert run is not None
    names = [event.api.rpartition(".")[2] for event in run.events]
    assert "Accelerator" in names
    assert "barrier" not in names


def test_the_options_come_from_the_same_interpretation() -> None:
    files = workspace({"train.py": TRAIN})
    run = script_run("train.py", files, profile_question())
    assert run is not None
    assert run.has_options
    both, alone = script_parser("train.py", files), script_parser("train.py", workspace({"train.py": TRAIN}))
    assert both == alone
    assert both is not None
    assert both.is_closed


def test_options_that_a_module_parses_on_import_are_asked_for_apart() -> None:
    far = "import argparse\n\nARGS = argparse.ArgumentParser().parse_known_args()\n"
    files = workspace({"train.py": "import near\n" + TRAIN, "near.py": "import far\n", "far.py": far})
    run = script_run("train.py", files, profile_question())
    assert run is not None
    assert not run.has_options


def test_an_engine_in_the_next_file_counts() -> None:
    helper = "from engine import build\n\n\ndef train(args):\n    build(None)\n"
    near = profile_of("train.py", workspace({"train.py": TRAINER, "helper.py": ENGINE.replace("build", "train")}))
    assert near is not None
    assert near.consumer.is_unknown  # the Trainer or the engine
    far = profile_of("train.py", workspace({"train.py": TRAINER, "helper.py": helper, "engine.py": ENGINE}))
    assert far is not None
    assert far.consumer.get() == "hf"


def test_a_script_without_a_word_of_it_is_not_interpreted() -> None:
    assert script_run("train.py", workspace({"train.py": "print('Accelerator')\n"}), profile_question()) is None
