"""From the outcomes of both arms to a verdict. Pure; every rule of the judgement is here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.probe.experiment import Expect, Experiment
from dslint.probe.outcome import ArmOutcome, Kind, Verdict

# A fault of the machine or of the probe itself, never of the code under test.
_NOISE = re.compile(
    r"EADDRINUSE|Address already in use|No module named|ModuleNotFoundError|MemoryError|SIGKILL"
    r"|Cannot allocate memory|DefaultCPUAllocator: can't allocate|No space left on device|Too many open files"
)


def fails_as_declared(arm: ArmOutcome, expect: Expect) -> bool:
    """The arm fails in the way that the rule declares."""
    return arm.kind in expect.kinds and re.search(expect.match, arm.text, re.DOTALL) is not None


def is_noise(arm: ArmOutcome, expect: Expect) -> bool:
    """The failure may come from the machine: worth another try, never a confirmation.

    What an experiment expects by name (a port in use, say) is no noise there.
    """
    found = _NOISE.search(arm.text)
    return found is not None and not (expect.match and re.search(expect.match, found.group(), re.DOTALL))


def judge(
    experiment: Experiment, expect: Expect, fixed: ArmOutcome, written: Sequence[ArmOutcome], runs: int = 2
) -> tuple[Verdict, str]:
    """The verdict and one sentence of reason, from the fixed arm and the runs of the written arm (none to ``runs``).

    CONFIRMED only when the fixed arm passes and the written arm fails as declared, ``runs`` times, in the same way.
    """
    if fixed.kind is not Kind.OK:
        return Verdict.INCONCLUSIVE, f"the fixed arm fails too: {fixed.sentence()}"
    if any(arm.kind is Kind.LIMIT for arm in written):
        return Verdict.INCONCLUSIVE, "the written arm was still running when its time was over"
    if all(arm.kind is Kind.OK for arm in written):
        return _passed(experiment)
    doubt = _doubt(expect, written, runs)
    return (Verdict.INCONCLUSIVE, doubt) if doubt else (Verdict.CONFIRMED, written[0].sentence())


def _passed(experiment: Experiment) -> tuple[Verdict, str]:
    if experiment.race:
        return Verdict.INCONCLUSIVE, "the written arm passed, but the failure is a race that need not show"
    if experiment.proxy:
        return Verdict.INCONCLUSIVE, "the written arm passed, but it stands in for a mechanism that cannot run here"
    return Verdict.NOT_REPRODUCED, "both arms pass"


def _doubt(expect: Expect, written: Sequence[ArmOutcome], runs: int) -> str:
    """Why a failure of the written arm is not enough."""
    for arm in written:
        if is_noise(arm, expect):
            return f"the machine got in the way: {arm.sentence()}"
        if arm.kind is not Kind.OK and not fails_as_declared(arm, expect):
            return f"the written arm fails in another way than expected: {arm.sentence()}"
    if len({_class(arm.kind) for arm in written}) > 1:
        return f"two runs of the written arm differ: {' and '.join(arm.kind.value for arm in written)}"
    return "" if len(written) >= runs else "the written arm failed once and was not repeated"


def _class(kind: Kind) -> Kind:
    # When a rank aborts, it is a matter of timing whether a peer returns first or raises "connection reset".
    return Kind.SIGNAL if kind is Kind.RAISE else kind
