"""All ranks seed torch alike, and the training step draws its noise from that generator: every rank draws the same.

**What.** `set_seed(seed)` or `torch.manual_seed(seed)` with one seed for all ranks, no seed with the rank after it, and
in the loop that trains (or in `training_step` of Lightning) `torch.randn_like(x)`, `torch.rand_like(x)`,
`torch.randn(...)` or `torch.normal(...)` without a generator of its own; what is drawn takes part in the loss. Or
samples: what is drawn with one seed for all ranks is made into results that each rank saves under names of its own.

**Why it hurts.** The ranks have other images and the same noise, and mostly the same time steps: a step over eight
GPUs holds one rank's worth of noise. Its gradient is noisier than the batch size says. Nothing fails.

**Fix.** Seed with the rank after the model is made: `torch.manual_seed(seed + rank)`, or
`set_seed(seed, device_specific=True)`; or draw from a `torch.Generator` of each rank.

**When it stays quiet.** A seed that differs between ranks anywhere in the run; no seed; a generator that is passed;
draws outside of training; draws that do not reach the loss; tensor, pipeline or sequence parallel scripts, whose ranks
must draw the same; one process.

**Evidence.** Two gloo ranks, torch 2.13: with one seed both ranks draw the same noise in every step; with the rank in
the seed, other noise.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event, Loop, events
from dslint.python.values import Function
from dslint.python.varies import CLOCK, DATA, HOST, LOST, RANDOM, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.ownseeds import common_seeds, must_draw_alike
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import has_several, trainers

META = RuleMeta(
    code="DSL283",
    name="same-noise-on-every-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="all ranks seed torch alike, and draw the same noise in every training step",
    markers=(
        r"DistributedDataParallel|DDP|deepspeed|accelerat|FullyShardedDataParallel|fully_shard|FSDP|init_process_group|lightning",
        r"seed",
    ),
    references=(
        "https://github.com/huggingface/accelerate/issues/236",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/16166",
    ),
    depends_on_run=True,
)

_OWN = RANKED | RANDOM | CLOCK | HOST | LOST | DATA


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first draw of each training loop, and on the draws of samples."""
    if run.context.is_one_process:
        return
    yield from _samples(run)
    seeds = common_seeds(run) if run.has("wraps-model", "prepares", "makes-engine") or _is_lightning(run) else []
    if not seeds or must_draw_alike(run):
        return
    loops = {
        id(loop.node)
        for h in run.happenings("backward", "engine-backward", "gives-loss")
        if _is_random(h)
        for loop in _loops(h)
    }
    told: set[int] = set()
    for found in run.happenings("draws"):
        event = found.event
        inner = _loops(found)[-1:]
        if not inner or id(inner[0].node) not in loops or id(inner[0].node) in told:
            continue
        generator = event.arguments.get("generator")
        if event.open or event.lanes != run.machine.worlds.full or (generator and generator.constants != (None,)):
            continue
        told.add(id(inner[0].node))
        drawn = run.text(event.module, event.node, 40)
        yield run.finding(
            META,
            event.module,
            event.node,
            f"Every rank draws the same noise: all ranks seed torch alike, and `{drawn}` uses that generator",
            hint="Seed with the rank once the model is made (`seed + rank`), or pass a generator of the rank",
            related=(run.location(seeds[0].module, seeds[0].node, "the same seed on every rank"),),
            varies=seeds[0].varies,
        )


def _samples(run: RunQuery) -> Iterator[Finding]:
    """Yield draws of which each rank makes the same results, to save them under names of its own."""
    if run.has("backward", "engine-backward", "trainer-train") or not run.has("starts-group", "prepares"):
        return
    full = run.machine.worlds.full
    same = RANDOM if common_seeds(run) else 0
    for found in run.happenings("draws"):
        event, loops = found.event, [node for node in found.around if isinstance(node, Loop)]
        drawn = run.machine.varies(event.result) if event.result is not None else LOST
        if not loops or event.open or event.lanes != full or drawn & _OWN & ~same or not _is_seeded(run, event):
            continue
        saved = next((e for e in events(loops[0]) if "saves" in e.tags and _is_copy(e, same)), None)
        if saved is None:
            continue
        yield run.finding(
            META,
            event.module,
            event.node,
            f"Every rank draws the same numbers: `{run.text(saved.module, saved.node, 40)}` saves them once for each"
            " rank",
            hint="Seed with the rank (`manual_seed(seed + rank)`)",
            related=(
                run.location(saved.module, saved.node, "saved by each rank under its own name"),
                *(run.location(e.module, e.node, "the seed") for e in _seeding(run)[:1]),
            ),
            varies=drawn,
        )
        return


def _seeding(run: RunQuery) -> list[Event]:
    return [h.event for h in run.happenings("seeds")]


def _is_seeded(run: RunQuery, event: Event) -> bool:
    """Return whether the draw follows a seed at all: by the generator that it gets, or by that of the process."""
    generator = event.arguments.get("generator")
    given = generator is not None and generator.constants != (None,)
    return any(("Generator" in e.api) == given for e in _seeding(run))


def _is_copy(event: Event, same: int) -> bool:
    """Return whether a call saves what all ranks hold under a name that each rank makes for itself."""
    bits = [varies for varies, _, _ in event.snapshot.values()]
    return (
        len(bits) > 1
        and any(varies & RANKED and not varies & LOST for varies in bits)
        and any(not varies & (_OWN & ~same) for varies in bits)
        and event.arguments.keys() >= event.snapshot.keys()
    )


def _is_lightning(run: RunQuery) -> bool:
    """Return whether Lightning trains, and certainly in several processes."""
    made = trainers(run) if run.has("gives-loss") else []
    return bool(made) and all(map(has_several, made))


