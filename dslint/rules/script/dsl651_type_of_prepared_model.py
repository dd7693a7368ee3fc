"""A hook compares a bare model with the type of a prepared one.

**What.** `isinstance(model, type(unet))` in a hook that saves or loads the state, where `unet` is what
`accelerator.prepare` returned, and the models of the hook are unwrapped, or several were prepared.

**Why it hurts.** On one GPU `prepare` returns the model itself. On several it returns a `DistributedDataParallel`: a
bare UNet is none, and any other wrapped model is one. The weights go into the wrong folder, or the hook raises, and
the resume loads a model into another one.

**Fix.** `type(accelerator.unwrap_model(unet))`, and the class itself where it has a name.

**When it stays quiet.** A type that is asked of an unwrapped model; a name that no `prepare` gives a value; one model
of which no hook unwraps anything.

**Evidence.** accelerate 1.15 `Accelerator.prepare_model` returns a `DistributedDataParallel` where there are several
processes; `save_state` hands the hooks `self._models`, which are wrapped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import MODEL, models_in, prepared_by

META = RuleMeta(
    code="DSL651",
    name="type-of-prepared-model",
    kind="script",
    severity=Severity.WARNING,
    summary="a model is compared with the type of a prepared one, which is a wrapper on several GPUs",
    markers=(r"isinstance\([^\n]*type\(", r"prepare\(", r"register_(?:save|load)_state_pre_hook"),
    references=("https://github.com/huggingface/diffusers/issues/2843",),
    depends_on_run=True,
    no_experiment="that the class of a wrapper is not that of its model can be read",
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each comparison with the type of a prepared model."""
    if run.context.is_one_process:
        return
    seen: set[ast.AST] = set()
    for found in run.happenings("prepares"):
        event = found.event
        names = _models(event)
        around = _function(event) if names else None
        for node in ast.walk(around) if around is not None else ():
            name = _compared(node)
            if name not in names or node in seen or not _is_in_hook(around, node, many=_has_several(event)):
                continue
            seen.add(node)
            yield run.finding(
                META,
                event.module,
                node,
                f"`{name}` is what `prepare` returned, a wrapper on several GPUs: its type is never the model's",
                hint=f"Ask for `type(accelerator.unwrap_model({name}))`",
                related=(run.location(event.module, event.node, "prepared here"),),
            )


def _models(event: Event) -> set[str]:
    """Return the names that get the prepared models, where the call stands in an assignment."""
    given = prepared_by(event) or []
    for node in event.module.nodes:
        if isinstance(node, ast.Assign) and node.value is event.node and len(node.targets) == 1:
            target = node.targets[0]
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            pairs = zip(targets, given, strict=True) if len(targets) == len(given) else ()
            return {part.id for part, was in pairs if isinstance(part, ast.Name) and was.cls == MODEL}
    return set()


def _has_several(event: Event) -> bool:
    return len(models_in(prepared_by(event) or [])) > 1


def _function(event: Event) -> ast.AST | None:
    """Return the outermost function around a call."""
    functions = event.module.functions
    return next((f for f in functions if any(node is event.node for node in ast.walk(f))), None)


def _compared(node: ast.AST) -> str:
    """Return the name in `isinstance(x, type(name))`."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "isinstance" or len(node.args) != 2:
        return ""
    asked = node.args[1]
    is_type = isinstance(asked, ast.Call) and ast.unparse(asked.func) == "type" and len(asked.args) == 1
    inner = asked.args[0] if is_type and isinstance(asked, ast.Call) else None
    return inner.id if isinstance(inner, ast.Name) else ""


def _is_in_hook(around: ast.AST | None, node: ast.AST, *, many: bool) -> bool:
    """Return whether a function of its own asks, and its models are unwrapped or several."""
    inner = [f for f in ast.walk(around) if isinstance(f, _FUNCTIONS) and f is not around] if around is not None else []
    if not any(other is node for f in inner for other in ast.walk(f)):
        return False
    return many or any("unwrap" in ast.unparse(f) for f in inner)


_SCRIPT = """\
from accelerate import Accelerator
from torch import nn


def main(loader, net, text, optimizer):
    accelerator = Accelerator()

    def load(models, folder):
        while models:
            model = accelerator.unwrap_model(models.pop())
            model.load_state_dict(read(folder + ("/net" if isinstance(model, type(%s)) else "/text")))

    accelerator.register_load_state_pre_hook(load)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    text = nn.Linear(4, 4)
    %s = accelerator.prepare(net, text, optimizer, loader)
    accelerator.load_state("out")
    for batch in loader:
        accelerator.backward(net(text(batch)).mean())
        optimizer.step()
"""
_NAMES = "net, text, optimizer, loader"

EXAMPLES = (
    bad("the type of a wrapper", {"train.py": _SCRIPT % ("net", _NAMES)}, at="train.py:11 warning"),
    good("the type of the model", {"train.py": _SCRIPT % ("accelerator.unwrap_model(net)", _NAMES)}),
    good(
        "another name for what is prepared",
        {
            "train.py": (_SCRIPT % ("net", "wrapped, text, optimizer, loader")).replace(
                "backward(net(", "backward(wrapped("
            )
        },
    ),
)
