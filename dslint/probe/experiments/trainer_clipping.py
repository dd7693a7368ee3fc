"""The length of the first step of a Trainer whose DeepSpeed config has no `gradient_clipping`.

A Trainer of a tiny Llama takes one step of SGD with the learning rate 1, so that the weights move exactly as far as the
gradient is long after clipping. As fixed, the config says `"auto"`, which `max_grad_norm` fills: the step is not longer
than that. As written, the key is missing, and the step is as long as DeepSpeed's own default lets it be: 1.0 since
0.19.3, any length before.
"""

from __future__ import annotations

import json

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.hf import length_of_step

_OLD = Needs(versions=("deepspeed<0.19.3",), why="later releases clip at 1.0 by default")
_NEW = Needs(versions=("deepspeed>=0.19.3",), why="earlier releases do not clip by default")

EXPERIMENT = Experiment(
    name="trainer-clipping",
    summary="a step of the Trainer is longer than `max_grad_norm` allows",
    flavour="transformers",
    ranks=1,
    cpu_only=True,
    expect=Expect((Kind.WRONG,), "the step is .* long"),
    cases=(
        Case("hf-clipping-missing", {"norm": 0.01, "config": ""}),
        Case("hf-clipping-missing-old-default", {"norm": 1.0, "config": ""}, needs=_OLD),
        Case("hf-clipping-by-default", {"norm": 1.0, "config": ""}, verdict=Verdict.NOT_REPRODUCED, needs=_NEW),
        Case("hf-clipping-stated", {"norm": 0.01, "config": "0.01"}, verdict=Verdict.NOT_REPRODUCED),
    ),
    rules=("DSL491",),
)
_SCALE = 20.0  # of the weights of the last layer: the gradient is longer than 1


def written(rank: RankApi) -> Json:
    """The config as it is."""
    return _step(rank, rank.params["config"])


def fixed(rank: RankApi) -> Json:
    """With the key that the argument fills."""
    return _step(rank, '"auto"')


def _step(rank: RankApi, clipping: str) -> Json:
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "zero_optimization": {"stage": 2},
        **({"gradient_clipping": json.loads(clipping)} if clipping else {}),
    }
    given: dict[str, Json] = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": rank.params["norm"]}
    return {"length": length_of_step(rank, json.dumps(config), given, _SCALE)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The step as written is longer than the one with the limit of the argument."""
    for value, right in zip(values, reference, strict=True):
        if value["length"] > 1.05 * right["length"]:
            return f"the step is {value['length']:.3g} long, and {right['length']:.3g} with the limit of the argument"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The user's own limit."""
    norm = subject.finding.fact("max_grad_norm")
    return {"norm": norm} if case.name == subject.finding.name and norm else {}
