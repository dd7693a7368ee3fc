"""CPython judges the engine on fixed programs: no claim may be wrong, and most must say something.

More programs: `python -m python.judge 0 1000` with `tests` on the path.
"""

from __future__ import annotations

import pytest

from .engine import believe
from .programs import ALL, program
from .verdict import Verdict, judge_many

MIXED, EACH = 90, 3


def judged(family: str | None, seeds: range) -> Verdict:
    # What follows an exception that no statement makes is passed over: the trace is cut there, too.
    return judge_many((program(seed, family) for seed in seeds), believe, late=False)


@pytest.mark.parametrize("family", ALL)
def test_each_family(family: str) -> None:
    verdict = judged(family, range(EACH))
    assert not verdict.violations, "\n".join(map(str, verdict.violations[:3]))


def test_mixed_programs() -> None:
    verdict = judged(None, range(MIXED))
    assert not verdict.violations, "\n".join(map(str, verdict.violations[:3]))
    counts = verdict.counts
    assert counts["explained"] >= 0.9 * counts["events"], verdict.report()
    assert counts["known"] >= 0.97 * counts["sites"], verdict.report()
    assert counts["narrow"] >= 0.9 * counts["sites"], verdict.report()
    assert counts["same"] >= 0.75 * counts["sites"], verdict.report()


# Programs that once showed a wrong claim.
FOUND = {
    None: (141, 362, 419, 764, 945, 1040, 1226, 1472, 1527, 31267, 61005),
    "distributed": (775, 823),
    "functions": (38,),
    "decorators": (25,),
    "generators": (76, 283),
    "state": (267,),
    "arguments": (131, 295),
    "environment": (167,),
    "loops": (59,),
    "statements": (36,),
}


@pytest.mark.parametrize("family", FOUND)
def test_programs_that_once_showed_a_wrong_claim(family: str | None) -> None:
    verdict = judge_many((program(seed, family) for seed in FOUND[family]), believe, late=False)
    assert not verdict.violations, "\n".join(map(str, verdict.violations[:3]))
