"""The judge itself: programs run as they would without it, every run ends, and what is claimed wrongly is found."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dslint.python.events import Event, Seq

from .engine import Claim, Ignorance, Site
from .programs import ALL, FAMILIES, Program, program
from .shrink import shrink, smallest
from .verdict import DEAD, EVENTS, SAME, VALUE, Verdict, check_same, judge, judge_many
from .worlds import Job, Run, events_of, run

CHUNKS, CHUNK = 5, 100
LAUNCHES = ((2, 1), (4, 2), (3, 1))


def launched(drawn: Program, **changes: Any) -> Run:
    size, nodes = LAUNCHES[drawn.seed % 3]
    job = Job(size=size, nodes=nodes, argv=drawn.argv, env=dict(drawn.env), seed=drawn.seed)
    return run(drawn.files, replace(job, **changes))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_programs_end_normally_or_by_a_declared_outcome(chunk: int) -> None:
    bad = []
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        done = launched(program(seed))
        declared = done.ended.startswith(("deadlock", "mismatch")) or all(r.finished for r in done.ranks)
        if not declared:
            bad.append((seed, [(r.outcome, r.error[-300:]) for r in done.ranks]))
    assert len(bad) <= CHUNK // 100, bad


def test_instruments_change_neither_output_nor_trace() -> None:
    for seed in range(1000, 1060):
        drawn = program(seed)
        noted, plain = launched(drawn, own_sets=False), launched(drawn, instrument=False)
        for rank, other in zip(noted.ranks, plain.ranks, strict=True):
            assert rank.output == other.output, seed
            assert events_of(noted, rank.number) == events_of(plain, rank.number), seed
            assert rank.outcome.replace("undeclared", "raise") == other.outcome, seed


@pytest.mark.parametrize("family", ALL)
def test_each_family_alone(family: str) -> None:
    for seed in range(4):
        drawn = program(seed, family)
        done = launched(drawn)
        assert done.ended.startswith(("deadlock", "mismatch")) or all(r.finished for r in done.ranks), seed


def test_programs_are_drawn_by_their_seed_alone() -> None:
    assert program(7) == program(7)
    assert program(7).files != program(8).files
    assert {f for seed in range(80) for f in program(seed).families} >= set(FAMILIES)


def test_contexts_of_expressions_match_over_ranks() -> None:
    """Programs without ranks: whatever is compared as one evaluation is equal."""
    verdict, compared = Verdict(), 0
    for seed in range(60):
        drawn = program(seed)
        if "distributed" not in drawn.families and "environment" not in drawn.families:
            check_same(launched(drawn, own_sets=False), Ignorance(lost=False, same=True), verdict)
            compared += 1
    assert compared > 8
    assert not verdict.violations, verdict.violations[0]
    assert verdict.counts["pairs"] > 1000


HEAD = "import torch\nimport torch.distributed as dist\ndist.init_process_group()\nrank = dist.get_rank()\n"


def ended(text: str, **options: Any) -> Run:
    return run({"main.py": HEAD + text}, Job(**options))


def test_a_guarded_collective_is_a_deadlock() -> None:
    done = ended("if rank == 0:\n    dist.barrier()\nprint('end')")
    assert done.ended == "deadlock: rank 0 waits in barrier of world"
    assert done.ranks[1].outcome == "end"
    assert done.ranks[0].cut_trace[1]
    assert done.ranks[0].trace[-1].api == "torch.distributed.barrier"


def test_other_collectives_are_a_mismatch() -> None:
    done = ended("t = torch.ones(1)\n(dist.all_reduce if rank else dist.broadcast)(*([t] if rank else [t, 0]))")
    assert done.ended.startswith("mismatch")


def test_a_deadlock_is_no_exception_that_a_program_can_catch() -> None:
    text = (
        "while True:\n    try:\n        if rank == 0:\n            dist.barrier()\n        else:\n            break\n"
    )
    done = ended(text + "    except BaseException:\n        pass\n    finally:\n        print('over')\n")
    assert done.ended.startswith("deadlock")


def test_a_program_that_does_not_end_is_ended() -> None:
    done = ended("n = 0\nwhile True:\n    n += 1")
    assert done.ended == "the program runs for too long"


def test_one_rank_that_crashes_leaves_the_others_waiting() -> None:
    done = ended("if rank == 1:\n    [][1]\ndist.barrier()", size=3)
    assert done.ended.startswith("deadlock")
    assert done.ranks[1].outcome == "undeclared IndexError"
    assert done.ranks[1].cut_trace == (done.ranks[1].trace, True)


def test_values_are_exchanged() -> None:
    text = """
t = torch.tensor([float(rank), 1.0])
dist.all_reduce(t)
parts = [None] * 3
dist.all_gather_object(parts, {"rank": rank})
dist.broadcast_object_list(parts, src=2)
if rank == 0:
    dist.send(torch.tensor([7.0]), dst=1)
elif rank == 1:
    got = torch.zeros(1)
    dist.recv(got, src=0)
    t += got
