"""Runs, not files: each launch command interprets its script with its own arguments, environment and config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding
from dslint.engine.run import check_paths
from dslint.settings import make_settings

RUN = "torchrun --nproc_per_node 4 train.py"
HEAD = """\
import argparse
import os
import sys
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from transformers import HfArgumentParser


"""
STRATEGIES = """\
class Plain:
    def step(self):
        dist.all_reduce(torch.ones(1))


class Guarded:
    def __init__(self):
        self.chief = dist.get_rank() == 0

    def step(self):
        if self.chief:
            dist.all_reduce(torch.ones(1))


def build(name):
    if name == "plain":
        return Plain()
    return Guarded()


"""
BY_STRATEGY = f"""\
{HEAD}{STRATEGIES}def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="plain")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    strategy = build(args.strategy)
    for _ in range(10):
        strategy.step()


main()
"""
BRANCH = """\
    dist.init_process_group("nccl")
    if {test}:
        if dist.get_rank() == 0:
            dist.barrier()


main()
"""
ARGPARSE = """\
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip", action="store_true")
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--mode", choices=("train", "eval"), default="train")
    args = parser.parse_args()
"""
DATACLASS = """\
@dataclass
class Options:
    skip: bool = field(default=False)
    mode: str = field(default="train")


def main():
    (args,) = HfArgumentParser(Options).parse_args_into_dataclasses()
"""
PLAIN = "def main():\n"
STAGED = """\
import argparse

import deepspeed
import torch
import torch.distributed as dist


class Shower:
    def __init__(self, engine):
        self.engine = engine
        self.chief = dist.get_rank() == 0

    def show(self, batch):
        if self.chief:
            print(self.engine(batch))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    deepspeed.init_distributed()
    model = torch.nn.Linear(8, 8)
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    Shower(engine).show(torch.ones(2, 8))


