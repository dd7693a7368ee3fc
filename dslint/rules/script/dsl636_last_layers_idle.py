"""A loss uses the hidden states of an earlier layer, and `DistributedDataParallel` waits for the gradients of the last.

**What.** A pretrained encoder is trained in DDP, and all that is taken of its result is `hidden_states[-2]` or another
layer before the last ("clip skip", features of a middle layer).

**Why it hurts.** The layers after that one, and the norm or pooler at the end, run and lead to no loss. DDP waits for
the gradient of every parameter that may have one. These get none, and the next forward raises `RuntimeError: Expected
to have finished reduction in the prior iteration`. On one GPU the same script trains.

**Fix.** Freeze what comes after: `encoder.layers[-1].requires_grad_(False)` and the final norm. Or drop these layers,
or pass `find_unused_parameters=True`.

**When it stays quiet.** DDP that looks for unused parameters, or has a static graph; DeepSpeed and FSDP; something else
of a result is used, or a result is passed on; a forward without gradients; a model that is frozen as a whole;
projects that freeze layers or drop them; adapters (`LoraConfig`) in some layers only, or in another model.

**Evidence.** Two gloo ranks, torch 2.13: a layer that no rank uses makes the second forward raise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.skipped import is_frozen
from dslint.python.source import Module
from dslint.python.values import Instance, Tuple
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddppasses import waits_for_all
from dslint.rules.wrapping.ddps import made_wrappers
from dslint.rules.wrapping.frozen import freezing_before

META = RuleMeta(
    code="DSL636",
    name="last-layers-idle",
    kind="script",
    severity=Severity.WARNING,
    summary="the loss uses an earlier hidden state of an encoder in DDP, whose last layers get no gradient",
    markers=(r"DistributedDataParallel|DDP|Accelerator", r"hidden_states", r"transformers"),
    references=(
        "https://github.com/kohya-ss/sd-scripts/pull/1000",
        "https://github.com/pytorch/pytorch/issues/43259",
    ),
    depends_on_run=True,
)
# What freezes some layers of a model or takes them away.
_SHORTENS = re.compile(r"layers\s*=\s*|del \w[\w.]*layers|layers\.pop|num_hidden_layers")
# A part of a model, or its parameters one by one.
_PART = re.compile(r"(?:\]|norm|layers?|pooler|head|param\w*|\bp)$")
_ADAPTS = re.compile(r"\w*Config\([^)]*target_modules|get_peft_model|\blora", re.I)
_SOME_LAYERS = ("layers_to_transform", "layers_pattern", "exclude_modules", "modules_to_save")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each encoder in DDP of which only an earlier layer is used."""
    if run.context.is_one_process or run.stage is not None or not run.has("backward"):
        return
    if any(module.search(_SHORTENS) or _freezes_part(module) for module in run.machine.program.modules()):
        return
    adapts = any(module.search(_ADAPTS) for module in run.machine.program.modules())
    if adapts and not _are_in_all_layers(run):
        return
    seen: set[int] = set()
    for wrap in run.occurrences("wraps-model", "prepares"):
        if not waits_for_all(run, wrap.event) or not _has_pretrained(run, wrap.event):
            continue
        for wrapper in made_wrappers(run, wrap):
            uses = _uses(run, wrapper) if _is_trained(run, wrap, wrapper, adapts) else []
            if uses and id(uses[0].event.node) not in seen:
                seen.add(id(uses[0].event.node))
                yield _finding(run, wrap.event, uses[0].event)


def _freezes_part(module: Module) -> bool:
    """Return whether a module may freeze a part of a model."""
    said: list[tuple[ast.expr, ast.expr]] = []
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            said += [(node.func.value, value) for value in (*node.args, *(k.value for k in node.keywords))]
        elif isinstance(node, ast.Assign):
            fields = [target for target in node.targets if isinstance(target, ast.Attribute)]
            said += [(target.value, node.value) for target in fields if target.attr == "requires_grad"]
    return any(
        not (isinstance(value, ast.Constant) and value.value) and _PART.search(ast.unparse(base))
        for base, value in said
    )


def _has_pretrained(run: RunQuery, wrap: Event) -> bool:
    """Return whether a pretrained model of a library is among what a call wraps."""
    classes = [atom.cls for atom in wrap.modules if isinstance(atom.cls, str)]
    return any(run.machine.libraries.is_class(cls, "pretrained-model") for cls in classes)


def _is_trained(run: RunQuery, wrap: Happening, wrapper: Instance, adapts: bool) -> bool:
    """Return whether the model inside gets gradients in all of its layers: it is not frozen, or has adapters in all."""
    models = _inside(wrap.event, wrapper)
    adapted: set[Instance] = set()
    for event in (found.event for found in run.occurrences("adapts")):
        for value in (event.receiver, event.arguments.get("model"), event.result):
            adapted |= set(instances(value))
    if models & adapted:
        return True
    return not adapts and bool(models) and not models & set(freezing_before(wrap).frozen)


def _inside(wrap: Event, wrapper: Instance) -> set[Instance]:
    """Return the models that a wrapper may have been made of: the argument in its place, where there are several."""
    made = wrap.result.single if wrap.result is not None else None
    for at, item in enumerate(made.items if isinstance(made, Tuple) else ()):
        if wrapper in item.atoms:
            return set(instances(wrap.arguments.get(f"*{at}")))
    return {atom for name in ("module", "model", "*0") for atom in instances(wrap.arguments.get(name))}


def _are_in_all_layers(run: RunQuery) -> bool:
    """Return whether every adapter names its modules by words that each layer has: `["q_proj", "v_proj"]`."""
    found = [
        node
        for module in run.machine.program.modules()
        for node in module.nodes_of(ast.Call)
        if ast.unparse(node.func).rpartition(".")[2] == "LoraConfig"
    ]
    return bool(found) and all(map(_is_plain, found))


