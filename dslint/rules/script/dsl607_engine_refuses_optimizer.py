"""`deepspeed.initialize` refuses the optimizer of the script: its config offloads, or ZeRO does not know the class.

**What.** The config is a dict of the script, and the script passes an optimizer beside it. Either the config has
`offload_optimizer` with `cpu` or `nvme`, and the optimizer is none of DeepSpeed's for the CPU; or ZeRO is on, and the
optimizer is one of torch that DeepSpeed was not tested with (`SGD`, `RMSprop` ...).

**Why it hurts.** Every rank stops when the engine is made, after the model is loaded: `ZeRORuntimeException: You are
using ZeRO-Offload with a client provided optimizer`, or `AssertionError: You are using an untested ZeRO Optimizer`.

**Fix.** Pass `deepspeed.ops.adam.DeepSpeedCPUAdam`, or name the optimizer in the config and pass none. `"zero_force_ds_
cpu_optimizer": false` and `"zero_allow_untested_optimizer": true` allow what is slow or was not tried.

**When it stays quiet.** The switch is there; the config is a file (DSL470 and DSL471 read it beside a launch command)
or may hold further keys; the optimizer, the device or the stage is not certain; transformers and accelerate, which
take care of the optimizer themselves.

**Evidence.** One rank, DeepSpeed 0.19.8: both stop as quoted; with the switches, with DeepSpeed's optimizer and with
AdamW they train. `_configure_optimizer` and `_do_optimizer_sanity_check` in deepspeed/runtime/engine.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Settings
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.zero.engineconfigs import place_of

META = RuleMeta(
    code="DSL607",
    name="engine-refuses-optimizer",
    kind="script",
    severity=Severity.ERROR,
    summary="`deepspeed.initialize` refuses the optimizer of the script beside its config",
    markers=(r"deepspeed",),
    references=(
        "https://github.com/OptimalScale/LMFlow/issues/693",
        "https://github.com/deepspeedai/DeepSpeed/issues/7524",
    ),
    depends_on_run=True,
)
_DEVICE, _STAGE = "/zero_optimization/offload_optimizer/device", "/zero_optimization/stage"
_FORCED, _UNTESTED = "/zero_force_ds_cpu_optimizer", "/zero_allow_untested_optimizer"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each setting of an engine that does not go with the optimizer beside it."""
    seen: set[int] = set()
    for found in run.occurrences("makes-engine"):
        event, settings = found.event, found.event.settings
        if settings is None or event.open or event.may or id(event.node) in seen:
            continue
        stage = settings.constant(_STAGE)
        if stage not in (1, 2, 3) or not _optimizers(run, event):
            continue
        offloaded = settings.constant(_DEVICE)
        if offloaded in ("cpu", "nvme"):
            if _is(settings, _FORCED, True) and not any("steps-on-cpu" in m.tags for m in _optimizers(run, event)):
                seen.add(id(event.node))
                yield _offloaded(run, event, str(offloaded))
        elif _is(settings, _UNTESTED, False) and all(_is_untested(maker) for maker in _optimizers(run, event)):
            seen.add(id(event.node))
            yield _untested(run, event, stage)


def _optimizers(run: RunQuery, event: Event) -> list[Event]:
    """Return the calls that made the optimizer which is passed; none where it may be anything else."""
    given = event.arguments.get("optimizer")
    found = instances(given)
    makers = [run.makers.get(atom) for atom in found]
    known = [maker for maker in makers if maker is not None and "makes-optimizer" in maker.tags]
    return known if given is not None and len(known) == len(found) == len(given.atoms) else []


def _is(settings: Settings, pointer: str, default: bool) -> bool:
    """Return whether a switch certainly has its default."""
    return settings.lacks(pointer) or settings.constant(pointer) is default


def _is_untested(maker: Event) -> bool:
    return maker.api.startswith("torch.optim.") and "tested-with-zero" not in maker.tags


def _offloaded(run: RunQuery, event: Event, device: str) -> Finding:
    return _finding(
        run,
        event,
        _DEVICE,
        f"the script passes `{_title(run, event)}` although the optimizer is offloaded to `{device}`: every rank stops",
        "Pass `deepspeed.ops.adam.DeepSpeedCPUAdam`, or set `zero_force_ds_cpu_optimizer` to false",
    )


def _untested(run: RunQuery, event: Event, stage: object) -> Finding:
    return _finding(
        run,
        event,
        _STAGE,
        f"ZeRO stage {stage} refuses the untested `{_title(run, event)}` of the script: every rank stops when the"
        " engine"
        " is made",
        "Set `zero_allow_untested_optimizer` to true, or pass AdamW",
    )


def _title(run: RunQuery, event: Event) -> str:
    return _optimizers(run, event)[0].api.rpartition(".")[2]


def _finding(run: RunQuery, event: Event, pointer: str, message: str, hint: str) -> Finding:
    module, node = place_of(run, event, pointer)
    made = _optimizers(run, event)[0]
    related = [run.location(made.module, made.node, "the optimizer of the script")]
    if node is not event.node:
        related.append(run.location(event.module, event.node, "both meet here"))
    facts = {"kind": "offload" if pointer == _DEVICE else "untested", "client": _title(run, event)}
    found = run.finding(META, module, node, message, hint=hint, related=tuple(related), facts=facts)
    return replace(found, pointer=pointer)


_CONFIGS = """\
def config(stage, device=None):
    found = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}%s}
    if device is not None:
        found["zero_optimization"]["offload_optimizer"] = {"device": device}
    return found
"""
_MAKES = """\
import deepspeed
import torch

from configs import config


def main(model, loader):
    %s
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config(%s))
    for batch in loader:
        engine.backward(engine(batch).mean())
        engine.step()
"""
_ADAMW, _SGD = "optimizer = torch.optim.AdamW(model.parameters())", "optimizer = torch.optim.SGD(model.parameters())"
_OWN = "optimizer = deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters())"
_CLASS = """\
import deepspeed
from torch.optim import Adam

ZERO = {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}
CONFIG = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": ZERO}


class Run:
    def __init__(self, model):
        self.optimizer = Adam(model.parameters(), lr=1e-4)
        self.engine = deepspeed.initialize(model=model, optimizer=self.optimizer, config=CONFIG)[0]
"""


def _files(optimizer: str, given: str, more: str = "") -> dict[str, str]:
    return {"configs.py": _CONFIGS % more, "train.py": _MAKES % (optimizer, given)}


EXAMPLES = (
    bad("one of torch beside offload, in a class", {"train.py": _CLASS}, "train.py:4 error"),
    bad("a config that another file makes", _files(_ADAMW, '2, "cpu"'), "configs.py:4 error"),
    bad("SGD under ZeRO", _files(_SGD, "2"), "configs.py:2 error"),
    good("DeepSpeed's own", _files(_OWN, '2, "cpu"')),
    good("nothing is offloaded", _files(_ADAMW, "2")),
    good("the slow one is allowed", _files(_ADAMW, '2, "cpu"', ', "zero_force_ds_cpu_optimizer": False')),
    good("the untested one is allowed", _files(_SGD, "2", ', "zero_allow_untested_optimizer": True')),
    good("SGD without ZeRO", _files(_SGD, "0")),
    good("the device comes from elsewhere", _files(_ADAMW, "2, model.device")),
)
