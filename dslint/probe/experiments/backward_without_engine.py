"""`loss.backward()` instead of `engine.backward(loss)`.

As written, the loss of an engine's forward runs its own backward; as fixed, the engine runs it. Stage 0 refuses it.
With ZeRO it depends on the release: from 0.18.3 on the engine follows the backward by hooks and the weights are the
same; before, the gradients were never handed over and `step` failed. With two forwards in one loss the hooks of
0.19.8 miss the gradients, and `step` fails too.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import off_course

_OLD = Needs(versions=("deepspeed<0.18.3",), why="later releases follow a plain backward by hooks")
_NEW = Needs(versions=("deepspeed>=0.18.3",), why="earlier releases miss a plain backward")
_TWICE = Needs(versions=("deepspeed>=0.19.8",), why="earlier releases were seen to train two forwards")

EXPERIMENT = Experiment(
    name="backward-without-engine",
    summary="the loss runs its own backward and the engine does not hear of it",
    flavour="deepspeed",
    rules=("DSL216",),
    expect=Expect((Kind.RAISE,), r"KeyError"),
    cases=(
        Case("z0", {"stage": 0, "gas": 1}, Expect((Kind.RAISE,), r"RuntimeError.*backward"), needs=_NEW),
        Case("z2-old-release", {"stage": 2, "gas": 1}, needs=_OLD),
        Case("z3-old-release", {"stage": 3, "gas": 1}, needs=_OLD),
        *(
            Case(f"z{stage}", {"stage": stage, "gas": 1}, verdict=Verdict.NOT_REPRODUCED, needs=_NEW)
            for stage in (1, 2, 3)
        ),
        *(
            Case(f"z{stage}-two-forwards", {"stage": stage, "gas": 1, "forwards": 2}, needs=_TWICE)
            for stage in (1, 2, 3)
        ),
        Case("z2-accumulating", {"stage": 2, "gas": 2}, verdict=Verdict.NOT_REPRODUCED, needs=_NEW),
    ),
)


def written(rank: RankApi) -> Json:
    """The tensor's backward."""
    return _train(rank, by_engine=False)


def fixed(rank: RankApi) -> Json:
    """The engine's backward."""
    return _train(rank, by_engine=True)


def _train(rank: RankApi, by_engine: bool) -> Json:
    from dslint.probe.parts.zero import batch, config, engine, loss_of, weights

    rank.init()
    trained = engine(rank, config(rank.params["stage"], gas=rank.params["gas"]))
    for step in range(2 * rank.params["gas"]):
        loss = sum(loss_of(trained(batch(rank, step + more))) for more in range(rank.params.get("forwards", 1)))
        if by_engine:
            trained.backward(loss)
        else:
            loss.backward()
        trained.step()
        rank.mark(f"step {step}")
    return {"weights": weights(trained)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other weights."""
    return off_course(values, reference)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Stage 0, or a release that misses the backward at the stage of the run."""
    stage = subject.finding.fact("stage")
    if subject.finding.fact("forwards") == 2 and stage != 0:
        return {} if case.name == f"z{stage if stage in (1, 3) else 2}-two-forwards" else None
    wanted = {0: "z0", 3: "z3-old-release"}.get(stage if isinstance(stage, int) else 2, "z2-old-release")
    return {} if case.name == wanted else None
