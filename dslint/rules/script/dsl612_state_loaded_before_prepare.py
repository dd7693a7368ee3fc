"""`accelerator.load_state` comes before `accelerator.prepare`.

**What.** `load_state` of accelerate is called before anything was given to `prepare`, and the model, the optimizer or
the loader are prepared afterwards.

**Why it hurts.** `load_state` fills what `prepare` has registered. Before it there is nothing: no weight and no state
of the optimizer is read, nothing raises, and the job trains from fresh weights. What `register_for_checkpointing` has
taken (a counter of epochs) does come back, so that the log looks like a resumed run.

**Fix.** Prepare model, optimizer, schedule and loaders first, then call `load_state`.

**When it stays quiet.** Something may have been prepared before, also by other code; nothing is prepared afterwards in
sight; the folder is loaded again after `prepare`.

**Evidence.** Two gloo ranks, accelerate 1.15: the weights of a model that is prepared after `load_state` are those that
it was made with; prepared before, they are those of the checkpoint. `Accelerator.load_state` goes through
`self._models`, which `prepare_model` fills.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.python.queries.order import following
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL612",
    name="state-loaded-before-prepare",
    kind="script",
    severity=Severity.ERROR,
    summary="`load_state` of accelerate runs before anything is prepared, and loads no weight",
    markers=(r"accelerat", r"load_state\("),
    references=("https://huggingface.co/docs/accelerate/usage_guides/checkpoint",),
    depends_on_run=True,
)
_LOADS = "accelerate.Accelerator.load_state"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each `load_state` that only what comes after it prepares for."""
    loads = [found for found in run.happenings("loads") if found.event.api == _LOADS]
    for found in loads:
        later = _prepared_later(found)
        if later is None or _comes_again(found, loads, later):
            continue
        yield run.finding(
            META,
            found.event.module,
            found.event.node,
            "`load_state` fills what was prepared, and nothing was: the job continues with fresh weights",
            hint="Call `prepare` before it",
            related=(run.location(later.module, later.node, "is prepared afterwards"),),
            facts={"call": "load_state"},
        )


def _prepared_later(found: Happening) -> Event | None:
    """Return the first call that prepares after an event, where none of the same accelerator may come before it."""
    event, tree = found.event, found.entry.tree
    own = set(instances(event.receiver))
    prepares = [e for e in events(tree) if "prepares" in e.tags and e.api.startswith("accelerate.")]
    if not own or (found.entry.kind == "function" and not prepares):
        return None
    after = {id(e) for e in following(tree, event)}
    if not prepares or any(id(e) not in after or not set(instances(e.receiver)) & own for e in prepares):
        return None
    return prepares[0]


def _comes_again(found: Happening, loads: list[Happening], later: Event) -> bool:
    """Return whether the state is loaded once more after something was prepared."""
    after = {id(e.node) for e in following(found.entry.tree, later)}
    return any(other.event.node is not found.event.node and id(other.event.node) in after for other in loads)


_TRAINER = """\
import torch
from accelerate import Accelerator


class Trainer:
    def __init__(self, args, data):
        self.accelerator = Accelerator()
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.AdamW(model.parameters())
%s

    def step(self, batch):
        self.accelerator.backward(self.model(batch).mean())
        self.optimizer.step()
"""
_MAIN = "from trainer import Trainer\n\n\ndef main(args, data):\n    Trainer(args, data).step(data)\n"
_LOAD = "        if args.resume:\n            self.accelerator.load_state(args.resume)"
_PREPARE = "        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)"
_SCRIPT = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
%s
"""

EXAMPLES = (
    bad(
        "The state is loaded in the constructor, before `prepare`",
        {"trainer.py": _TRAINER % f"{_LOAD}\n{_PREPARE}", "train.py": _MAIN},
        "trainer.py:11 error",
    ),
    bad(
        "In a script",
        {"train.py": _SCRIPT % 'accelerator.load_state("last")\nmodel = accelerator.prepare(model)'},
        "train.py:6",
    ),
    good(
        "What is prepared is loaded",
        {"trainer.py": _TRAINER % f"{_PREPARE}\n{_LOAD}", "train.py": _MAIN},
    ),
    good(
        "The model is prepared before, the loader afterwards",
        {
            "train.py": _SCRIPT
            % 'model = accelerator.prepare(model)\naccelerator.load_state("last")\nloader = accelerator.prepare([])'
        },
    ),
    good(
        "The state is loaded again",
        {
            "train.py": _SCRIPT
            % 'accelerator.load_state("last")\nmodel = accelerator.prepare(model)\naccelerator.load_state("last")'
        },
    ),
)
