"""Which kind of model a script hands to ``deepspeed.initialize``: one in pipeline stages, or one with experts."""

from __future__ import annotations

from dataclasses import dataclass

from dslint.core.source import Location
from dslint.model.plan.mainpath import certain_below
from dslint.model.plan.questions import ENGINE
from dslint.model.plan.scriptrun import ScriptRun
from dslint.python.events import Call, Event, walk
from dslint.python.values import ClassAtom, Function, Instance, Tuple


@dataclass(frozen=True, slots=True)
class EngineModel:
    """``kind``: ``pipeline`` (a ``PipelineModule``) | ``moe`` (``deepspeed.moe.layer.MoE`` in its class)."""

    kind: str
    location: Location


def engine_model(run: ScriptRun) -> EngineModel | None:
    """The kind of the one model that the script makes an engine of; ``None`` where that is not certain.

    Certain is one object, and experts that its class makes whatever its arguments.
    """
    engines = run.calls(ENGINE)
    event = engines[0][0] if len(engines) == 1 and len(engines[0]) == 1 else None
    model = event.arguments.get("model") if event is not None else None
    made = model.single if model is not None else None
    if event is None or not isinstance(made, Instance):
        return None
    if _is_pipeline(event):
        return EngineModel("pipeline", run.made(model, event, "the model in pipeline stages"))
    experts = _experts(run, made.cls) if isinstance(made.cls, ClassAtom) else None
    if experts is None:
        return None
    return EngineModel("moe", experts.module.location(experts.node, "the experts of the model"))


def _is_pipeline(event: Event) -> bool:
    """Return whether a call certainly gives the engine of a pipeline."""
    given = event.result.single if event.result is not None else None
    engine = given.items[0].single if isinstance(given, Tuple) and given.items else None
    return isinstance(engine, Instance) and engine.cls == "deepspeed.PipelineEngine"


def _experts(run: ScriptRun, cls: ClassAtom) -> Event | None:
    """Return the call that makes experts in the constructor of a class, outside every condition."""
    for entry in run.analysis.entries:
        for node in walk(entry.tree):
            function = node.function if isinstance(node, Call) else None
            if isinstance(node, Call) and isinstance(function, Function) and function.owner is cls:
                for event in certain_below(run, node) if function.name == "__init__" else ():
                    if "makes-experts" in event.tags:
                        return event
    return None