main()
"""


def found(folder: Path, files: Mapping[str, str]) -> list[Finding]:
    """The findings about ranks that part in the script of a project."""
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    settings = make_settings({"cache": False, "select": ["DSL201", "DSL202"]}, folder)
    return check_paths([str(folder)], settings).findings


def launches(finding: Finding) -> list[tuple[int, str]]:
    """The launch commands that a finding names: line and label."""
    return [(p.region.line, p.label) for p in finding.related if p.label.startswith("in this launch")]


def test_a_mistake_of_one_of_two_launches_names_it(tmp_path: Path) -> None:
    start = f"{RUN} --strategy plain --lr 0.1\n{RUN} --strategy guarded --lr 0.2\n"
    (finding,) = found(tmp_path, {"train.py": BY_STRATEGY, "train.sh": start})
    assert launches(finding) == [(2, "in this launch (`strategy` is guarded)")]


def test_a_mistake_of_all_launches_names_none(tmp_path: Path) -> None:
    start = f"{RUN} --strategy guarded --lr 0.1\n{RUN} --strategy other --lr 0.2\n"
    (finding,) = found(tmp_path, {"train.py": BY_STRATEGY, "train.sh": start})
    assert launches(finding) == []


@pytest.mark.parametrize("start", ["", f'{RUN} "$@"\n', f"{RUN} --strategy $STRATEGY\n", f"{RUN} --no-such-option\n"])
def test_what_no_launch_says_is_open(tmp_path: Path, start: str) -> None:
    (finding,) = found(tmp_path, {"train.py": BY_STRATEGY, "train.sh": start})
    assert launches(finding) == []


def test_many_launches_are_one_run_with_what_they_agree_on(tmp_path: Path) -> None:
    start = "".join(f"{RUN} --strategy {name} --lr 0.1\n" for name in ("plain", "b", "c", "d", "e", "f"))
    (finding,) = found(tmp_path, {"train.py": BY_STRATEGY, "train.sh": start})
    assert launches(finding) == []


def test_the_class_of_a_launch_that_never_makes_it_is_judged_by_itself(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, {"train.py": BY_STRATEGY, "train.sh": f"{RUN} --strategy plain\n"})
    assert launches(finding) == []


@pytest.mark.parametrize(
    ("parser", "test", "start", "is_dead"),
    [
        (ARGPARSE, "not args.skip", f"{RUN} --skip", True),
        (ARGPARSE, "not args.skip", RUN, False),
        (ARGPARSE, "args.skip", f'{RUN} "$@"', False),
        (ARGPARSE, "args.skip", f"{RUN} $SKIP", False),
        (ARGPARSE, "args.eval_every", f"{RUN} --eval-every=5", False),
        (ARGPARSE, "args.eval_every", f"{RUN} --eval-every 0", True),
        (ARGPARSE, "args.mode == 'eval'", f"{RUN} --mode eval", False),
        (ARGPARSE, "args.mode == 'eval'", f"{RUN} --mode train", True),
        (ARGPARSE, "args.mode == 'eval'", f"{RUN} --mode train\n{RUN} --mode eval", False),
        (DATACLASS, "args.mode == 'eval'", f"{RUN} --mode train", True),
        (DATACLASS, "args.mode == 'eval'", f"{RUN} --mode eval", False),
        (DATACLASS, "args.mode == 'eval'", f"{RUN} args.json", False),
        (DATACLASS, "args.skip", f"{RUN} --skip True", False),
        (PLAIN, "len(sys.argv) > 1", RUN, True),
        (PLAIN, "len(sys.argv) > 1", f"{RUN} more", False),
        (PLAIN, "sys.argv[1] == 'eval'", f"{RUN} eval", False),
        (PLAIN, "os.environ.get('SYNC_ALL', '0') == '1'", f"SYNC_ALL=0 {RUN}", True),
        (PLAIN, "os.environ.get('SYNC_ALL', '0') == '1'", f"export SYNC_ALL=1\n{RUN}", False),
        (PLAIN, "os.environ.get('SYNC_ALL', '0') == '1'", RUN, False),
        (PLAIN, "os.getenv('SYNC_ALL') == '1'", f"export SYNC_ALL=no\n{RUN}", True),
        (PLAIN, "dist.get_world_size() > 4", RUN, True),
        (PLAIN, "dist.get_world_size() > 2", RUN, False),
        (PLAIN, "dist.get_world_size() > 1", "torchrun --nproc_per_node 1 train.py", True),
    ],
)
def test_a_branch_that_no_launch_takes_is_silent(
    tmp_path: Path, parser: str, test: str, start: str, is_dead: bool
) -> None:
    files = {"train.py": HEAD + parser + BRANCH.format(test=test), "train.sh": f"{start}\n"}
    assert bool(found(tmp_path, files)) is not is_dead


@pytest.mark.parametrize(
    ("parser", "test", "name"),
    [
        (ARGPARSE, "args.skip", "skip"),
        (ARGPARSE, "args.eval_every", "eval_every"),
        (DATACLASS, "args.mode == 'eval'", "mode"),
    ],
)
def test_a_mistake_behind_an_option_that_nobody_passes_is_likely(
    tmp_path: Path, parser: str, test: str, name: str
) -> None:
    script = HEAD + parser + BRANCH.format(test=test)
    (finding,) = found(tmp_path, {"train.py": script, "train.sh": f"{RUN}\n"})
    assert finding.assumptions == (assumed("option-is-passed", name),)


LOOP = """\
import torch.distributed as dist


class Loop:
    def __init__(self, {given}, chief):
        self.skip, self.chief = {skip}, chief

    def restore(self):
        if self.skip:
            if self.chief:
                dist.barrier()
"""
MAKING = """\
    dist.init_process_group("nccl")
    loop = {made}
    loop.restore()


