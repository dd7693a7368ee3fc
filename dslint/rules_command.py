"""``dslint rule`` and ``dslint rules``: what the rules are."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dslint.core.commandline import say

if TYPE_CHECKING:
    from dslint.translate import Translator

OK, TROUBLE = 0, 2


def explain_rules(args: Namespace) -> int:
    """Print the pages of the rules that the arguments name; returns the exit code."""
    from dslint.rules.explain import explain

    codes = _codes(args.rules, args.project_rules)
    if codes is None:
        return TROUBLE
    translate = _translator(args)
    for code in codes:
        explain(
            code,
            sys.stdout,
            examples=args.examples or args.all,
            evidence=args.evidence or args.all,
            translate=translate,
        )
    return OK


def list_rules(args: Namespace) -> int:
    """Print one line a rule, or JSON; returns the exit code."""
    codes = _codes(args.rules or ["ALL"], args.project_rules)
    if codes is None:
        return TROUBLE
    from dslint.rules.registry import BY_CODE

    rules = [BY_CODE[code] for code in codes]
    if args.output_format == "json":
        import json

        rows = [{"code": r.code, "name": r.name, "kind": r.kind, "severity": r.severity, "summary": r.summary,
                 "fix": r.fix, "since": r.since} for r in rules]  # fmt: skip
        sys.stdout.write(json.dumps({"version": 1, "rules": rows}, indent=2) + "\n")
        return OK
    width = max(len(r.name) for r in rules)
    translate = _translator(args)
    for r in rules:
        summary = translate(f"{r.summary}.").rstrip(".。")
        sys.stdout.write(f"{r.code}  {r.name:<{width}}  {r.severity:<7}  {summary}\n")
    return OK


def _translator(args: Namespace) -> Translator:
    """Into the language that the flag names, else into that of the environment."""
    from dslint.translate import LANGUAGES, language_of, translator

    stated = getattr(args, "lang", None) or os.environ.get("DSLINT_LANG")
    return translator(stated if stated in LANGUAGES else language_of(os.environ))


def _codes(selectors: Sequence[str], project_rules: bool) -> list[str] | None:
    """The codes that the selectors mean; ``None`` after a mistake, which is said."""
    from dslint.rules.registry import UnknownSelector, find

    if project_rules and not _load_project_rules():
        return None
    words = [word for selector in selectors for word in selector.split(",") if word.strip()] or list(selectors)
    try:
        return list(dict.fromkeys(info.code for word in words for info in find(word)))
    except UnknownSelector as error:
        say(str(error))
        return None


def _load_project_rules() -> bool:
    """Those that the settings here name; a mistake in them is said."""
    from dslint.settings import SettingsError, load_settings

    try:
        load_settings(Path(), {}, run_rules=True)
    except SettingsError as error:
        say(str(error))
        return False
    return True
