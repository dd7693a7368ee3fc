"""`deepspeed.initialize` with an optimizer of torch beside a config that offloads, or that ZeRO was not tested with.

As written, the engine is made of the config and the optimizer; as fixed, the config has the switch that allows it. As
written every rank stops when the engine is made. AdamW without offload is taken (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="engine-refuses-optimizer",
    summary="the engine refuses the optimizer of the script",
    flavour="deepspeed",
    rules=("DSL607",),
    expect=Expect((Kind.RAISE,), r"ZeRO-Offload with a client provided optimizer|untested ZeRO Optimizer"),
    cases=(
        Case("offload", {"client": "AdamW", "offload": True, "switch": "zero_force_ds_cpu_optimizer"}),
        Case("untested", {"client": "RMSprop", "offload": False, "switch": "zero_allow_untested_optimizer"}),
        Case(
            "tested",
            {"client": "AdamW", "offload": False, "switch": "zero_allow_untested_optimizer"},
            verdict=Verdict.NOT_REPRODUCED,
        ),
    ),
)


def written(rank: RankApi) -> Json:
    """Without a switch."""
    return _train(rank, is_allowed=False)


def fixed(rank: RankApi) -> Json:
    """With the one that allows it."""
    return _train(rank, is_allowed=True)


def _train(rank: RankApi, is_allowed: bool) -> Json:
    import torch

    from dslint.probe.parts.zero import config, engine, model, train

    rank.init()
    settings = config(2)
    if rank.params["offload"]:
        settings["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    del settings["optimizer"]
    switch = rank.params["switch"]
    settings["zero_force_ds_cpu_optimizer"] = not (is_allowed and switch == "zero_force_ds_cpu_optimizer")
    settings["zero_allow_untested_optimizer"] = is_allowed and switch == "zero_allow_untested_optimizer"
    module = model()
    client = getattr(torch.optim, rank.params["client"])(module.parameters(), lr=0.1)
    trained = engine(rank, settings, module, optimizer=client)
    train(rank, trained, 1)
    return {"steps": int(trained.global_steps)}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The mistake of the finding."""
    return {} if case.name == subject.finding.fact("kind") else None
