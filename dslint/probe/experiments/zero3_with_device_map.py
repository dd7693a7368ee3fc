"""`from_pretrained(device_map=...)` under ZeRO-3.

As written, a model is loaded with a device map while transformers knows of stage 3; as fixed, without one. Stage 3 puts
the weights where they belong itself, and transformers refuses both together. The model is a tiny Llama with random
weights that rank 0 has saved before.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="zero3-with-device-map",
    summary="a device map is given for weights that stage 3 spreads over the ranks",
    rules=("DSL214",),
    flavour="transformers",
    one_host=True,
    expect=Expect((Kind.RAISE,), r"ValueError: DeepSpeed Zero-3 is not compatible with passing a `device_map`"),
    cases=(
        Case("auto-z3", {"stage": 3, "device_map": "auto"}),
        Case("one-device-z3", {"stage": 3, "device_map": "cpu"}),
        Case("one-device-z2", {"stage": 2, "device_map": "cpu"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """With the map."""
    return _load(rank, {"device_map": rank.params["device_map"]})


def fixed(rank: RankApi) -> Json:
    """Without it."""
    return _load(rank, {})


def _load(rank: RankApi, arguments: dict[str, Any]) -> Json:
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM
    from transformers.integrations import HfDeepSpeedConfig

    from dslint.probe.parts.llama import llama
    from dslint.probe.parts.zero import compile_nothing, config

    rank.init()
    compile_nothing()
    saved = rank.folder + "/llama"
    if rank.index == 0:
        llama().save_pretrained(saved)
    dist.barrier()
    kept = HfDeepSpeedConfig(config(rank.params["stage"]))
    module = AutoModelForCausalLM.from_pretrained(saved, **arguments)
    rank.mark("loaded")
    return [kept is not None, len(list(module.parameters()))]


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """``auto``, or one device; the probe has the CPU only."""
    stated = {"auto": "auto", "one device": "cpu"}.get(str(subject.finding.fact("device_map")))
    return {} if (stated, 3) == (case.params["device_map"], case.params["stage"]) else None
