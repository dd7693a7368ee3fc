"""A model whose gradients the script adds over the ranks by hand, and steps with the sum.

As written, nothing divides: the steps are as many times too long as there are ranks. As fixed, the sum is divided, and
the weights are those of one process that sees the batches of all. With the loss divided instead (the control) there is
nothing to mend.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="gradients-summed-not-averaged",
    summary="the sum of the gradients of all ranks makes steps that grow with their number",
    flavour="torch",
    rules=("DSL786",),
    expect=Expect((Kind.WRONG,), r"the step is 2\.0 times as long"),
    cases=(
        Case("summed", {"divided": False}),
        Case("loss-divided", {"divided": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Step with the sum."""
    return _train(rank, is_mean=bool(rank.params["divided"]))


def fixed(rank: RankApi) -> Json:
    """Step with the mean."""
    return _train(rank, is_mean=True)


def _train(rank: RankApi, is_mean: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1).to(rank.device)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(8, 4, device=rank.device)
    (model(x) - 1).mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        if is_mean:
            parameter.grad /= dist.get_world_size()
    optimizer.step()
    rank.mark("step")
    # The loss is linear: one process steps by the rate times the mean of the inputs, which is one.
    return float((before - model.weight.detach()).mean() / 0.1)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the step of one process is known
    """Return how much longer the step is than that of one process."""
    lengths = [value for value in values if isinstance(value, float)]
    longest = max(lengths, default=1.0)
    return f"the step is {longest:.1f} times as long as that of one process" if longest > 1.1 else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - nothing to take over
    """The case of a sum."""
    return {} if case.name == "summed" else None
