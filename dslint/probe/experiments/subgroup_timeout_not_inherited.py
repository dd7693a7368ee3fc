"""`new_group` without a timeout does not take over that of the default group.

The default group is made with a timeout of 7,200 s. As written, a subgroup is made without one; as fixed it is given
the same. Nothing fails: the arms read back what each group will wait. The subgroup has the default of the backend,
30 minutes for gloo and 10 for NCCL.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind
from dslint.probe.parts.groups import make_group, timeout_of

EXPERIMENT = Experiment(
    name="subgroup-timeout-not-inherited",
    summary="a subgroup gives up after the default timeout, not after that of the default group",
    expect=Expect((Kind.WRONG,), r"a subgroup waits \d+ s"),
    cases=(Case("longer", {"timeout": 7200}), Case("shorter", {"timeout": 60})),
)


def written(rank: RankApi) -> Json:
    """`new_group()`."""
    return _timeouts(rank, inherit=False)


def fixed(rank: RankApi) -> Json:
    """`new_group(timeout=timeout)`."""
    return _timeouts(rank, inherit=True)


def _timeouts(rank: RankApi, inherit: bool) -> list[float]:
    from datetime import timedelta

    import torch.distributed as dist

    timeout = timedelta(seconds=rank.params["timeout"])
    make_group(rank, timeout)
    group = dist.new_group(timeout=timeout) if inherit else dist.new_group()
    return [timeout_of(rank), timeout_of(rank, group)]


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - each arm speaks for itself
    """The timeouts in seconds of the default group and of the subgroup differ."""
    default, sub = values[0]
    return None if default == sub else f"a subgroup waits {sub:.0f} s, the default group {default:.0f} s"