def _is_plain(call: ast.Call) -> bool:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    targets = given.get("target_modules")
    if not isinstance(targets, ast.List | ast.Tuple) or None in given or set(_SOME_LAYERS) & set(given):
        return False
    words = [node.value if isinstance(node, ast.Constant) else "" for node in targets.elts]
    return bool(words) and all(str(word).isidentifier() for word in words)


def _uses(run: RunQuery, wrapper: Instance) -> list[Happening]:
    """Return the forward passes of a wrapper, when all that any of them is asked for is an earlier layer."""
    found = [h for h in run.occurrences("ddp-forward") if wrapper in instances(h.event.receiver)]
    trained = [h for h in found if not any(is_frozen(node) for node in h.around)]
    return trained if all(_is_earlier(h.event.module, h.event.node) for h in trained) else []


def _is_earlier(module: Module, call: ast.AST) -> bool:
    """Return whether all that is taken of the result of a call is a hidden state before the last."""
    function = next((f for f in module.nodes if _is_function(f) and any(n is call for n in ast.walk(f))), module.tree)
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    outer = parents.get(call)
    results: list[ast.AST] = [call]
    if isinstance(outer, ast.Assign):
        name = outer.targets[0].id if isinstance(outer.targets[0], ast.Name) else ""
        same = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
        if not name or sum(isinstance(n.ctx, ast.Store) for n in same) > 1:
            return False
        results = [n for n in same if isinstance(n.ctx, ast.Load)]
    return bool(results) and all(_is_layer(parents, result) for result in results)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _is_layer(parents: dict[ast.AST, ast.AST], result: ast.AST) -> bool:
    """Return whether a result is asked for `hidden_states[-n]` with n from 2 on, and for nothing else."""
    states = parents.get(result)
    is_named = isinstance(states, ast.Attribute) and states.attr == "hidden_states"
    is_key = isinstance(states, ast.Subscript) and ast.unparse(states.slice) == "'hidden_states'"
    layer = parents.get(states) if states is not None and (is_named or is_key) else None
    if not isinstance(layer, ast.Subscript) or layer.value is not states:
        return False
    at = layer.slice.operand if isinstance(layer.slice, ast.UnaryOp) and isinstance(layer.slice.op, ast.USub) else None
    return isinstance(at, ast.Constant) and isinstance(at.value, int) and at.value > 1


def _finding(run: RunQuery, wrap: Event, use: Event) -> Finding:
    return run.finding(
        META,
        use.module,
        use.node,
        "No loss uses the layers after this hidden state, but DDP waits for their gradients: the next forward raises",
        hint="Freeze the layers after it, or let DDP look with `find_unused_parameters=True`",
        related=(run.location(wrap.module, wrap.node, "wrapped here"),),
        facts={"layer": "last", "conditional": False},
    )


_TRAIN = """\
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import nn
from transformers import CLIPTextModel


def encode(encoder, ids):
    out = encoder(ids, output_hidden_states=True)
    return %s


def main(loader):
    accelerator = Accelerator(%s)
    encoder = CLIPTextModel.from_pretrained("openai/clip-vit-large-patch14")
    %s
    head = nn.Linear(768, 5)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()])
    encoder, head, optimizer, loader = accelerator.prepare(encoder, head, optimizer, loader)
    for ids, labels in loader:
        loss = nn.functional.cross_entropy(head(encode(encoder, ids)).mean(1), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""
_DDP = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModel


def main(loader, rank):
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    model = AutoModel.from_pretrained("facebook/wav2vec2-base").to(rank)
    model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    for waves, labels in loader:
        hidden = model(waves.to(rank), output_hidden_states=True).hidden_states[%s]
        (hidden.mean(1) - labels).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
_SKIP, _LOOKS = "out.hidden_states[-2]", "DistributedDataParallelKwargs(find_unused_parameters=True)"


def _adapted(more: str) -> str:
    adds = f'encoder.add_adapter(LoraConfig(r=4, target_modules=["q_proj", "v_proj"]{more}))'
    code = _TRAIN % (_SKIP, "", "encoder.requires_grad_(False)\n    " + adds)
    return code.replace("from torch import nn", "from peft import LoraConfig\nfrom torch import nn")


EXAMPLES = (
    bad("clip skip in a helper", {"train.py": _TRAIN % (_SKIP, "", "pass")}, "train.py:9 warning"),
    bad("by its key", {"train.py": _TRAIN % ("out['hidden_states'][-3]", "", "pass")}, "train.py:9 warning"),
    bad("in a DDP of torch", {"train.py": _DDP % "-4"}, "train.py:13 warning"),
    good("the last layer", {"train.py": _DDP % "-1"}),
    good("DDP looks", {"train.py": _TRAIN % (_SKIP, f"kwargs_handlers=[{_LOOKS}]", "pass")}),
    good(
        "the last layer and the norm are frozen",
        {
            "train.py": _TRAIN
            % (
                _SKIP,
                "",
                "encoder.text_model.encoder.layers[-1].requires_grad_(False)\n"
                "    encoder.text_model.final_layer_norm.requires_grad_(False)",
            )
        },
    ),
    bad("adapters in each layer", {"train.py": _adapted("")}, "train.py:10 warning"),
    good("adapters in the first layers", {"train.py": _adapted(", layers_to_transform=[0, 1, 2]")}),
    good("the encoder is frozen", {"train.py": _TRAIN % (_SKIP, "", "encoder.requires_grad_(False)")}),
    good("the last state is used as well", {"train.py": _TRAIN % (_SKIP + " + out.last_hidden_state", "", "pass")}),
)
