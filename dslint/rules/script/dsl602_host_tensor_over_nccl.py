"""A collective of NCCL gets a tensor in the memory of the host.

**What.** The process group was made with `"nccl"` alone, or by accelerate or DeepSpeed, which take NCCL on GPUs; and
`dist.all_reduce`, `broadcast`, `accelerator.gather` or another collective gets a tensor that was made of plain numbers,
without `device=` and without a move to the GPU, or one that `.cpu()` has brought to the host: mostly a meter, a counter
or a dictionary of statistics.

The same where Lightning reduces: `self.log(name, value.cpu(), sync_dist=True)` in a job with several GPUs.

**Why it hurts.** NCCL takes tensors on GPUs only. The call raises `No backend type associated with device type cpu`
on every rank, often as late as at the end of the first epoch. With gloo, or with both backends, it works.

**Fix.** Make the tensor on the GPU: `torch.tensor(numbers, device="cuda")`, or make the group with
`"cpu:gloo,cuda:nccl"`.

**When it stays quiet.** Another group is passed; the backend is not certainly NCCL alone; the tensor may have been
moved, or came from elsewhere; a default device is set; a tensor made of another one, which keeps its device; buffers
and parameters, which move with their module.

**Evidence.** Two ranks, torch 2.13, a group whose only backend is for CUDA tensors: `RuntimeError: No backend type
associated with device type cpu` on both; with a backend for each device the sum is right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.ranks.groups import backend_of, backend_words
from dslint.rules.ranks.hosttensors import HostTensors
from dslint.rules.runs import RunQuery
from dslint.rules.training.hostlogs import LOGS, LOGS_OF_DICT, host_logs

META = RuleMeta(
    code="DSL602",
    name="host-tensor-over-nccl",
    kind="script",
    severity=Severity.ERROR,
    summary="a collective of NCCL gets a tensor in the memory of the host",
    markers=(
        r"nccl|NCCL|ccelerat|init_distributed|sync_dist",
        r"sync_dist|\.(?:gather|reduce|broadcast)|all_(?:gather|reduce|to_all)|\b(?:reduce|gather)",
    ),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#backends",
        "https://github.com/pytorch/examples/pull/1034",
    ),
    depends_on_run=True,
)
_HOMES = ("torch.distributed.", "deepspeed.comm.")
# Where the tensors of a structure are sent one by one, each from where it lies.
_SENDS_EACH = "accelerate."
# What may name another backend or device for a group that a library makes.
_OTHERS = ("cpu", "use_cpu", "no_cuda", "kwargs_handlers", "fsdp_plugin", "fsdp", "dist_backend", "ddp_backend")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each collective whose tensor was certainly made on the host and never moved."""
    tensors = HostTensors(run)
    if not run.context.is_one_process:
        yield from (_logged(run, *found) for found in host_logs(run, tensors))
    made = _nccl(run)
    if made is not None:
        yield from _given(run, tensors, *made)


def _logged(run: RunQuery, event: Event, trainer: Event, module: Module, node: ast.AST) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "`sync_dist=True` reduces a tensor in host memory, but NCCL accepts only GPU tensors",
        hint="Leave the tensor on the GPU, or leave `sync_dist` out where a metric is reduced already",
        related=(
            run.location(module, node, "brought to the host"),
            run.location(trainer.module, trainer.node, "the processes of this trainer communicate by NCCL"),
        ),
        severity=Severity.WARNING,
        assumptions=(assumed("job-on-gpus"),) if "accelerator" not in trainer.arguments else (),
        facts={"call": "all_reduce", "argument": "value"},
    )


def _given(run: RunQuery, tensors: HostTensors, group: Event, is_certain: bool) -> Iterator[Finding]:
    """Yield the collectives of a group of NCCL that get a tensor of the host."""
    for found in run.happenings("collective"):
        event = found.event
        if event.may or event.open or not _takes_as_is(run, event):
            continue
        for name, value in event.arguments.items():
            places = tensors.places(value)
            if not places:
                continue
            module, node = places[0]
            call = event.api.rpartition(".")[2]
            yield run.finding(
                META,
                event.module,
                event.node,
                f"`{call}` over NCCL gets a tensor in host memory, but NCCL accepts only GPU tensors",
                hint='Make the tensor with `device="cuda"`, or the group with `"cpu:gloo,cuda:nccl"`',
                related=(
                    run.location(module, node, "made on the host"),
                    run.location(group.module, group.node, "the group has NCCL alone"),
                ),
                severity=None if is_certain else Severity.WARNING,
                assumptions=(assumed("job-on-gpus"),) if _is_chosen(group) else (),
                facts={"call": call, "argument": name},
            )
            break


