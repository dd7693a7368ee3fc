"""Code reads an attribute of the model from the `DistributedDataParallel` around it, which does not have it.

**What.** `model.config`, `model.generate(...)` or a method of its own is read from what `DistributedDataParallel(...)`
or `accelerator.prepare(...)` has returned, directly or in a function that gets the wrapped model.

**Why it hurts.** The wrapper has `module`, what every `torch.nn.Module` has, and nothing of the model inside. On one
GPU, where nothing is wrapped, the code works; on several each rank stops with `AttributeError:
'DistributedDataParallel' object has no attribute 'config'`, often only where the epoch ends and something is saved.

**Fix.** Read it from the model inside: `model.module.config`, `accelerator.unwrap_model(model).config`. A method that
runs the forward pass of a training step must be reached through `forward`, since only the call of the wrapper makes DDP
reduce gradients.

**When it stays quiet.** An attribute that the script sets on the wrapper; a test of `hasattr` or `isinstance`, or a
`try`, around it; a method of a class that may run before the one that wraps; where the same name may hold the bare
model, any test of how the run is distributed around it; after `accelerator.prepare` in a script that knows DeepSpeed or
FSDP, or beside a YAML file of accelerate that chooses them: these wrappers hand attributes on; one process.

A warning after `prepare`, whose wrapper the launch chooses; an error where the script names DDP.

**Evidence.** Two gloo ranks, torch 2.13: each rank stops with an AttributeError; through `module` they continue.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

from dslint.core.finding import Finding, Severity
from dslint.python import formulas
from dslint.python.events import Alt, Call, Event, Node, Try, events, walk
from dslint.python.jobtests import SEVERAL
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.settingfiles import sections_with
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.trackers import is_tracker
from dslint.rules.wrapping.unwrapped import is_unwrapped

META = RuleMeta(
    code="DSL285",
    name="attribute-of-ddp-wrapper",
    kind="script",
    severity=Severity.ERROR,
    summary="an attribute of the model is read from the DistributedDataParallel around it, which has none",
    markers=(r"DistributedDataParallel|DDP|accelerat",),
    references=(
        "https://github.com/huggingface/accelerate/issues/54",
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    depends_on_run=True,
)
_PREPARED = "accelerate.PreparedModel"
# Tests behind which a name that may hold the bare model holds just that.
_ASKS = re.compile(r"hasattr|isinstance|\btype\(|__class__|getattr|callable\(")
_KNOWS = re.compile(
    r"distributed|ddp|world|wrap|parallel|n_?gpu|gpus|num_proc|rank\s*[!=>]+\s*-1|is_initialized|device_count|launcher|"
    + SEVERAL,
    re.I,
)
_HAND_ON = ("FSDP", "DEEPSPEED", "MEGATRON_LM")
_OTHER_WRAPPERS = re.compile(r"deepspeed|fsdp|FullySharded|megatron", re.I)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each attribute that the wrapper does not have."""
    if run.context.is_one_process or run.stage is not None:
        return
    told: set[tuple[str, int]] = set()
    for found in run.happenings("missing-member"):
        event = found.event
        key = (event.module.path, getattr(event.node, "lineno", 0))
        if key in told or not isinstance(event.node, ast.Attribute) or is_tracker(run, event):
            continue
        if _may_be_right(run, found):
            continue
        told.add(key)
        yield _finding(run, found, event.node)


def _may_be_right(run: RunQuery, found: Happening) -> bool:
    """Return whether something around the place, or another wrapper, may keep the attribute from being missing."""
    wrapper = _wrapper(found)
    maker = run.makers.get(wrapper)
    if maker is None or not any(event.node is maker.node for event in events(found.entry.tree)):
        return True  # a method that may run before the one that wraps
    calls = [at for at, node in enumerate(found.around) if isinstance(node, Call)]
    near = found.around[calls[-1] + 1 :] if calls else found.around
    if any(isinstance(node, Try) and _catches(node, node in near) for node in found.around):
        return True
    for node in found.around:
        if isinstance(node, Alt) and node.test is not None:
            text = node.module.text(getattr(node.node, "test", node.node))
            if _ASKS.search(text) or (node in near and _KNOWS.search(text)):
                return True
    if _tests(found.around) & _tests(_choosing(found, maker)):
        return True  # the same test decides how the model is wrapped
    read = found.event.node
    base = read.value if isinstance(read, ast.Attribute) else None
    is_right = _is_chosen(found) or is_unwrapped(run, found.event.module, base)
    return is_right or (wrapper.cls == _PREPARED and _has_other_wrapper(run))


