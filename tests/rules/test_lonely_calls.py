"""Calls that only some ranks make, and those that the other ranks answer in a place of their own."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201

HEAD = "from contextlib import contextmanager\nimport torch.distributed as dist\n"


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    if rank != 0:\n        dist.barrier()\n    x()\n    if rank == 0:\n        dist.barrier()",
        "if rank == 0:\n    x()\n    dist.barrier()\nelse:\n    dist.barrier()",
        "def f():\n    if rank != 0:\n        dist.barrier()\n        return\n    x()\n    dist.barrier()",
        "@contextmanager\ndef first():\n    if rank != 0:\n        dist.barrier()\n"
        "    yield\n    if rank == 0:\n        dist.barrier()",
        "class C:\n    def __enter__(self):\n        if rank != 0:\n            dist.barrier()\n"
        "    def __exit__(self):\n        if rank == 0:\n            dist.barrier()",
        "def begin():\n    if not is_main_process:\n        dist.barrier()\n"
        "def end():\n    if is_main_process:\n        dist.barrier()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    wait_for_main()",
        "if rank == 0:\n    dist.barrier()\nelif rank == 1:\n    dist.barrier()\nelse:\n    dist.barrier()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    self.sync_with(rank)",
        "def wait():\n    dist.barrier()\nif rank == 0:\n    dist.barrier()\nelse:\n    wait()",
        "def f():\n    if rank == 0:\n        for x in y:\n            dist.barrier()\n    else:\n        for x in y:\n"
        "            dist.barrier()",
    ],
)
def test_the_other_ranks_run_the_same_operation(code: str) -> None:
    assert findings(dsl201, HEAD + code) == []


@pytest.mark.parametrize(
    "code",
    [
        "if rank == 0:\n    dist.barrier()",
        "def f():\n    if rank != 0:\n        return\n    dist.barrier()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    x()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    dist.all_reduce(t)",
        "if rank == 0:\n    dist.barrier()\n    dist.barrier()\nelse:\n    dist.barrier()",
        "if rank == 1:\n    dist.barrier()",
        "if rank == 0:\n    x()\nelif rank == 1:\n    dist.barrier()",
        "match rank:\n    case 0:\n        dist.barrier()",
        "def f():\n    if rank == 0:\n        dist.barrier()\ndef g():\n    if rank == 0:\n        dist.barrier()",
    ],
)
def test_nobody_answers(code: str) -> None:
    assert findings(dsl201, HEAD + code)


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        ("dist.barrier()", ["barrier"]),
        ("if dist.is_initialized():\n        dist.barrier()", ["barrier"]),
        ("if not is_dist_avail_and_initialized():\n        return\n    dist.barrier()", ["barrier"]),
        ("for x in y:\n        dist.all_reduce(x)", ["all_reduce"]),
        ("inner(t)", ["all_reduce"]),
        ("if rank == 0:\n        dist.barrier()", ["barrier"]),
        ("if sync:\n        dist.barrier()", ["barrier"]),
        ("if x is None:\n        return\n    dist.barrier()", ["barrier"]),
        ("dist.barrier(group=g)", []),
        ("x()", []),
        ("def later():\n        dist.barrier()", []),
        ("helper()", []),
    ],
)
def test_a_helper_runs_the_collectives_that_it_does_not_guard_itself(body: str, runs: list[str]) -> None:
    helper = f"def inner(t):\n    dist.all_reduce(t)\ndef helper(x, y, t, g, sync=True):\n    {body}\n"
    code = helper + "def f(rank, x, y, t, g):\n    if rank == 0:\n        print(x)\n        helper(x, y, t, g)\n"
    assert [dict(found.facts)["collective"] for found in findings(dsl201, HEAD + code)] == runs
