"""What a script hands to `deepspeed.initialize` beside the config: only what is certain."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.model.plan.handover import Handover, read_handover
from dslint.model.plan.scriptrun import script_run
from dslint.model.workspace import Workspace

ADAMW = "torch.optim.AdamW"
HEAD = "import deepspeed\nimport torch\nfrom torch.optim import AdamW\n"


def handed(text: str) -> Handover | None:
    run = script_run("train.py", Workspace(Path("/nonexistent"), {"train.py": HEAD + text}))
    return read_handover(run) if run is not None else None


@pytest.mark.parametrize(
    ("text", "optimizer"),
    [
        ("deepspeed.initialize(model=m)", "absent"),
        ("deepspeed.initialize(model=m, optimizer=None)", "absent"),
        ("deepspeed.initialize(args, m)", "absent"),
        ("deepspeed.initialize(model=m, optimizer=AdamW(m.parameters()))", ADAMW),
        ("deepspeed.initialize(args, m, AdamW(m.parameters()))", ADAMW),
        ("o = AdamW(m.parameters())\nm, o, _, s = deepspeed.initialize(model=m, optimizer=o)", ADAMW),
        ("def main(m):\n    o = AdamW(m)\n    m, o, _, _ = deepspeed.initialize(model=m, optimizer=o)\n"
         "def other(o):\n    pass\n", ADAMW),
        ("o = None\ndeepspeed.initialize(model=m, optimizer=o)", "absent"),
        ("o = None\nif x:\n    o = AdamW(m)\ndeepspeed.initialize(model=m, optimizer=o)", "unknown"),
        ("def main(o):\n    deepspeed.initialize(model=m, optimizer=o)", "unknown"),
        ("o = make(m)\ndeepspeed.initialize(model=m, optimizer=o)", "unknown"),
        ("o = AdamW(m)\ndef main():\n    deepspeed.initialize(model=m, optimizer=o)", ADAMW),
        ("deepspeed.initialize(model=m, **more)", "unknown"),
        ("deepspeed.initialize(*more)", "unknown"),
        ("for o in (AdamW(m),):\n    deepspeed.initialize(model=m, optimizer=o)", ADAMW),
        ("def make(p):\n    return AdamW(p)\ndeepspeed.initialize(model=m, optimizer=make(m))", ADAMW),
        ("def start(o):\n    deepspeed.initialize(model=m, optimizer=o)\nstart(AdamW(m))", ADAMW),
        ("def start(o):\n    deepspeed.initialize(model=m, optimizer=o)\nstart(AdamW(m))\nstart(None)", "unknown"),
        ("deepspeed.initialize(model=m, optimizer=lambda p: AdamW(p))", "unknown"),
        ("deepspeed.initialize(model=m, optimizer=AdamW if x else None)", "unknown"),
    ],
)  # fmt: skip
def test_the_optimizer_of_the_call(text: str, optimizer: str) -> None:
    found = handed(text)
    assert found is not None
    fact = found.optimizer
    assert (fact.get() if fact.is_known else "absent" if fact.is_absent else "unknown") == optimizer


@pytest.mark.parametrize(
    "text",
    ["", "x = (", "deepspeed.initialize(model=a)\ndeepspeed.initialize(model=b)", "deepspeed.init_inference(m)"],
)
def test_no_call_or_several_say_nothing(text: str) -> None:
    assert handed(text) is None


def test_the_schedule_stands_at_the_sixth_place() -> None:
    found = handed("deepspeed.initialize(a, m, None, p, None, torch.optim.lr_scheduler.StepLR(o, 1))")
    assert found is not None
    assert found.scheduler.get() == "torch.optim.lr_scheduler.StepLR"
    assert found.optimizer.is_absent


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("deepspeed.initialize(model=m)", "absent"),
        ("deepspeed.initialize(a, m, None, p, None, None)", "absent"),
        ("deepspeed.initialize(model=m, mpu=None)", "absent"),
        ("deepspeed.initialize(model=m, mpu=mpu)", "mpu"),
        ("deepspeed.initialize(model=m, mesh_param=(2, 4))", "mesh_param"),
        ("deepspeed.initialize(a, m, None, p, None, None, mpu)", "unknown"),
        ("deepspeed.initialize(model=m, **more)", "unknown"),
        ("deepspeed.initialize(*more)", "unknown"),
    ],
)
def test_groups_of_ranks_that_the_call_brings(text: str, groups: str) -> None:
    found = handed(text)
    assert found is not None
    fact = found.groups
    assert (fact.get() if fact.is_known else "absent" if fact.is_absent else "unknown") == groups
