"""Which experiment a finding about a timeout leads to, with which values, and what the oracles say."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.probe.experiment import Subject
from dslint.probe.experiments import subgroup_timeout_not_inherited, timedelta_positional_days
from dslint.probe.registry import of_finding
from dslint.rules.script import (
    dsl221_timeout_not_timedelta,
    dsl222_timedelta_positional_days,
    dsl223_process_group_timeout_missing,
)

TORCH = "import torch.distributed as dist\n"
SLOW = (
    "from datasets import load_dataset\ndist.init_process_group('nccl')\n"
    "if dist.get_rank() == 0:\n    load_dataset('json').map(str)\ndist.barrier()\n"
)
ZERO3 = (
    "import deepspeed\n"
    "config = {'train_micro_batch_size_per_gpu': 1, 'zero_optimization': {'stage': 3}}\n"
    "deepspeed.init_distributed('nccl')\n"
    "engine = deepspeed.initialize(config=config)[0]\n"
    "engine.module.generate(synced_gpus=True)\n"
)


def _chosen(rule: object, text: str) -> tuple[str, str, dict[str, object]]:
    (finding,) = findings(rule, text)
    found = of_finding(Subject(finding, text))
    assert found is not None
    return found[0].experiment.name, found[1].name, dict(found[1].params)


@pytest.mark.parametrize(
    ("line", "experiment", "case", "value"),
    [
        ("dist.init_process_group('gloo', timeout=60)", "timeout-not-timedelta", "init_process_group", 60),
        ("dist.new_group(timeout='60')", "timeout-not-timedelta", "new_group", "60"),
        ("dist.new_group(timeout=int(text))", "timeout-not-timedelta", "new_group", 1800),
        ("dist.monitored_barrier(timeout=7)", "timeout-not-timedelta", "monitored_barrier", 7),
        (
            "import deepspeed\ndeepspeed.init_distributed(timeout=60.5)",
            "timeout-not-timedelta-in-libraries",
            "init_distributed",
            60.5,
        ),
        (
            "from accelerate import InitProcessGroupKwargs\nInitProcessGroupKwargs(timeout=60)",
            "timeout-not-timedelta-in-libraries",
            "InitProcessGroupKwargs",
            60,
        ),
    ],
)
def test_the_arm_passes_the_value_of_the_finding(line: str, experiment: str, case: str, value: object) -> None:
    found = _chosen(dsl221_timeout_not_timedelta, TORCH + line + "\n")
    assert found[:2] == (experiment, case)
    assert found[2]["value"] == value


def test_the_arm_waits_the_days_of_the_finding() -> None:
    text = TORCH + "from datetime import timedelta\ndist.init_process_group('gloo', timeout=timedelta(5400))\n"
    assert _chosen(dsl222_timedelta_positional_days, text) == ("timedelta-positional-days", "days", {"value": 5400})


@pytest.mark.parametrize(
    ("text", "case"),
    [(TORCH + "dist.init_process_group('nccl')\n", "barrier"), (TORCH + SLOW, "barrier"), (ZERO3, "all_gather")],
    ids=["no late rank known", "slow rank", "ZeRO-3 inference"],
)
def test_the_late_rank_is_waited_for_where_the_finding_says(text: str, case: str) -> None:
    found = _chosen(dsl223_process_group_timeout_missing, text)
    assert found[:2] == ("rank-later-than-timeout", case)


def test_oracles() -> None:
    days = timedelta_positional_days.wrong([1800 * 86400.0] * 2, [1800.0] * 2)
    assert days == "the group waits 155520000 s for a peer (1800 days), where 1800 s are meant"
    assert timedelta_positional_days.wrong([1800.0] * 2, [1800.0] * 2) is None
    assert subgroup_timeout_not_inherited.wrong([[60.0, 60.0]] * 2, []) is None
    sub = subgroup_timeout_not_inherited.wrong([[60.0, 1800.0]] * 2, [])
    assert sub == "a subgroup waits 1800 s, the default group 60 s"
