"""Results of a prepared loader whose samples do not fill the last batches.

Ten samples in batches of four on two ranks. As written, the results are gathered after the loop: all at once by
`gather_for_metrics`, or by `gather` and a cut to ten; or for each batch by `gather`; as fixed, `gather_for_metrics`
runs for each batch. Sixteen samples fill all batches (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="padding-kept-after-gather",
    summary="samples that fill the last batch count twice",
    flavour="transformers",
    rules=("DSL293",),
    expect=Expect((Kind.WRONG,), r"\d+ results, of which \d+ differ"),
    cases=(
        Case("after-loop", {"samples": 10, "cut": False}),
        Case("cut", {"samples": 10, "cut": True}),
        Case("each-batch", {"samples": 10, "cut": False, "plain": True}),
        Case("full-batches", {"samples": 16, "cut": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """After the loop."""
    return _evaluate(rank, each=False)


def fixed(rank: RankApi) -> Json:
    """In the loop."""
    return _evaluate(rank, each=True)


def _evaluate(rank: RankApi, each: bool) -> Json:
    import torch

    from dslint.probe.parts.accel import make_accelerator

    accelerator = make_accelerator(rank)
    samples = int(rank.params["samples"])
    loader: Any = torch.utils.data.DataLoader(list(range(samples)), batch_size=4)
    found = []
    for batch in accelerator.prepare(loader):
        if each or not rank.params.get("plain"):
            found.append(accelerator.gather_for_metrics(batch) if each else batch)
        else:
            found.append(accelerator.gather(batch))
    every = torch.cat(found)
    if not each and not rank.params.get("plain"):
        every = accelerator.gather(every)[:samples] if rank.params["cut"] else accelerator.gather_for_metrics(every)
    rank.mark("gathered")
    return {"found": sorted(every.tolist())}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other samples."""
    here, expected = values[0]["found"], reference[0]["found"]
    missing = [one for one in here if here.count(one) > expected.count(one)]
    return None if here == expected else f"{len(here)} results, of which {len(missing)} differ"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Whether the results are cut."""
    if subject.finding.fact("plain"):
        return {} if case.name == "each-batch" else None
    return {} if case.name == ("cut" if subject.finding.fact("cut") else "after-loop") else None
