"""Which rules a launch document or a run plan may concern: asked before a rule is called, or even loaded.

Most documents can concern few rules: a block of documentation without a command, a script for one node. What a rule
``needs`` is tested for all rules at once, so that each rule that cannot fire costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from dslint.core.fact import Fact

if TYPE_CHECKING:
    from dslint.model.launch.document import LaunchDoc
    from dslint.model.plan.runplan import RunPlan
    from dslint.rules.info import RuleInfo


class _Chosen:
    """The rules that need nothing, and those whose needs are met, in their order."""

    def __init__(self, rules: Sequence[RuleInfo]) -> None:
        self._rules = rules
        self._always = frozenset(at for at, rule in enumerate(rules) if not rule.needs)
        self._by_need: dict[str, set[int]] = {}
        for at, rule in enumerate(rules):
            for need in rule.needs:
                self._by_need.setdefault(need, set()).add(at)

    @property
    def needs(self) -> list[str]:
        return list(self._by_need)

    def of(self, met: Iterable[str]) -> list[RuleInfo]:
        by_need = self._by_need
        chosen = self._always.union(*[by_need[need] for need in met if need in by_need])
        return [self._rules[at] for at in sorted(chosen)]


class LaunchRules:
    """Launch rules by what they need: traits of the commands (``model/launch/traits.py``), or ``/pattern/`` of text."""

    def __init__(self, rules: Sequence[RuleInfo]) -> None:
        self._chosen = _Chosen(rules)
        patterns = [need for need in self._chosen.needs if is_pattern(need)]
        self._searches = [(need, re.compile(need[1:-1]).search) for need in patterns]

    def concerned(self, doc: LaunchDoc) -> list[RuleInfo]:
        """The rules that may find something in this document."""
        from dslint.model.launch.traits import traits

        text = doc.shell.text
        met = traits(doc) if doc.commands or doc.called or doc.parties or doc.lost_addresses else set()
        met.update([need for need, search in self._searches if search(text)])
        return self._chosen.of(met)


class PlanRules:
    """Plan rules by what they need: a field of ``RunPlan`` that holds something, or an option of the command."""

    def __init__(self, rules: Sequence[RuleInfo]) -> None:
        self._chosen = _Chosen(rules)
        self._fields = [(need, attrgetter(need)) for need in self._chosen.needs if not need.startswith("-")]

    def concerned(self, plan: RunPlan) -> list[RuleInfo]:
        """The rules that may find something in this plan."""
        from dslint.model.launch.command import canonical

        command = plan.command
        met = {canonical(flag.name) for flags in (command.launcher_flags, command.script_flags) for flag in flags}
        met.update([need for need, field in self._fields if _holds(field(plan))])
        return self._chosen.of(met)


def is_pattern(need: str) -> bool:
    """The need of a launch rule is a regular expression that the text of the document must hold."""
    return need.startswith("/")


def _holds(value: object) -> bool:
    return not value.is_absent if isinstance(value, Fact) else bool(value)
