"""Which environment variables a script names."""

from __future__ import annotations

import re

from dslint.core.source import SourceFile

_NAME = re.compile(r"[\"']([A-Z][A-Z0-9_]{5,})[\"']")


def named_variables(source: SourceFile) -> frozenset[str]:
    """Every text of the script that may be the name of a variable."""
    return frozenset(_NAME.findall(source.text))
