"""The answer to: which releases have this name?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Presence:
    """Where a name is; a release that is in neither set lacks it.

    ``moved_to`` is where the newest release has what the name meant, when that is known and the name itself is gone.
    """

    in_releases: frozenset[str]
    unknown_in: frozenset[str]
    moved_to: str | None = None

    def in_release(self, release: str) -> bool | None:
        """Whether that release has it; ``None`` where this is not known."""
        if release in self.in_releases:
            return True
        return None if release in self.unknown_in else False
