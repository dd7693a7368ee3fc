"""From a code, prefix or name to rules. Loading a rule imports its module; finding one does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from dslint.rules.index import RULES

if TYPE_CHECKING:
    from types import ModuleType

    from dslint.rules.base import Example, RuleMeta
    from dslint.rules.info import RuleInfo

BY_CODE: dict[str, RuleInfo] = {info.code: info for info in RULES}
BY_NAME: dict[str, RuleInfo] = {info.name: info for info in RULES}
ALL = "ALL"


class _State:
    """Which rules of a project are known. ``version`` grows with each change; ``are_missing``: some were not loaded."""

    version = 0
    are_missing = False


# Rules of the project's own by code; they stand in BY_CODE and BY_NAME as well.
PROJECT: dict[str, LoadedRule] = {}
_FOREIGN = re.compile(r"(?!DSL)[A-Z]{2,8}\d{0,3}")


def use_project_rules(rules: Sequence[tuple[RuleInfo, LoadedRule]], *, are_missing: bool = False) -> None:
    """These, and no others, are the rules of the project. ``are_missing``: its settings name some, not loaded."""
    _State.are_missing = are_missing
    # Each look of an editor's server says it again: what was made for these rules holds on.
    if [loaded for _, loaded in rules] == list(PROJECT.values()):
        return
    for code in PROJECT:
        del BY_NAME[BY_CODE.pop(code).name]
    PROJECT.clear()
    for info, loaded in rules:
        BY_CODE[info.code] = BY_NAME[info.name] = info
        PROJECT[info.code] = loaded
    _State.version += 1


def project_version() -> int:
    """Changes with the rules of the project."""
    return _State.version


def may_be_missing(selector: str) -> bool:
    """The selector may mean a rule of the project that was not loaded."""
    return _State.are_missing and _FOREIGN.fullmatch(selector) is not None


class UnknownSelector(ValueError):  # noqa: N818 - the name says the mistake
    """No rule has this code, prefix or name; ``suggestion`` is the nearest one or empty."""

    def __init__(self, selector: str, suggestion: str = "") -> None:
        self.selector = selector
        self.suggestion = suggestion
        hint = f", did you mean `{suggestion}`?" if suggestion else "; `dslint rules` lists all of them"
        if not suggestion and _FOREIGN.fullmatch(selector):
            hint = "; those of a project are known with `--project-rules`"
        super().__init__(f"unknown rule `{selector}`{hint}")


class LoadedRule(NamedTuple):
    """A rule with its module: ``meta``, the prose of its page and its examples."""

    meta: RuleMeta
    module: ModuleType
    explanation: str
    examples: tuple[Example, ...]


def all_rules() -> tuple[RuleInfo, ...]:
    """Every rule in the order of the codes, those of the project last."""
    return (*RULES, *(BY_CODE[code] for code in PROJECT)) if PROJECT else RULES


def find(selector: str) -> tuple[RuleInfo, ...]:
    """The rules that a selector means: a code (``DSL201``), a prefix (``DSL2``), a name, or ``ALL``.

    Raises:
        UnknownSelector: no rule matches.
    """
    wanted = selector.strip()
    if wanted.upper() == ALL:
        return all_rules()
    named = BY_NAME.get(wanted.lower().replace("_", "-"))
    if named:
        return (named,)
    prefix = wanted.upper()
    found = tuple(info for info in all_rules() if info.code.startswith(prefix))
    if not prefix.startswith("DSL"):  # a short beginning of our own codes is no selector
        found = tuple(info for info in found if info.code in PROJECT) if len(prefix) > 1 else ()
    if not found:
        raise UnknownSelector(selector, suggest(wanted))
    return found


def suggest(selector: str) -> str:
    """The code or name nearest to a mistyped selector, empty when nothing is near."""
    from difflib import get_close_matches

    near = get_close_matches(selector.lower(), BY_NAME, n=1, cutoff=0.6)
    if not near and any(character.isdigit() for character in selector):
        digits = selector.upper()[3:].translate(str.maketrans("OILSB", "01158"))
        if f"DSL{digits}" in BY_CODE:
            return f"DSL{digits}"
        near = get_close_matches(selector.upper(), BY_CODE, n=1, cutoff=0.8)
    if not near:
        parts = [name for name in BY_NAME if len(selector) > 3 and selector.lower() in name]
        near = parts if len(parts) == 1 else []
    return near[0] if near else ""


def load_rule(code: str) -> LoadedRule:
    """The rule with this code; imports the module that holds it.

    Raises:
        UnknownSelector: no rule has this code.
    """
    return PROJECT.get(code) or _load_own(code)


@cache
def _load_own(code: str) -> LoadedRule:
    from importlib import import_module

    info = BY_CODE.get(code)
    if info is None:
        raise UnknownSelector(code, suggest(code))
    module = import_module(info.module)
    if info.kind == "dslint":
        return LoadedRule(module.METAS[code], module, module.EXPLANATIONS[code], module.EXAMPLES.get(code, ()))
    return LoadedRule(module.META, module, _clean(module.__doc__ or ""), tuple(module.EXAMPLES))


def explanation(code: str) -> str:
    """The prose of a rule page (Markdown), read from the source of the rule without importing it.

    Reports need the prose of rules that ran in other processes; their parsers must not be imported for it.
    """
    import ast
    from pkgutil import get_data

    info = BY_CODE[code]
    if info.kind == "dslint" or code in PROJECT:
        return load_rule(code).explanation
    package, _, stem = info.module.rpartition(".")
    source = get_data(package, f"{stem}.py")
    return ast.get_docstring(ast.parse(source)) or "" if source else load_rule(code).explanation


def _clean(docstring: str) -> str:
    from inspect import cleandoc

    return cleandoc(docstring)
