"""`new_group` without a timeout does not take over that of the default group.

The default group is made with a timeout of 7,200 s. As written, a subgroup is made without one; as fixed it is given
the same. Nothing fails: the arms read back what each group will wait. The subgroup has the default of the backend,
30 minutes for gloo and 10 for NCCL. The same holds for `new_subgroups` and for the groups of a device mesh of several
dimensions; a mesh of one dimension over all ranks takes the default group itself (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.groups import make_group, timeout_of

EXPERIMENT = Experiment(
    name="subgroup-timeout-not-inherited",
    summary="a subgroup gives up after the default timeout, not after that of the default group",
    expect=Expect((Kind.WRONG,), r"a subgroup waits \d+ s"),
    rules=("DSL224",),
    cases=(
        Case("longer", {"timeout": 7200, "maker": "new_group"}),
        Case("shorter", {"timeout": 60, "maker": "new_group"}),
        Case("subgroups", {"timeout": 7200, "maker": "new_subgroups"}),
        Case("device-mesh", {"timeout": 7200, "maker": "init_device_mesh"}),
        Case("whole-mesh", {"timeout": 7200, "maker": "whole_mesh"}, verdict=Verdict.NOT_REPRODUCED),
    ),
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

    timeout, maker = timedelta(seconds=rank.params["timeout"]), rank.params["maker"]
    make_group(rank, timeout)
    if inherit:
        group = dist.new_group(timeout=timeout)
    elif maker == "new_group":
        group = dist.new_group()
    elif maker == "new_subgroups":
        group = dist.new_subgroups(rank.world)[0]
    else:
        from torch.distributed.device_mesh import init_device_mesh

        shape = (rank.world,) if maker == "whole_mesh" else (rank.world, 1)
        mesh = init_device_mesh(rank.device.partition(":")[0], shape)
        group = mesh.get_group(len(shape) - 1)
    return [timeout_of(rank), timeout_of(rank, group)]


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - each arm speaks for itself
    """The timeouts in seconds of the default group and of the subgroup differ."""
    default, sub = values[0]
    return None if default == sub else f"a subgroup waits {sub:.0f} s, the default group {default:.0f} s"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call that makes the subgroup, and the timeout of the default group where it is known."""
    found, timeout = subject.finding.fact("maker"), subject.finding.fact("timeout")
    cases = {"new_group": "longer", "new_subgroups": "subgroups", "init_device_mesh": "device-mesh"}
    if not isinstance(found, str) or case.name != cases.get(found):
        return None
    return {"timeout": timeout} if isinstance(timeout, int | float) and timeout > 0 else {}
