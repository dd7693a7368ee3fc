"""A part of the wrapped model runs only on the ranks whose own data (or random draw) says so.

**What.** Inside the `forward` that DDP, FSDP or a DeepSpeed engine runs, a test of each rank's own batch or random
numbers decides whether a layer with parameters runs: `if boxes.numel() == 0: return None`, `if pixel_values is not
None:`, LayerDrop with a generator for each rank, experts that run only where the router sent them a token. At ZeRO
stage 3 also a loop over what the batch holds that runs layers (`for e in chosen.unique(): self.experts[e](...)`).

**Why it hurts.** DDP waits in the backward pass for the gradients of all parameters: the rank that skipped the layer
never sends its own, and the job hangs, or stops with "Expected to have finished reduction". FSDP and ZeRO stage 3
gather the weights of a layer when it runs, so the ranks that run it wait for one that does not.

**Fix.** Run the layer on every rank, on zeros where there is nothing, and add its result times 0.0. Let the ranks share
the random draw: the same seed on all of them. For experts at stage 3, `deepspeed.utils.set_z3_leaf_modules(model,
[Block])`: their weights are then gathered together.

**When it stays quiet.** DDP with `find_unused_parameters=True`; a layer without parameters; layers that run in both
arms; an arm that raises; layers under `no_grad` with DDP; a test that dslint cannot tell to differ between ranks;
places that DSL208 reports; an engine where the code declares leaf modules.

**Evidence.** Two gloo ranks, torch 2.13: with DDP the rank that skips a layer in one step stops in the next forward
pass ("Expected to have finished reduction in the prior iteration"), and the other one waits; with the layer run on
zeros both finish. The same step skipped on both ranks is the control.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.queries.skipped import Skipped, skipped_parts
from dslint.python.values import Instance
from dslint.python.varies import CHOSEN, DATA, MISSING, RANDOM
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.leftparts import gathers_blocks

META = RuleMeta(
    code="DSL280",
    name="part-skipped-by-own-data",
    kind="script",
    severity=Severity.WARNING,
    summary="a layer of the wrapped model runs only on ranks whose own data or random draw says so",
    markers=(r"DistributedDataParallel|DDP|FullyShardedDataParallel|fsdp|FSDP|deepspeed|accelerat",),
    references=(
        "https://pytorch.org/docs/stable/notes/ddp.html",
        "https://github.com/pytorch/pytorch/issues/43259",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each test inside a wrapped forward that skips a part for the rank's own data."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        for wrapper, found in skipped_parts(tree):
            if found.test.varies & (MISSING | CHOSEN) and run.stages.stated[0] in (1, 2, 3):
                continue  # DSL208
            is_new = id(found.test.node) not in seen and found.test.varies & (DATA | RANDOM)
            if is_new and not _is_allowed(run, found, wrapper):
                seen.add(id(found.test.node))
                yield _finding(run, found, wrapper)


def _is_allowed(run: RunQuery, found: Skipped, wrapper: Event) -> bool:
    """Return whether the wrapper takes part for parameters that were not used."""
    if isinstance(found.test, Loop):
        stage = run.stages.stated[0] if "engine-forward" in wrapper.tags else None
        return stage != 3 or gathers_blocks(run)
    receiver = wrapper.receiver.single if wrapper.receiver is not None else None
    if "engine-forward" in wrapper.tags:
        return run.stage == 0 or gathers_blocks(run)
    if "ddp-forward" not in wrapper.tags or not isinstance(receiver, Instance):
        return False
    if found.is_without_gradient:
        return True
    made = run.makers.get(receiver)
    if made is None and run.has("trainer-train"):
        # A Trainer lets DDP look for what was not used; ZeRO stage 3 fetches every parameter on all ranks.
        stages = {found.event.stage for found in run.happenings("training-arguments", "live-config")}
        return 3 not in (run.stage, *stages) or gathers_blocks(run)
    unused = made.arguments.get("find_unused_parameters") if made is not None else None
    return made is None or made.open or (unused is not None and unused.constants != (False,))


def _finding(run: RunQuery, found: Skipped, wrapper: Event) -> Finding:
    test, part = found.test, found.part
    asked_value = test.subject if isinstance(test, Loop) else test.test
    name = run.text(part.module, getattr(part.node, "func", part.node), 40)
    cause = "random draw" if test.varies & RANDOM and not test.varies & DATA else "batch"
    how = "how often" if isinstance(test, Loop) else "whether"
    effect = (
        "the others wait for its gradients in backward"
        if "ddp-forward" in wrapper.tags
        else "ranks that run it wait for those that do not"
    )
    return run.finding(
        META,
        test.module,
        test.node,
        f"Each rank's own {cause} decides {how} `{name}` runs: {effect}",
        hint="Run it on every rank, on zeros where there is nothing, and add the result times 0.0",
        related=(
            run.location(part.module, part.node, "runs on some ranks only"),
            run.location(wrapper.module, wrapper.node, "the forward pass of the wrapped model"),
            *run.origin(asked_value, "differs between the ranks from here"),
        ),
        varies=test.varies,
        origin=run.machine.origin(asked_value) if asked_value is not None else None,
        facts={"kind": "random" if cause == "random draw" else "data", "wrapper": wrapper.api.rpartition(".")[0]},
    )


_MODEL = """\
import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 8)
        self.boxes = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, images, boxes):
        hidden = self.backbone(images)