def _nccl(run: RunQuery) -> tuple[Event, bool] | None:
    """Return the call that makes the group where NCCL is its only backend, and whether no option may change it."""
    groups = [found.event for found in run.happenings("default-group") if "starts-group" in found.event.tags]
    groups = [event for event in groups if "makes-engine" not in event.tags]
    named = [event for event in groups if not _is_chosen(event)]
    if not groups or any(event.open or backend_words(run, event) != ("nccl",) for event in named):
        return None
    values = [backend_of(run, event) for event in groups]
    is_certain = all(value is not None and value.constants == ("nccl",) for value in values)
    return (named or groups)[0], is_certain


def _is_chosen(event: Event) -> bool:
    """Return whether a library chooses the backend: nothing that it gets names one, or the host as the device."""
    given = (event.arguments.get(name) for name in _OTHERS)
    return (
        not event.open
        and not event.api.startswith(_HOMES[0])
        and all(value is None or value.constants in ((None,), (False,)) for value in given)
    )


def _takes_as_is(run: RunQuery, event: Event) -> bool:
    """Return whether a collective of the default group sends the tensor from where it lies."""
    if event.api.startswith(_HOMES):
        group = event.arguments.get("group")
        return group is None or group.constants == (None,)
    return event.api.startswith(_SENDS_EACH) and bool(row_of(run, event).get("one_each"))


_METER = """\
import torch
import torch.distributed as dist


class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, number):
        self.sum += number
        self.count += 1

    def reduce(self):
        total = torch.tensor([self.sum, self.count]%s)%s
        dist.all_reduce(total%s)
        return (total[0] / total[1]).item()
"""
_TRAIN = """\
import argparse

import torch
import torch.distributed as dist

from meter import Meter

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="nccl")


def main(args):
    %s
    torch.cuda.set_device(dist.get_node_local_rank())
    meter = Meter()
    meter.update(1.0)
    print(meter.reduce())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(parser.parse_args())
"""
_STOP = """\
import torch
import torch.distributed as dist


def stops(number):
    flag = torch.zeros(1%s)
    if dist.get_rank() == 0:
        flag += number
    dist.broadcast(flag, src=0)
    return bool(flag)


def main():
    dist.init_process_group(backend="nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    for number in range(10):
        if stops(number):
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
_KEPT = """\
import torch
import torch.distributed as dist


class Errors:
    def __init__(self):
        self.kept = []

    def update(self, found, wanted):
        error = (found - wanted).square().mean(dim=1)
        self.kept.append(error.detach()%s)

    def result(self):
        errors = torch.cat(self.kept)%s
        parts = [torch.empty_like(errors) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, errors.contiguous())
        self.kept.clear()
        return torch.cat(parts).mean()


def main(model, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    errors = Errors()
    for batch in loader:
        errors.update(model(batch["x"].cuda()), batch["y"].cuda())
    print(errors.result())
"""
_NCCL = 'dist.init_process_group("nccl")'

_STATISTICS = """\
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader


def summarise(loss, lengths):
    return {"loss": loss.detach().float().cpu(), "length": lengths.float().mean()%s}


def averaged(accelerator, stats):
    if accelerator.num_processes == 1:
        return {name: value.item() for name, value in stats.items()}
    means = {}
    for name, value in sorted(stats.items()):
        if isinstance(value, torch.Tensor):
%s        means[name] = value
    return means


def main(model, optimizer, rows):
    accelerator = Accelerator(%s)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows))
    for batch in loader:
        loss = model(batch["ids"]).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(averaged(accelerator, summarise(loss, batch["length"])))
"""
_SUM = "            dist.all_reduce(value)\n"
_EVALUATED = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def evaluate(model, rows):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(model, DataLoader(rows))
    found = []
    for batch in loader:
        with torch.no_grad():
            logits = model(batch["ids"]).logits
        scores = torch.tensor([len(row) for row in batch["text"]], device=accelerator.device)
        found.append(accelerator.gather_for_metrics(%s))
    return torch.cat(found), scores
"""


def _files(meter: tuple[str, str, str] = ("", "", ""), group: str = _NCCL) -> dict[str, str]:
    return {"meter.py": _METER % meter, "train.py": _TRAIN % group}


