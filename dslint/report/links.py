"""The address of the page of a rule, where the pages are published.

``DSLINT_DOCS_URL`` names a copy (of a company, or of the branch); else the metadata of the package says it.
"""

from __future__ import annotations

import os
from functools import cache


def rule_url(code: str) -> str:
    """The page of a rule; empty where nobody has published the pages."""
    base = os.environ.get("DSLINT_DOCS_URL") or _published()
    return f"{base.rstrip('/')}/rules/{code}/" if base else ""


@cache
def _published() -> str:
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        listed = metadata("deepspeed-lint").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    named = {label.strip().lower(): url.strip() for label, _, url in (entry.partition(",") for entry in listed)}
    return str(named.get("documentation", ""))