pair = dist.new_group([0, 2])
if rank != 1:
    dist.all_reduce(t, op=dist.ReduceOp.MAX, group=pair)
print(t.tolist(), [p["rank"] for p in parts])
"""
    done = ended(text, size=3)
    assert [r.output for r in done.ranks] == [
        "[3.0, 3.0] [0, 1, 2]\n",
        "[10.0, 10.0] [0, 1, 2]\n",
        "[3.0, 3.0] [0, 1, 2]\n",
    ], done.ended


def test_each_rank_has_surroundings_of_its_own() -> None:
    text = """
import os, random, socket, sys, time, datetime
state = {"n": 0}
state["n"] += 1
words = list({"alpha", "beta", "gamma", "delta", "epsilon"})
print(os.environ["RANK"], os.environ["LOCAL_RANK"], socket.gethostname(), sys.argv[1:], state)
print(time.time(), random.random(), torch.rand(1).item(), os.getpid(), words, datetime.datetime.now())
"""
    done = ended(text, size=4, nodes=2, argv=("--x",))
    first, second = zip(*(r.output.splitlines() for r in done.ranks), strict=True)
    assert first[3] == "3 1 host1 ['--x'] {'n': 1}"
    assert len(set(second)) == 4


def test_the_ranks_share_no_modules() -> None:
    files = {"lib.py": "import torch.distributed as dist\nseen = []\ndist.barrier()\n"}
    files["main.py"] = HEAD + "import lib\nlib.seen.append(rank)\nimport lib as again\nprint(again.seen)\n"
    assert [r.output for r in run(files).ranks] == ["[0]\n", "[1]\n"]


def test_the_trace_is_cut_at_the_first_exception_that_nothing_states() -> None:
    text = "dist.barrier()\ntry:\n    {}['a']\nexcept KeyError:\n    dist.barrier()\n"
    assert ended(text).ranks[0].cut_trace[0][-1].line == 5
    assert ended(text.replace("{}['a']", "raise KeyError('a')")).ranks[0].cut_at is None
    hidden = "import contextlib\nwith contextlib.suppress(KeyError):\n    {}['a']\ndist.barrier()\n"
    assert ended(hidden).ranks[0].cut_by.startswith("KeyError")


# -- the verdict


@dataclass
class Fixed:
    """Claims one value, the same for all ranks."""

    values: tuple[object, ...]
    same: bool = False
    lost: bool = False
    unasked: bool = False
    vague: bool = False

    def may_be(self, value: object, rank: int, world: int) -> bool:
        return value in self.values


class Partial(Ignorance):
    """Knows nothing but some claims by (line, col)."""

    def __init__(self, claims: Mapping[tuple[int, int], Claim | None], tree: Seq | None = None) -> None:
        super().__init__()
        self._claims = claims
        self.tree = tree or self.tree

    def value(self, site: Site) -> Claim | None:
        return self._claims.get((site[1], site[2]), self)


TEXT = HEAD + "x = rank + 1\nprint(x)\n"


@pytest.mark.parametrize(
    ("claim", "kinds"),
    [(Fixed((1, 2)), set()), (Fixed((1,)), {VALUE}), (None, {DEAD}), (Fixed((1, 2), same=True), {SAME})],
)
def test_a_wrong_claim_is_found(claim: Claim | None, kinds: set[str]) -> None:
    verdict = judge({"main.py": TEXT}, Job(), lambda files, job: Partial({(6, 6): claim}))
    assert {v.kind for v in verdict.violations} == kinds
    assert all("> " in v.excerpt and "print(x)" in v.excerpt for v in verdict.violations)


def call_event(line: int, api: str) -> Event:
    node: Any = ast.parse("\n" * (line - 1) + "f()", "main.py").body[0]
    return Event(api, frozenset(), node.value, None, None, {}, None, -1)  # type: ignore[arg-type]


def test_a_trace_that_is_no_word_is_found() -> None:
    text = "import torch.distributed as d\nd.init_process_group()\nd.barrier()\n"
    start, barrier = call_event(2, "torch.distributed.init_process_group"), call_event(3, "torch.distributed.barrier")
    for items, kinds in (([start, barrier], set()), ([start], {EVENTS}), ([start, barrier, barrier], {EVENTS})):
        verdict = judge({"main.py": text}, Job(), lambda files, job, items=items: Partial({}, Seq(items)))
        assert {v.kind for v in verdict.violations} == kinds


def test_counts_are_told() -> None:
    report = judge_many((program(s, small=True) for s in range(5)), lambda files, job: Ignorance()).report()
    assert "programs: 5" in report
    assert "violations: none" in report


def test_programs_shrink() -> None:
    found = shrink(program(3).files, lambda files: "dist.get_rank()" in files["main.py"])
    assert len(found["main.py"].splitlines()) <= 2
    claims = {(6, 6): Fixed((1,))}
    small = smallest({"main.py": TEXT}, Job(), lambda files, job: Partial(claims), VALUE, tries=60)
    assert "print(x)" in small["main.py"]
