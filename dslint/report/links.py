"""Public addresses: of the project, of its documentation site, of the page of a rule."""

from __future__ import annotations

import os

PROJECT = "https://pypi.org/project/deepspeed-lint/"
# The address of the documentation site, the one place that says it: reports, `mkdocs build` and the metadata of the
# package (pyproject.toml, checked by a test) follow. Empty as long as the site has no public address.
DOCUMENTATION = ""


def documentation() -> str:
    """The address of the site; ``DSLINT_DOCS_URL`` names a copy (of a company, of a branch). Empty without one."""
    base = os.environ.get("DSLINT_DOCS_URL") or DOCUMENTATION
    return f"{base.rstrip('/')}/" if base else ""


def rule_url(code: str) -> str:
    """The page of a rule, by its code alone, which never changes; empty where nobody has published the pages."""
    base = documentation()
    return f"{base}rules/{code}/" if base else ""
