"""Parameters are replaced after the optimizer was made, which continues with those that are gone.

**What.** `optimizer = AdamW(model.parameters())`, and after that `model = convert_syncbn_model(model)` of apex,
`model.fc = nn.Linear(...)`, `get_peft_model(model, ...)`, `load_state_dict(..., assign=True)` or
`parallelize_module(model, ...)`; the same optimizer steps.

**Why it hurts.** The optimizer holds objects that are no part of the model any more. Gradients of the new parameters
are computed and averaged over the ranks, but no step changes them: batch norms stay ones and zeros, a new head stays
as it was drawn, adapters are never trained. Nothing raises.

**Fix.** Make the optimizer, and its schedule, after the last call that changes what the model consists of.

**When it stays quiet.** An optimizer is made of the model again, or `add_param_group` is called; the optimizer does
not step after that; it was made of another part of the model; what is put in has no parameters, or nobody knows what
it is. `SyncBatchNorm.convert_sync_batchnorm` of torch, `model.to(...)` and `model.half()` keep the parameters.

**Evidence.** Two gloo ranks, torch 2.13: a head that is replaced, and weights that are loaded with `assign=True`, are
the same after three steps; with the optimizer made afterwards they move. apex/parallel/__init__.py: the converted
layers get clones of the weights.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event, Seq, events
from dslint.python.queries.order import following
from dslint.python.queries.waits import has_word
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.training.plateaus import instances, wrapped_by
from dslint.rules.training.training import excludes, models_given, parameter_owners
from dslint.rules.wrapping.afterwrap import has_parameters
from dslint.rules.wrapping.holders import Holders

META = RuleMeta(
    code="DSL663",
    name="parameters-replaced-after-optimizer",
    kind="script",
    severity=Severity.WARNING,
    summary="parameters are replaced after the optimizer was made: its steps change what is not part of the model",
    markers=(r"optim", r"convert_syncbn_model|nn\.|get_peft_model|inject_adapter|assign\s*=\s*True|parallelize_module"),
    references=(
        "https://github.com/tianweiy/CenterPoint/pull/109",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict",
    ),
    depends_on_run=True,
)
_REPLACES = ("replaces-parameters", "replaces-parameters-if assign=True", "replaces-part")
_STEPS = frozenset({"optimizer-step", "scaler-step"})
_TAKES = frozenset({"prepares", "makes-engine"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each replacement after which an optimizer steps that was made of the model before."""
    if not run.has(*_REPLACES) or not run.has("wraps-model", "prepares", "makes-engine"):
        return
    asked, holders = parameter_owners(run), Holders(run)
    seen: set[int] = set()
    for entry, tree in run.trees():
        found = list(happenings_of(tree, entry))
        made = [(one, _models(one, asked)) for one in found if "makes-optimizer" in one.event.tags]
        for late in found if made else ():
            if id(late.event.node) in seen or not _replaces(late.event):
                continue
            touched = {inner for atom in _subjects(late.event) for inner in holders.above(atom)}
            for one, models in made:
                if touched & models and not excludes(one, late) and _is_kept(run, tree, one.event, late.event):
                    seen.add(id(late.event.node))
                    yield _finding(run, one.event, late.event)
                    break


def _replaces(event: Event) -> bool:
    """Return whether a call certainly leaves a model with other parameters."""
    if event.may:
        return False
    if "replaces-part" in event.tags:
        return has_parameters(event)
    return "replaces-parameters" in event.tags or has_word(event, "replaces-parameters-if")


def _subjects(event: Event) -> list[Instance]:
    """Return the model of which a call replaces parameters."""
    given = next((event.arguments[name] for name in ("module", "model") if name in event.arguments), event.receiver)
    return instances(given)


def _models(made: Happening, asked: dict[ast.AST, list[Instance]]) -> set[Instance]:
    """Return the models of whose parameters an optimizer is made: named there, or asked in the same function."""
    named = set(models_given(made.event, asked))
    inner = made.calls[-1] if made.calls else None
    if named or not isinstance(inner, Call):
        return named
    near = [event for event in events(inner.body) if "parameters" in event.tags]
    owners = {atom for event in near for atom in instances(event.receiver)}
    return owners if len(owners) == 1 else set()


