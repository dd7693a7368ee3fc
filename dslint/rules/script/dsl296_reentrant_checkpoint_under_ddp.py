"""DDP meets parameters twice, since reentrant checkpointing hides them from it.

**What.** A model of `DistributedDataParallel` recomputes activations with `use_reentrant=True` (what `checkpoint` does
when it is not told), and DDP looks for unused parameters (`find_unused_parameters=True`, in the call or in the
`DistributedDataParallelKwargs` of an Accelerator), or one forward pass runs the
same checkpointed layers more than once. The same for a Trainer of transformers with `gradient_checkpointing` and
`ddp_find_unused_parameters=True`.

**Why it hurts.** Reentrant checkpointing runs the layers without a graph, and once more in the backward pass. DDP,
which looks through the graph, takes their parameters for unused and marks them ready at once; when the layers are
recomputed their gradients come all the same. Every rank stops with "Expected to mark a variable ready only once".

**Fix.** `use_reentrant=False`; or `find_unused_parameters=False` where all parameters take part; or
`static_graph=True`.

**When it stays quiet.** A setting that cannot be read decides whether layers are checkpointed; `use_reentrant=False`,
`static_graph=True`, values that cannot be read, FSDP and DeepSpeed.

**Evidence.** Two gloo ranks, torch 2.13: the first backward pass raises on both ranks, with the search and with layers
that run twice; without reentrant checkpointing both train.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event, Loop, Node, children, events, walk
from dslint.python.values import Const, Instance, Unknown
from dslint.python.varies import ASSUMED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ddps import dynamic_wrapper
from dslint.rules.plateaus import instances
from dslint.rules.runs import RunQuery, happenings_of

if TYPE_CHECKING:
    from dslint.python.entries import Entry

META = RuleMeta(
    code="DSL296",
    name="reentrant-checkpoint-under-ddp",
    kind="script",
    severity=Severity.WARNING,
    summary="DDP gets gradients of checkpointed layers twice, and the backward pass raises",
    markers=(r"torch|DDP|ddp_find_unused_parameters|backward|init_process_group",),
    references=(
        "https://pytorch.org/docs/stable/checkpoint.html",
        "https://github.com/pytorch/pytorch/issues/24005",
        "https://github.com/huggingface/peft/issues/313",
    ),
    depends_on_run=True,
)
# Accelerate hands these to DDP; with a plugin it wraps models by something else.
_HANDLER = "accelerate.DistributedDataParallelKwargs"
_OTHERS = ("deepspeed_plugin", "fsdp_plugin", "megatron_lm_plugin")
_CHECKPOINT = "torch.utils.checkpoint."


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on reentrant checkpoints in the forward pass of a wrapper that cannot stand them."""
    if run.context.is_one_process or run.stage is not None:
        return
    seen: set[int] = set()
    for found in (*_under_wrappers(run), *_trainers(run), *_enabled(run)):
        if id(found[0].node) not in seen:
            seen.add(id(found[0].node))
            yield _finding(run, *found)


_Found = tuple[Event, Event, str]


def _under_wrappers(run: RunQuery) -> Iterator[_Found]:
    """`checkpoint(...)` in the forward pass of a wrapped model."""
    for entry, tree in run.trees():
        wraps = {made: event for event in events(tree) if (made := dynamic_wrapper(run, event)) is not None}
        bodies = {id(node.node): node for node in walk(tree) if isinstance(node, Call)} if wraps else {}
        for event in events(tree):
            atom = event.receiver.single if event.receiver is not None and "ddp-forward" in event.tags else None
            body = bodies.get(id(event.node))
            if not isinstance(atom, Instance) or atom not in wraps or body is None:
                continue
            counted = {node for (node, _), times in _executions(body).items() if times > 1}
            for checkpoint in _reentrant(body, entry):
                if _looks(wraps[atom]):
                    yield checkpoint, wraps[atom], "looks for unused parameters"
                elif id(checkpoint.node) in counted:
                    yield checkpoint, wraps[atom], "twice"


def _looks(wrap: Event) -> bool:
    value = wrap.arguments.get("find_unused_parameters")
    return value is not None and value.constants == (True,)


