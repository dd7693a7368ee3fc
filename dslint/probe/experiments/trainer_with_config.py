"""A DeepSpeed config and arguments with which the real Trainer of transformers stops, or trains with something else.

As written, a Trainer of a tiny Llama gets the user's own config and the arguments of the run, and trains one step on
one rank; as fixed, it gets the config after the fix of the finding (or without its key), and arguments without the one
that clashes. All of transformers, accelerate and DeepSpeed is real here; only the compiled optimizers of DeepSpeed are
replaced by ones that take the same arguments, on a machine that has none. Arguments that no finding speaks about are
set to agree with the config.

Where nothing stops, the classes of the optimizer and of the schedule that are in effect are compared.
"""

from __future__ import annotations

import json
from typing import Any

from dslint.probe.config_cases import config_case, config_params, is_for_trainer
from dslint.probe.config_sections import cases_of
from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ds_config import loose, repaired
from dslint.probe.parts.ds_engine import adapted
from dslint.probe.parts.hf import train_with_config

_STOPS = Expect((Kind.RAISE,), "^ValueError: ")
_EXCLUDES = Expect((Kind.RAISE,), "ValueError: .*(is not possible, deactivate|can't be used with `save_only_model`)")
_ZERO3 = Expect((Kind.RAISE,), "ValueError: ZeRO inference only makes sense with ZeRO Stage 3")
_EFFECT = Expect((Kind.WRONG,), "in effect")
_OTHER = Expect((Kind.RAISE,), "TypeError: ")
_TOTAL = "/scheduler/params/total_num_steps"
_CONTROL = Verdict.NOT_REPRODUCED
_PLAIN = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}%s}'
_OFFLOAD = _PLAIN.replace("2}", '2, "offload_optimizer": {"device": "cpu"}}')
_AUTO = _PLAIN.replace("2}", '2, "reduce_bucket_size": "auto"}')
_SIZE = Expect((Kind.RAISE,), "ValueError: The model's config file has neither")
_SCHEDULE = ', "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}'
_BEST = {"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"}


def _case(
    name: str,
    rule: str,
    text: str,
    given: dict[str, Json],
    expect: Expect,
    right: dict[str, Json],
    fixed: str = "",
    **more: Any,
) -> Case:
    return config_case(name, rule, "", text, fixed or text, 1, expect=expect, arguments=given, right=right, **more)


EXPERIMENT = Experiment(
    name="trainer-with-config",
    summary="the Trainer stops over its DeepSpeed config, or trains with another optimizer or schedule",
    flavour="transformers",
    ranks=1,
    cpu_only=True,
    expect=_STOPS,
    cases=(
        *cases_of("TRAINER"),
        _case("hf-optimizer-swapped", "DSL487", _OFFLOAD % "", {"optim": "sgd"}, _EFFECT, {"optim": "sgd"},
              fixed=_OFFLOAD % ', "zero_force_ds_cpu_optimizer": false'),
        _case("optimizer-of-other-parameters", "DSL487", _OFFLOAD % "", {"optim": "adagrad"}, _OTHER,
              {"optim": "adamw_torch"}),
        _case("optimizer-that-stays", "DSL487", _OFFLOAD % ', "zero_force_ds_cpu_optimizer": false', {"optim": "sgd"},
              _EFFECT, {"optim": "sgd"}, verdict=_CONTROL),
        _case("hf-scheduler-ignored", "DSL488", _PLAIN % _SCHEDULE, {"lr_scheduler_type": "cosine"}, _EFFECT,
              {"lr_scheduler_type": "cosine"}, fixed=_PLAIN % ""),
        _case("schedule-of-the-trainer", "DSL488", _PLAIN % "", {"lr_scheduler_type": "cosine"}, _EFFECT,
              {"lr_scheduler_type": "cosine"}, verdict=_CONTROL),
        _case("hf-arguments-exclude-deepspeed", "DSL489", _PLAIN % "", {"fsdp": "full_shard"}, _EXCLUDES, {}),
        _case("best-model-of-nothing", "DSL489", _PLAIN % "", {**_BEST, "save_only_model": True}, _EXCLUDES,
              {"save_only_model": True}),
        _case("hf-evaluates-without-zero3", "DSL490", _PLAIN % "", {}, _ZERO3, {}, fixed=_PLAIN.replace("2", "3") % "",
              evaluates=True),
        _case("evaluation-at-stage-3", "DSL490", _PLAIN.replace("2", "3") % "", {}, _ZERO3, {}, evaluates=True,
              verdict=_CONTROL),
        _case("auto-needs-hidden-size", "DSL421", _AUTO % "", {}, _SIZE, {}, fixed=_PLAIN % "", model="own"),
        _case("auto-for-an-encoder-and-a-decoder", "DSL421", _AUTO % "", {}, _SIZE, {}, fixed=_PLAIN % "",
              model="encoder-decoder"),
        _case("auto-for-a-model-with-a-size", "DSL421", _AUTO % "", {}, _SIZE, {}, fixed=_PLAIN % "",
              verdict=_CONTROL),
        _case("best-model-of-checkpoints", "DSL489", _PLAIN % "", {"save_only_model": True}, _EXCLUDES, {},
              verdict=_CONTROL),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The user's config and arguments."""
    return train_with_config(rank, _runnable(rank, rank.params["text"]), rank.params["arguments"])


def fixed(rank: RankApi) -> Json:
    """The repaired ones."""
    return train_with_config(rank, _runnable(rank, repaired(rank.params)), rank.params["right"])


def _runnable(rank: RankApi, text: str) -> str:
    """Without what needs a GPU or a package of its own, in both arms, unless the mistake lies there."""
    return json.dumps(adapted(loose(text), {**rank.params, "trainer": False}, rank.device)[0])


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another class is in effect than in the arm where the arguments rule."""
    for value, right in zip(values, reference, strict=True):
        for name, found in value.items():
            if found != right[name]:
                return f"the {name} in effect is {found}, and {right[name]} is meant"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The user's own config; for findings about arguments the case stands as it is."""
    finding = subject.finding
    if finding.pointer is None or not is_for_trainer(subject):
        return {} if finding.name == case.name else None
    found = config_params(subject, case)
    # What the config states agrees with the arguments, except where the finding says that it cannot be relied on.
    given = {"max_steps": 1} if finding.pointer == _TOTAL else {}
    if found and finding.code == "DSL421":
        found["model"] = "own" if finding.fact("own") else "encoder-decoder"
    return found and {**found, "arguments": given, "right": given}
