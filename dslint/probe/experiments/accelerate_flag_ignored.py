"""A flag of `accelerate launch` beside a DeepSpeed config that says otherwise: the config wins without a word.

The flags go through the real `accelerate launch` up to the start of the processes, and through the plugin that each
process makes; what is compared is the config that it hands to DeepSpeed. As fixed, the config says what the flag says.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_STAGE = "/zero_optimization/stage"
_OFFLOAD = "/zero_optimization/offload_optimizer/device"

EXPERIMENT = Experiment(
    name="accelerate-flag-ignored",
    summary="a flag of accelerate launch has no effect because the DeepSpeed config says otherwise",
    rules=("DSL454",),
    flavour="transformers",
    ranks=1,
    cpu_only=True,
    expect=Expect((Kind.WRONG,), r"DeepSpeed gets .* instead of "),
    cases=(
        Case("stage", {"flag": "--zero_stage", "given": "3", "pointer": _STAGE, "stated": 2}),
        Case("accumulation", {"flag": "--gradient_accumulation_steps", "given": "4",
                              "pointer": "/gradient_accumulation_steps", "stated": 2}),
        Case("no-clipping", {"flag": "--gradient_clipping", "given": "1.0", "pointer": "/gradient_clipping",
                             "stated": None}),
        Case("no-offload", {"flag": "--offload_optimizer_device", "given": "cpu", "pointer": _OFFLOAD, "stated": None}),
        Case("auto", {"flag": "--zero_stage", "given": "3", "pointer": _STAGE, "stated": "auto"},
             verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The config as it is."""
    return _handed(rank, rank.params["stated"])


def fixed(rank: RankApi) -> Json:
    """The config says what the flag says."""
    given = rank.params["given"]
    return _handed(rank, float(given) if "." in given else int(given) if given.isdecimal() else given)


def _handed(rank: RankApi, stated: Json) -> Json:
    from dslint.probe.parts.accel_launch import BARE, CONFIG, launched, with_change

    pointer = rank.params["pointer"]
    config = CONFIG if stated is None else with_change(CONFIG, pointer, stated)
    flags = ["--deepspeed_config_file", "ds.json", rank.params["flag"], rank.params["given"]]
    value = launched(BARE, flags, dict(config))["config"]
    for key in pointer.split("/")[1:]:
        value = value.get(key) if isinstance(value, dict) else None
    return str(value)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """What the config says."""
    return f"DeepSpeed gets {values[0]} instead of {reference[0]}" if values[0] != reference[0] else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case of the flag."""
    return {} if case.params["flag"] == subject.finding.fact("flag") and case.name != "auto" else None
