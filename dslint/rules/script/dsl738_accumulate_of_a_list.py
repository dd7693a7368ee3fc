"""`accelerator.accumulate([a, b])`: a list is not a model, so the gradients are reduced for each micro batch.

**What.** The models of a block of `accelerator.accumulate` are handed over as one list or tuple.

**Why it hurts.** `accumulate(*models)` asks each argument for its `no_sync`. A list has none, and accelerate goes on
without it: DDP reduces all gradients in every micro batch, not once a step. With 8 micro batches that is eight times
the traffic, and every rank waits for the slowest in each of them. Nothing raises and the result is right. Under FSDP2
the same call stops, since a list has no `set_requires_gradient_sync`.

**Fix.** Hand the models over one by one: `accelerator.accumulate(a, b)`, or `accelerator.accumulate(*models)`.

**When it stays quiet.** One micro batch for a step; an argument that may be a model; DeepSpeed; one process. A
number of micro batches that is 1 unless somebody passes another makes it an information.

**Evidence.** Two gloo ranks, accelerate 1.15, four micro batches a step: DDP reduces four times with the list and once
without it. `Accelerator.accumulate` and `Accelerator.no_sync` in accelerate/accelerator.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.python.events import Event
from dslint.python.values import Instance, Tuple, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.accumulating import severity_of, steps_of
from dslint.rules.training.training import MicroBatches

META = RuleMeta(
    code="DSL738",
    name="accumulate-of-a-list",
    kind="script",
    severity=Severity.WARNING,
    summary="`accelerator.accumulate` gets a list of models: their gradients are reduced for each micro batch",
    fix="safe",
    markers=(r"accelerat", r"accumulate\("),
    versions=("accelerate",),
    references=(
        "https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.accumulate",
        "https://github.com/huggingface/accelerate/pull/1708",
        "https://github.com/huggingface/accelerate/issues/1667",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each block that certainly gets a list or tuple in place of a model."""
    if run.context.is_one_process or run.stage is not None:
        return
    seen: set[int] = set()
    for found in run.occurrences("accumulate"):
        event = found.event
        given = [value for value in event.arguments.values() if _is_list(value)]
        steps = steps_of(run, event) if given and id(event.node) not in seen else None
        if steps is not None:
            seen.add(id(event.node))
            yield _finding(run, event, steps)


def _is_list(value: Value) -> bool:
    """Return whether a value is certainly a plain list or tuple."""
    return bool(value.atoms) and all(
        isinstance(atom, Tuple) or (isinstance(atom, Instance) and atom.cls == "builtins.list") for atom in value.atoms
    )


def _finding(run: RunQuery, event: Event, steps: MicroBatches) -> Finding:
    known = steps.known
    times = f"{known} times a step" if known is not None and known > 1 else "for each micro batch"
    return run.finding(
        META,
        event.module,
        event.node,
        f"`accumulate` gets a list, which has no `no_sync`: all gradients are reduced {times}",
        hint="Hand the models over one by one: `accumulate(a, b)`, or `accumulate(*models)`",
        related=steps.places,
        fix=_fix(run, event),
        severity=severity_of(steps),
        facts={"gas": known},
    )


def _fix(run: RunQuery, event: Event) -> Fix | None:
    """Unpack the only argument: what stands in a display by itself, anything else with a star."""
    module, node = event.module, event.node
    given = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else None
    if given is None or isinstance(given, ast.Starred) or module.path != run.path:
        return None
    if isinstance(given, ast.List | ast.Tuple) and given.elts:
        text = ", ".join(module.text(item) for item in given.elts)
    elif isinstance(given, ast.Name | ast.Attribute):
        text = f"*{module.text(given)}"
    else:
        return None
    if "\n" in module.text(given):
        return None
    return Fix("Hand the models over one by one", (Edit(module.path, module.span(given), text),))


_TOWERS = """\
import torch
from accelerate import Accelerator


def epoch(accelerator, image, text, optimizer, loader):
    models = %s
    for x, y in loader:
        with accelerator.accumulate(%s):
            accelerator.backward((image(x) * text(y)).sum())
            optimizer.step()
            optimizer.zero_grad()


def main(config, loader):
    accelerator = Accelerator(gradient_accumulation_steps=%s)
    image, text = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters()])
    image, text, optimizer, loader = accelerator.prepare(image, text, optimizer, loader)
    epoch(accelerator, image, text, optimizer, loader)
"""
_CLASS = """\
import torch
from accelerate import Accelerator


class Trainer:
    def __init__(self, loader):
        self.accelerator = Accelerator(gradient_accumulation_steps=8)
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(net.parameters())
        net, self.optimizer, self.loader = self.accelerator.prepare(net, optimizer, loader)
        self.parts = []
        self.parts.append(net)

    def fit(self):
        for x in self.loader:
            with self.accelerator.accumulate(%s):
                self.accelerator.backward(self.parts[0](x).sum())
                self.optimizer.step()
                self.optimizer.zero_grad()


Trainer(torch.load("loader.pt")).fit()
"""


def _towers(given: str, models: str = "[image, text]", steps: str = "4") -> dict[str, str]:
    return {"train.py": _TOWERS % (models, given, steps)}


EXAMPLES = (
    bad("a list of two", _towers("[image, text]"), "train.py:8 warning", fixed=_towers("image, text")),
    bad("a list of one, steps of a config", _towers("[image]", steps="config.steps"), "train.py:8 warning",
        fixed=_towers("image", steps="config.steps")),
    bad("a name of a tuple", _towers("models", "(image, text)"), "train.py:8 warning",
        fixed=_towers("*models", "(image, text)")),
    bad("a field that is filled later", {"train.py": _CLASS % "self.parts"}, "train.py:16 warning",
        fixed={"train.py": _CLASS % "*self.parts"}),
    good("one by one", _towers("image, text")),
    good("unpacked", _towers("*models")),
    good("one micro batch for a step", _towers("[image, text]", steps="1")),
    good("one model of the list", _towers("models[0], models[1]")),
)  # fmt: skip
