"""A second model that transformers loads while a config of ZeRO stage 3 is alive, run without an engine.

As written, the model is loaded after the config was made and called; as fixed, it was loaded before. At stage 3 its
embedding finds an empty weight and raises on both ranks. At stage 2 both ways run.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="second-model-without-engine",
    summary="a model that is loaded at stage 3 runs without an engine",
    rules=("DSL687",),
    flavour="transformers",
    one_host=True,
    expect=Expect((Kind.RAISE,), r"2-D|size|shape|dimension"),
    cases=(
        Case("z3", {"stage": 3}),
        Case("z2", {"stage": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Loaded while the config is alive."""
    return _run(rank, is_late=True)


def fixed(rank: RankApi) -> Json:
    """Loaded before."""
    return _run(rank, is_late=False)


def _run(rank: RankApi, is_late: bool) -> Json:
    import torch
    from transformers.integrations import HfDeepSpeedConfig

    from dslint.probe.parts.zero import compile_nothing, config

    rank.init()
    compile_nothing()
    folder = rank.folder + "/second"
    if rank.index == 0:
        _saved(folder)
    torch.distributed.barrier()
    early = None if is_late else _load(folder)
    alive = HfDeepSpeedConfig(config(rank.params["stage"]))
    model = _load(folder) if early is None else early
    rank.mark("loaded")
    logits = model(input_ids=torch.tensor([[1, 2, 3]])).logits
    return {"rows": int(logits.shape[1]), "alive": alive is not None}


def _saved(folder: str) -> None:
    from dslint.probe.parts.llama import llama

    llama().save_pretrained(folder)


def _load(folder: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Stage 3."""
    return {} if case.params["stage"] == subject.finding.fact("stage") else None
