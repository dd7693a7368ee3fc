"""Training runs the model inside `DistributedDataParallel` instead of the wrapper.

**What.** The loss of a training step comes from `model.module(batch)`, from a method of `model.module` where nothing
ever calls the wrapper, from the model kept from before it was wrapped,
or from `accelerator.unwrap_model(model)(batch)`, and runs its backward.

**Why it hurts.** The forward of the wrapper prepares the averaging of the gradients. Without it every rank steps with
its own gradients: nothing fails, and the ranks train different models. What is saved is the model of rank 0, trained
on its part of the data only.

**Fix.** Call the wrapper. The fix takes `.module` out of `model.module(...)`.

**When it stays quiet.** Evaluation and generation through `.module` (no backward follows, or `eval()` comes before);
steps in which the wrapper's forward takes part too; scripts that reduce gradients themselves; DeepSpeed engines, whose
hooks sit in the parameters; a model that is wrapped in some arms only.

**Evidence.** Two gloo ranks, torch 2.13: after three steps through `.module`, or through the model from before, the
weights of the ranks differ; through the wrapper they are equal.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import Flat, call_name, expression_name, flat
from dslint.model.script.training.enginewords import method_calls
from dslint.model.script.training.trainingstep import ADMINISTRATIVE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL233",
    name="ddp-module-bypassed",
    kind="script",
    severity=Severity.ERROR,
    summary="a training step runs the model inside DDP, so that no gradient is averaged",
    fix="safe",
    markers=(r"\.backward\(", r"DistributedDataParallel|unwrap_model\("),
    references=("https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    depends_on_run=True,
)

_TRAIN = """\
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, rank):
    model = DDP(net.to(rank), device_ids=[rank])
    for batch, labels in loader:
        loss = F.cross_entropy(%s(batch), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""

_REFERENCE = """\
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, rank):
    reference = torch.nn.Linear(8, 8)
    model = DDP(net.to(rank), device_ids=[rank])
    for batch in loader:
        with torch.no_grad():
            target = reference(batch)
        loss = F.mse_loss(%s(batch).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
_TARGET = (_REFERENCE % "model").replace("reference(batch)", "model.module(batch)")

_GETTER = """\
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, distributed):
        self.model = net
        if distributed:
            self.model = DistributedDataParallel(net)

    def inner(self):
        return self.model.module if hasattr(self.model, "module") else self.model

    def train(self, loader, optimizer):
        optimizer.add(self.inner().parameters())
        for batch in loader:
            loss = %s
            loss.backward()
            optimizer.step()
"""

EXAMPLES = (
    bad(
        "past the wrapper",
        {"train.py": _TRAIN % "model.module"},
        "train.py:8 error",
        fixed={"train.py": _TRAIN % "model"},
    ),
    bad(
        "in a test, which may average the gradients by hand",
        {"test_ddp.py": _TRAIN.replace("def ", "def test_", 1) % "model.module"},
        "test_ddp.py:8 info",
    ),
    bad(
        "the model from before",
        {
            "train.py": """\
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net):
        self.net = net
        self.model = DistributedDataParallel(self.net)

    def step(self, batch):
        loss = self.net(batch).mean()
        loss.backward()
