"""The plan rules: every alternative of a command is judged, every finding told once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.engine.launchrules import context_for, run_rule
from dslint.rules.concern import PlanRules
from dslint.rules.registry import load_rule

if TYPE_CHECKING:
    from dslint.core.profile import Profile
    from dslint.core.source import Location
    from dslint.engine.surroundings import Surroundings
    from dslint.model.launch.command import Condition
    from dslint.model.plan.runplan import RunPlan
    from dslint.rules.info import RuleInfo


class PlanJudge:
    """Judges the plans of a run; those that no other plan can change are judged as soon as they are built.

    ``early`` are plans that an earlier run has judged, with its findings; it takes those of this one.
    """

    def __init__(
        self,
        rules: Sequence[RuleInfo],
        surroundings: Surroundings,
        profile: Profile | None = None,
        early: dict[int, tuple[RunPlan, list[Finding]]] | None = None,
    ) -> None:
        self._rules = PlanRules(rules)
        self._surroundings = surroundings
        self._profile = profile
        # By identity, with the plan: one that is replaced later must not leave its number to another.
        self._early = {} if early is None else early

    def built(self, plan: RunPlan) -> None:
        """Use the time until the next launch file is read. Plans with a config wait for other users of it."""
        if plan.config is None and id(plan) not in self._early:
            self._early[id(plan)] = (plan, self._judged(plan))

    def findings(self, plans: Sequence[RunPlan], given: Collection[str]) -> Iterable[Finding]:
        """What the rules say about all plans of a run over the ``given`` files."""
        if not plans:
            return ()
        from dslint.engine.alternatives import told

        found: list[tuple[Finding, Location, tuple[Condition, ...]]] = []
        alternatives: dict[Location, list[tuple[Condition, ...]]] = {}
        for plan in plans:
            place, conditions = plan.command.location, plan.command.conditions
            alternatives.setdefault(place, []).append(conditions)
            judged = self._early.get(id(plan))
            for finding in self._judged(plan) if judged is None else judged[1]:
                # A hook passes only what changed: report when one end of the edge is among it.
                if finding.location.path in given or any(r.path in given for r in finding.related):
                    found.append((_with_text(finding, plan), place, conditions))
        return told(found, alternatives)

    def _judged(self, plan: RunPlan) -> list[Finding]:
        from dslint.model.versions.locked import has_monitor

        path = plan.command.location.path
        if plan.command.has_returns:  # what bash makes of it is none of what is meant
            return []
        concerned = self._rules.concerned(plan)
        context = context_for(concerned, path, self._surroundings)
        if plan.config is not None and has_monitor(plan.config):
            context = replace(context, locked=self._surroundings.locked(path))
        found: list[Finding] = []
        for rule in concerned:
            check = load_rule(rule.code).module.check
            found += run_rule(rule.code, path, partial(check, plan, context), self._profile)
        return found


def _with_text(finding: Finding, plan: RunPlan) -> Finding:
    """With the text of a config that stands inside another file, for the experiments."""
    doc = plan.config
    if doc is None or not doc.is_embedded or finding.pointer is None or finding.location.path != doc.path:
        return finding
    from dslint.model.deepspeed.config import text_facts

    return replace(finding, facts=tuple(sorted({**text_facts(doc), **dict(finding.facts)}.items())))
