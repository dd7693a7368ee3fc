"""The ZeRO stage of a run reaches the rules about its script, in whatever way the run states it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.source import SourceFile
from dslint.model.context import Context
from dslint.model.launch.document import read_launch_docs
from dslint.model.plan.contexts import contexts_for
from dslint.model.plan.runplan import build_plans
from dslint.model.workspace import Workspace

TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=None, args=args).train()
"""
CONSTRUCTED = """\
from transformers import Trainer, TrainingArguments

Trainer(model=None, args=TrainingArguments(output_dir="out", deepspeed="ds.json")).train()
"""
PLAIN = """\
import argparse

import deepspeed

parser = argparse.ArgumentParser()
deepspeed.add_config_arguments(parser)
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
engine, *_ = deepspeed.initialize(args=args, model=None)
"""
IN_A_DICT = """\
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--zero_stage", type=int, default=2)
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": args.zero_stage}}
engine, *_ = deepspeed.initialize(config=config, model=None)
"""
BY_A_FUNCTION = """\
import argparse

import deepspeed
from utils.ds import get_train_ds_config


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero_stage", type=int, default=0)
    parser = deepspeed.add_config_arguments(parser)
    parser.add_argument("--local_rank", type=int)
    return parser.parse_args()


def main():
    args = parse_args()
    config = get_train_ds_config(offload=False, stage=args.zero_stage)
    config["train_micro_batch_size_per_gpu"] = 1
    engine, *_ = deepspeed.initialize(args=args, config=config, model=None)


main()
"""
FUNCTION = "def get_train_ds_config(offload, stage=2):\n    return {'zero_optimization': {'stage': stage}}\n"
ACCELERATE = "from accelerate import Accelerator\n\naccelerator = Accelerator()\nmodel = accelerator.prepare(None)\n"
CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}\n'
INLINE = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\nnum_processes: 2\n"
NAMED = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\nnum_processes: 2\n"
_TORCHRUN = "torchrun --nproc_per_node 2 train.py --output_dir out"
_ZERO = "deepspeed --num_gpus 2 train.py"


def stage_of_script(files: dict[str, str]) -> object:
    workspace = Workspace(Path("/nonexistent"), files)
    docs = read_launch_docs(SourceFile("run.sh", files["run.sh"]), "shell", workspace)
    plans = build_plans([c for d in docs for c in d.commands], workspace)
    stage = contexts_for(plans, lambda _path: Context())["train.py"].zero_stage
    return stage.get() if stage.is_known else stage.state


@pytest.mark.parametrize(
    ("command", "script", "stage"),
    [
        (f"{_TORCHRUN} --deepspeed ds.json", TRAINER, 3),
        (f"{_TORCHRUN} --deepspeed ${{DS_CONFIG:-ds.json}}", TRAINER, 3),
        (f"DS_CONFIG=${{DS_CONFIG:-ds.json}}\n{_TORCHRUN} --deepspeed $DS_CONFIG", TRAINER, 3),
        (f"{_TORCHRUN} --deepspeed=$DS_CONFIG", TRAINER, "unknown"),
        (f"{_TORCHRUN} --deepspeed zero3", TRAINER, 3),
        (f"{_TORCHRUN} --deepspeed deepspeed_zero2_offload", TRAINER, 2),
        (_TORCHRUN, TRAINER, "absent"),
        ("torchrun --nproc_per_node 2 train.py", CONSTRUCTED, 3),
        (f"{_ZERO} --deepspeed --deepspeed_config ds.json", PLAIN, 3),
        (f"{_ZERO} --zero_stage 3", IN_A_DICT, 3),
        (_ZERO, IN_A_DICT, 2),
        (f"{_ZERO} --zero_stage $STAGE", IN_A_DICT, "unknown"),
        (f"{_ZERO} $MORE", IN_A_DICT, "unknown"),
        (f"{_ZERO} --zero_stage 3", BY_A_FUNCTION, 3),
        (
            f'ZERO_STAGE=$2\nif [ "$ZERO_STAGE" == "" ]; then\n    ZERO_STAGE=3\nfi\n{_ZERO} --zero_stage 2',
            BY_A_FUNCTION,
            2,
        ),
        ("accelerate launch --config_file inline.yaml train.py", ACCELERATE, 3),
        ("accelerate launch --config_file named.yaml train.py", ACCELERATE, 3),
        ("accelerate launch --use_deepspeed --zero_stage 3 --num_processes 2 train.py", ACCELERATE, 3),
        ("accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py", ACCELERATE, 3),
    ],
)
def test_stage(command: str, script: str, stage: object) -> None:
    files = {"train.py": script, "ds.json": CONFIG, "inline.yaml": INLINE, "named.yaml": NAMED, "utils/ds.py": FUNCTION}
    assert stage_of_script({**files, "run.sh": f"{command}\n"}) == stage
