"""The length of a sampler runs a collective, and rank 0 asks for it alone, as a progress bar does.

As written, `__len__` gathers; as fixed, it returns what was gathered before.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="length-runs-collective",
    summary="rank 0 waits in the collective of a length that the others do not ask for",
    rules=("DSL678",),
    expect=Expect((Kind.STALL, Kind.RAISE), r"all_gather_object|all_reduce|Connection (?:reset|closed) by peer"),
    cases=(Case("progress-bar", {}),),
)


def written(rank: RankApi) -> Json:
    """The length gathers each time."""
    return _ask(rank, is_kept=False)


def fixed(rank: RankApi) -> Json:
    """The length was gathered before."""
    return _ask(rank, is_kept=True)


def _ask(rank: RankApi, is_kept: bool) -> Json:
    import torch
    import torch.distributed as dist

    class Sampler:
        def __init__(self) -> None:
            self.kept = self.common() if is_kept else None

        def common(self) -> int:
            counts: list[int] = [0] * rank.world
            dist.all_gather_object(counts, 4 + rank.index)
            return min(counts)

        def __len__(self) -> int:
            return self.common() if self.kept is None else self.kept

    rank.init()
    sampler = Sampler()
    total = len(sampler) if rank.index == 0 else 4
    loss = torch.ones(1, device=rank.device)
    dist.all_reduce(loss)
    return {"total": total, "loss": float(loss)}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "progress-bar" and subject.finding.fact("asks") == "length" else None
