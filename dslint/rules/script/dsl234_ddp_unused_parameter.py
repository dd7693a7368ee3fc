"""A layer of a `DistributedDataParallel` model takes no part in the loss.

**What.** The model class stands in the file, is wrapped in `DistributedDataParallel` without
`find_unused_parameters=True`, and makes a layer that no method uses, or one that `forward` uses only when an optional
argument is given (`if images is not None:`) which the training call leaves out.

**Why it hurts.** DDP waits for the gradient of every parameter before a step is done. A parameter that got none makes
the *next* forward raise `RuntimeError: Expected to have finished reduction in the prior iteration`. Where only some
ranks leave the layer out, those raise and the others wait for a gradient that does not come. On one GPU, without the
wrapper, the same script runs.

**Fix.** Delete the layer, or freeze it before wrapping, or pass `find_unused_parameters=True`, which walks the graph of
each step to find such parameters.

**When it stays quiet.** `find_unused_parameters=True` and `static_graph=True`; layers that anything in the file touches
by name; files that freeze parameters or look at them in bulk (`getattr`, `named_modules()`, a loop over
`parameters()`); classes with other bases than `nn.Module`; layers made in a branch; containers.

**Evidence.** Two gloo ranks, torch 2.13: a layer that no rank uses, and one that one rank leaves out: the second
forward raises; with `find_unused_parameters=True` it passes, and so does a model whose layers are all used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.data.submodules import Layer, Submodules
from dslint.model.script.dotted import last_name
from dslint.model.script.given import given
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL234",
    name="ddp-unused-parameter",
    kind="script",
    severity=Severity.WARNING,
    summary="a layer of a DDP model gets no gradient: the second step raises",
    markers=(r"DistributedDataParallel", r"\bdef forward\(", r"\.backward\("),
    versions=("torch>=1.8",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/pytorch/pytorch/issues/43259",
    ),
)

_HEAD = """\
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = nn.Linear(4, 4)
        self.image = nn.Linear(4, 4)

"""
_CONDITIONAL = """\
    def forward(self, text, images=None):
        hidden = self.text(text)
        if images is not None:
            hidden = hidden + self.image(images)
        return hidden