def _reentrant(body: Call, entry: Entry) -> Iterator[Event]:
    """Yield the reentrant checkpoints of a forward pass; not those that a setting may leave out, as it mostly does."""
    for found in happenings_of(body.body, entry):
        event = found.event
        if "checkpoints-activations" not in event.tags or any(_is_setting(node) for node in found.around):
            continue
        if event.api.startswith(_CHECKPOINT):
            value = event.arguments.get("use_reentrant")
            if (value is None and not event.open) or (value is not None and value.constants in ((True,), (None,))):
                yield event


def _is_setting(node: Node) -> bool:
    """A test of what nobody knows; `self.training` is true in the steps."""
    if not isinstance(node, Alt) or not node.then_lanes & node.else_lanes or node.test is None:
        return False
    unknown = [atom for atom in node.test.atoms if not isinstance(atom, Const)]
    return any(not (isinstance(atom, Unknown) and "torch.nn.Module" in atom.reason) for atom in unknown)


def _executions(node: Node, path: tuple[str, ...] = ()) -> Counter[tuple[int, tuple[str, ...]]]:
    """Count how often the same layers are checkpointed in one forward pass: of a test the side with more.

    The same are those to which the same expressions lead: `self.encoder(x)` and `self.encoder(y)`.
    """
    if isinstance(node, Event):
        is_checkpoint = "checkpoints-activations" in node.tags
        return Counter({(id(node.node), path): 1}) if is_checkpoint else Counter()
    if isinstance(node, Alt):
        return _executions(node.then, path) | _executions(node.orelse, path)
    if isinstance(node, Loop):
        return _executions(node.body, path)
    if isinstance(node, Call):
        path = (*path, ast.dump(node.node.func) if isinstance(node.node, ast.Call) else "")
    found: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for child in children(node):
        found += _executions(child, path)
    return found


def _trainers(run: RunQuery) -> Iterator[_Found]:
    """Arguments of a Trainer that ask for both."""
    for found in run.happenings("training-arguments"):
        event = found.event
        wants = all(_is_true(event, name) for name in ("gradient_checkpointing", "ddp_find_unused_parameters"))
        if wants and _says_reentrant(event) and not {"deepspeed", "fsdp"} & set(event.arguments):
            yield event, event, "looks for unused parameters"


def _enabled(run: RunQuery) -> Iterator[_Found]:
    """`model.gradient_checkpointing_enable({"use_reentrant": True})` before a wrapper that looks."""
    for _, tree in run.trees():
        wraps = [event for event in events(tree) if dynamic_wrapper(run, event) is not None and _looks(event)]
        wraps += [event for event in events(tree) if "prepares" in event.tags and _is_told_to_look(run, event)]
        for event in events(tree) if wraps else ():
            if "checkpoints-activations" in event.tags and event.receiver is not None and _says_reentrant(event):
                wrap = next((wrap for wrap in wraps if event.receiver.atoms & wrap.modules), None)
                if wrap is not None:
                    yield event, wrap, "looks for unused parameters"


def _is_told_to_look(run: RunQuery, event: Event) -> bool:
    """Return whether the Accelerator of a `prepare` has handlers that let DDP look for unused parameters."""
    makers = [run.makers.get(atom) for atom in instances(event.receiver)]
    if len(makers) != 1 or makers[0] is None or any(name in makers[0].arguments for name in _OTHERS):
        return False
    for value in makers[0].items.get("kwargs_handlers", ()):
        made = next((run.makers[atom] for atom in instances(value) if atom in run.makers), None)
        if made is not None and made.api == _HANDLER and not made.open and _looks(made):
            static = made.arguments.get("static_graph")
            return static is None or static.constants == (False,)
    return False


def _is_true(event: Event, name: str) -> bool:
    return name in event.arguments and event.arguments[name].constants == (True,)


def _says_reentrant(event: Event) -> bool:
    """Return whether the options of the checkpoints certainly ask for reentrant ones."""
    names = (f"{word}_checkpointing_kwargs.use_reentrant" for word in ("gradient", "activation"))
    return any(value.constants == (True,) for name in names for value in event.items.get(name, ()))


