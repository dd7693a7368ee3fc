"""Only some ranks call the forward of a `DistributedDataParallel` model.

**What.** The wrapper itself (`model(batch)`, not `model.module(batch)`) is called under a test that only some ranks
pass, directly or in a helper of the file that gets the wrapper (or has it as `self.model`), mostly to evaluate on rank
0 or to show images; and gradients are on, or the next thing that the others do is another collective, or to leave the
job: they destroy the process group, or the script ends. In a loop this is so in its last turn, where each turn
evaluates.

**Why it hurts.** Before a forward the wrapper broadcasts the buffers of the model (running statistics of BatchNorm,
rotary frequencies) from rank 0 to all ranks, in evaluation mode as well. The broadcast of rank 0 meets whatever the
others do next, a barrier or the gradients of the next step: both sides wait until the process-group timeout.

**Fix.** Call `model.module(batch)` (or the model that was wrapped) under the test, or evaluate on every rank.

A model that accelerate has prepared counts as a wrapper where its class is in the file and has a BatchNorm.

**When it stays quiet.** `model.module(...)`; `broadcast_buffers=False`; a model whose classes are all there and have no
buffers; a forward without gradients after which training continues, because the wrapper then leaves out its next
broadcast and the counts agree again; a forward at the end of the job after another one without gradients, which has
left it out; a test that every rank passes. A model without buffers does not hang; the files do not always show that,
so the finding is a warning.

**Evidence.** Two gloo ranks, BatchNorm, torch 2.13: `no_grad` evaluation on rank 0 and then a barrier: rank 0 waits in
`_distributed_broadcast_coalesced`, rank 1 in `barrier`; with gradients the next backward of rank 1 waits. At the end of
the job rank 0 waits in the broadcast, too. Followed by training steps, without buffers, or at the end after another
forward without gradients: passes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event, Loop, Lost, walk
from dslint.python.queries.skipped import is_frozen
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.lonelyscripts import DDP_AT_END, DDP_EVALUATE, DDP_HEAD, DDP_TRAINER
from dslint.rules.ranks.groups import ends_group
from dslint.rules.ranks.someranks import SomeRanks, decided_at, is_of_several, some_ranks
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.unwrapped import is_unwrapped

META = RuleMeta(
    code="DSL235",
    name="ddp-forward-on-some-ranks",
    kind="script",
    severity=Severity.WARNING,
    summary="only some ranks call a DDP model, whose forward broadcasts buffers to all of them",
    markers=(r"DistributedDataParallel|\.prepare\(", r"rank|is_main|master|main_process"),
    versions=("torch>=1.8",),
    references=(
        "https://github.com/pytorch/pytorch/pull/59666",
        "DistributedDataParallel._pre_forward in torch/nn/parallel/distributed.py",
    ),
)

_BUFFERS = re.compile(r"buffer")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first forward of a wrapper behind each test that only some ranks pass."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    wraps = {id(found.event): found for found in run.occurrences("wraps-model")}
    for found in run.occurrences("ddp-forward"):
        some = some_ranks(run, found, _known(run, wraps, found.event))
        if (
            some is None
            or id(some.test.node) in seen
            or not _broadcasts(run, found.event)
            or not _is_wrapped(run, wraps, found)
        ):
            continue
        grad = not any(is_frozen(node) for node in found.around)
        after, is_over, is_run_there = _next(run, some, again=True)
        is_last = after is None and not is_over and not grad and not is_run_there and some.comes_last
        if is_last:
            after, is_over, _ = _next(run, some, again=False)
        if not grad and _is_left_out(run, found):
            continue
        is_repeated = grad and not is_run_there and any(isinstance(node, Loop) for node in found.around)
        if after is not None or is_over or is_repeated:
            seen.add(id(some.test.node))
            yield _finding(run, some, grad=grad, after=after, is_over=is_over, is_last=is_last)


def _wrapped(run: RunQuery, wraps: Mapping[int, Happening], event: Event) -> list[Happening]:
    """Return where the model was wrapped."""
    made = [run.makers.get(atom) for atom in instances(event.receiver)]
    return [wraps[id(each)] for each in made if id(each) in wraps]


def _known(run: RunQuery, wraps: Mapping[int, Happening], event: Event) -> dict[object, bool]:
    """Return the tests that are decided wherever the model is a wrapper."""
    found = _wrapped(run, wraps, event)
    return decided_at(found[0]) if len(found) == 1 else {}


def _is_wrapped(run: RunQuery, wraps: Mapping[int, Happening], found: Happening) -> bool:
    """Return whether the model is a wrapper for certain, or at least wherever there are several processes."""
    event = found.event
    if not event.may and not any(isinstance(node, Alt) and node.node is event.node for node in found.around):
        return True
    function = getattr(event.node, "func", None)
    # `net = model.module if distributed else model`: which one is called depends on the same question.
    if isinstance(function, ast.Name) and is_unwrapped(run, event.module, function):
        return False
    return all(is_of_several(each) for each in _wrapped(run, wraps, event))


def _broadcasts(run: RunQuery, event: Event) -> bool:
    """Return whether the forward sends buffers to all ranks: of DDP; of what accelerate makes one, if it has any."""
    owners = instances(event.receiver)
    if not owners or len(owners) != len(event.receiver.atoms if event.receiver is not None else ()):
        return False
    return all(_sends(run, atom) for atom in owners)


def _sends(run: RunQuery, atom: Instance) -> bool:
    libraries = run.machine.libraries
    if not isinstance(atom.cls, str) or not atom.cls:
        return False
    made = run.makers.get(atom)
    if libraries.is_class(atom.cls, "ddp"):
        stated = made.arguments.get("broadcast_buffers") if made is not None else None
        is_told = made is not None and not made.open and (stated is None or stated.constants in ((None,), (True,)))
        return is_told and made is not None and not (made.modules and all(map(_has_no_buffers, made.modules)))
    if not libraries.is_class(atom.cls, "prepared-model") or run.context.zero_stage.is_known or made is None:
        return False
    names = [inner.cls.rpartition(".")[2] for inner in made.modules if isinstance(inner.cls, str)]
    return any(name.startswith("BatchNorm") for name in names)


def _has_no_buffers(module: Instance) -> bool:
    """Return whether a part of a model certainly has no buffers of its own."""
    if isinstance(module.cls, str):
        is_layer = module.cls.startswith("torch.nn.") and module.cls != "torch.nn.Module"
        return is_layer and "BatchNorm" not in module.cls
    bases = [ast.unparse(base).rpartition(".")[2] for base in module.cls.node.bases]
    return bases == ["Module"] and not module.cls.module.search(_BUFFERS)


def _next(run: RunQuery, some: SomeRanks, *, again: bool) -> tuple[Event | None, bool, bool]:
    """Return what the other ranks do next: wait for something, leave the job, or run the wrapper in their own arm.

    Without `again` it is what they do after the last turn of the loops around.
    """
    mine = set(instances(some.found.event.receiver))
    for event, is_own_arm in some.others_next(run, again=again):
        if "ddp-forward" in event.tags and mine & set(instances(event.receiver)):
            return None, False, is_own_arm
        if not event.may and (run.waits.of(event) is not None or ends_group(event)):
            return event, ends_group(event), False
    entry = some.found.entry
    is_all = entry.kind == "script" and not any(isinstance(node, Lost) for node in walk(entry.tree))
    return None, is_all and run.has("starts-group"), False


def _is_left_out(run: RunQuery, found: Happening) -> bool:
    """Return whether the forward before it had no gradients either: the wrapper then leaves out its broadcast."""
    mine, last = set(instances(found.event.receiver)), None
    for each in run.occurrences("ddp-forward"):
        if each.event is found.event:
            break
        if each.entry is found.entry and mine & set(instances(each.event.receiver)):
            last = each
    return last is not None and any(is_frozen(node) for node in last.around)


def _finding(
    run: RunQuery, some: SomeRanks, *, grad: bool, after: Event | None, is_over: bool, is_last: bool
) -> Finding:
    event, (module, node) = some.found.event, some.place
    name = run.text(event.module, getattr(event.node, "func", event.node))
    is_here = node is event.node
    what = f"some ranks alone call the DDP model `{name}`"
    if not is_here:
        what = f"some ranks alone run DDP in `{run.text(module, getattr(node, 'func', node))}`"
    meets = "the others' next gradients"
    if after is not None:
        meets = f"`{run.text(after.module, getattr(after.node, 'func', after.node))}`"
    harm = f"collides with {meets}, and the job hangs"
    if is_over:
        harm = "waits for the others, which leave the job"
    return run.finding(
        META,
        module,
        node,
        f"{what}: its buffer broadcast {'of the last turn ' if is_last else ''}{harm}",
        hint="Call `.module` under the test, or evaluate on every rank",
        related=(
            run.location(some.test.module, some.asked, "only some ranks get past this test"),
            *(() if is_here else (run.location(event.module, event.node, "the forward of the wrapper"),)),
            *((run.location(after.module, after.node, "what the others do next"),) if after is not None else ()),
        ),
        varies=event.varies,
        facts={"grad": grad, "over": is_over},
    )


_EPOCHS = (
    DDP_HEAD
    + DDP_EVALUATE
    + """\
