"""The judgement: what lacks something in which of the releases that a project may run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dslint.core.finding import Severity
from dslint.model.standing.allowance import Allowance

Reach = Literal["all", "fresh", "oldest"]
_SEVERITY = {"all": Severity.ERROR, "fresh": Severity.WARNING, "oldest": Severity.INFO}


@dataclass(frozen=True, slots=True)
class Standing:
    """Something fails in some releases that a project may run with.

    ``reach``: in ``all`` of them, in the ``fresh`` one that an install takes today, or in the ``oldest`` alone.
    ``release`` is one in which it fails. ``change`` is the release that made the difference: the first that has it
    (``came``) or the first that has it no more; empty where no release that is known differs.
    """

    reach: Reach
    release: str
    change: str
    came: bool
    allowance: Allowance

    @property
    def severity(self) -> Severity:
        """How bad that is; where nobody states a release it is never an error."""
        found = _SEVERITY[self.reach]
        return found if self.allowance.is_stated or found is not Severity.ERROR else Severity.WARNING


def stand(allowance: Allowance, fails: Callable[[str], bool | None], runs: Callable[[str], bool]) -> Standing | None:
    """Return how something stands that ``fails`` in some releases, where code ``runs`` that uses it.

    ``None``: it works as far as anybody knows.
    """
    # Older releases are nobody's business who states none, and to ask for all of them takes longer than all else.
    fresh = allowance.fresh
    if not allowance.is_bounded and not (fresh in allowance.releases and fails(fresh) and runs(fresh)):
        return None
    if not allowance.is_stated and allowance.held_back and not fails(allowance.held_back):
        return None
    failing = [release for release in allowance.releases if fails(release)]
    if not failing:
        return None
    reached = [release for release in allowance.releases if runs(release)]
    lacking = [release for release in reached if release in failing]
    if not lacking:
        return None
    reach: Reach
    if allowance.is_stated and len(lacking) == len(reached) and len(reached) == len(allowance.releases):
        reach = "all"
    elif fresh in lacking:
        reach = "fresh"
    elif allowance.is_bounded:
        reach = "oldest"
    else:
        return None  # older releases are nobody's business who states none
    release = lacking[0] if reach == "oldest" else fresh if reach == "fresh" else lacking[-1]
    change, came = _change(release, allowance.known, fails)
    if allowance.allowed.is_head and (came or not change):
        return None  # what is newer than all releases may have it
    return Standing(reach, release, change, came, allowance)


def _change(release: str, known: tuple[str, ...], fails: Callable[[str], bool | None]) -> tuple[str, bool]:
    """Return the release that took something away before a release that lacks it, else the one that brings it later."""
    if release not in known:
        return "", False
    at = known.index(release)
    gone = release
    for earlier in reversed(known[:at]):
        answer = fails(earlier)
        if answer is False:
            return gone, False
        gone = earlier if answer else gone
    came = next((later for later in known[at + 1 :] if fails(later) is False), "")
    return came, True
