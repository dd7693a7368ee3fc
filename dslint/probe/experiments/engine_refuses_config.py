"""A config that DeepSpeed's parser accepts and `deepspeed.initialize` refuses.

The parser hands the names of optimizer and scheduler on as they are, and does not know what the script passes. As
written, the engine of a model of 25 weights is made with such a config; as fixed, with the nearest one that works. What
a device cannot do (fp16 on a CPU) is refused at the same place with other words, and confirms nothing here.

`"auto"` is filled in by transformers and accelerate; the case about it leaves them out, as a script does that hands a
config made for the Trainer to `deepspeed.initialize`.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.zero import engine, model, train

_NAME = Expect((Kind.RAISE,), "AdamX is not a supported DeepSpeed Optimizer|has no attribute .AdamX.")
_SCHEDULE = Expect((Kind.RAISE,), "DeepSpeed does not recognize LR scheduler")
_NONE = Expect((Kind.RAISE,), "AssertionError: zero stage 2 requires an optimizer")
_UNTESTED = Expect((Kind.RAISE,), "You are using an untested ZeRO Optimizer")
_OFFLOAD = Expect((Kind.RAISE,), "You are using ZeRO-Offload with a client provided optimizer")
_AUTO = Expect((Kind.RAISE,), r"TypeError: (unsupported operand|.* not supported between).*\(config\.py:")

_SGD = {"type": "SGD", "params": {"lr": 0.1}}
_SIZE = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True}


def _case(
    name: str,
    change: dict[str, Json],
    right: dict[str, Json],
    expect: Expect,
    client: bool = False,
    verdict: Verdict = Verdict.CONFIRMED,
) -> Case:
    base = _SIZE if client else {**_SIZE, "optimizer": _SGD}
    return Case(name, {"config": {**base, **change}, "fixed": {**base, **right}, "client": client}, expect, verdict)


EXPERIMENT = Experiment(
    name="engine-refuses-config",
    summary="the engine refuses what the parser of the config let through",
    flavour="deepspeed",
    ranks=1,
    expect=_NAME,
    cases=(
        _case("unknown-optimizer", {"optimizer": {"type": "AdamX", "params": {"lr": 0.1}}}, {}, _NAME),
        _case("unknown-scheduler", {"scheduler": {"type": "WarmupLinear", "params": {}}},
              {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2}}}, _SCHEDULE),
        _case("zero-without-optimizer", {"optimizer": None, "zero_optimization": {"stage": 2}},
              {"zero_optimization": {"stage": 2}}, _NONE),
        _case("untested-optimizer",
              {"zero_allow_untested_optimizer": False, "zero_optimization": {"stage": 2}},
              {"zero_optimization": {"stage": 2}}, _UNTESTED, client=True),
        _case("offload-with-an-optimizer-of-the-script",
              {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
              {"zero_force_ds_cpu_optimizer": False,
               "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}, _OFFLOAD, client=True),
        _case("auto-without-trainer", {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"}, {},
              _AUTO),
        _case("optimizer-of-torch", {"optimizer": {"type": "Adagrad", "params": {"lr": 0.1}}}, {}, _NAME,
              verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The engine of the config."""
    return _initialize(rank, rank.params["config"])


def fixed(rank: RankApi) -> Json:
    """The engine of the repaired config."""
    return _initialize(rank, rank.params["fixed"])


def _initialize(rank: RankApi, settings: dict[str, Json]) -> Json:
    import torch

    rank.init()
    module = model().to(rank.device)
    arguments: dict[str, Any] = {"model_parameters": module.parameters()}
    if rank.params["client"]:
        arguments = {"optimizer": torch.optim.SGD(module.parameters(), lr=0.1)}
    kept = {key: value for key, value in settings.items() if value is not None}
    trained = engine(rank, kept, module, **arguments)
    train(rank, trained, 1)
    return int(trained.global_steps)
