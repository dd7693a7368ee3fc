"""The judgement of two arms, the reading of stacks, and the needs of experiments: pure, no processes."""

from __future__ import annotations

import pytest

from dslint.probe.experiment import Case, Expect, Experiment, Needs
from dslint.probe.needs import Place, unmet
from dslint.probe.outcome import ArmOutcome, Kind, RankOutcome, Verdict, combine, names
from dslint.probe.stacks import parse, place
from dslint.probe.verdict import judge

EXPECT = Expect((Kind.STALL, Kind.RAISE), r"barrier|mismatch")
CASE = Case("c")


def experiment(**facts: bool) -> Experiment:
    return Experiment("e", "does", (CASE,), EXPECT, **facts)  # type: ignore[arg-type]


def arm(kind: Kind, text: str = "") -> ArmOutcome:
    return combine((RankOutcome(0, kind, None, text), RankOutcome(1, Kind.OK)), 0.1)


OK, STALL = arm(Kind.OK), arm(Kind.STALL, "barrier (distributed_c10d.py:1)")
RAISE, OTHER = arm(Kind.RAISE, "RuntimeError: mismatch"), arm(Kind.RAISE, "KeyError: 'x'")
LIMIT = arm(Kind.LIMIT, "barrier")
NOISE = arm(Kind.RAISE, "RuntimeError: Address already in use (barrier)")


@pytest.mark.parametrize(
    ("fixed", "written", "verdict", "why"),
    [
        (OK, [STALL, STALL], Verdict.CONFIRMED, "rank 0 waits in barrier"),
        (OK, [RAISE, RAISE], Verdict.CONFIRMED, "raises RuntimeError: mismatch"),
        (OK, [OK], Verdict.NOT_REPRODUCED, "both arms pass"),
        (STALL, [], Verdict.INCONCLUSIVE, "the fixed arm fails too"),
        (OK, [STALL], Verdict.INCONCLUSIVE, "not repeated"),
        (OK, [STALL, OK], Verdict.INCONCLUSIVE, "differ"),
        (OK, [STALL, RAISE], Verdict.INCONCLUSIVE, "differ"),
        (OK, [OTHER, OTHER], Verdict.INCONCLUSIVE, "another way"),
        (OK, [LIMIT], Verdict.INCONCLUSIVE, "still running"),
        (OK, [NOISE, NOISE], Verdict.INCONCLUSIVE, "the machine got in the way"),
    ],
)
def test_verdicts(fixed: ArmOutcome, written: list[ArmOutcome], verdict: Verdict, why: str) -> None:
    found, reason = judge(experiment(), EXPECT, fixed, written)
    assert found is verdict
    assert why in reason


def test_the_caller_says_how_often_an_arm_must_fail() -> None:
    assert judge(experiment(), EXPECT, OK, [STALL], runs=1)[0] is Verdict.CONFIRMED
    assert judge(experiment(), EXPECT, OK, [OTHER], runs=1)[0] is Verdict.INCONCLUSIVE
    assert judge(experiment(), EXPECT, OK, [STALL, STALL], runs=3)[0] is Verdict.INCONCLUSIVE


def test_an_abort_and_the_error_of_its_peer_are_one_failure() -> None:
    expect = Expect((Kind.SIGNAL, Kind.RAISE), "mismatch")
    abort = arm(Kind.SIGNAL, "SIGABRT: mismatch")
    assert judge(experiment(), expect, OK, [abort, RAISE])[0] is Verdict.CONFIRMED
    assert judge(experiment(), Expect((Kind.SIGNAL,), "mismatch"), OK, [abort, RAISE])[0] is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("kind", ["race", "proxy"])
def test_a_race_or_proxy_that_passes_says_nothing(kind: str) -> None:
    assert judge(experiment(**{kind: True}), EXPECT, OK, [OK])[0] is Verdict.INCONCLUSIVE
    assert judge(experiment(**{kind: True}), EXPECT, OK, [STALL, STALL])[0] is Verdict.CONFIRMED


def test_the_worst_rank_names_the_arm() -> None:
    ranks = (RankOutcome(0, Kind.STALL, None, "x"), RankOutcome(1, Kind.RAISE, None, "ValueError: y"))
    assert combine(ranks, 1.0).kind is Kind.RAISE
    assert combine(ranks, 1.0).sentence() == "rank 0 waits in x; rank 1 raises ValueError: y"


DUMP = """\
Thread 0x00007f1 (most recent call first):
  File "/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f2 (most recent call first):
  File "/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/site-packages/torch/distributed/distributed_c10d.py", line 4712 in barrier
  File "/x/repro.py", line 9 in written
  File "/site-packages/dslint/probe/rank.py", line 190 in _outcome
  File "/site-packages/dslint/probe/rank.py", line 170 in live
"""


def test_the_main_thread_of_each_dump_is_read() -> None:
    stacks = parse(DUMP + DUMP)
    assert len(stacks) == 2
    assert stacks[0] == ("wrapper (c10d_logger.py:83)", "barrier (distributed_c10d.py:4712)", "written (repro.py:9)")
    assert stacks[0].waits
    assert place(stacks[0]) == "barrier (distributed_c10d.py:4712)"


def test_a_sleep_in_the_experiment_is_no_wait() -> None:
    text = DUMP.replace("/site-packages/torch/distributed/", "/x/")
    assert not parse(text)[0].waits
    assert parse("") == []


PLACE = Place(0, False, {"torch": "2.13.0+cpu", "deepspeed": "0.19.8"})


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (Needs(), ""),
        (Needs(gpus=2, why="the CPU has no streams"), "2 GPUs, 0 here: the CPU has no streams"),
        (Needs(root=True), "the right to make network namespaces (root)"),
        (Needs(versions=("torch>=2.1", "deepspeed<0.20")), ""),
        (Needs(versions=("deepspeed==0.17.6",)), "deepspeed==0.17.6, 0.19.8 is installed"),
        (Needs(versions=("mmengine",)), "mmengine, which is not installed here"),
        (Needs(programs=("no-such-program-here",)), "the program `no-such-program-here`"),
    ],
)
def test_what_is_missing_is_named(needs: Needs, text: str) -> None:
    assert unmet(needs, PLACE) == text


def test_ranks_with_the_same_end_are_told_together() -> None:
    def rank(number: int, kind: Kind, text: str = "") -> RankOutcome:
        return RankOutcome(number, kind, text=text)

    ends = (
        rank(0, Kind.STALL, "x"),
        *(rank(n, Kind.OK) for n in (1, 2, 3)),
        rank(4, Kind.STALL, "y"),
        rank(5, Kind.STALL, "y"),
    )
    assert combine(ends, 1.0).sentence() == "rank 0 waits in x; ranks 1-3 finished; ranks 4-5 wait in y"
    assert names([7, 0, 2, 3, 4, 5]) == "ranks 0, 2-5, 7"
