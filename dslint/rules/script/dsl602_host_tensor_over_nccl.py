"""A collective of NCCL gets a tensor in the memory of the host.

**What.** The process group was made with `"nccl"` alone, and `dist.all_reduce`, `broadcast` or another collective gets
a tensor that was made of plain numbers, without `device=` and without a move to the GPU: mostly a meter or a counter.

**Why it hurts.** NCCL takes tensors on GPUs only. The call raises `No backend type associated with device type cpu`
on every rank, often as late as at the end of the first epoch. With gloo, or with both backends, it works.

**Fix.** Make the tensor on the GPU: `torch.tensor(numbers, device="cuda")`, or make the group with
`"cpu:gloo,cuda:nccl"`.

**When it stays quiet.** Another group is passed; the backend is not certainly NCCL alone; the tensor may have been
moved, or came from elsewhere; a default device is set; a tensor made of another one, which keeps its device; fields of
objects, which may be moved together.

**Evidence.** Two ranks, torch 2.13, a group whose only backend is for CUDA tensors: `RuntimeError: No backend type
associated with device type cpu` on both; with a backend for each device the sum is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.groups import backend_of, backend_words
from dslint.rules.hosttensors import HostTensors
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL602",
    name="host-tensor-over-nccl",
    kind="script",
    severity=Severity.ERROR,
    summary="a collective of NCCL gets a tensor in the memory of the host",
    markers=(r"nccl|NCCL",),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#backends",
        "https://github.com/pytorch/examples/pull/1034",
    ),
    depends_on_run=True,
)
_HOMES = ("torch.distributed.", "deepspeed.comm.")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each collective whose tensor was certainly made on the host and never moved."""
    made = _nccl(run)
    if made is None:
        return
    group, is_certain = made
    tensors = HostTensors(run)
    for found in run.happenings("collective"):
        event = found.event
        if not event.api.startswith(_HOMES) or event.may or event.open or not _is_default(event):
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
                f"`{call}` over NCCL gets a tensor in the memory of the host, and NCCL takes tensors on GPUs only",
                hint='Make the tensor with `device="cuda"`, or the group with `"cpu:gloo,cuda:nccl"`',
                related=(
                    run.location(module, node, "made on the host"),
                    run.location(group.module, group.node, "the group has NCCL alone"),
                ),
                severity=None if is_certain else Severity.WARNING,
                facts={"call": call, "argument": name},
            )
            break


def _nccl(run: RunQuery) -> tuple[Event, bool] | None:
    """Return the call that makes the group where NCCL is its only backend, and whether no option may change it."""
    groups = [found.event for found in run.happenings("default-group") if "starts-group" in found.event.tags]
    groups = [event for event in groups if "makes-engine" not in event.tags]
    if not groups or any(event.open or backend_words(run, event) != ("nccl",) for event in groups):
        return None
    values = [backend_of(run, event) for event in groups]
    return groups[0], all(value is not None and value.constants == ("nccl",) for value in values)


def _is_default(event: Event) -> bool:
    group = event.arguments.get("group")
    return group is None or group.constants == (None,)


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
_NCCL = 'dist.init_process_group("nccl")'


def _files(meter: tuple[str, str, str] = ("", "", ""), group: str = _NCCL) -> dict[str, str]:
    return {"meter.py": _METER % meter, "train.py": _TRAIN % group}


EXAMPLES = (
    bad("a meter of another file", _files(), "meter.py:15 error"),
    bad("an option that is NCCL unless somebody passes another backend",
        _files(group="dist.init_process_group(args.backend)"), "meter.py:15 warning"),
    bad("a flag that rank 0 sets", {"train.py": _STOP % ""}, "train.py:9 error"),
    bad("the device is the host", {"train.py": _STOP % ', device="cpu"'}, "train.py:9 error"),
    bad("the backend by its name in torch", _files(group="dist.init_process_group(dist.Backend.NCCL)"),
        "meter.py:15 error"),
    good("made on the GPU", _files((", device='cuda'", "", ""))),
    good("a device of the caller", {"train.py": _STOP % ', device=torch.cuda.current_device()'}),
    good("moved to the GPU", _files(("", ".cuda()", ""))),
    good("moved before the call", _files(("", "\n        total = total.to('cuda')", ""))),
    good("a group of gloo", _files(("", "", ", group=dist.new_group(backend='gloo')"))),
    good("both backends", _files(group='dist.init_process_group("cpu:gloo,cuda:nccl")')),
    good("a backend for each device", _files(group="dist.init_process_group()")),
    good("made of another tensor", {"train.py": (_STOP % "").replace("torch.zeros(1)", "torch.tensor(number)")}),
    good("new tensors lie on the GPU",
         _files(group='torch.set_default_device("cuda")\n    dist.init_process_group("nccl")')),
)  # fmt: skip
