"""Which argument of a script is the ZeRO stage of the config that it makes."""

from __future__ import annotations

import ast
import re

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.config import ConfigChoice
from dslint.model.plan.parser.options import Passed, ScriptParser
from dslint.model.plan.pyscript import read_script, text_of
from dslint.model.plan.scriptprofile import ScriptProfile
from dslint.model.workspace import Workspace

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


def run_stage(
    choice: ConfigChoice,
    command: LaunchCommand,
    words: tuple[ScriptParser | None, Passed | None],
    profile: ScriptProfile | None,
    workspace: Workspace,
) -> Fact[int]:
    """The ZeRO stage of a run: of its config, else what its command passes to the script that makes one.

    ``words`` are the parser of the script and what it makes of the command.
    """
    computed = choice.doc.is_embedded if choice.doc is not None else choice.named is None
    if computed and not choice.stage.is_known:
        path = profile.args_path if profile is not None else ""
        argument = workspace.memo("stage argument", path, stage_argument) or "" if path else ""
        stage = stage_passed(*words, argument)
        if not stage.is_absent and (argument or _uses_deepspeed(profile, command)):
            return stage
    if choice.stage.is_absent and (choice.path.is_unknown or command.may_hide_flags()):
        return unknown("the config of the run is not known")
    return choice.stage


def _uses_deepspeed(profile: ScriptProfile | None, command: LaunchCommand) -> bool:
    return command.launcher == "deepspeed" or (profile is not None and profile.consumer.get_or("") == "deepspeed")
