"""The line of the rule index: what settings, reports and the command line know without loading a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dslint.parse.data import DataDoc


class RuleInfo(NamedTuple):
    """One rule as the generated :mod:`dslint.rules.index` lists it; the fields are those of ``RuleMeta``.

    ``severity`` is the text of the enumeration ("error" | "warning" | "info"), so that listing rules imports
    nothing. ``module`` holds the rule; ``has_precheck`` says that it defines the cheap ``precheck`` that runs
    before LibCST parses a script. What launch and plan rules ``need`` is asked in :mod:`dslint.rules.concern`; where
    all that are called say ``ignores_context``, nobody reads the versions of the project for them. An ``optional``
    rule is off unless the user selects it. ``asks_runs``: it has a query about the runs of a script.
    """

    code: str
    name: str
    kind: str
    severity: str
    summary: str
    module: str
    markers: tuple[str, ...] = ()
    fix: str = "none"
    since: str = "0.1.0"
    depends_on_run: bool = False
    has_precheck: bool = False
    optional: bool = False
    needs: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    ignores_context: bool = False
    asks_runs: bool = False

    def may_concern(self, doc: DataDoc) -> bool:
        """Whether a config holds what the rule ``needs``."""
        return not self.needs or any(doc.has(pointer) for pointer in self.needs)
