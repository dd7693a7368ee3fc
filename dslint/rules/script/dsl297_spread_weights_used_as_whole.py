"""Weights that ZeRO stage 3 spreads over the ranks are used as if each rank had all of them.

**What.** A model is built inside `deepspeed.zero.Init`, loaded while arguments of a Trainer (or `HfDeepSpeedConfig`)
with stage 3 are alive, or handed to an engine with stage 3. After that a callback writes its weights to a file without
`GatheredParameters`, or a second model runs for which no engine was made. Or `generate` or `save_pretrained` of a model
runs inside of FSDP without `summon_full_params`. What writes, loads or reads single weights is DSL210.

**Why it hurts.** Outside of a forward or backward pass of the engine each weight is an empty tensor. A file holds empty
tensors; a model without an engine meets them in its first layer and raises. FSDP hands `generate` to
the model inside: the weights that the root holds stay flat shards, and the embedding raises "'weight' must be 2-D".
`model.module.save_pretrained(...)` writes such a shard under the name `_flat_param`, and nothing says so until somebody
loads the file.

**Fix.** `with deepspeed.zero.GatheredParameters(parameters, modifier_rank=0):` around it, entered by every rank;
`deepspeed.initialize` for a second model, with a config of stage 3; `FSDP.summon_full_params` around `generate`.

**When it stays quiet.** The stage is not 3 or not known; weights are gathered; a test asks for the stage;
quantised models.

**Evidence.** Two gloo ranks, DeepSpeed 0.19 at stage 3: a saved tensor has the shape (0,), and a forward
pass without an engine raises. FSDP of torch 2.13 on two ranks, transformers 5.24: the file holds a `_flat_param` of one
rank, with `use_orig_params=True` flat pieces in the place of the weights of the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.pastfsdp import past_fsdp
from dslint.rules.zero.zero3 import Spread, is_whole, spread_of

META = RuleMeta(
    code="DSL297",
    name="spread-weights-used-as-whole",
    kind="script",
    severity=Severity.WARNING,
    summary="weights that ZeRO stage 3 or FSDP spreads over the ranks are written, loaded, saved or run as if whole",
    markers=(r"deepspeed|Trainer|FSDP|FullyShardedDataParallel",),
    references=(
        "https://deepspeed.readthedocs.io/en/latest/zero3.html",
        "https://github.com/huggingface/transformers/issues/31338",
        "https://github.com/huggingface/trl/pull/687",
    ),
    also_told_by=("DSL210", "DSL212"),
    depends_on_run=True,
)
_TELLS = {
    "save": "What is saved holds empty tensors: ZeRO stage 3 has spread the weights over the ranks",
    "fsdp": "`{0}` runs the model inside FSDP, which then never gathers: the weights of the root are shards",
    "fsdp-save": "`{0}` reads the weights inside FSDP: of the root it writes one rank's flat shard",
    "run": "This model runs without an engine, but ZeRO stage 3 has spread its weights: they are empty",
}
_HINTS = {
    "run": "Make an engine for it with `deepspeed.initialize` and a config of stage 3",
    "fsdp": "Run it inside `FSDP.summon_full_params(model, writeback=False, recurse=False)` on all ranks",
    "fsdp-save": "Get the state of the wrapper on all ranks (`FSDP.state_dict_type`), and pass it as `state_dict=`",
    "save": "Gather each parameter with `deepspeed.zero.GatheredParameters` on all ranks, or use `trainer.save_model`",
}
# A function that cannot be read may gather, by its name.
_GATHERS = re.compile(r"gather|zero_?3", re.I)
# A weight is read, and not only counted.
_READS = re.compile(r"\.(?:detach|cpu|clone|data|to|numpy|contiguous)\b|state_dict\(")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each use of weights that stage 3 has spread, where nothing has gathered them."""
    seen: set[int] = set()
    for spread in spread_of(run):
        for found in spread.read():
            kind, since = _use(spread, found)
            if since is not None and id(found.event.node) not in seen:
                seen.add(id(found.event.node))
                yield _finding(run, found.event, kind, since)
    for event, wrap in past_fsdp(run):
        if id(event.node) not in seen:
            seen.add(id(event.node))
            yield _finding(run, event, "fsdp-save" if "saves" in event.tags else "fsdp", wrap)


def _use(spread: Spread, found: Happening) -> tuple[str, Event | None]:
    """Return what is done with which weights, and by what they were spread."""
    event = found.event
    if event.may or is_whole(found):
        return "", None
    if event.tags & {"parameters", "state-dict"}:
        return "save", _saved(spread, found)
    if event.tags & {"forward", "generate"} and "ddp-forward" not in event.tags:
        return "run", _run_alone(spread, event)
    return "", None


def _saved(spread: Spread, found: Happening) -> Event | None:
    """Weights that a callback reads while it writes a file, or a state dict that goes into a file."""
    event = found.event
    own = event.result.atoms if event.result is not None else frozenset()
    since = spread.of(event.receiver)
    if since is not None and "state-dict" in event.tags and spread.engine_of(event.receiver) is None:
        saves = (other.event for other in spread.happenings if "saves" in other.event.tags)
        return since if any(own & value.atoms for save in saves for value in save.arguments.values()) else None
    trains = {id(h.event.node) for h in spread.happenings if "trainer-train" in h.event.tags}
    called = [at for at, call in enumerate(found.calls) if id(call.node) in trains]
    hook = found.calls[called[-1]] if called else None
    if hook is None or spread.live is None or not event.api.startswith("torch.nn.Module"):
        return None
    beside = [other for other in spread.happenings if hook in other.calls]
    writes = any(other.event.api in ("torch.save", "safetensors.torch.save_file") for other in beside)
    gathers = any("gathers-parameters" in other.event.tags for other in beside)
    text = "".join(map(_text, found.calls[called[-1] :]))
    return spread.live if writes and not gathers and _READS.search(text) and not _GATHERS.search(text) else None