%s
        return self.head(hidden)
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from model import Detector


def main(dataset, local_rank):
    dist.init_process_group("nccl")
    model = DDP(Detector().to(local_rank)%s)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False))
    for images, boxes in loader:
        loss = model(images, boxes).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
_SKIPS = """\
        if boxes.abs().sum() > 0:
            hidden = hidden + self.boxes(boxes).sum()"""
_ZEROS = """\
        found = self.boxes(boxes).sum()
        hidden = hidden + (found if boxes.abs().sum() > 0 else found * 0.0)"""
_MOE = """\
import torch
from torch import nn


class Mixture(nn.Module):
    def __init__(self, size, number):
        super().__init__()
        self.gate = nn.Linear(size, number)
        self.experts = nn.ModuleList(nn.Linear(size, size) for _ in range(number))

    def forward(self, rows):
        chosen = self.gate(rows).argmax(dim=-1)
        total = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
%s
        return total


class Net(nn.Module):
    def __init__(self, size=64, number=8):
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(4):
            self.blocks.append(Mixture(size, number))

    def forward(self, rows):
        for block in self.blocks:
            rows = rows + block(rows)
        return rows
"""
_PRETRAIN = """\
import deepspeed
from torch.utils.data import DataLoader, DistributedSampler

from moe import Mixture, Net

ZERO = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
CONFIG = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW"}, "zero_optimization": ZERO}


def main(dataset):
    model = Net()
%s    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for rows in DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False)):
        engine.backward(engine(rows).mean())
        engine.step()
"""
_IDLE = """\
            (mine,) = torch.where(chosen == number)
            if mine.numel() == 0:
                continue
            total[mine] = expert(rows[mine])"""
_CHOSEN = _MOE.replace("for number, expert in enumerate(self.experts):", "for number in chosen.unique().tolist():") % (
    "            mine = chosen == number\n            total[mine] = self.experts[number](rows[mine])"
)
_LEAF = "    deepspeed.utils.set_z3_leaf_modules(model, [Mixture])\n"

_TRAINER = """\
from transformers import Trainer, TrainingArguments

from model import Detector

ZERO = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": %d}}
args = TrainingArguments("out", deepspeed=ZERO)
Trainer(Detector(), args, train_dataset=[]).train()
"""

EXAMPLES = (
    bad(
        "a Trainer at ZeRO stage 3 runs the model, and a batch without boxes skips a layer",
        {
            "train.py": _TRAINER % 3,
            "model.py": _MODEL % "        if boxes.size(0) > 0:\n            hidden = hidden + self.boxes(boxes).sum()",
        },
        at="model.py:14 warning",
    ),
    good(
        "a Trainer at ZeRO stage 2",
        {
            "train.py": _TRAINER % 2,
            "model.py": _MODEL % "        if boxes.size(0) > 0:\n            hidden = hidden + self.boxes(boxes).sum()",
        },
    ),
    bad("an idle expert at ZeRO stage 3", {"train.py": _PRETRAIN % "", "moe.py": _MOE % _IDLE}, at="moe.py:16 warning"),
    bad("a loop over the chosen experts", {"train.py": _PRETRAIN % "", "moe.py": _CHOSEN}, at="moe.py:14 warning"),
    good("the experts are gathered together", {"train.py": _PRETRAIN % _LEAF, "moe.py": _MOE % _IDLE}),
    good(
        "all experts run, some on no rows",
        {"train.py": _PRETRAIN % "", "moe.py": _MOE % "            total = total + expert(rows) * (chosen == number)"},
    ),
    bad(
        "a batch without boxes skips a layer, and the model is wrapped in another file",
        {"train.py": _TRAIN % "", "model.py": _MODEL % _SKIPS},
        at="model.py:14 warning",
    ),
    bad(
        "layers are dropped by a draw of each rank",
        {
            "train.py": _TRAIN % "",
            "model.py": _MODEL
            % "        if torch.rand(1).item() > 0.1:\n            hidden = hidden + self.boxes(boxes).sum()",
        },
        at="model.py:14 warning",
    ),
    good(
        "the caller chooses what it passes",
        {
            "train.py": (_TRAIN % "")
            .replace("for images, boxes in", "for batch in")
            .replace("model(images, boxes)", "model(**batch)"),
            "model.py": _MODEL.replace("images, boxes)", "images=None, inputs_embeds=None)")
            % "        if inputs_embeds is None:\n            hidden = hidden + self.boxes(images).sum()",
        },
    ),
    good("the layer runs on every rank", {"train.py": _TRAIN % "", "model.py": _MODEL % _ZEROS}),
    good(
        "DDP looks for unused parameters",
        {"train.py": _TRAIN % ", find_unused_parameters=True", "model.py": _MODEL % _SKIPS},
    ),
    good(
        "the config decides, as on all ranks",
        {
            "train.py": _TRAIN % "",
            "model.py": _MODEL % "        if self.training:\n            hidden = hidden + self.boxes(boxes).sum()",
        },
    ),
)
