"""**What.** An engine that is made without an optimizer trains: `deepspeed.initialize` gets no `optimizer`, its config
(a dict in the script) has no `optimizer` section, and `backward` of the engine is called.

**Why it hurts.** At ZeRO stage 1 and 2 `deepspeed.initialize` stops with `AssertionError: zero stage 2 requires an
optimizer`; at stage 0 and 3 the first `backward` does (`must provide optimizer during init in order to use backward`;
at stage 3 of DeepSpeed 0.19.8 an `AttributeError` of `DeepSpeedZeRoOffload`), after the model is loaded and the first
batch computed.

**Fix.** Name an optimizer in the config (`"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}`), or pass one. That
`model_parameters` is missing does no harm: DeepSpeed then takes all parameters of the model.

**When it stays quiet.** The engine only evaluates or generates (a reference model); the config is a file, may have
keys that nobody can read, has no batch size either, or comes from elsewhere; `optimizer` is passed, whatever it is. For
config files of stage 1 and 2 see DSL468.

**Evidence.** DeepSpeed 0.19.8 `engine.py: backward`, `_configure_zero_optimizer`. Two gloo ranks: stage 1 and 2 stop in
`initialize`, stage 0 and 3 in `backward`; with an optimizer in the config all train, without `model_parameters`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL245",
    name="initialize-without-optimizer",
    kind="script",
    severity=Severity.ERROR,
    summary="An engine without an optimizer runs a backward pass",
    markers=(r"deepspeed",),
    references=("DeepSpeedEngine.backward in deepspeed/runtime/engine.py",),
    depends_on_run=True,
)

_BATCH_SIZES = frozenset({"train_batch_size", "train_micro_batch_size_per_gpu"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Find the engines that get no optimizer and train."""
    made = {id(h.event.node): h.event for h in run.happenings("makes-engine") if _has_no_optimizer(h.event)}
    if not made:
        return
    told: set[int] = set()
    for found in run.occurrences("engine-backward"):
        engine = found.event.receiver.single if found.event.receiver is not None else None
        event = run.makers.get(engine) if isinstance(engine, Instance) else None
        if event is None or found.event.may or id(event.node) not in made or id(event.node) in told:
            continue
        told.add(id(event.node))
        yield run.finding(
            META,
            event.module,
            event.node,
            "the engine trains without an optimizer, passed or configured: DeepSpeed stops here or at the first"
            " `backward`",
            hint="Add an `optimizer` section to the config, or pass `optimizer=`",
            related=(run.location(found.event.module, found.event.node, "the backward pass"),),
            facts={"arguments": "no-optimizer", "stage": run.stage if event.stage is None else event.stage},
        )


def _has_no_optimizer(event: Event) -> bool:
    """Return whether a call passes none, and its config is a whole one that names none."""
    optimizer = event.arguments.get("optimizer")
    if event.open or event.may or (optimizer is not None and optimizer.constants != (None,)):
        return False
    # A config without a batch size, which DeepSpeed asks for first, is no whole one.
    return event.keys is not None and "optimizer" not in event.keys and bool(event.keys & _BATCH_SIZES)


_HEAD = """\
import deepspeed

config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}%s}
engine, _, _, _ = deepspeed.initialize(model=make_model(), config=config%s)
"""
_TRAIN = "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"

EXAMPLES = (
    bad("an engine that trains", {"train.py": _HEAD % ("", "") + _TRAIN}, at="train.py:4 error"),
    bad(
        "its optimizer is `None`, and the engine is the first result",
        {
            "train.py": (
                "import deepspeed\n\n\ndef main(model, loss):\n    engine = deepspeed.initialize(\n"
                "        model=model, optimizer=None, config={'train_batch_size': 8}\n    )[0]\n"
                "    engine.backward(loss)\n"
            )
        },
        at="train.py:5 error",
    ),
    bad(
        "an object makes its engine with a config of its own",
        {
            "train.py": (
                "import deepspeed\n\n\ndef settings(stage):\n"
                "    made = dict(train_batch_size=8)\n    made['zero_optimization'] = {'stage': stage}\n"
                "    return made\n\n\nclass Run:\n    def __init__(self, model):\n"
                "        self.engine, *_ = deepspeed.initialize(model=model, config=settings(2))\n\n"
                "    def step(self, loss):\n        self.engine.backward(loss)\n        self.engine.step()\n"
            )
        },
        at="train.py:12 error",
    ),
    good(
        "the config names one",
        {"train.py": _HEAD % (', "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}', "") + _TRAIN},
    ),
    good("the script passes one", {"train.py": _HEAD % ("", ", optimizer=make_optimizer()") + _TRAIN}),
    good(
        "a reference model only answers",
        {"train.py": _HEAD % ("", "") + "for batch in loader:\n    scores = engine(batch)\n"},
    ),
    good(
        "the optimizer is added later",
        {
            "train.py": (_HEAD % ("", "")).replace(
                "engine, _", "config['optimizer'] = {'type': 'AdamW', 'params': {'lr': 1e-5}}\nengine, _"
            )
            + _TRAIN
        },
    ),
)
