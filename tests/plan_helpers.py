"""What tests of run plans and of the rules over them share: small scripts, configs, and the plans of some files."""

from __future__ import annotations

import json
from pathlib import Path

from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.model.context import Context
from dslint.model.launch.document import read_launch_docs
from dslint.model.plan.runplan import RunPlan, build_plans
from dslint.model.workspace import Workspace
from dslint.rules.registry import load_rule

TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser((TrainingArguments,))
(training_args,) = parser.parse_args_into_dataclasses()
Trainer(model=None, args=training_args).train()
"""
PLAIN = """\
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-4)
parser.add_argument("--steps", type=int, default=10)
deepspeed.add_config_arguments(parser)
args = parser.parse_args()
engine, *_ = deepspeed.initialize(args=args, model=None)
"""
STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}\n'


def plans_of(files: dict[str, str], launch: str = "run.sh") -> list[RunPlan]:
    kind = "markdown" if launch.endswith(".md") else "shell"
    workspace = Workspace(Path("/nonexistent"), files)
    docs = read_launch_docs(SourceFile(launch, files[launch]), kind, workspace)
    return build_plans([c for d in docs for c in d.commands], workspace)


def findings(code: str, files: dict[str, str], launch: str = "run.sh", context: Context | None = None) -> list[Finding]:
    check = load_rule(code).module.check
    return [f for plan in plans_of(files, launch) for f in check(plan, context or Context())]


def config(**values: object) -> str:
    return json.dumps({"zero_optimization": {"stage": 2}, **values}, indent=1) + "\n"
