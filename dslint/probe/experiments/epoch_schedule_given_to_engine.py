"""A schedule of epochs that `deepspeed.initialize` gets.

As written, the engine gets a schedule that halves the learning rate every second epoch; as fixed, the script steps it
at the end of each epoch. As written the rate is halved every second update. With one update in an epoch both agree
(the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="epoch-schedule-given-to-engine",
    summary="the engine steps a schedule of epochs at every update",
    flavour="deepspeed",
    rules=("DSL625",),
    expect=Expect((Kind.WRONG,), r"learning rate"),
    cases=(
        Case("epochs", {"updates": 4}),
        Case("one-update", {"updates": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
EPOCHS = 4


def written(rank: RankApi) -> Json:
    """The engine has the schedule."""
    return _train(rank, is_given=True)


def fixed(rank: RankApi) -> Json:
    """The script steps it."""
    return _train(rank, is_given=False)


def _train(rank: RankApi, is_given: bool) -> Json:
    import torch

    from dslint.probe.parts.zero import batch, config, engine, loss_of, model

    rank.init()
    settings = config(1)
    del settings["optimizer"]
    module = model()
    client = torch.optim.SGD(module.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(client, step_size=2, gamma=0.5)
    trained = engine(rank, settings, module, optimizer=client, lr_scheduler=schedule if is_given else None)
    for epoch in range(EPOCHS):
        for number in range(rank.params["updates"]):
            trained.backward(loss_of(trained(batch(rank, number))))
            trained.step()
        if not is_given:
            schedule.step()
        rank.mark(f"epoch {epoch}")
    return {"rate": round(float(client.param_groups[0]["lr"]), 8)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another learning rate at the end."""
    here, expected = values[0]["rate"], reference[0]["rate"]
    return None if here == expected else f"the learning rate is {here} instead of {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "epochs" and subject.finding.fact("schedule") else None