"""
_TRAIN = """\
def train(device, loader, SGD):
    model = DistributedDataParallel(Model().to(device))
    optimizer = SGD(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
"""

EXAMPLES = (
    bad(
        "a layer that nothing uses",
        {"train.py": _HEAD + "    def forward(self, text):\n        return self.text(text)\n\n\n" + _TRAIN},
        at="train.py:16",
    ),
    bad(
        "a layer for an argument that the training call leaves out",
        {"train.py": _HEAD + _CONDITIONAL + _TRAIN},
        at="train.py:19",
    ),
    bad(
        "a layer that nothing uses, in a part of the model",
        {
            "train.py": _HEAD
            + "    def forward(self, text):\n        return self.text(text)\n\n\n"
            + "class Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            + "        self.part = Model()\n\n    def forward(self, text):\n        return self.part(text)\n\n\n"
            + _TRAIN.replace("Model()", "Whole()")
        },
        at="train.py:25",
    ),
    good(
        "every layer is used, or DDP is told",
        {
            "all.py": _HEAD + "    def forward(self, text):\n        return self.image(self.text(text))\n\n\n" + _TRAIN,
            "told.py": _HEAD + _CONDITIONAL + _TRAIN.replace("(device))", "(device), find_unused_parameters=True)"),
        },
    ),
    good(
        "the training call gives the argument",
        {"train.py": _HEAD + _CONDITIONAL + _TRAIN.replace("model(batch)", "model(batch.text, batch.images)")},
    ),
    good(
        "the layer is frozen, or reached from outside",
        {
            "frozen.py": _HEAD
            + "    def forward(self, text):\n        return self.text(text)\n\n\n"
            + "def freeze(model):\n    for weight in model.image.parameters():\n"
            + "        weight.requires_grad = False\n\n\n"
            + _TRAIN,
            "outside.py": _HEAD
            + "    def forward(self, text):\n        return self.text(text)\n\n\n"
            + _TRAIN.replace("model(batch).mean()", "model.module.image(model(batch)).mean()"),
        },
    ),
    good(
        "a model that no wrapper gets",
        {
            "train.py": _HEAD + "    def forward(self, text):\n        return self.text(text)\n\n\n"
            "def train(device, loader, net):\n    model = DistributedDataParallel(net)\n"
            "    for batch in loader:\n        model(batch).mean().backward()\n"
        },
    ),
)

# What hands a model on as it is.
_KEEPS = frozenset({"to", "cuda", "train", "double", "half", "bfloat16", "float"})


def precheck(tree: ast.Module) -> bool:
    """A wrapper without the flag, and a model class in the same file."""
    nodes = flat(tree)
    made = [c for c in nodes.nodes(ast.Call) if call_name(c) in ("DistributedDataParallel", "DDP")]
    plain = [c for c in made if not any(k.arg in ("find_unused_parameters", "static_graph", None) for k in c.keywords)]
    return bool(plain) and any(last.bases for last in nodes.nodes(ast.ClassDef))


# How deep the classes of a model's parts are followed.
_MAX_DEPTH = 4


class Check(ScriptCheck):
    """Looks at every wrapper whose model class the file holds."""

    def visit_Call(self, node: cst.Call) -> None:
        """Report each layer at the wrapper that waits for it."""
        name = self.ctx.qualified_name(node.func) or ""
        if not name.endswith(".DistributedDataParallel") or not name.startswith("torch.") or not node.args:
            return
        named = given(self.ctx.names, node).named.keys()
        if named & {"find_unused_parameters", "static_graph"} or self.ctx.has_unpacked_arguments(node):
            return
        pending, seen = [(owner, 0) for owner in self._classes(node.args[0].value)], set[int]()
        while pending:
            owner, depth = pending.pop(0)
            if id(owner) in seen or depth > _MAX_DEPTH:
                continue
            seen.add(id(owner))
            layers = Submodules(self.ctx.tree, self.ctx.names, owner)
            for layer in layers.left_out():
                # What a part of the model gets is up to the model: only what nothing at all uses is told there.
                call = self._call_without(layer, layers.forward) if layer.parameter and not depth else None
                if not layer.parameter or call is not None:
                    self._report(node, layer, call)
                    return
            pending += [(part, depth + 1) for part in layers.parts()]

    def _classes(self, model: cst.BaseExpression) -> Iterator[cst.ClassDef]:
        """The class of the model that is wrapped, when it is certain."""
        while isinstance(model, cst.Call) and isinstance(model.func, cst.Attribute) and model.func.attr.value in _KEEPS:
            model = model.func.value
        sources = self.ctx.loaders.sources.of(model)
        sources = [s for s in sources if s.node is not None and not self._is_itself(s.node, model)]
        made = sources[0].node if len(sources) == 1 else None
        while isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute) and made.func.attr.value in _KEEPS:
            made = made.func.value
        if isinstance(made, cst.Call) and isinstance(made.func, cst.Name):
            owner = self.ctx.names.local_class(made.func.value, made)
            if owner is not None:
                yield owner

    def _is_itself(self, node: cst.CSTNode, model: cst.BaseExpression) -> bool:
        """``model = DDP(model)`` and ``model = model.to(device)``."""
        if not isinstance(node, cst.Call):
            return False
        inner = node.func.value if isinstance(node.func, cst.Attribute) and node.func.attr.value in _KEEPS else None
        wraps = bool(node.args) and (self.ctx.qualified_name(node.func) or "").endswith("DistributedDataParallel")
        inner = node.args[0].value if wraps else inner
        return inner is not None and last_name(inner) == last_name(model) != ""

    def _call_without(self, layer: Layer, forward: cst.FunctionDef | None) -> cst.Call | None:
        """The first call of the wrapper, when no call of it gives the argument."""
        params = [p.name.value for p in forward.params.params][1:] if forward is not None else []
        at = params.index(layer.parameter) if layer.parameter in params else len(params)
        calls = [n for n in self.ctx.tree.order if isinstance(n, cst.Call) and self.ctx.kind(n.func) == "ddp"]
        for call in calls:
            passed = given(self.ctx.names, call)
            if passed.is_open or layer.parameter in passed.named or len(passed.positional) > at:
                return None
        return calls[0] if calls else None

    def _report(self, node: cst.Call, layer: Layer, call: cst.Call | None) -> None:
        why = "which nothing uses"
        related = [self.ctx.location(layer.made, "the layer is made here")]
        if call is not None:
            why = f"which `forward` uses only when `{layer.parameter}` is given"
            related.append(self.ctx.location(call, f"no `{layer.parameter}` here"))
        self.report(
            node,
            f"the DDP model has the layer `{layer.name}`, {why}: it gets no gradient, and the next forward raises",
            hint="Delete or freeze the layer, or pass `find_unused_parameters=True`",
            related=tuple(related),
            facts={"layer": layer.name, "conditional": call is not None},
        )