def _is_kept(run: RunQuery, tree: Seq, made: Event, late: Event) -> bool:
    """Return whether an optimizer that was made before something steps after it, and none is made anew."""
    if all(event is not late for event in following(tree, made)):
        return False
    optimizer = set(instances(made.result))
    for found in run.occurrences("prepares"):
        for inner, outer in wrapped_by(found.event):
            optimizer |= set(instances(outer)) if optimizer & set(instances(inner)) else set()
    is_used = False
    for event in following(tree, late):
        if "makes-optimizer" in event.tags:
            return False
        given = [event.receiver, *event.arguments.values()]
        is_mine = bool(optimizer) and any(set(instances(value)) & optimizer for value in given)
        is_used |= is_mine and bool(event.tags & (_STEPS | _TAKES))
    return is_used and not any(_REGROUPS.search(module.code) for module in (made.module, late.module))


_REGROUPS = re.compile(r"add_param_group|param_groups[^\n]*\[\s*['\"]params['\"]\s*\]")


def _finding(run: RunQuery, made: Event, late: Event) -> Finding:
    return run.finding(
        META,
        late.module,
        late.node,
        f"`{run.text(late.module, late.node, 50)}` replaces parameters of the optimizer: no step changes the new ones",
        hint="Make the optimizer, and its schedule, after this",
        related=(run.location(made.module, made.node, "the optimizer is made here"),),
        facts={"call": late.api.rpartition(".")[2]},
    )


_TRAIN = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from build import adapt, optimizer_of


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.fc = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.norm(self.body(x)))


def main(loader, state):
    dist.init_process_group("gloo")
    net = Net()
%s
    model = DDP(net, find_unused_parameters=True)
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


main(torch.load("data.pt"), torch.load("net.pt"))
"""
_BUILD = """\
import torch
from apex.parallel import convert_syncbn_model


def optimizer_of(model):
    decay, rest = [], []
    for p in model.parameters():
        (rest if p.ndim == 1 else decay).append(p)
    return torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}])


def adapt(model):
    return convert_syncbn_model(model)
"""
_PEFT = """\
from data import load_data
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from torch.optim import AdamW
from transformers import AutoModelForCausalLM


def main(loader):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    %s
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()


main(load_data())
"""
_OPTIMIZER = "    optimizer = optimizer_of(net)"


def _files(*lines: str) -> dict[str, str]:
    return {"train.py": _TRAIN % "\n".join(lines), "build.py": _BUILD}


_ADAM = "optimizer = AdamW(model.parameters())"
_LORA = "model = get_peft_model(model, LoraConfig(r=8))"
EXAMPLES = (
    bad("apex converts the batch norms", _files(_OPTIMIZER, "    net = adapt(net)"), "build.py:13 warning"),
    bad("a new head", _files(_OPTIMIZER, "    net.fc = nn.Linear(4, 9)"), "train.py:22 warning"),
    bad("weights that are assigned", _files(_OPTIMIZER, "    net.load_state_dict(state, assign=True)"), "train.py:22"),
    bad("adapters", {"train.py": _PEFT % f"{_ADAM}\n    {_LORA}"}, "train.py:12 warning"),
    good("adapters before the optimizer", {"train.py": _PEFT % f"{_LORA}\n    {_ADAM}"}),
    good("before the optimizer", _files("    net = adapt(net)", _OPTIMIZER)),
    good("the optimizer is made anew", _files(_OPTIMIZER, "    net = adapt(net)", _OPTIMIZER)),
    good("weights are copied", _files(_OPTIMIZER, "    net.load_state_dict(state)")),
    good("torch keeps the parameters", _files(_OPTIMIZER, "    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)")),
    good("a part without parameters", _files(_OPTIMIZER, "    net.norm = nn.Identity()")),
    good(
        "an optimizer of another part",
        _files("    optimizer = optimizer_of(net.body)", "    net.fc = nn.Linear(4, 9)"),
    ),
)
