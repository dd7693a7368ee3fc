"""A lock that a killed build of a PyTorch extension left behind.

**What.** `lock` files in the folders of JIT-built extensions (DeepSpeed's `fused_adam`, `cpu_adam`, `shm_comm` and
others), below `$TORCH_EXTENSIONS_DIR` or `~/.cache/torch_extensions`, that no process holds.

**Why it hurts.** While the file exists every process that loads the extension waits for it, with no time limit and no
message: the last line of the log is `Using ... as PyTorch extensions root...`. A build that was killed (out of memory,
Ctrl-C, a job's time limit) never removes it, even when the library next to it is complete.

**How it is known.** The builder keeps the file open while it builds. The lock is stale when no process has it open
(`/proc/*/fd`, compared by device and inode), no compiler works in the folder, and no process that cannot be seen from
here could hold it: network file systems, folders that a container shares with its host, and locks of other users are
`unknown`, unless the lock is older than the start of the machine.

**Repair.** `dslint doctor --fix` removes the lock, nothing else, after looking again. Then restart jobs that waited:
they did not build and would look for a library that does not exist.

**Evidence.** https://github.com/deepspeedai/DeepSpeedExamples/issues/842,
https://github.com/deepspeedai/DeepSpeedExamples/issues/302, https://github.com/huggingface/transformers/issues/26015;
`torch/utils/file_baton.py`. Measured: with a left-over lock `load_inline` and `init_distributed` wait until killed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dslint.doctor.extensions import Build, builds, is_hidden, roots
from dslint.doctor.locks import Verdict, judge
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, Status, ok, unknown
from dslint.doctor.words import duration

META = CheckMeta("D1", "stale-extension-lock", "A lock that a killed build of a PyTorch extension left behind")

_WAITS = "every process that loads this extension waits for the file, with no time limit"


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each lock, one in all when there is none."""
    places = roots(machine)
    hidden = [
        unknown(f"{root.path} cannot be read", "its locks are not known") for root in places if is_hidden(root.path)
    ]
    outcomes = hidden + [outcome for root in places for build in builds(root) for outcome in _look(machine, build)]
    where = " and ".join(str(root.path) for root in places)
    return outcomes or [ok(f"no lock in {where}")]


def _look(machine: Machine, build: Build) -> Iterator[Outcome]:
    judgement = judge(machine, build.lock)
    found = f"{build.lock} ({duration(judgement.age)} old)"
    by_hand = f"rm {shlex.quote(str(build.lock))}  # only if nothing builds there, on no machine"
    if judgement.verdict is Verdict.IN_USE:
        yield ok(f"{found} is in use", judgement.why)
    elif judgement.verdict is Verdict.UNKNOWN:
        yield unknown(f"{found} may be stale", f"{judgement.why}; if nothing builds there, {_WAITS}", by_hand)
    elif judgement.verdict is Verdict.STALE and not build.is_torchs():
        yield unknown(f"{found} may be stale", "nothing else in the folder shows that torch made it", by_hand)
    elif judgement.verdict is Verdict.STALE:
        built = "" if any(build.folder.glob("*.so")) else "; the library was never built"
        reason = f"{judgement.why}{built}: {_WAITS}"
        yield Outcome(Status.ERROR, f"{found} is stale", reason, "dslint doctor --fix", judgement.lock)