"""
        },
        "train.py:10 error",
    ),
    bad(
        "what accelerate unwraps",
        {
            "train.py": """\
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    inner = accelerator.unwrap_model(model)
    for batch in loader:
        accelerator.backward(inner(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
        },
        "train.py:12 warning",
    ),
    bad(
        "past the wrapper, beside a reference model that gets no gradient",
        {"train.py": _REFERENCE % "model.module"},
        "train.py:12 error",
        fixed={"train.py": _REFERENCE % "model"},
    ),
    bad(
        "past the wrapper, behind a criterion",
        {
            "train.py": (_TRAIN % "model.module")
            .replace("F.cross_entropy", "criterion")
            .replace("    for batch", "    criterion = torch.nn.CrossEntropyLoss()\n    for batch")
            .replace("import torch.nn.functional as F", "import torch")
        },
        "train.py:9 error",
        fixed={
            "train.py": (_TRAIN % "model")
            .replace("F.cross_entropy", "criterion")
            .replace("    for batch", "    criterion = torch.nn.CrossEntropyLoss()\n    for batch")
            .replace("import torch.nn.functional as F", "import torch")
        },
    ),
    bad(
        "a method of the model inside",
        {"train.py": (_TRAIN % "model").replace("F.cross_entropy(model(batch), labels)", "model.module.loss(batch)")},
        "train.py:8 error",
    ),
    bad(
        "a helper hands out the model inside", {"train.py": _GETTER % "self.inner().loss(batch)"}, "train.py:16 warning"
    ),
    good("the helper gives the names of the parameters", {"train.py": _GETTER % "self.model(batch)"}),
    good(
        "the head inside judges what the wrapper has computed",
        {
            "train.py": (_TRAIN % "model").replace(
                "F.cross_entropy(model(batch), labels)", "model.module.loss(model(batch), labels)"
            )
        },
    ),
    good("the wrapper", {"train.py": _TRAIN % "model"}),
    good("the wrapper, and the model inside gives a target without a gradient", {"train.py": _TARGET}),
    good(
        "evaluation through the model inside",
        {
            "train.py": _TRAIN % "model"
            + """\
        if rank == 0:
            print(model.module(batch).mean().item())
"""
        },
    ),
    good(
        "the wrapper takes part",
        {
            "train.py": (_TRAIN % "model").replace(
                "        loss.backward()\n",
                "        loss = loss + model.module(batch).mean()\n        loss.backward()\n",
            )
        },
    ),
    good(
        "gradients that the script averages",
        {
            "train.py": (_TRAIN % "model.module").replace(
                "        optimizer.step()\n",
                "        for p in model.parameters():\n            dist.all_reduce(p.grad)\n        optimizer.step()\n",
            )
        },
    ),
    good(
        "gradients that the script adds up and averages",
        {
            "train.py": (_TRAIN % "model.module").replace(
                "        optimizer.step()\n",
                "        for n, p in model.named_parameters():\n            grad = p.grad\n"
                "            total[n] = total[n] + grad.float()\n            dist.all_reduce(total[n])\n"
                "        optimizer.step()\n",
            )
        },
    ),
    good(
        "the engine of DeepSpeed",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        engine.backward(engine.module(batch))
        engine.step()
"""
        },
    ),
)


def precheck(tree: ast.Module) -> bool:
    """Something is called on the inside of a wrapper, or a model is kept beside its wrapper."""
    nodes = flat(tree)
    called = {expression_name(call.func) for call in nodes.nodes(ast.Call)}
    if "module" in called or _asks_inside(nodes):
        return True  # ``model.module(x)``, ``model.module.forward(x)``, ``model.module.loss(x)``
    # ``inner = model.module``, ``inner = accelerator.unwrap_model(model)``, and ``inner(x)`` or ``inner.forward(x)``
    used = called | {name for name, _ in method_calls(nodes, "forward")}
    for node in nodes.nodes(ast.Assign):
        if expression_name(node.value) in ("module", "unwrap_model") and _names(node) & used:
            return True
    if any(isinstance(c.func, ast.Call) and call_name(c.func) == "unwrap_model" for c in nodes.nodes(ast.Call)):
        return True
    imports = (a for n in nodes.nodes(ast.ImportFrom) for a in n.names if a.name == "DistributedDataParallel")
    wrappers = {"DistributedDataParallel", *(a.asname or a.name for a in imports)}
    return any(_keeps(n, wrappers) for n in nodes.nodes(ast.Assign))


def _asks_inside(nodes: Flat) -> bool:
    """A method of `model.module` is called, or a function returns that model."""
    for call in nodes.nodes(ast.Call):
        func = call.func
        is_work = isinstance(func, ast.Attribute) and func.attr not in ADMINISTRATIVE
        if is_work and isinstance(func, ast.Attribute) and expression_name(func.value) == "module":
            return True
    returned = (n for r in nodes.nodes(ast.Return) if r.value is not None for n in nodes.inside(r.value))
    return any(isinstance(n, ast.Attribute) and n.attr == "module" for n in returned)


def _names(node: ast.Assign) -> set[str]:
    return {expression_name(t) for target in node.targets for t in getattr(target, "elts", [target])}


def _keeps(node: ast.Assign, wrappers: set[str]) -> bool:
    """``a = DDP(b)`` with another name than ``b``."""
    value = node.value
    if not isinstance(value, ast.Call) or call_name(value) not in wrappers:
        return False
    given = [*value.args[:1], *(k.value for k in value.keywords if k.arg == "module")]
    return any(ast.dump(target)[:-6] != ast.dump(given[0])[:-6] for target in node.targets) if given else False


class Check(ScriptCheck):
    """Looks at the forwards behind every backward."""

    def start(self) -> None:
        """The forwards that are reported already, and whether the script reduces gradients itself."""
        self.seen: set[int] = set()
        self.reduces = any(map(self._is_gradient_reduction, self.ctx.tree.every(cst.Call)))

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when all forwards of the loss pass over the wrapper."""
        if self.reduces or not isinstance(node.func, cst.Attribute) or node.func.attr.value != "backward":
            return
        loss = self._loss(node, node.func.value)
        for call in self.ctx.training.inner_methods(loss):
            if id(call) not in self.seen and not self._evaluates(call) and not self._is_wrapper_called(call):
                self.seen.add(id(call))
                self._report(call, node, self.ctx.kind(self._inside(call)) == "ddp_module")
        forwards = self.ctx.training.forwards(loss)
        kinds = {self.ctx.training.forward_kind(f) for f in forwards}
        if kinds == {"prepared_module"} and self.ctx.run.zero_stage.is_known:
            return  # an engine, whose hooks sit in the parameters
        if kinds not in ({"ddp_module"}, {"prepared_module"}):
            return
        for forward in forwards:
            if id(forward) not in self.seen and not self._evaluates(forward):
                self.seen.add(id(forward))
                self._report(forward, node, kinds == {"ddp_module"})

    def _inside(self, call: cst.Call) -> cst.BaseExpression:
        """The model inside the wrapper, whose forward or method a call runs."""
        func = call.func
        is_model = self.ctx.training.is_forward(call) and last_name(func) != "forward"
        return func if is_model or not isinstance(func, cst.Attribute) else func.value

    def _is_wrapper_called(self, call: cst.Call) -> bool:
        """The forward of the wrapper runs somewhere: perhaps it prepares the gradients of this step."""
        inside = self._inside(call)
        wrapper = self.ctx.text(inside.value) if isinstance(inside, cst.Attribute) else ""
        for other in self.ctx.tree.every(cst.Call):
            if self.ctx.objects.called(other.func) == "ddp" and wrapper in ("", self.ctx.text(other.func)):
                return True
        return False

    def _loss(self, node: cst.Call, receiver: cst.BaseExpression) -> cst.BaseExpression:
        """The loss of `loss.backward()`, `accelerator.backward(loss)`, `scaler.scale(loss).backward()`."""
        if self.ctx.kind(receiver) == "accelerator" and node.args:
            return node.args[0].value
        if isinstance(receiver, cst.Call) and self.ctx.called(receiver) == "scale" and receiver.args:
            return receiver.args[0].value
        return receiver

    def _evaluates(self, forward: cst.Call) -> bool:
        """The last of `x.train()` and `x.eval()` before the forward of `x` in its function is `eval`."""
        called = self.ctx.text(forward.func)
        function = self.ctx.enclosing_function(forward) or self.ctx.doc.module
        here, mode = self.ctx.tree.position(forward), ""
        for node in self.ctx.tree.own_nodes(function):
            if self.ctx.tree.position(node) > here:
                break
            if isinstance(node, cst.Call) and self.ctx.called(node) in ("train", "eval"):
                owner = node.func.value if isinstance(node.func, cst.Attribute) else node.func
                mode = self.ctx.called(node) if called.startswith(self.ctx.text(owner)) else mode
        return mode == "eval"

    def _report(self, forward: cst.Call, backward: cst.Call, is_certain: bool) -> None:
        text = self.ctx.text(forward.func)
        where = "`DistributedDataParallel`" if is_certain else "what accelerate prepared (DDP with several processes)"
        inside = self._inside(forward)
        model = inside.value if isinstance(inside, cst.Attribute) else inside
        taken = self.ctx.objects.taken(forward.func) or self.ctx.objects.made(model)
        related = [self.ctx.location(backward, "this backward follows")]
        related += [self.ctx.location(taken, "wrapped here")] if taken is not None else []
        self.report(
            forward,
            f"`{text}(...)` in a training step passes over {where}: no gradient is averaged, and the ranks train "
            "different models",
            hint="Call the wrapped model" if inside is forward.func else "Let `forward` do this, and call the wrapper",
            related=tuple(related),
            severity=Severity.ERROR if is_certain else Severity.WARNING,
            fix=self._fix(forward),
            facts={"kept": ".module" not in text and not text.endswith(".forward")},
        )

    def _fix(self, forward: cst.Call) -> Fix | None:
        """Take `.module` out of `model.module(...)`."""
        called = forward.func
        if not isinstance(called, cst.Attribute) or called.attr.value != "module":
            return None
        start, end = self.ctx.span(called.value).end, self.ctx.span(called).end
        return Fix("Call the wrapper", (Edit(self.ctx.doc.path, Span(start, end), ""),))

    def _is_gradient_reduction(self, call: cst.Call) -> bool:
        """`all_reduce(p.grad)`: the script averages by hand."""
        if not self.ctx.called(call).startswith(("all_reduce", "reduce", "allreduce", "average_gradients")):
            return False
        loop = next((o for o in self.ctx.tree.parents(call) if isinstance(o, cst.For | cst.FunctionDef)), None)
        # ``for p in model.parameters(): total = p.grad.float()`` ... ``dist.all_reduce(total)``
        told = [loop.body] if isinstance(loop, cst.For) else [a.value for a in call.args]
        inside = (n for node in told for n in self.ctx.descendants(node))
        return "grad" in self.ctx.called(call) or any(
            isinstance(n, cst.Attribute) and n.attr.value == "grad" for n in inside
        )
