"""`GatheredParameters` over the tensors of a `state_dict()`.

As written, the weights are copied inside a gather of what `state_dict()` gives; as fixed, of what `named_parameters()`
gives. At stage 3 every copy of the written arm has no elements, and no error comes. At stage 2 both are whole.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="gather-of-state-dict",
    summary="tensors of a state dict are gathered and stay empty",
    rules=("DSL686",),
    flavour="deepspeed",
    expect=Expect((Kind.WRONG,), r"has 0 elements"),
    cases=(
        Case("z3", {"stage": 3}),
        Case("z2", {"stage": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Of the state dict."""
    return _copies(rank, is_state=True)


def fixed(rank: RankApi) -> Json:
    """Of the parameters."""
    return _copies(rank, is_state=False)


def _copies(rank: RankApi, is_state: bool) -> Json:
    import deepspeed

    from dslint.probe.parts.zero import config, engine, train

    rank.init()
    trained = engine(rank, config(rank.params["stage"]))
    train(rank, trained, 1)
    given = trained.module.state_dict().items() if is_state else trained.module.named_parameters()
    found = {}
    for name, tensor in given:
        with deepspeed.zero.GatheredParameters([tensor], enabled=rank.params["stage"] == 3):
            found[name] = int(tensor.detach().cpu().clone().numel())
    rank.mark("gathered")
    return found


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The number of elements of each copy."""
    for name, count in values[0].items():
        if count != reference[0][name]:
            return f"the copy of `{name}` has {count} elements, the weight {reference[0][name]}"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Stage 3."""
    return {} if case.params["stage"] == subject.finding.fact("stage") else None