main()
"""


@pytest.mark.parametrize(
    ("how", "made", "given", "skip"),
    [
        ("from loops import Loop", "Loop(args, dist.get_rank() == 0)", "args", "args.skip"),
        ("import loops", "loops.Loop(args.skip, dist.get_rank() == 0)", "skip", "skip"),
        ("from loops import *", "Loop(chief=not dist.get_rank(), skip=args.skip)", "skip=False", "skip"),
    ],
)
def test_so_is_one_in_an_imported_module(tmp_path: Path, how: str, made: str, given: str, skip: str) -> None:
    files = {
        "train.py": f"import argparse\nimport torch.distributed as dist\n{how}\n" + ARGPARSE + MAKING.format(made=made),
        "loops.py": LOOP.format(given=given, skip=skip).replace("skip=False, chief", "chief, skip=False"),
        "train.sh": f"{RUN}\n",
    }
    (finding,) = found(tmp_path, files)
    assert finding.location.path.endswith("loops.py")
    assert finding.assumptions == (assumed("option-is-passed", "skip"),)


FROM_FILE = """\
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default=None)
    parser.add_argument("--skip", action="store_true")
    args = parser.parse_args()
    if args.config is not None:
        with open(args.config) as file:
            told = yaml.safe_load(file)
        {fill}
"""


@pytest.mark.parametrize(
    "fill",
    [
        "args.__dict__.update(told)",
        "vars(args).update(told)",
        "for name, value in told.items(): setattr(args, name, value)",
        "for name in told: args.__dict__[name] = told[name]",
        "parser.set_defaults(**told); args = parser.parse_args()",
        "args = argparse.Namespace(**{**vars(args), **told})",
        "args = argparse.Namespace(**told)",
        "args = parser.parse_args(namespace=argparse.Namespace(**told))",
        "args = override(args, told)",
        "args = types.SimpleNamespace(**vars(args), **told)",
    ],
)
def test_options_that_a_file_may_set_are_open(tmp_path: Path, fill: str) -> None:
    head = HEAD.replace("import sys", "import sys\nimport types").replace(
        "import torch\n", "import torch\nimport yaml\nfrom elsewhere import override\n", 1
    )
    script = head + FROM_FILE.format(fill=fill) + BRANCH.format(test="args.skip")
    assert found(tmp_path, {"train.py": script, "train.sh": f"{RUN} --config c.yaml\n"})
    (finding,) = found(tmp_path, {"train.py": script, "train.sh": f"{RUN}\n"})
    assert finding.assumptions == (assumed("option-is-passed", "skip"),)


def test_a_command_in_a_document_says_nothing_about_other_runs(tmp_path: Path) -> None:
    script = HEAD + ARGPARSE + BRANCH.format(test="args.skip")
    assert found(tmp_path, {"train.py": script, "README.md": f"```bash\n{RUN}\n```\n"})


def test_a_mistake_of_one_zero_stage_names_its_launch(tmp_path: Path) -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %d}}'
    files = {"train.py": STAGED, **{f"z{stage}.json": config % stage for stage in (2, 3)}}
    start = "deepspeed --num_gpus 4 train.py --deepspeed --deepspeed_config z%d.json\n"
    assert found(tmp_path, {**files, "train.sh": start % 2}) == []
    (finding,) = found(tmp_path, {**files, "train.sh": start % 2 + start % 3})
    assert launches(finding) == [(2, "in this launch (ZeRO-3)")]
    (finding,) = found(tmp_path, {**files, "train.sh": start % 3})
    assert launches(finding) == []


def test_commands_of_a_document_are_runs_as_far_as_their_zero_stages_differ(tmp_path: Path) -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %d}}'
    start = "deepspeed --num_gpus 4 train.py --deepspeed --deepspeed_config z%d.json\n"
    files = {"train.py": STAGED, **{f"z{stage}.json": config % stage for stage in (2, 3)}}
    (finding,) = found(tmp_path, {**files, "README.md": f"```bash\n{start % 2}{start % 3}```\n"})
    assert launches(finding) == [(3, "in this launch (ZeRO-3)")]
