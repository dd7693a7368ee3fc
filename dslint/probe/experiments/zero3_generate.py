"""`generate` of transformers on a ZeRO-3 model, with answers of different lengths on the ranks.

As written, `engine.module.generate(...)` is called as for a whole model; as fixed, with `synced_gpus=True`. A model
that `deepspeed.initialize` partitioned on its own account is unknown to transformers, which then stops each rank after
its own answer. With a live `HfDeepSpeedConfig` (the Trainer makes one) transformers synchronises of itself and the call
passes. The tiny Llama has random weights and is made in place: nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="zero3-generate",
    summary="generate stops on each rank after its own answer while the model needs all ranks for every token",
    rules=("DSL209",),
    flavour="transformers",
    expect=Expect((Kind.STALL,), r"_all_?gather|partitioned_param_coordinator|distributed_c10d\.py"),
    cases=(
        Case("z3", {"stage": 3, "lengths": [7, 3], "hf_config": False}),
        Case(
            "z3-hf-config-alive", {"stage": 3, "lengths": [7, 3], "hf_config": True}, verdict=Verdict.NOT_REPRODUCED
        ),
        Case(
            "z3-equal-lengths", {"stage": 3, "lengths": [4, 4], "hf_config": False}, verdict=Verdict.NOT_REPRODUCED
        ),
        Case("z2", {"stage": 2, "lengths": [7, 3], "hf_config": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """``generate`` decides whether to synchronise."""
    return _generate(rank, {})


def fixed(rank: RankApi) -> Json:
    """``generate`` is told to synchronise."""
    return _generate(rank, {"synced_gpus": True})


def _generate(rank: RankApi, arguments: dict[str, Any]) -> Json:
    import torch

    from dslint.probe.parts.llama import llama
    from dslint.probe.parts.zero import config, engine

    rank.init()
    settings = config(rank.params["stage"])
    alive = None
    if rank.params["hf_config"]:
        from transformers.integrations import HfDeepSpeedConfig

        alive = HfDeepSpeedConfig(settings)
    model = engine(rank, settings, llama())
    model.eval()
    lengths = rank.params["lengths"]
    length = lengths[rank.index % len(lengths)]
    prompt = torch.tensor([[1, 5, 6]], device=rank.device)
    mask = torch.ones_like(prompt)
    with torch.no_grad():
        found = model.module.generate(
            prompt, attention_mask=mask, max_new_tokens=length, min_new_tokens=length, do_sample=False, pad_token_id=0,
            **arguments,
        )  # fmt: skip
    rank.mark("generated")
    return [int(found.shape[1]) - 3, alive is not None]


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """A model that transformers does not know to be partitioned."""
    return {} if subject.finding.fact("stage") == 3 and case.name == "z3" else None
