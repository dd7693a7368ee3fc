"""The directory that a script is in after ``cd``."""

from __future__ import annotations

import re

from dslint.core.fact import Fact, known, unknown
from dslint.model.shell.scope import Scope
from dslint.model.shell.words import UnknownWordError, expand_assignment

_OWN_DIRECTORY = re.compile(
    r"""["']?(?:\$\(\s*dirname\s+(?:--\s+)?["']?\$(?:0|\{0\}|\{?BASH_SOURCE(?:\[0\])?\}?)["']?\s*\)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\})["']?(?P<tail>(?:/[\w./-]*)?["']?)"""
)


def changed_directory(arguments: list[str], script: str, scope: Scope) -> Fact[str]:
    """The directory after ``cd ARGUMENTS`` in the file ``script``: relative to the project, or absolute."""
    if len(arguments) != 1:
        return unknown("`cd` without a readable directory")
    own = _OWN_DIRECTORY.fullmatch(arguments[0])
    if own:
        return known(_joined(script.rpartition("/")[0], own["tail"].strip('"/')) or ".")
    try:
        target = expand_assignment(arguments[0], scope.lookup())
    except UnknownWordError:
        return unknown(f"`cd {arguments[0]}`")
    if target.startswith("/"):
        return known(_joined("", target))
    if scope.cwd.is_unknown:
        return scope.cwd
    return known(_joined(scope.cwd.get_or(""), target) or ".")


def _joined(base: str, tail: str) -> str:
    """A normalised path; ``..`` beyond the begin stays."""
    absolute = tail.startswith("/")
    parts: list[str] = []
    for part in ([] if absolute else base.split("/")) + tail.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return ("/" if absolute or base.startswith("/") else "") + "/".join(parts)
