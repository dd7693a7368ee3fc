"""The clocks of the hosts.

**What.** The clock of every host that you name (`--host`, `--hostfile`) against the clock of this machine.

**Why it hurts.** Checkpoint tags and log lines with a time differ between hosts, and files on a shared disk look newer
than now: ninja rebuilds or does not.

**How it is known.** `date +%s.%N` by ssh; the difference counts beyond the time that the question took.

**Repair.** Let chrony or systemd-timesyncd keep the time.

**Evidence.** Measured: a tag made from `time.time()` gives two checkpoint folders on two ranks.
"""

from __future__ import annotations

import shlex

from dslint.core.words import counted
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, ok, unknown, warning
from dslint.doctor.ssh import Answer, ask_all

META = CheckMeta("D12", "clock", "The clocks of the hosts that you name")

_MOST_SECONDS = 2.0


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each clock that is off, one in all when none is."""
    answers = ask_all(machine)
    if not answers:
        return [ok("no other host is named (--host, --hostfile)")]
    outcomes: list[Outcome] = []
    for answer in answers:
        if answer.clock is None:
            outcomes.append(unknown(f"clock of {answer.host} not known", answer.trouble or "it did not tell the time"))
            continue
        off = _difference(answer)
        if abs(off) > _MOST_SECONDS:
            word = "ahead of" if off > 0 else "behind"
            reason = "tags and logs with a time differ, and shared files look as if they came from the future"
            repair = f"ssh {shlex.quote(answer.host)} timedatectl set-ntp true"
            outcomes.append(warning(f"{answer.host} is {abs(off):.1f} s {word} this machine", reason, repair))
    return outcomes or [ok(f"clocks of {counted(len(answers), 'host')} agree within {_MOST_SECONDS:g} s")]


def _difference(answer: Answer) -> float:
    """Seconds by which a clock is surely ahead (or behind): it was read at some moment between question and answer."""
    assert answer.clock is not None
    if answer.clock > answer.answered_at:
        return answer.clock - answer.answered_at
    return min(answer.clock - answer.asked_at, 0.0)
