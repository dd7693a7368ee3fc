"""Findings that the user has decided to accept: comment directives and per-file ignores, and those of no use."""

from __future__ import annotations

from dslint.core.suppressed import Suppressed
from dslint.suppress.comments import Suppressions
from dslint.suppress.files import FileIgnores, per_file_ignores
from dslint.suppress.run import suppress

__all__ = ["FileIgnores", "Suppressed", "Suppressions", "per_file_ignores", "suppress"]