def _has_other_wrapper(run: RunQuery) -> bool:
    """Return whether the script or a YAML file of accelerate chooses a wrapper that hands attributes on."""
    if any(module.search(_OTHER_WRAPPERS) for module in run.machine.program.modules()):
        return True
    chosen = sections_with(run, "distributed_type", "distributed_type")
    return any(section.data["distributed_type"] in _HAND_ON for section in chosen)


def _choosing(found: Happening, maker: Event) -> list[Node]:
    """Return the tests of the function that wraps the model, as far as they come before it or stand around it."""
    scope = function_around(maker.module, maker.node)
    inside = {id(node) for node in ast.walk(scope)} if scope is not None else set()
    before = takewhile(lambda n: not isinstance(n, Event) or n.node is not maker.node, walk(found.entry.tree))
    return [node for node in before if isinstance(node, Alt) and id(node.node) in inside]


def _tests(nodes: Iterable[Node]) -> set[object]:
    """Return what tests ask for, each by its number."""
    tests = [formulas.of_test(node.test) for node in nodes if isinstance(node, Alt)]
    return {atom for test in tests if test is not None for atom in formulas.atoms(test) if atom is not None}


def _catches(node: Try, is_near: bool) -> bool:
    """Return whether a `try` expects the attribute to be missing: by its name, or in the same function by any."""
    handlers = [h for h in getattr(node.node, "handlers", []) if not isinstance(h.body[-1], ast.Raise)]
    names = {ast.unparse(handler.type) if handler.type is not None else "" for handler in handlers}
    return any("AttributeError" in name for name in names) or (is_near and bool(names & {"", "Exception"}))


def _is_chosen(found: Happening) -> bool:
    """Return whether a test in the same statement decides: `a.module.x if wrapped else a.x`."""
    module, wanted = found.event.module, found.event.node
    for node in module.nodes:
        if isinstance(node, ast.IfExp | ast.BoolOp) and any(inner is wanted for inner in ast.walk(node)):
            text = module.text(node)
            if _ASKS.search(text) or _KNOWS.search(text):
                return True
    return False


def _wrapper(found: Happening) -> Instance:
    atom = found.event.receiver.single if found.event.receiver is not None else None
    assert isinstance(atom, Instance)
    return atom


def _finding(run: RunQuery, found: Happening, node: ast.Attribute) -> Finding:
    event, wrapper = found.event, _wrapper(found)
    maker = run.makers.get(wrapper)
    name = run.text(event.module, node.value, 40)
    is_prepared = wrapper.cls == _PREPARED
    related = [run.location(maker.module, maker.node, "wraps the model")] if maker is not None else []
    related += [run.location(c.module, c.node, "passes the wrapped model on") for c in found.calls[-1:]]
    inner = f"accelerator.unwrap_model({name})" if is_prepared else f"{name}.module"
    when = " on several GPUs" if is_prepared else ""
    return run.finding(
        META,
        event.module,
        node,
        f"`{name}` is a DistributedDataParallel{when}, without the attribute `{node.attr}`: each rank stops here",
        hint=f"Read it from the model inside: `{inner}.{node.attr}`",
        related=tuple(related),
        severity=Severity.WARNING if is_prepared else None,
    )


_MAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.width = 4
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    def loss(self, x):
        return self(x).mean()


def main(loader):
    dist.init_process_group("nccl")
    net = Net()
    model = %s
    %s
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        loss = %s
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(torch.utils.data.DataLoader([1.0]))
"""
_LOSS = "model.loss(x)"
_MULTI_SCALE = "multi_scale = '-ms' in sys.argv\n    if multi_scale: print(model.width)"
_EITHER = "DDP(net) if dist.get_world_size() > 1 else net"
_ACCELERATE = """\
from accelerate import Accelerator
from diffusers import UNet2DModel
from torch.utils.data import DataLoader

