"""What a module with a rule of a project's own imports; these names stay.

See docs/extending.md. The module defines ``META``, ``EXAMPLES`` and ``Check``, as the rules of dslint do.
"""

from __future__ import annotations

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Location, Span
from dslint.rules.base import Example, RuleMeta, bad, good
from dslint.rules.scriptcontext import ScriptContext
from dslint.rules.walk import ScriptCheck

__all__ = [
    "Edit",
    "Example",
    "Fix",
    "Location",
    "RuleMeta",
    "Safety",
    "ScriptCheck",
    "ScriptContext",
    "Severity",
    "Span",
    "bad",
    "good",
]
