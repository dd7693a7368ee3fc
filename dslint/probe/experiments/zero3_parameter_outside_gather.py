"""A weight of a ZeRO-3 model that is touched without gathering it.

As written, the script indexes, measures, fills or loads a parameter directly; as fixed, it does so inside
`deepspeed.zero.GatheredParameters` (for writing with `modifier_rank=0`). On every rank the parameter is an empty
tensor: an index raises, a norm is 0.0, and whole-tensor writes do nothing without a word. Weights of stage 2 are whole,
and the same code is right.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import distance

_OTHER = Expect((Kind.WRONG,), r"where the gathered weight gives")

EXPERIMENT = Experiment(
    name="zero3-parameter-outside-gather",
    summary="a weight that is spread over the ranks is read or written as if it were whole",
    rules=("DSL210", "DSL297"),
    flavour="deepspeed",
    expect=_OTHER,
    cases=(
        Case("index", {"op": "index", "stage": 3}, Expect((Kind.RAISE,), r"IndexError")),
        Case("norm", {"op": "norm", "stage": 3}),
        Case("fill", {"op": "fill", "stage": 3}),
        Case("rows", {"op": "rows", "stage": 3}),
        Case("init", {"op": "init", "stage": 3}),
        Case("shape", {"op": "shape", "stage": 3}),
        Case("linear", {"op": "linear", "stage": 3}, Expect((Kind.RAISE,), r"RuntimeError.*size mismatch")),
        Case("load_state_dict", {"op": "load", "stage": 3}, Expect((Kind.RAISE,), r"RuntimeError.*size mismatch")),
        Case("norm-z2", {"op": "norm", "stage": 2}, verdict=Verdict.NOT_REPRODUCED),
        Case("fill-z2", {"op": "fill", "stage": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Directly."""
    return _touch(rank, gathers=False)


def fixed(rank: RankApi) -> Json:
    """Inside a gather that all ranks enter."""
    return _touch(rank, gathers=True)


def _touch(rank: RankApi, gathers: bool) -> Json:
    import deepspeed
    import torch

    from dslint.probe.parts.zero import batch, config, engine, model, weights

    rank.init()
    trained = engine(rank, config(rank.params["stage"]))
    module = trained.module
    gathers = gathers and rank.params["stage"] == 3
    with (
        torch.no_grad(),
        deepspeed.zero.GatheredParameters(list(module.parameters()), modifier_rank=0, enabled=gathers),
    ):
        value = _apply(rank.params["op"], module, batch(rank, 0), model)
    rank.mark("touched")
    return {"value": value, "weights": weights(trained)}


def _apply(op: str, module: Any, rows: Any, fresh: Any) -> list[float]:
    import torch

    weight = module[0].weight
    if op == "index":
        return [float(weight[0, 0])]
    if op == "norm":
        return [float(weight.norm())]
    if op == "shape":
        return [float(size) for size in weight.shape]
    if op == "linear":
        return [float(torch.nn.functional.linear(rows, weight).norm()) * 0.0]
    if op == "fill":
        weight.data.fill_(7.0)
    elif op == "rows":
        weight.data[-1:] = weight.data[:-1].mean(dim=0, keepdim=True)
    elif op == "init":
        torch.nn.init.constant_(weight, 7.0)
    elif op == "load":
        module.load_state_dict({name: torch.full_like(p, 7.0) for name, p in fresh().named_parameters()})
    return []


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another value, or other weights afterwards, than with the gather."""
    for value, expected in zip(values, reference, strict=True):
        if distance(value["value"], expected["value"]) > 1e-4:
            return f"reads {value['value']} where the gathered weight gives {expected['value']}"
        if distance(value["weights"], expected["weights"]) > 1e-4:
            first, wanted = value["weights"][0], expected["weights"][0]
            return f"the write is lost: the weight stays {first} where the gathered weight gives {wanted}"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """What is done with the parameter."""
    return {} if (subject.finding.fact("op"), 3) == (case.params["op"], case.params["stage"]) else None
