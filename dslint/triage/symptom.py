"""What a symptom is: the lines that show it, what it means, its likely causes and what checks each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

# cause: names a mistake, or the death of a rank. state: what the run is in, without saying why.
# timeout: a rank waited in vain. lost: a rank noticed that another one is gone. report: a launcher says who failed.
Role = Literal["cause", "state", "timeout", "lost", "report"]

# What nearly every Python exception, argparse and Slurm line holds.
ERROR = "rror: "


def doctor(*checks: str) -> tuple[str, ...]:
    """The command that runs these checks of ``dslint doctor``, named as it names them."""
    return (f"dslint doctor {' '.join(f'--check {check}' for check in checks)}",)


class Cause(NamedTuple):
    """One likely cause: a sentence, the rules that find it in the code, and commands beside those of the rules.

    ``peer`` marks the failure of another rank: the first cause once one is known.
    """

    text: str
    rules: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    peer: bool = False

    @property
    def commands(self) -> tuple[str, ...]:
        """What to run, in order: lint for exactly these rules, prove the first one, then ``checks``."""
        if not self.rules:
            return self.checks
        return (f"dslint --select {','.join(self.rules)} .", f"dslint probe --rule {self.rules[0]}", *self.checks)


@dataclass(frozen=True)
class Pattern:
    """One kind of line.

    ``gate`` is a literal of the raw line: one search over the bytes finds all of them, so it must be rare in a
    healthy log. ``regex`` then judges the text of the line, without escape codes and rank prefixes; its named groups
    (``rank``, ``seq``, ``op`` ...) are kept. ``follow`` must match
    one of the next lines where it is given, ``lead`` the text above (the frames of a traceback).
    """

    regex: str
    gate: str = ERROR
    follow: str = ""
    lead: str = ""

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled ``regex``."""
        return re.compile(self.regex)

    @cached_property
    def compiled_follow(self) -> re.Pattern[str] | None:
        """The compiled ``follow``, if there is one."""
        return re.compile(self.follow) if self.follow else None

    @cached_property
    def compiled_lead(self) -> re.Pattern[str] | None:
        """The compiled ``lead``, if there is one."""
        return re.compile(self.lead) if self.lead else None


@dataclass(frozen=True)
class Symptom:
    """One row of the table. Symptoms without patterns are found by a tracker that looks at many lines."""

    name: str
    title: str
    meaning: str
    role: Role
    causes: tuple[Cause, ...]
    patterns: tuple[Pattern, ...] = field(default=())

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules whose symptom this is, most likely first."""
        return tuple(dict.fromkeys(code for cause in self.causes for code in cause.rules))
