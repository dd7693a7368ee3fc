"""A call of the DeepSpeed engine that only rank 0 makes.

As written, rank 0 calls `save_checkpoint`, `backward`, `step` and the like while the others go on; as fixed, every
rank calls. Nearly all of them run a collective at every ZeRO stage, stage 0 included, and stand still.
`save_16bit_model` talks to other ranks only at stage 3 with gathering on; `step` of stage 0 only where it clips (the
default of newer releases), else it moves the weights of rank 0 alone, silently. It cannot show what a later collective
of the other ranks would pair up with.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import diverged

_WAITS = Expect((Kind.STALL,), r"distributed_c10d\.py|partition_parameters\.py|torch/autograd|graph\.py")

EXPERIMENT = Experiment(
    name="engine-call-under-rank-guard",
    summary="rank 0 makes a call of the DeepSpeed engine that the other ranks do not make",
    rules=("DSL201", "DSL202"),
    flavour="deepspeed",
    expect=_WAITS,
    cases=(
        *(Case(f"save_checkpoint-z{stage}", {"op": "save_checkpoint", "stage": stage}) for stage in (2, 3, 1)),
        *(Case(f"backward-z{stage}", {"op": "backward", "stage": stage}) for stage in (2, 3, 0)),
        *(Case(f"step-z{stage}", {"op": "step", "stage": stage}) for stage in (2, 3)),
        Case("step-z0", {"op": "step", "stage": 0, "clipping": 1.0}),
        Case("step-z0-no-clipping", {"op": "step", "stage": 0}, Expect((Kind.WRONG,), r"weights of rank 1 differ")),
        Case("initialize-z2", {"op": "initialize", "stage": 2}),
        Case("gathered-parameters-z3", {"op": "GatheredParameters", "stage": 3}),
        Case("save_16bit_model-z3", {"op": "save_16bit_model", "stage": 3, "gather": True}),
        Case(
            "save_16bit_model-z3-no-gather",
            {"op": "save_16bit_model", "stage": 3, "gather": False},
            verdict=Verdict.NOT_REPRODUCED,
        ),
        *(Case(f"safe_get_full_fp32_param-z{n}", {"op": "safe_get_full_fp32_param", "stage": n}) for n in (2, 3, 1)),
        Case(
            "safe_get_full_fp32_param-z0",
            {"op": "safe_get_full_fp32_param", "stage": 0},
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case("save_16bit_model-z2", {"op": "save_16bit_model", "stage": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_SAME = {"save_fp16_model": "save_16bit_model", "_zero3_consolidated_16bit_state_dict": "save_16bit_model"}
_SAME |= dict.fromkeys(("safe_get_full_grad", "safe_get_full_optimizer_state"), "safe_get_full_fp32_param")


def written(rank: RankApi) -> Json:
    """Rank 0 calls."""
    return _train(rank, rank.index == 0)


def fixed(rank: RankApi) -> Json:
    """All ranks call."""
    return _train(rank, True)


def _train(rank: RankApi, calls: bool) -> Json:
    from dslint.probe.parts.zero import batch, config, engine, loss_of, train, weights

    op, stage = rank.params["op"], rank.params["stage"]
    rank.init()
    changes: dict[str, Json] = {"gradient_clipping": rank.params.get("clipping", 0.0)}
    if rank.params.get("gather"):
        changes["stage3_gather_16bit_weights_on_model_save"] = True
    if op == "initialize" and not calls:
        return {"weights": []}
    trained = engine(rank, config(stage, **changes))
    if op == "initialize":
        return {"weights": []}
    train(rank, trained, 1)
    if op in ("backward", "step"):
        loss = loss_of(trained(batch(rank, 1)))
        if op == "step" or calls:
            trained.backward(loss)
        rank.mark("backward")
        if op == "step" and calls:
            trained.step()
    elif calls:
        _save(rank, trained, op)
    rank.mark("past the guard")
    # At stage 3 reading the weights would itself be a collective.
    return {"weights": weights(trained) if stage < 3 else []}


def _save(rank: RankApi, trained: Any, op: str) -> None:
    import deepspeed

    if op == "save_checkpoint":
        trained.save_checkpoint(rank.folder + "/checkpoint")
    elif op == "save_16bit_model":
        trained.save_16bit_model(rank.folder + "/model")
    elif op == "safe_get_full_fp32_param":
        from deepspeed.utils import safe_get_full_fp32_param

        safe_get_full_fp32_param(next(iter(trained.module.parameters())))
    elif op == "GatheredParameters":
        with deepspeed.zero.GatheredParameters(list(trained.module.parameters())):
            rank.mark("gathered")


def wrong(values: list[Json], _reference: list[Json]) -> str | None:
    """The ranks hold different weights."""
    return diverged(values)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call that the finding names, at the stage that it knows."""
    finding = subject.finding
    op = _SAME.get(str(finding.fact("collective")), finding.fact("collective"))
    if finding.fact("family") != "engine" or op != case.params["op"]:
        return None
    of_op = [each.params["stage"] for each in EXPERIMENT.cases if each.params["op"] == op]
    stage = finding.fact("stage")
    if stage is None or stage not in of_op:
        return {"stage": case.params["stage"] if stage is None else stage} if case.params["stage"] == of_op[0] else None
    return {"stage": stage} if stage == case.params["stage"] else None