EXAMPLES = (
    bad("a meter of another file", _files(), "meter.py:15 error"),
    bad("the number of items of a tensor, to pad to the largest part",
        {"train.py": (_STOP % "").replace("torch.zeros(1)", "torch.tensor(number.numel())").replace(
            "range(10)", "torch.arange(10).cuda()")}, "train.py:9 error"),
    bad("what a function has counted",
        {"train.py": (_STOP % "").replace("flag = torch.zeros(1)",
         "found = 0\n    for each in range(number):\n        found = found + 1\n    flag = torch.tensor(found / 2)")},
        "train.py:12 error"),
    bad("the size of a tensor",
        {"train.py": (_STOP % "").replace("torch.zeros(1)", "torch.tensor([number.size(0) + 1])")}, "train.py:9 error"),
    bad("errors are kept on the host, joined and gathered", {"train.py": _KEPT % (".cpu()", "")}, "train.py:16 error"),
    good("moved back before they are gathered", {"train.py": _KEPT % (".cpu()", ".cuda()")}),
    good("kept where they are", {"train.py": _KEPT % ("", "")}),
    good("a tensor of a type of the GPU",
        {"train.py": (_STOP % "").replace("torch.zeros(1)", "torch.cuda.DoubleTensor([1.0])")}),
    good("a sum of tensors",
        {"train.py": (_STOP % "").replace("flag = torch.zeros(1)",
         "found = 0\n    for each in number:\n        found += each\n    flag = torch.tensor(found)")}),
    bad("an option that is NCCL unless somebody passes another backend",
        _files(group="dist.init_process_group(args.backend)"), "meter.py:15 warning"),
    bad("a flag that rank 0 sets", {"train.py": _STOP % ""}, "train.py:9 error"),
    bad("the device is the host", {"train.py": _STOP % ', device="cpu"'}, "train.py:9 error"),
    bad("the backend by its name in torch", _files(group="dist.init_process_group(dist.Backend.NCCL)"),
        "meter.py:15 error"),
    bad("statistics on the host, in a group of accelerate",
        {"train.py": _STATISTICS % (".cpu()", _SUM, "")}, "train.py:17 warning"),
    bad("predictions are brought to the host before they are gathered",
        {"train.py": _EVALUATED % "logits.argmax(-1).detach().cpu()"}, "train.py:14 warning"),
    bad("moved by name", {"train.py": _EVALUATED % "logits.argmax(-1).to('cpu').float()"}, "train.py:14 warning"),
    bad("made for the gather", {"train.py": _EVALUATED % "torch.tensor([len(logits)])"}, "train.py:14 warning"),
    bad("Lightning reduces what a metric has given",
        {"train.py": LOGS % (LOGS_OF_DICT % ", sync_dist=True", 'strategy="ddp"')},
        "train.py:24 warning"),
    bad("a number of its own", {"train.py": LOGS % (
        'self.log("accuracy", torch.tensor(float(len(metrics))), sync_dist=True)', 'accelerator="gpu"')},
        "train.py:23 warning"),
    good("logged as it is", {"train.py": LOGS % (LOGS_OF_DICT % "", 'strategy="ddp"')}),
    good("Lightning on the host", {
        "train.py": LOGS % (LOGS_OF_DICT % ", sync_dist=True", 'accelerator="cpu", strategy="ddp"')}),
    good("left on the GPU", {"train.py": LOGS % (
        "self.log_dict(metrics.compute(), sync_dist=True)", 'strategy="ddp"')}),
    good("brought to the host after the gather", {"train.py": _EVALUATED % "logits.argmax(-1)"}),
    good("some statistics lie on the GPU", {"train.py": _STATISTICS % ("", _SUM, "")}),
    good("moved back to the GPU",
         {"train.py": _STATISTICS % (".cpu()", "            value = value.to(accelerator.device)\n" + _SUM, "")}),
    good("a job on CPUs", {"train.py": _STATISTICS % (".cpu()", _SUM, "cpu=True")}),
    good("made on the GPU", _files((", device='cuda'", "", ""))),
    good("a device of the caller", {"train.py": _STOP % ', device=torch.cuda.current_device()'}),
    good("moved to the GPU", _files(("", ".cuda()", ""))),
    good("moved before the call", _files(("", "\n        total = total.to('cuda')", ""))),
    good("a group of gloo", _files(("", "", ", group=dist.new_group(backend='gloo')"))),
    good("both backends", _files(group='dist.init_process_group("cpu:gloo,cuda:nccl")')),
    good("a backend for each device", _files(group="dist.init_process_group()")),
    good("made of another tensor", {"train.py": (_STOP % "").replace("torch.zeros(1)", "torch.tensor(number)").replace(
        "range(10)", "torch.arange(10, device='cuda')")}),
    bad("made of a number that a caller passes", {
        "train.py": (_STOP % "").replace("torch.zeros(1)", "torch.tensor(number)")}, "train.py:9 error"),
    bad("by way of another variable",
        {"train.py": (_STOP % "").replace("    dist.broadcast(flag", "    told = flag\n    dist.broadcast(told")},
        "train.py:10 error"),
    good("new tensors lie on the GPU",
         _files(group='torch.set_default_device("cuda")\n    dist.init_process_group("nccl")')),
)  # fmt: skip
