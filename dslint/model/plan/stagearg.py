"""Which argument of a script is the ZeRO stage of the config that it makes."""

from __future__ import annotations

import ast
import re

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile
from dslint.model.plan.parser.options import Passed, ScriptParser
from dslint.model.plan.pyscript import read_script, text_of

# ``--zero_stage``, ``--ds.zero_stage``: nothing else is called so.
_NAMED = ("zero_stage", "ds.zero_stage", "zero_optimization_stage")
_WORTH_PARSING = re.compile(r"stage[\"']?\s*[:=]\s*\w+\.\w*stage")


def stage_argument(source: SourceFile) -> str:
    """The destination that the script writes into ``{"stage": args.X}`` or hands on as ``stage=args.X``; else empty.

    Two of them (one for each model) are none.
    """
    if "deepspeed" not in source.text or not _WORTH_PARSING.search(source.text):
        return ""
    script = read_script(source)
    found: set[str] = set()
    for node in ast.walk(script.tree) if script.tree is not None else ():
        values: list[ast.expr] = []
        if isinstance(node, ast.Dict):
            values = [v for k, v in zip(node.keys, node.values, strict=True) if text_of(k) == "stage"]
        elif isinstance(node, ast.Call) and "config" in script.qualified(node.func).lower():
            values = [k.value for k in node.keywords if k.arg in ("stage", "zero_stage")]
        found |= {v.attr for v in values if isinstance(v, ast.Attribute) and isinstance(v.value, ast.Name)}
    return found.pop() if len(found) == 1 else ""


def stage_passed(parser: ScriptParser | None, given: Passed | None, argument: str) -> Fact[int]:
    """The stage that a command passes to its script; absent where the script has no such argument."""
    if parser is None or given is None:
        return absent()
    names = [argument] if argument else [n for n in _NAMED if any(o.dest == n for o in parser.options)]
    if not names or not any(option.dest == names[0] for option in parser.options):
        return absent()
    fact = given.values.get(names[0], unknown("the parser stops"))
    value = fact.value
    if fact.is_known and isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3:
        return known(value, *(place.labelled(f"ZeRO stage {value}") for place in fact.origins))
    return unknown("the stage that the command passes is not known", *fact.origins)
