"""The script rules as they are loaded, and the first looks that they define."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING

from dslint.core.finding import Finding

if TYPE_CHECKING:
    from dslint.model.context import Context
    from dslint.rules.base import RuleMeta
    from dslint.rules.libraryuses import LibraryUses
    from dslint.rules.runs import RunQuery
    from dslint.rules.walk import ScriptCheck


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """A loaded script rule. What it may define to spare a file the full parse:

    A rule has a ``check``, a visitor of the syntax tree, a ``query``, which asks about the runs of the script, or
    ``of_libraries``, which asks for what the script uses of libraries.
    ``applies`` says from the path and the context whether the rule can fire, with a third parameter also from the
    bytes; ``precheck`` says it from the cheap syntax tree.
    """

    meta: RuleMeta
    check: type[ScriptCheck] | None
    applies: Callable[..., bool] | None
    precheck: Callable[..., bool] | None
    sees_bytes: bool = False
    query: Callable[[RunQuery], Iterable[Finding]] | None = None
    of_libraries: Callable[[LibraryUses], Iterable[Finding]] | None = None


def load(code: str) -> ScriptRule:
    """The script rule with this code."""
    from dslint.rules.registry import project_version

    return _load(code, project_version())


@lru_cache(maxsize=2048)
def _load(code: str, _: int) -> ScriptRule:
    from dslint.rules.registry import load_rule

    module = load_rule(code).module
    precheck = getattr(module, "precheck", None)
    applies = getattr(module, "applies", None)
    sees_bytes = applies is not None and len(signature(applies).parameters) > 2
    check, query = getattr(module, "Check", None), getattr(module, "query", None)
    return ScriptRule(module.META, check, applies, precheck, sees_bytes, query, getattr(module, "of_libraries", None))


def may_apply(rule: ScriptRule, path: str, context: Context, raw: bytes) -> bool:
    """Whether a rule can fire in a script, by its path, its context and perhaps its bytes."""
    try:
        known = (path, context, raw) if rule.sees_bytes else (path, context)
        return rule.applies is None or rule.applies(*known)
    except Exception:
        return True  # a first look that fails proves nothing


def may_fire(rule: ScriptRule, tree: ast.Module) -> bool:
    """Whether a rule can fire in a script, by its cheap syntax tree."""
    try:
        return rule.precheck is None or rule.precheck(tree)
    except Exception:
        return True