def main(net, optimizer, loader, test_loader):
    dist.init_process_group("gloo")
    model = DDP(net)
    for epoch in range(3):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()%s
        if dist.get_rank() == 0:%sprint(evaluate(model%s, test_loader))
    dist.destroy_process_group()


main(torch.load("net.pt"), torch.load("optimizer.pt"), torch.load("rows.pt"), torch.load("test.pt"))
"""
)

EXAMPLES = (
    bad(
        "a method of the trainer shows images on the main process",
        {"train.py": DDP_TRAINER % "BatchNorm2d"},
        "train.py:27",
    ),
    good("the model has no buffers", {"train.py": DDP_TRAINER % "InstanceNorm2d"}),
    good(
        "the model without the wrapper",
        {
            "train.py": (DDP_TRAINER % "BatchNorm2d").replace(
                "save(self.model(images))", "save(self.accelerator.unwrap_model(self.model)(images))"
            )
        },
    ),
    bad(
        "rank 0 evaluates while the others wait at a barrier",
        {
            "train.py": DDP_HEAD + DDP_EVALUATE + "def main(net, loader, test_loader):\n    model = DDP(net)\n"
            "    for epoch in range(3):\n        if dist.get_rank() == 0:\n"
            "            evaluate(model, test_loader)\n        dist.barrier()\n"
        },
        at="train.py:16",
    ),
    bad(
        "a forward with gradients on rank 0",
        {
            "train.py": DDP_HEAD + "def main(net, optimizer, loader, example):\n    model = DDP(net)\n"
            "    for batch in loader:\n        model(batch).mean().backward()\n        optimizer.step()\n"
            "        if dist.get_rank() == 0:\n            print(model(example).mean())\n"
        },
        at="train.py:12",
    ),
    bad(
        "the others wait in their own arm, and the model is wrapped wherever there are others",
        {
            "train.py": DDP_HEAD + "class Trainer:\n    def __init__(self, net):\n        self.model = net\n"
            "        if dist.is_initialized():\n            self.model = DDP(self.model)\n\n"
            "    @torch.no_grad()\n    def score(self, loader):\n"
            "        return [self.model(batch) for batch in loader]\n\n"
            "    def validate(self, loader):\n        if dist.is_initialized() and dist.get_rank() != 0:\n"
            "            dist.barrier()\n            return None\n        scores = self.score(loader)\n"
            "        dist.barrier()\n        return scores\n"
        },
        at="train.py:20",
    ),
    bad(
        "a trainer evaluates on rank 0 at the end, when the others destroy the group",
        {"train.py": DDP_AT_END % ("", "self.model")},
        at="train.py:20",
    ),
    good(
        "no part of the model has buffers",
        {"train.py": (DDP_AT_END % ("", "self.model")).replace("BatchNorm1d", "LayerNorm")},
    ),
    bad(
        "a model of a library, whose layers are not seen",
        {
            "train.py": (DDP_AT_END % ("", "self.model"))
            .replace("import torch\n", "import torch\nfrom torchvision.models import resnet18\n", 1)
            .replace("torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))", "resnet18()")
        },
        at="train.py:21",
    ),
    good("the model inside the wrapper at the end", {"train.py": DDP_AT_END % ("", "self.model.module")}),
    good(
        "all ranks have evaluated right before", {"train.py": DDP_AT_END % ("self.evaluate(self.model)", "self.model")}
    ),
    good(
        "the model is wrapped by another choice than that of several ranks",
        {
            "train.py": DDP_HEAD + DDP_EVALUATE + "def main(net, test_loader, sharded):\n    model = net\n"
            "    if not sharded:\n        model = DDP(model)\n    if dist.get_rank() == 0:\n"
            "        evaluate(model, test_loader)\n    dist.barrier()\n"
        },
    ),
    good(
        "the others run the wrapper as well",
        {
            "train.py": DDP_HEAD + DDP_EVALUATE + "def main(net, test_loader):\n    model = DDP(net)\n"
            "    if dist.get_rank() == 0:\n        scores = evaluate(model, test_loader)\n    else:\n"
            "        evaluate(model, test_loader)\n    dist.barrier()\n"
        },
    ),
    good(
        "the model inside the wrapper, or every rank",
        {
            "train.py": DDP_HEAD + DDP_EVALUATE + "def main(net, test_loader):\n    model = DDP(net)\n"
            "    scores = evaluate(model, test_loader)\n    if dist.get_rank() == 0:\n"
            "        print(scores)\n        evaluate(model.module, test_loader)\n    dist.barrier()\n"
        },
    ),
    good(
        "without gradients, and training continues",
        {
            "train.py": DDP_HEAD
            + DDP_EVALUATE
            + "def main(net, optimizer, loader, test_loader):\n    model = DDP(net)\n"
            "    for batch in loader:\n        model(batch).mean().backward()\n        optimizer.step()\n"
            "        if dist.get_rank() == 0:\n            evaluate(model, test_loader)\n"
        },
    ),
    bad(
        "without gradients in each epoch, and after the last one the others leave",
        {"train.py": _EPOCHS % ("", "\n            ", "")},
        at="train.py:20",
    ),
    good(
        "not in the last epoch, as far as anybody knows",
        {"train.py": _EPOCHS % ("\n        if epoch % 2:\n            continue", "\n            ", "")},
    ),
    good("the model inside the wrapper in each epoch", {"train.py": _EPOCHS % ("", "\n            ", ".module")}),
    good(
        "no broadcast of buffers",
        {
            "train.py": DDP_HEAD + DDP_EVALUATE + "def main(net, test_loader):\n"
            "    model = DDP(net, broadcast_buffers=False)\n    if dist.get_rank() == 0:\n"
            "        evaluate(model, test_loader)\n    dist.barrier()\n"
        },
    ),
)