from tools import size_of


def main(loader):
    accelerator = Accelerator(mixed_precision="bf16")
    unet = UNet2DModel(sample_size=64)
    unet, loader = accelerator.prepare(unet, loader)
    for batch in loader:
        print(size_of(%s))


if __name__ == "__main__":
    main(DataLoader([1.0]))
"""
_TOOLS = """\
def size_of(model):
    return model.config.sample_size
"""
_TWO = """\
import argparse

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
import torch


def wrapped(model, args):
    if args.use_fsdp:
        return FSDP(model)
    return DDP(model)


def clip(model, args):
    if args.%s:
        model.clip_grad_norm_(1.0)


parser = argparse.ArgumentParser()
parser.add_argument("--use_fsdp", action="store_true")
parser.add_argument("--clip", action="store_true")
args = parser.parse_args()
print(args.clip)
model = wrapped(torch.nn.Linear(4, 4).cuda(), args)
model(torch.ones(2, 4).cuda()).sum().backward()
clip(model, args)
"""

EXAMPLES = (
    good("the option that chose the other wrapper", {"train.py": _TWO % "use_fsdp"}),
    bad("another option than the one that chose the wrapper", {"train.py": _TWO % "clip"}, "train.py:16"),
    bad("a method of the model", {"train.py": _MAIN % ("DDP(net)", "pass", _LOSS)}, "train.py:26"),
    bad("where several ranks are wrapped", {"train.py": _MAIN % (_EITHER, "pass", _LOSS)}, "train.py:26"),
    bad("in another file, after prepare", {"tools.py": _TOOLS, "train.py": _ACCELERATE % "unet"}, "tools.py:2"),
    bad(
        "a test of several sizes is none of several processes",
        {"train.py": "import sys\n" + _MAIN % ("DDP(net)", _MULTI_SCALE, "model(x).mean()")},
        "train.py:25",
    ),
    good("of the model inside", {"train.py": _MAIN % ("DDP(net)", "print(model.module.width)", "model(x).mean()")}),
    good("of every module", {"train.py": _MAIN % ("DDP(net)", "print(model.training)", "model(x).mean()")}),
    bad(
        "a test that comes after the wrapper chooses none",
        {
            "train.py": "import sys\n"
            + _MAIN % ("DDP(net)", "small = '-s' in sys.argv", "model(x).mean()\n        if small: model.resize(4)")
        },
        "train.py:28",
    ),
    good("set by the script", {"train.py": _MAIN % ("DDP(net)", "model.width = net.width", "model(x) * model.width")}),
    good(
        "asked before",
        {"train.py": _MAIN % ("DDP(net)", "pass", "model.loss(x) if hasattr(model, 'loss') else model(x)")},
    ),
    good(
        "with a default",
        {"train.py": _MAIN % ("DDP(net)", "print(getattr(model, 'depth', 4))", "model(x).mean()")},
    ),
    good(
        "the bare model, by the test that wrapped it",
        {
            "train.py": _MAIN
            % (_EITHER, "print(model.module.width if dist.get_world_size() > 1 else model.width)", "model(x)")
        },
    ),
    good(
        "taken out where it is wrapped, and passed on",
        {
            "train.py": "def show(model):\n    print(model.width)\n\n\n"
            + _MAIN % (_EITHER, "show(model.module if dist.get_world_size() > 1 else model)", "model(x).mean()")
        },
    ),
    good("unwrapped", {"tools.py": _TOOLS, "train.py": _ACCELERATE % "accelerator.unwrap_model(unet)"}),
    good(
        "a script that may run with DeepSpeed",
        {"tools.py": _TOOLS, "train.py": "import deepspeed\n" + _ACCELERATE % "unet"},
    ),
    good(
        "accelerate is told to shard",
        {"tools.py": _TOOLS, "train.py": _ACCELERATE % "unet", "acc/fsdp.yaml": "distributed_type: FSDP\n"},
    ),
    good("one process", {"train.py": _MAIN % ("DDP(net)", "pass", _LOSS)}, world_size=1),
)
