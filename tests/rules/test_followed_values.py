"""What rules follow over one call: objects of classes of the file, what functions are given, return and shard."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.model.context import Context
from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201
from dslint.rules.script import dsl204_data_dependent_exit_between_collectives as dsl204

DIST = "import torch\nimport torch.distributed as dist\n"
ENGINE = DIST + (
    "import deepspeed\n\nengine, _, loader, _ = deepspeed.initialize(model=net, training_data=rows, config='ds.json')\n"
)
JOB = DIST + (
    "class Base:\n    def sync(self):\n        dist.barrier()\n"
    "class Job(Base):\n    def __enter__(self):\n        return self\n    def __exit__(self, *_):\n        pass\n"
    "    def __call__(self, x):\n        for part in x:\n            dist.all_reduce(part)\n"
)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(JOB + "job = Job()\nif rank == 0:\n    print(1)\n    job(x)\n", id="an object that is called"),
        pytest.param(JOB + "with Job() as job:\n    if rank == 0:\n        print(1)\n        job.sync()\n", id="with"),
        pytest.param(
            JOB + "class Actor:\n    def __init__(self):\n        self.job = None\n        self.job = Job()\n"
            "    def save(self, rank):\n        if rank == 0:\n            print(1)\n            self.job.sync()\n",
            id="an attribute, by a method of its base",
        ),
        pytest.param(
            DIST + "import deepspeed\nclass Maker:\n    def prepare(self, m):\n"
            "        engine, opt, _, _ = deepspeed.initialize(model=m, config='ds.json')\n        return engine, opt\n"
            "class Actor:\n    def __init__(self, m):\n        self.maker = Maker()\n"
            "        self.engine, self.opt = self.maker.prepare(m)\n"
            "    def save(self, rank):\n        if rank == 0:\n            print(1)\n"
            "            self.engine.save_checkpoint('out')\n",
            id="what a method of an attribute returns",
        ),
        pytest.param(
            "from transformers import Trainer\nclass T(Trainer):\n    def evaluate(self, *args):\n"
            "        if self.is_world_process_zero():\n            print(1)\n"
            "            return super().evaluate(*args)\n",
            id="super",
        ),
        pytest.param(
            DIST + "from torch.distributed.fsdp import fully_shard\n"
            "def shard(net, mesh):\n    for layer in net.layers:\n        fully_shard(layer, mesh=mesh)\n"
            "    fully_shard(net, mesh=mesh)\n"
            "def f(model, mesh, rank):\n    shard(model, mesh)\n    if rank == 0:\n        print(1)\n"
            "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
            id="a function that shards in place",
        ),
        pytest.param(
            DIST + "for epoch in range(3):\n    if rank == 0:\n        print(1)\n        dist.all_reduce(x)\n"
            "    for part in parts:\n        dist.all_reduce(part)\n",
            id="a loop of the same calls follows on every rank",
        ),
        pytest.param(
            ENGINE + "from torch.nn.parallel import DistributedDataParallel as DDP\nddp = DDP(net)\n"
            "loss = ddp(x).mean()\nif rank == 0:\n    print(1)\n    scaler.scale(loss).backward()\n",
            id="the backward of a scaled loss",
        ),
    ],
)
def test_a_call_behind_a_rank_guard_is_followed(code: str) -> None:
    assert len(findings(dsl201, code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            JOB + "job = make()\nif rank == 0:\n    print(1)\n    job(x)\n    job.sync()\n", id="an unknown object"
        ),
        pytest.param(
            JOB.replace("        return self\n", "        return self.inner\n")
            + "with Job() as job:\n    if rank == 0:\n        print(1)\n        job.sync()\n",
            id="__enter__ returns something else",
        ),
        pytest.param(
            ENGINE + "from torch.nn.parallel import DistributedDataParallel as DDP\nddp = DDP(net)\n"
            "with ddp.no_sync():\n    loss = ddp(x).mean()\n"
            "    if rank == 0:\n        print(1)\n        loss.backward()\n",
            id="a backward without exchange",
        ),
    ],
)
def test_what_is_not_certain_is_left_alone(code: str) -> None:
    assert findings(dsl201, code) == []


@pytest.mark.parametrize(
    ("step", "fires"),
    [
        ("    loss = engine(x).mean()\n    return loss\n", True),
        ("    loss = engine(x).mean()\n    dist.all_reduce(loss)\n    return loss\n", False),
        ("    return mean(engine(x).mean())\n", False),
        ("    return settings.limit\n", False),
    ],
)
def test_what_a_function_returns_differs_between_ranks_as_its_values_do(step: str, fires: bool) -> None:
    code = ENGINE + (
        "def mean(value):\n    value = value.detach().clone()\n    dist.all_reduce(value)\n    return value\n"
        f"def run(x):\n{step}"
        "def main():\n    for batch in loader:\n        batch = {k: v.cuda() for k, v in batch.items()}\n"
        "        loss = run(batch)\n        if loss.item() < best:\n            engine.save_checkpoint('out')\n"
    )
    assert len(findings(dsl204, code, Context())) == fires


@pytest.mark.parametrize("model", ["sharded", "sharded.module"])
def test_what_a_sharded_model_returns_is_of_the_data_of_the_rank(model: str) -> None:
    code = (
        "import torch.distributed as dist\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.utils.data import DataLoader, DistributedSampler\n"
        "sharded = FSDP(net)\nloader = DataLoader(data, sampler=DistributedSampler(data))\n"
        f"for batch in loader:\n    loss = {model}(batch).mean()\n"
        "    if loss.item() > 9:\n        break\n    dist.all_reduce(t)\n"
    )
    assert len(findings(dsl204, code)) == 1


@pytest.mark.parametrize("way", ["continue", "break"])
@pytest.mark.parametrize(("more", "count"), [("", 0), ("    engine.backward(loss)\n", 1)])
def test_a_loop_that_one_rank_passes_by_is_no_partner_of_the_next_over_the_same(
    way: str, more: str, count: int
) -> None:
    code = ENGINE + (
        f"for batch in loader:\n    loss = engine.module(batch)\n    if loss.item() > 9:\n        {way}\n{more}"
        "for batch in loader:\n    if args.late:\n        engine.backward(batch)\n"
    )
    found = findings(dsl204, code)
    assert len(found) == count


def test_a_parameter_differs_where_a_call_passes_what_differs() -> None:
    code = ENGINE + (
        "def stop(loss):\n    return loss.item() > 9\n"
        "for batch in loader:\n    loss = engine(batch).mean()\n"
        "    if stop(loss):\n        break\n    engine.backward(loss)\n"
    )
    assert len(findings(dsl204, code)) == 1
    assert len(findings(dsl204, code + "stop(limit)\n")) == 1
    assert findings(dsl204, code.replace("if stop(loss)", "if stop(limit)")) == []