def _finding(run: RunQuery, event: Event, wrap: Event, why: str) -> Finding:
    if why == "twice":
        what = "These layers are checkpointed more than once in a forward pass of DDP"
    else:
        what = f"Reentrant checkpointing hides these layers from DDP, which {why}"
    is_said = "use_reentrant" in event.arguments or event is wrap or event.receiver is not None
    return run.finding(
        META,
        event.module,
        event.nodes.get("ddp_find_unused_parameters", event.node) if event is wrap else event.node,
        f"{what}: their gradients come twice, and the backward pass raises",
        hint="Pass `use_reentrant=False`",
        related=() if event is wrap else (run.location(wrap.module, wrap.node, "wrapped here"),),
        varies=0 if is_said else ASSUMED,
        facts={"why": "twice" if why == "twice" else "search"},
    )


_MODEL = """\
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def encode(self, x):
        for layer in self.layers:
            if self.training%s:
                x = checkpoint(layer, x%s)
        return x

    def forward(self, x, y):
        return (%s).mean()
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Net


def main(loader, local_rank):
    dist.init_process_group("nccl")
    model = DDP(Net().cuda(), device_ids=[local_rank]%s)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        model(x, y).backward()
        optimizer.step()
"""
_SEARCH = ", find_unused_parameters=True"
_TRUE = ", use_reentrant=True"
_ONCE = "self.encode(x) - y"
_HF = """\
import os

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def arguments():
    return TrainingArguments(
        "out",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": %s},
        ddp_find_unused_parameters=True,
    )


def main(dataset):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model=model, args=arguments(), train_dataset=dataset).train()
"""
_PLAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM


def build(local_rank):
    model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=%s))
    return DistributedDataParallel(model, device_ids=[local_rank], find_unused_parameters=True)


def main(loader, local_rank):
    dist.init_process_group("nccl")
    model = build(local_rank)
    for batch in loader:
        model(**batch).loss.backward()
"""

_HANDLERS = """\
from accelerate import Accelerator, DistributedDataParallelKwargs
from transformers import AutoModelForCausalLM


def main(loader):
    handler = DistributedDataParallelKwargs(find_unused_parameters=%s)
    accelerator = Accelerator(kwargs_handlers=[handler])
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model, loader = accelerator.prepare(model, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
"""

EXAMPLES = (
    bad("told by an Accelerator", {"train.py": _HANDLERS % True}, at="train.py:9 warning"),
    good("the Accelerator does not look", {"train.py": _HANDLERS % False}),
    bad(
        "the search", {"train.py": _TRAIN % _SEARCH, "model.py": _MODEL % ("", _TRUE, _ONCE)}, at="model.py:13 warning"
    ),
    bad("the default", {"train.py": _TRAIN % _SEARCH, "model.py": _MODEL % ("", "", _ONCE)}, at="model.py:13 warning"),
    bad(
        "one encoder for both inputs",
        {"train.py": _TRAIN % "", "model.py": _MODEL % ("", _TRUE, "self.encode(x) - self.encode(y)")},
        at="model.py:13 warning",
    ),
    bad("a Trainer", {"train.py": _HF % "True"}, at="train.py:12 warning"),
    bad("a model of transformers", {"train.py": _PLAIN % "True"}, at="train.py:9 warning"),
    good("not reentrant", {"train.py": _TRAIN % _SEARCH, "model.py": _MODEL % ("", ", use_reentrant=False", _ONCE)}),
    good(
        "a setting",
        {
            "train.py": _TRAIN % _SEARCH,
            "model.py": (_MODEL % (" and self.saves", _TRUE, _ONCE)).replace(
                "        super().__init__()\n", "        super().__init__()\n        self.saves = load_config().saves\n"
            ),
        },
    ),
    good("no search", {"train.py": _TRAIN % "", "model.py": _MODEL % ("", _TRUE, _ONCE)}),
    good(
        "a static graph",
        {"train.py": _TRAIN % f"{_SEARCH}, static_graph=True", "model.py": _MODEL % ("", _TRUE, _ONCE)},
    ),
    good("a Trainer without", {"train.py": _HF % "False"}),
    good("a model of transformers without", {"train.py": _PLAIN % "False"}),
)