def _text(call: Call) -> str:
    node = getattr(call.function, "node", None)
    module = getattr(call.function, "module", None)
    return module.text(node) if module is not None and node is not None else ""


def _run_alone(spread: Spread, event: Event) -> Event | None:
    """A model that was loaded while stage 3 was alive, and that nothing wraps."""
    made = instances(event.receiver)
    if (
        len(made) != 1
        or made[0] in spread.trained
        or made[0] in spread.engines
        or spread.since.get(made[0]) is not spread.live
    ):
        return None
    adapted = (h.event for h in spread.happenings if "adapts" in h.event.tags)
    return None if any(made[0] in instances(v) for e in adapted for v in e.arguments.values()) else spread.live


def _finding(run: RunQuery, event: Event, kind: str, since: Event) -> Finding:
    name = event.api.rpartition(".")[2]
    return run.finding(
        META,
        event.module,
        event.node,
        _TELLS[kind].format(name),
        hint=_HINTS[kind],
        related=(run.location(since.module, since.node, "spreads the weights"),),
        facts={"op": kind},
    )


_EXPORT = """\
import torch
from transformers import TrainerCallback


class Export(TrainerCallback):
    def collect(self, model):
        return {name: p.detach().cpu() for name, p in model.named_parameters() if p.requires_grad}

    def on_save(self, args, state, control, model=None, **kwargs):
        weights = self.collect(model)
        if state.is_world_process_zero:
            torch.save(weights, "trained.pt")
"""
_HF = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from export import Export


def config():
    return {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": %d}}


class Distil(Trainer):
    def __init__(self, *args, teacher=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.eval()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        wanted = self.teacher(**inputs).logits
        return (model(**inputs).logits - wanted).square().mean()


def main(dataset):
    args = TrainingArguments("out", deepspeed=config())
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    %s
    trainer.train()


main(None)
"""
_DISTIL = """\
teacher = AutoModelForCausalLM.from_pretrained("gpt2-xl")
    trainer = Distil(model=model, args=args, train_dataset=dataset, teacher=teacher)"""
_CALLBACK = "trainer = Trainer(model=model, args=args, train_dataset=dataset, callbacks=[Export()])"
_FSDP = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM


class Run:
    def __init__(self, name):
        dist.init_process_group("nccl")
        self.model = FSDP(AutoModelForCausalLM.from_pretrained(name), auto_wrap_policy=by_layer)

    def sample(self, ids):
%s

    def fit(self, loader):
        for ids in loader:
            self.model(input_ids=ids, labels=ids).loss.backward()
            self.sample(ids)


def main(loader):
    Run("gpt2").fit(loader)
"""
_SAMPLE = "return self.model.generate(ids, max_new_tokens=8, synced_gpus=True)"
_SUMMONED = f"        with FSDP.summon_full_params(self.model, writeback=False, recurse=False):\n            {_SAMPLE}"
_ENCODE = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(), nn.Linear(8, 2)

    def encode(self, x):
        x = self.block(x)
        return self.head(x)

    def forward(self, x):
        return self.encode(x)


def step(model, x):
    return %s(x).sum()


model = Net()
model = FSDP(model%s)
step(model, torch.ones(1, 8)).backward()
"""

EXAMPLES = (
    bad("a callback writes what is spread", {"export.py": _EXPORT, "train.py": _HF % (3, _CALLBACK)}, "export.py:7"),
    bad(
        "a method runs a layer of the root past FSDP",
        {"train.py": _ENCODE % ("model.encode", ", auto_wrap_policy=ModuleWrapPolicy({Block})")},
        "train.py:23",
    ),
    good(
        "the forward pass of FSDP, and a layer before the model is wrapped",
        {"train.py": _ENCODE.replace("model = FSDP", "model.encode(torch.ones(1, 8))\nmodel = FSDP") % ("model", "")},
    ),
    good(
        "the wrapper of one layer",
        {
            "train.py": "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
            "def made():\n    model = FSDP(torch.nn.Linear(4, 4))\n    model(torch.ones(2, 4)).sum().backward()\n"
            "    return model\n\n\nmade()\n"
        },
    ),
    good(
        "answers before the model is wrapped",
        {
            "train.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "from transformers import AutoModelForCausalLM\n\n\ndef compare(ids):\n"
            "    model = AutoModelForCausalLM.from_pretrained('gpt2')\n    answer = model.generate(ids)\n"
            "    return answer, FSDP(model, auto_wrap_policy=by_layer)\n\n\ncompare([1])\n"
        },
    ),
    bad("a teacher without an engine", {"export.py": _EXPORT, "train.py": _HF % (3, _DISTIL)}, "train.py:16 warning"),
    bad("a method inside FSDP", {"train.py": _FSDP % f"        {_SAMPLE}"}, at="train.py:13 warning"),
    good("summoned", {"train.py": _FSDP % _SUMMONED}),
    bad(
        "saved inside FSDP", {"train.py": _FSDP % '        self.model.module.save_pretrained("out")'}, at="train.py:13"
    ),
    good(
        "the whole state is saved",
        {
            "train.py": _FSDP
            % '        self.model.module.save_pretrained("out", is_main_process=False, state_dict=whole(self.model))'
        },
    ),
    good("stage 2", {"export.py": _EXPORT, "train.py": _HF % (2, _CALLBACK)}),
    good("a teacher at stage 2", {"export.py": _EXPORT, "train.py": _HF % (2, _DISTIL)}),
)
