# ruff: noqa: E501 - each program stands on one line
"""Traces of ranks: which programs part the ranks, and which look-alikes keep them together."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.core.fact import known
from dslint.model.context import Context
from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201
from dslint.rules.script import dsl204_data_dependent_exit_between_collectives as dsl204
from dslint.rules.script import dsl206_collective_order_mismatch as dsl206

HEAD = "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
STEP = "def f(net, loader, optimizer, rank):\n    model = DDP(net)\n    for batch in loader:\n"


def lines(rule: object, code: str, context: Context | None = None) -> list[int]:
    found = findings(rule, HEAD + code, context) if context is not None else findings(rule, HEAD + code)
    return [f.location.region.line - HEAD.count("\n") for f in found]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def f(rank, done):\n    if done:\n        if rank == 0:\n            return\n    dist.barrier()\n", 5),
        (
            "def f(rank):\n    try:\n        if rank != 0:\n            return\n    finally:\n        g()\n    dist.barrier()\n",
            7,
        ),
        (
            "def f(rank, xs):\n    for x in xs:\n        if rank == 0:\n            break\n        dist.all_reduce(x)\n",
            5,
        ),
        ("def f(rank, xs):\n    for x in xs:\n        if rank == 0:\n            return\n    dist.barrier()\n", 5),
        ("def f(rank, flag):\n    if rank == 0 or flag:\n        dist.barrier()\n", 3),
        # The barriers meet in turn, and the last is left over.
        ("def f(rank):\n    if rank == 0:\n        dist.barrier()\n    dist.barrier()\n    dist.barrier()\n", 5),
        # The other ranks wait where the flag is not set.
        (
            "def f(rank, flag):\n    if rank == 0:\n        if flag:\n            dist.barrier()\n    else:\n        dist.barrier()\n",
            6,
        ),
        (
            "def f(rank):\n    if rank == 0:\n        dist.barrier()\n    else:\n        dist.barrier()\n        dist.barrier()\n",
            6,
        ),
        (
            "def f(rank):\n    match rank:\n        case 0:\n            dist.barrier()\n        case _:\n            g()\n",
            4,
        ),
        (
            "def g(wait=False):\n    if wait:\n        dist.barrier()\ndef f(rank):\n    if rank == 0:\n        g(True)\n",
            6,
        ),
        (
            "def first(fn):\n    def wrapper():\n        if dist.get_rank() == 0:\n            fn()\n    return wrapper\n"
            "@first\ndef f():\n    dist.barrier()\n",
            4,
        ),
        ("def f(rank, xs):\n    if rank == 0:\n        dist.barrier()\n    for x in xs:\n        dist.barrier()\n", 3),
    ],
)
def test_ranks_part(code: str, line: int) -> None:
    assert lines(dsl201, code) == [line]


def test_what_decides_beside_the_rank_is_no_reason_to_blame_one_side() -> None:
    code = "def f(rank, flag):\n    if rank == 0:\n        dist.barrier()\n    if flag and rank != 0:\n        dist.barrier()\n"
    first = findings(dsl201, HEAD + code)[0]
    assert first.location.region.line == 6
    assert "the other ranks do not always call it" in first.message


def test_a_context_manager_that_others_leave_later_meets_another_call() -> None:
    code = (
        "from contextlib import contextmanager\n@contextmanager\ndef first(rank):\n    if rank:\n"
        "        dist.barrier()\n    yield\n    if not rank:\n        dist.barrier()\n"
        "def f(rank, x):\n    with first(rank):\n        if rank == 0:\n            dist.all_reduce(x)\n"
    )
    assert 12 in lines(dsl201, code)


@pytest.mark.parametrize(
    "code",
    [
        "def f(rank):\n    try:\n        if rank != 0:\n            return\n        g()\n    finally:\n        dist.barrier()\n",
        "def f(rank):\n    match rank:\n        case 0:\n            dist.barrier()\n        case _:\n            dist.barrier()\n",
        "def f(rank, bad):\n    if rank == 0 and bad:\n        raise ValueError(bad)\n    dist.barrier()\n",
        "def f(rank, bad):\n    if rank == 0 and bad:\n        exit(1)\n    dist.barrier()\n",
        "def g(wait=False):\n    if wait:\n        dist.barrier()\ndef f(rank):\n    if rank == 0:\n        g()\n",
        "def g(wait=False):\n    if wait:\n        dist.barrier()\ndef f(rank, xs):\n    if rank == 0:\n        for x in xs:\n"
        "            g(wait=False)\n",
        "def f(rank, flag):\n    if rank == 0 and flag:\n        dist.barrier()\n    if rank != 0 and flag:\n        dist.barrier()\n",
        "def f(rank, xs):\n    if rank == 0:\n        for x in xs:\n            dist.all_reduce(x)\n    else:\n"
        "        for x in xs:\n            dist.all_reduce(x)\n",
        "from contextlib import contextmanager\n@contextmanager\ndef first(rank):\n    if rank:\n        dist.barrier()\n"
        "    yield\n    if not rank:\n        dist.barrier()\ndef f(rank):\n    with first(rank):\n        g()\n",
        "def f(rank, study, xs):\n    if rank == 0:\n        def trial(x):\n            dist.broadcast(x, src=0)\n"
        "        study.optimize(trial)\n    else:\n        for x in xs:\n            dist.broadcast(x, src=0)\n",
        "def f(rank):\n    while True:\n        if rank == 0:\n            x = read()\n        dist.broadcast(x, src=0)\n"
        "        if x.done:\n            break\n",
        # What else is asked beside the rank is the same, however it is written and wherever it stands.
        "def f(rank, wait, split):\n    if wait and rank != 0 and split == 'train':\n        dist.barrier()\n"
        '    if wait and rank == 0 and split=="train":\n        dist.barrier()\ndef g(rank, split):\n    f(rank, True, split)\n',
        "def f(rank, a, b):\n    if not (a and b) and rank != 0:\n        dist.barrier()\n"
        "    if rank == 0 and not ( a and b ):\n        dist.barrier()\n",
    ],
)
def test_ranks_stay_together(code: str) -> None:
    assert lines(dsl201, code) == []


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "        loss = model(batch)\n        if torch.isnan(loss):\n            continue\n        loss.backward()\n",
            5,
        ),
        ("        if batch['mask'].sum() == 0:\n            continue\n        model(batch).backward()\n", 4),
        ("        if not batch['mask'].any():\n            continue\n        model(batch).backward()\n", 4),
        (
            "        bad = torch.isnan(model(batch))\n        if bad.item():\n            break\n        dist.barrier()\n",
            5,
        ),
        ("        import time\n        if time.time() - start > 9:\n            break\n        dist.barrier()\n", 5),
        ("        n = len(batch)\n        if len(batch) == 0:\n            dist.barrier()\n", 5),
    ],
)
def test_data_of_one_rank_decides(body: str, line: int) -> None:
    assert lines(dsl204, STEP + body) == [line]


@pytest.mark.parametrize(
    "body",
    [
        "        bad = torch.isnan(model(batch)).float()\n        dist.all_reduce(bad)\n        if bad.item():\n"
        "            continue\n        model(batch).backward()\n",
        "        bad = reduce_max(torch.isnan(model(batch)))\n        if bad:\n            continue\n        dist.barrier()\n",
        "        if batch.get('labels') is None:\n            continue\n        model(batch).backward()\n",
        "        if batch['x'].shape[0] < 4:\n            continue\n        model(batch).backward()\n",
        "        if 'x' in batch:\n            continue\n        model(batch).backward()\n",
        "        loss = model(batch)\n        loss.backward()\n        if torch.isnan(loss):\n            print('nan')\n",
        "        loss = model(batch)\n        if torch.isnan(loss):\n            raise ValueError('nan')\n        loss.backward()\n",
        "        if len(batch) == 0:\n            dist.barrier()\n        else:\n            dist.barrier()\n",
    ],
)
def test_what_all_ranks_know_does_not_part_them(body: str) -> None:
    assert lines(dsl204, STEP + body) == []


def test_a_yield_on_one_side_does_not_end_the_comparison() -> None:
    code = (
        "def f(rank, a, xs):\n    for x in xs:\n        if rank == 0:\n            dist.all_reduce(a)\n            yield a\n"
        "        else:\n            dist.all_reduce(a)\n"
    )
    assert lines(dsl206, code) == []


def test_an_exchange_in_a_loop_is_compared_call_by_call() -> None:
    code = (
        "def f(rank, a, b, xs):\n    for x in xs:\n        if rank == 0:\n            dist.all_reduce(a)\n"
        "            dist.all_reduce(b)\n        else:\n            dist.all_reduce(b)\n            dist.all_reduce(a)\n"
    )
    assert lines(dsl206, code) == [4]
    assert (
        lines(dsl206, code.replace("else:\n            dist.all_reduce(b)", "else:\n            dist.all_reduce(a)"))
        == []
    )


def test_a_forward_is_collective_for_data_only_under_stage_3() -> None:
    code = (
        "import deepspeed\ndef f(net, loader):\n    engine, _, _, _ = deepspeed.initialize(model=net)\n"
        "    for batch in loader:\n        if len(batch) == 0:\n            continue\n        engine(batch)\n"
    )
    assert lines(dsl204, code, Context(zero_stage=known(3))) == [5]
    assert lines(dsl204, code, Context(zero_stage=known(2))) == []


def test_a_call_behind_its_own_test_is_made_by_rank_0_alone_and_nobody_leaves() -> None:
    code = (
        HEAD + "def total(x):\n    if dist.is_initialized():\n        dist.all_reduce(x)\n"
        "def main(args, x):\n    many = args.gpus > 1\n    if many:\n        dist.init_process_group('nccl')\n"
        "    if args.show:\n        print(x)\n    elif not many or dist.get_rank() == 0:\n        total(x)\n"
    )
    (found,) = findings(dsl201, code)
    assert "only rank 0 calls it: the others continue without it" in found.message
