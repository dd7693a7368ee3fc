"""The optimizer of each rank has another learning rate.

**What.** `lr`, `weight_decay` or another number of an optimizer differs between the ranks for certain: it was written
under a test of the rank (`if is_main_process: settings.lr = wandb.config.lr`), or computed from the rank. The same of
`group["lr"] = rate` for the groups of an optimizer, where the rate follows from what this rank alone has drawn: the KL
divergence of its own rollouts.

**Why it hurts.** All ranks get the same averaged gradient and step by it differently: the replicas drift apart from
the first step on. What is saved is the model of rank 0, and the gradients were made by others. Nothing fails.

**Fix.** Send what rank 0 has chosen to all: `broadcast_object_list([settings])`, `dist.broadcast_object_list`. Average
what the rate follows over the ranks first: `dist.all_reduce(kl)`.

**When it stays quiet.** Numbers that are the same, or of which nobody knows whether they differ; scripts that wrap no
model for several ranks, and average no gradients; a rate that follows the loss of a batch; one process.

**Evidence.** Two gloo ranks, torch 2.13: with learning rates of 0.1 and 0.2 the parameters of a
`DistributedDataParallel` model differ after one step; with one number, or one that was broadcast, they are equal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.python.varies import LOCAL, LOST, RANK
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.optimizergroups import is_group

META = RuleMeta(
    code="DSL654",
    name="own-learning-rate",
    kind="script",
    severity=Severity.WARNING,
    summary="a number of the optimizer differs between ranks, and the replicas drift apart",
    markers=(
        r"(?i)rank|is_main|process_index|_zero\b",
        r"lr\b|weight_decay|learning_rate",
        r"prepare|DistributedDataParallel|DDP|deepspeed|\.grad\b",
    ),
    references=("https://github.com/huggingface/accelerate/issues/1040",),
    depends_on_run=True,
)
_NUMBERS = ("lr", "weight_decay", "betas", "eps", "momentum", "alpha")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each optimizer of a replicated model with a number of each rank's own."""
    if run.context.is_one_process:
        return
    is_wrapped = run.has("wraps-model", "prepares", "makes-engine")
    if is_wrapped or _averages(run):
        yield from _groups(run)
    if not is_wrapped:
        return
    for found in run.happenings("makes-optimizer"):
        event = found.event
        if found.entry.kind != "script" or event.may or event.open or event.lanes != run.machine.worlds.full:
            continue
        name = next((name for name in _NUMBERS if _is_own(event, name)), None)
        if name is not None:
            yield _finding(run, event, name)


def _averages(run: RunQuery) -> bool:
    """Return whether gradients are averaged one by one: `dist.all_reduce(parameter.grad)`."""
    nodes = (node for found in run.occurrences("collective") for node in found.event.nodes.values())
    return any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in nodes)


def _groups(run: RunQuery) -> Iterator[Finding]:
    """Fire on each number of a group of an optimizer that each rank sets for itself."""
    for found in run.happenings("writes-item"):
        event = found.event
        if found.entry.kind != "script" or event.may or "value" not in event.arguments or not is_group(event, _NUMBERS):
            continue
        bits = event.snapshot["value"][0] | event.varies
        if not bits & (RANK | LOCAL) or bits & LOST:
            continue
        origin = event.origins.get("value")
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{run.text(event.module, event.node)}` depends on this rank's own data: the replicas drift apart",
            hint="Average over the ranks what the number depends on, or broadcast the number",
            related=_where(run, found, origin),
            varies=bits,
            origin=origin,
        )


def _where(run: RunQuery, found: Happening, origin: tuple[Module, ast.AST] | None) -> tuple[Location, ...]:
    """Return where a number becomes each rank's own, or else the call that hands in what it follows."""
    if origin is not None:
        return (run.location(*origin, "becomes each rank's own"),)
    caller = next((call for call in found.calls if call.module is not found.event.module), None)
    return (run.location(caller.module, caller.node, "hands in what it follows"),) if caller is not None else ()


def _is_own(event: Event, name: str) -> bool:
    value = event.arguments.get(name)
    varies = event.snapshot.get(name, (0, 0, None))[0] | value.varies if value is not None else 0
    return bool(varies & (RANK | LOCAL)) and not varies & LOST


def _finding(run: RunQuery, event: Event, name: str) -> Finding:
    value = event.arguments[name]
    origin = event.origins.get(name)
    where = (run.location(*origin, "becomes each rank's own"),) if origin is not None else run.origin(value, "differs")
    return run.finding(
        META,
        event.module,
        event.nodes.get(name, event.node),
        f"`{name}` differs between the ranks: each steps differently, and the replicas drift apart",
        hint="Send what one rank has chosen to all of them before the optimizer is made",
        related=where,
        varies=event.snapshot.get(name, (value.varies, 0, None))[0],
        origin=origin,
    )


_SCRIPT = """\
import torch
import wandb
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list


class Settings:
    lr: float = 0.1
    epochs: int = 3


def main(loader):
    accelerator = Accelerator()
    settings = Settings()
    if accelerator.is_main_process:
        run = wandb.init(project="x")
        settings.%s = run.config["value"]
    %s
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=%s)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()


main(load_data())
"""
_SENT = "chosen = [settings.lr]\n    broadcast_object_list(chosen)"
_ADAPTED = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Learner:
    def __init__(self, policy, rate):
        self.policy, self.rate = DistributedDataParallel(policy), rate
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=rate)

    def adapt(self, kl):
        if kl > 0.02:
            self.rate = max(self.rate / 1.5, 1e-6)
        elif kl < 0.005:
            self.rate = min(self.rate * 1.5, 1e-2)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate

    def update(self, states):
        actions = torch.randn(len(states), 4)
        loss = (self.policy(states) - actions).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        kl = (self.policy(states).detach() - actions).mean()
%s        self.adapt(kl.item())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1 + dist.get_rank())
    learner = Learner(torch.nn.Linear(8, 4), 1e-3)
    for _ in range(100):
        learner.update(torch.randn(64, 8))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
_LOGGED = """\
import argparse
import json

import torch
from accelerate import Accelerator


def main(args, loader):
    accelerator = Accelerator()
    if accelerator.is_main_process:
        args_dict = vars(args)
        with open("args.json", "w") as file:
            json.dump(args_dict, file)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--out", default="out")
    main(parser.parse_args(), load_data())
"""

EXAMPLES = (
    bad("follows the divergence of its own samples", {"train.py": _ADAPTED % ""}, at="train.py:17 warning"),
    good("follows the average of all", {"train.py": _ADAPTED % "        dist.all_reduce(kl)\n"}),
    bad("chosen by rank 0", {"train.py": _SCRIPT % ("lr", "", "settings.lr")}, at="train.py:20 warning"),
    good("another number", {"train.py": _SCRIPT % ("name", "", "settings.lr")}),
    good("sent to all", {"train.py": _SCRIPT % ("lr", _SENT, "chosen[0]")}),
    good(
        "the main process writes down what the command says",
        {"train.py": _LOGGED, "run.sh": "accelerate launch --num_processes 2 train.py --out exps\n"},
        select="DSL654",
    ),
)