def _loops(happening: Happening) -> list[Loop]:
    """Return the loops over data around an event; of a training step of Lightning, the loop of the library."""
    around = happening.around
    found = [node for node in around if isinstance(node, Loop) and node.varies | len(node.items)]
    at = len(around) if "gives-loss" in happening.event.tags else 0
    at = next((i for i, node in enumerate(around) if isinstance(node, Call) and _is_step(node)), at)
    return found or [node for node in around[:at] if isinstance(node, Loop)][-1:]


def _is_step(call: Call) -> bool:
    function = call.function
    return isinstance(function, Function) and getattr(function.node, "name", "") == "training_step"


def _is_random(happening: Happening) -> bool:
    """Return whether a loss depends on what was drawn."""
    return any(varies & RANDOM and varies & DATA for varies, _, _ in happening.event.snapshot.values())


_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def diffuse(model, clean, generator):
    noise = torch.randn_like(clean%s)
    return (model(clean + noise) - noise).square().mean()


def main(data):
    dist.init_process_group("nccl")
    torch.manual_seed(3)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    %s
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
    generator = torch.Generator().manual_seed(dist.get_rank())
    for clean in loader:
        loss = diffuse(model, clean, generator)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main([])
"""
_MESH = 'mesh = dist.device_mesh.init_device_mesh("cuda", %s)'
_ACCELERATE = """\
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, seed, data):
        self.accelerator = Accelerator()
        set_seed(seed%s)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, DataLoader(data))

    def run(self):
        for step, clean in enumerate(self.loader):
            noise = torch.randn(clean.shape, device=clean.device)
            loss = (self.model(clean + noise) - noise).square().mean()
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()


if __name__ == "__main__":
    Trainer(3, []).run()
"""

_STEP = """\
import lightning as L
import torch


class Diffusion(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)

    %s

    def noised(self, clean):
        noise = torch.randn_like(clean)
        return clean + noise, noise

    def training_step(self, clean, index):
        noisy, noise = self.noised(clean)
        loss = (self.net(noisy) - noise).square().mean()
        %s


def main(loader):
    L.seed_everything(3%s)
    trainer = L.Trainer(devices=%s, max_epochs=10)
    trainer.fit(Diffusion(), loader)
"""
_OWN_SEED = "def on_fit_start(self):\n        torch.manual_seed(3 + self.global_rank)"
_EVALUATED = (
    "def validation_step(self, clean, index):\n        self.log('loss', self.net(torch.randn_like(clean)).mean())"
)

_SAMPLE = """\
import os

import torch
import torch.distributed as dist


def sample(net, steps, noise):
    for step in steps:
        noise = net(noise, step)
    return noise


def main(net, steps, seed, out):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    generator = torch.Generator("cuda").manual_seed(%s)
    for turn in range(100):
        images = sample(net, steps, torch.randn((8, 3, 64, 64), generator=generator, device="cuda"))
        torch.save(images, os.path.join(out, f"%s.pt"))
    dist.destroy_process_group()
"""

EXAMPLES = (
    bad("noise in a helper of the step", {"train.py": _TRAIN % ("", "")}, at="train.py:8 warning"),
    bad("masks", {"train.py": (_TRAIN % ("", "")).replace("randn_like", "rand_like")}, at="train.py:8 warning"),
    bad(
        "with a mesh of one dimension", {"train.py": _TRAIN % ("", _MESH % "(dist.get_world_size(),)")}, at="train.py:8"
    ),
    good("ranks that may hold parts of one model", {"train.py": _TRAIN % ("", _MESH % "(2, 4)")}),
    bad("in a class, with accelerate", {"train.py": _ACCELERATE % ""}, at="train.py:17 warning"),
    bad("samples of one seed", {"sample.py": _SAMPLE % ("seed", "{rank}-{turn}")}, at="sample.py:18 warning"),
    good("samples of a seed for each rank", {"sample.py": _SAMPLE % ("seed + rank", "{rank}-{turn}")}),
    good(
        "a seed for each rank once the model is made",
        {"train.py": _TRAIN % ("", "torch.manual_seed(3 + dist.get_rank())")},
    ),
    good(
        "a helper that seeds again, by the rank",
        {
            "train.py": (_TRAIN % ("", "seeded(3 + dist.get_rank())"))
            .replace("torch.manual_seed(3)", "seeded(3)")
            .replace("def main(", "def seeded(number):\n    torch.manual_seed(number)\n\n\ndef main(")
        },
    ),
    good("a generator of the rank", {"train.py": _TRAIN % (", generator=generator", "")}),
    good("the library adds the rank", {"train.py": _ACCELERATE % ", device_specific=True"}),
    bad("a training step of Lightning", {"train.py": _STEP % ("", "return loss", "", 4)}, at="train.py:13 warning"),
    bad(
        "its loss in a dictionary",
        {"train.py": _STEP % ("", 'return {"loss": loss}', ", workers=True", 2)},
        at="train.py:13 warning",
    ),
    bad(
        "optimised by hand",
        {"train.py": _STEP % ("automatic_optimization = False", "self.manual_backward(loss)", "", 2)},
        at="train.py:13 warning",
    ),
    good("Lightning on one device", {"train.py": _STEP % ("", "return loss", "", 1)}),
    good("a seed for each rank of Lightning", {"train.py": _STEP % (_OWN_SEED, "return loss", "", 4)}),
    good(
        "noise that no loss depends on",
        {"train.py": _STEP % (_EVALUATED, "return self.net(clean).mean()", "", 4)},
    ),
    good("one process", {"train.py": _ACCELERATE % ""}, world_size=1),
)
