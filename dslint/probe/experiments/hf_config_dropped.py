"""`HfDeepSpeedConfig(config)` whose result is not kept, or that comes after the model.

As written, the object is made and dropped, or made when the model is there; as fixed, a name holds it before the model
is built. transformers keeps a weak reference only: once the object is gone, `from_pretrained` and `from_config` do not
know of stage 3, and every rank builds the whole model. No error comes; a large model runs out of memory.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="hf-config-dropped",
    summary="transformers forgets stage 3 before the model is built",
    flavour="transformers",
    expect=Expect((Kind.WRONG,), r"every rank builds all \d+ weights"),
    rules=("DSL213",),
    cases=(
        Case("z3", {"stage": 3, "kind": "dropped"}),
        Case("z2", {"stage": 2, "kind": "dropped"}, verdict=Verdict.NOT_REPRODUCED),
        Case("late-z3", {"stage": 3, "kind": "late"}),
        Case("late-z2", {"stage": 2, "kind": "late"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Nobody holds the object, or it is late."""
    return _build(rank, rank.params["kind"])


def fixed(rank: RankApi) -> Json:
    """A name holds it while the model is built."""
    return _build(rank, "kept")


def _build(rank: RankApi, kind: str) -> Json:
    from transformers import AutoModelForCausalLM
    from transformers.integrations import HfDeepSpeedConfig, is_deepspeed_zero3_enabled

    from dslint.probe.parts.llama import llama_config
    from dslint.probe.parts.zero import compile_nothing, config

    rank.init()
    compile_nothing()
    module = AutoModelForCausalLM.from_config(llama_config()) if kind == "late" else None
    made = HfDeepSpeedConfig(config(rank.params["stage"]))
    kept = [] if kind == "dropped" else [made]
    del made
    known = is_deepspeed_zero3_enabled()
    module = AutoModelForCausalLM.from_config(llama_config()) if module is None else module
    weights = list(module.parameters())
    whole = sum(getattr(p, "ds_numel", p.numel()) for p in weights)
    return {"known": known, "here": sum(p.numel() for p in weights), "whole": whole, "kept": len(kept)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """More weights on a rank than with the object alive."""
    value, expected = values[0], reference[0]
    if (value["known"], value["here"]) == (expected["known"], expected["here"]):
        return None
    return f"is_deepspeed_zero3_enabled() is {value['known']} and every rank builds all {value['whole']} weights"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Whether the object is dropped or late."""
    return {} if (subject.finding.fact("kind"), 3) == (case.params["kind"], case.params["stage"]) else None
