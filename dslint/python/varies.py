"""How a value may differ between the ranks of a job: a set of causes, kept as bits, with the place of the first one."""

from __future__ import annotations

# No cause: the value is equal on all ranks.
SAME = 0
# Causes of a difference. The bits of two values that meet are joined by `|`.
NODE = 1  # the number of the machine
LOCAL = 2  # the number of the process on its machine
RANK = 4  # the number of the process in the job
DATA = 8  # each rank has items of its own
CLOCK = 16
RANDOM = 32  # a generator that nobody seeded, or that each process seeds itself
HOST = 64  # files, names, memory, environment of one machine or process
LOST = 128  # our own limit: nobody knows
# No difference between ranks, but the value rests on something assumed.
WORLD = 256  # the number of ranks, which no launch command states
# One bit for each assumption of `core/assumptions.py` that makes a finding likely.
NAMED_DATA = 512  # each rank's own data, by the name of a parameter
UNMODELLED = 1024  # code that nobody can read gives the same for the same
TOLD = 2048  # some ranks were told; where nothing is told there is one process
GROUPED = 4096  # made the same in a group that may leave ranks out
MISSING = 8192  # whether something is there follows from each rank's own data
NAMED_RANK = 16384  # the number of the process, by the name of a parameter
# No difference in what is there, only in its order: one that each process may have drawn for itself.
ORDER = 32768
# Whether a file is there that no other rank asks for: its name has the rank in it.
OWN_FILE = 65536
# Each rank's own data certainly decide whether something is there: `MISSING` without the doubt.
CHOSEN = 131072

RANKED = NODE | LOCAL | RANK
OWN = DATA | CLOCK | RANDOM | HOST | OWN_FILE
# The value was read, but not for certain ...
UNSURE = NAMED_DATA | UNMODELLED | TOLD | GROUPED | MISSING
# ... or it rests on any assumption at all.
ASSUMED = UNSURE | NAMED_RANK
ASSUMPTION_OF = {
    NAMED_DATA: "data-by-name",
    UNMODELLED: "unmodelled-code",
    TOLD: "told-or-alone",
    GROUPED: "group-holds-all",
    MISSING: "missing-by-data",
    NAMED_RANK: "rank-by-name",
}
DIVERGENT = RANKED | OWN

_WORDS = {
    NODE: "machine",
    LOCAL: "local rank",
    RANK: "rank",
    DATA: "data of each rank",
    CLOCK: "clock",
    RANDOM: "random numbers",
    HOST: "files or state of each host",
    OWN_FILE: "a file that each rank has for itself",
    LOST: "lost",
    WORLD: "assumed number of ranks",
    UNSURE: "assumed the same",
    NAMED_RANK: "rank by its name",
    ORDER: "order that each process draws",
}


def differs(varies: int) -> bool:
    """Return whether ranks certainly have no guarantee to hold the same value, for a cause that is known."""
    return bool(varies & DIVERGENT)


def is_same(varies: int) -> bool:
    """Return whether the value is claimed to be equal on all ranks (perhaps under an assumption)."""
    return not varies & (DIVERGENT | LOST)


def described(varies: int) -> str:
    """Return the causes in words, for `dslint facts`."""
    found = [word for bit, word in _WORDS.items() if varies & bit]
    return ", ".join(found) or "same on all ranks"
