"""A number of the whole job is divided by the number of processes, and there are more of these: the share is 0.

**What.** `config["gradient_accumulation_steps"] //= world_size` with 16 in the file of settings and a command that
starts 32 processes; `args.batch_size // dist.get_world_size()` with a batch smaller than the job.

**Why it hurts.** `//` gives 0. Where the number is divided by again, every rank stops with a `ZeroDivisionError` after
the model has been loaded; where it counts turns, `range(0)` trains nothing: each step of the optimizer is made without
a gradient, and the run ends with the weights that it began with.

**Fix.** A number that is a multiple of the processes, or `max(1, number // world_size)` where the larger batch is
meant.

**When it stays quiet.** The number or the number of processes is not known; `max(1, ...)`, `... or 1`, a rest that is
asked for (`% world_size`), a sum (`... + 1`); numbers whose name says nothing of batches, steps, samples or
accumulation.

**Evidence.** Python: `16 // 32` is 0, and `range(0)` has no turns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.statednumbers import Stated, stated_number
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import constant_of, last_name

META = RuleMeta(
    code="DSL777",
    name="share-becomes-zero",
    kind="script",
    severity=Severity.WARNING,
    summary="a number is floor-divided by more processes than it counts: each process gets 0",
    markers=(r"world_?size|num_processes|WORLD_SIZE", r"//"),
    references=("https://github.com/keyonvafa/inductive-bias-probes/issues/12",),
    depends_on_run=True,
    no_experiment="Python itself says what `16 // 32` and `range(0)` are",
)
_COUNTED = re.compile(r"(?i)batch|accum|bsz|(?:^|_)bs$|steps?$|iters?$|samples|prompts|rollouts|episodes|epochs")


def applies(_: str, context: Context) -> bool:
    """Without a known world size nothing can be said, whatever the script holds."""
    return context.world_size.is_known


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each division by the number of processes whose result is certainly 0."""
    world = run.context.world_size.get_or(0)
    if world < 2 or run.has("asks-rest"):
        return
    for found in run.happenings("shares"):
        event = found.event
        whole = event.nodes["whole"]
        if event.api != "operator.floor" or not _COUNTED.search(last_name(whole)) or _is_corrected(event):
            continue
        stated = _size(run, event, whole)
        if stated is not None and 0 < stated.number < world:
            yield _finding(run, event, stated, world)


def _size(run: RunQuery, event: Event, whole: ast.expr) -> Stated | None:
    known = constant_of(event.arguments["size"])
    name = last_name(whole)
    return Stated(known, run.given_at(name)) if type(known) is int else stated_number(run, name)


def _is_corrected(event: Event) -> bool:
    """Return whether something around a division may make another number of a 0."""
    parents, node = event.module.parents, event.node
    while isinstance(node, ast.expr):
        outer = parents.get(node)
        if isinstance(outer, ast.BoolOp | ast.IfExp) or (
            isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Add)
        ):
            return True
        if isinstance(outer, ast.Call) and getattr(outer.func, "id", getattr(outer.func, "attr", "")) != "int":
            return last_name(outer.func) not in ("print", "info")
        node = outer if outer is not None else event.module.tree
    target = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AugAssign) else None
    )
    name = event.module.text(target) if target is not None else ""
    words = re.escape(name)
    asks = rf"max\([^\n]*{words}|\b(?:if|assert)\b[^\n]*{words}[^\n]*(?:==|<|>)|\bnot {words}|{words} or "
    return bool(name) and re.search(asks, event.module.code) is not None


def _finding(run: RunQuery, event: Event, stated: Stated, world: int) -> Finding:
    text = run.text(event.module, event.nodes["whole"])
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{text}` is {stated.number}, and the command starts {world} processes: `//` makes it 0 on each of them",
        hint=f"Use a multiple of {world}, or `max(1, ...)`",
        related=(
            *(place.labelled(f"says {stated.number}") for place in stated.places),
            *run.context.world_size.origins,
        ),
        facts={"number": stated.number, "world": world},
    )


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
import yaml


def setup(config):
    dist.init_process_group("nccl")
    %s
    return config


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch_size", type=int, default=8)
    args = parser.parse_args()
    with open(args.config) as f:
        config = yaml.safe_load(f)
    config = setup(config)
    per_rank = args.batch_size%s
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    for _ in range(config["train"]["accumulation_steps"]):
        (model(torch.rand(per_rank, 4)).sum() / config["train"]["accumulation_steps"]).backward()


if __name__ == "__main__":
    main()
"""
_RUN = "srun -N 4 torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 "
_FILE = "train:\n  accumulation_steps: %s\n  lr: 0.001\n"
_IN_PLACE = 'config["train"]["accumulation_steps"] //= dist.get_world_size()'
_NEW = 'config["train"]["accumulation_steps"] = config["train"]["accumulation_steps"] // dist.get_world_size()'


def _files(body: str, share: str = "", steps: str = "16", words: str = "") -> dict[str, str]:
    run = f"{_RUN}train.py --config conf/run.yaml{words}\n"
    return {"train.py": _TRAIN % (body, share), "conf/run.yaml": _FILE % steps, "run.sbatch": f"#!/bin/bash\n{run}"}


_SHARE = " // dist.get_world_size()"

EXAMPLES = (
    bad("a file of settings, in place", _files(_IN_PLACE), at="train.py:10 warning"),
    bad("the same, written out", _files(_NEW), at="train.py:10 warning"),
    bad("an option of the command", _files("pass", _SHARE, words=" --batch_size 16"), at="train.py:22 warning"),
    bad("a default that the command leaves alone", _files("pass", _SHARE), at="train.py:22 warning"),
    bad("a number of the code", {"train.py": (
        "import torch.distributed as dist\n\ndist.init_process_group('nccl')\nBATCH_SIZE = 4\n\n\n"
        "def each():\n    world_size = dist.get_world_size()\n    return BATCH_SIZE // world_size\n\n\n"
        "print(range(each()))\n"
    )}, at="train.py:9 warning", world_size=8),
    good("as many as processes", _files(_IN_PLACE, steps="32"), select="DSL777"),
    good("at least one", _files(_IN_PLACE.replace("//= dist.get_world_size()",
        '= max(1, config["train"]["accumulation_steps"] // dist.get_world_size())')), select="DSL777"),
    good("asked before it is used", _files(_IN_PLACE + '\n    assert config["train"]["accumulation_steps"] > 0'),
        select="DSL777"),
    good("the command passes another number", _files(_IN_PLACE, words=" --train.accumulation_steps 64"),
        select="DSL777"),
    good("not known", _files(_IN_PLACE, steps="null"), select="DSL777"),
)  # fmt: skip
