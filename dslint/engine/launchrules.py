"""The launch rules on one document: every alternative of its commands is judged, every finding told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.engine.inputs import crash
from dslint.model.context import Context
from dslint.rules.concern import LaunchRules
from dslint.rules.registry import load_rule

if TYPE_CHECKING:
    from dslint.core.profile import Profile
    from dslint.core.source import Location
    from dslint.engine.surroundings import Surroundings
    from dslint.model.launch.command import Condition
    from dslint.model.launch.document import LaunchDoc
    from dslint.rules.info import RuleInfo


# The rule about the line ends of Windows.
LINE_ENDS = "DSL357"
_NOTHING_KNOWN = Context()


class LaunchJudge:
    """Rules that need a launch file and the versions around it, and nothing that a plan knows."""

    def __init__(self, rules: Sequence[RuleInfo], surroundings: Surroundings) -> None:
        self._rules = rules
        self._concerned = LaunchRules(rules).concerned
        self._surroundings = surroundings

    def load(self) -> None:
        """Import all rules."""
        for rule in self._rules:
            load_rule(rule.code)

    def findings(self, doc: LaunchDoc, profile: Profile | None = None) -> Iterator[Finding]:
        """What the rules say about one document."""
        concerned = self._concerned(doc)
        if doc.meant:  # nothing else is worth saying of what bash makes of such a script
            concerned = [rule for rule in concerned if rule.code == LINE_ENDS]
        if not concerned:
            return
        from dslint.engine.alternatives import place_of, told, variants

        path = doc.source.path
        context = context_for(concerned, path, self._surroundings)
        ways = variants(doc)
        alternatives: dict[Location | None, list[tuple[Condition, ...]]] = {None: [way for way, _ in ways]}
        for way, variant in ways:
            for place in dict.fromkeys(command.location for command in variant.commands):
                alternatives.setdefault(place, []).append(way)
        for rule in concerned:
            check = load_rule(rule.code).module.check
            found = [
                (finding, place_of(finding, variant), conditions)
                for conditions, variant in ways
                for finding in run_rule(rule.code, path, partial(check, variant, context), profile)
            ]
            yield from told(found, alternatives)


def context_for(rules: Iterable[RuleInfo], path: str, surroundings: Surroundings) -> Context:
    """The versions around a file, which are looked for only when some rule asks."""
    return _NOTHING_KNOWN if all(rule.ignores_context for rule in rules) else surroundings.context(path)


def run_rule(
    code: str, path: str, run: Callable[[], Iterable[Finding]], profile: Profile | None = None
) -> list[Finding]:
    """The findings of one rule on one document."""
    if profile is None:
        return _guarded(code, path, run)
    profile.count(code)
    return profile.charged(code, "handlers", partial(_guarded, code, path, run))


def _guarded(code: str, path: str, run: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """A crash of a rule is a finding, the others go on."""
    try:
        return list(run())
    except Exception as error:
        return [crash(f"rule {code}", path, error)]
