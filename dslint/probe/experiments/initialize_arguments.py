"""Arguments of `deepspeed.initialize` that it refuses, or that make an engine which cannot train.

As written the call lacks a config, gets two, or gets no optimizer; as fixed it has one of each. `deepspeed.initialize`
makes the optimizer of the config over all parameters of the model when it gets neither `optimizer` nor
`model_parameters`: only when the config names none is there nothing to train with (the control has one there).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_NONE = Expect((Kind.RAISE,), r"AssertionError: DeepSpeed requires --deepspeed_config")
_TWO = Expect((Kind.RAISE,), r"AssertionError: Not sure how to proceed, we were given deepspeed configs")
_BACKWARD = Expect((Kind.RAISE,), r"AssertionError: must provide optimizer during init in order to use backward")
_INITIALIZE = Expect((Kind.RAISE,), r"AssertionError: zero stage [12] requires an optimizer")
_BACKWARD_Z3 = Expect((Kind.RAISE,), r"AttributeError: 'DeepSpeedZeRoOffload'|AssertionError: must provide optimizer")

EXPERIMENT = Experiment(
    name="initialize-arguments",
    summary="`deepspeed.initialize` stops, or its engine stops at the first backward",
    flavour="deepspeed",
    expect=_NONE,
    cases=(
        Case("no-config", {"args": None}, _NONE, rules=("DSL243",)),
        Case("args-without-it", {"args": {"local_rank": 0}}, _NONE, rules=("DSL243",)),
        Case("args-name-it", {"args": {"deepspeed_config": "ds.json"}}, _NONE, Verdict.NOT_REPRODUCED, ("DSL243",)),
        Case("two-configs", {"args": {"deepspeed_config": "ds.json"}, "config": True}, _TWO, rules=("DSL244",)),
        Case(
            "second-is-none", {"args": {"deepspeed_config": None}, "config": True}, _TWO, Verdict.NOT_REPRODUCED,
            ("DSL244",),
        ),
        *(
            Case(f"no-optimizer-z{stage}", {"args": None, "config": True, "stage": stage}, expect, rules=("DSL245",))
            for stage, expect in ((0, _BACKWARD), (1, _INITIALIZE), (2, _INITIALIZE), (3, _BACKWARD_Z3))
        ),
        Case(
            "optimizer-of-the-config", {"args": None, "config": True}, _BACKWARD, Verdict.NOT_REPRODUCED, ("DSL245",)
        ),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The arguments of the case."""
    stage = rank.params.get("stage")
    return _train(rank, rank.params["args"], bool(rank.params.get("config")), stage is None)


def fixed(rank: RankApi) -> Json:
    """A config, by one way."""
    return _train(rank, None, True)


def _train(rank: RankApi, args: dict[str, Json] | None, passes: bool, optimizes: bool = True) -> str:
    import argparse
    import json

    import deepspeed

    from dslint.probe.parts.zero import compile_nothing, config, model, train

    rank.init()
    compile_nothing()
    stage = rank.params.get("stage")
    settings = config(1 if stage is None else stage)
    if not optimizes:
        del settings["optimizer"]
    with open("ds.json", "w", encoding="utf-8") as file:
        json.dump(settings, file)
    space = None if args is None else argparse.Namespace(**args)
    engine = deepspeed.initialize(args=space, model=model(), config=settings if passes else None)[0]
    train(rank, engine, 1)
    return "trained"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """What the call of the finding lacks or has twice."""
    what, stage = subject.finding.fact("arguments"), subject.finding.fact("stage")
    if what == "no-optimizer":
        return {} if case.name == f"no-optimizer-z{2 if stage is None else stage}" else None
    return {} if case.name == what else None
