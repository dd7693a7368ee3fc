"""What each launch command of a script gives to it, for the interpretation of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, known
from dslint.model.deepspeed.batch import accumulation_of
from dslint.python.launches import FIELDS, PLAIN, Launch

if TYPE_CHECKING:
    from dslint.model.plan.runplan import RunPlan

_NOTHING = object()
# A script with more different commands than this is read with open arguments.
_MOST = 40
# Launchers that hand their whole environment to the processes of every machine.
_HANDS_ON = ("torchrun", "accelerate", "python", "srun")
# The types of options whose value is what the reader of the command makes of a word.
_CONVERTED = ("int", "float", "str", "bool")


def launches_of(plans: Sequence[RunPlan]) -> tuple[Launch, ...]:
    """The different launches among the plans of a script; of what only documents say the ZeRO stages alone."""
    from dslint.model.plan.recipe import NO_COMMAND

    if any(plan.command.launcher == NO_COMMAND or plan.recipe is not None for plan in plans):
        return ()
    found: dict[str, Launch] = {}
    for plan in plans:
        if plan.command.in_docs:
            return _documented(plans)
        launch = _launch(plan)
        same = (launch.given, launch.left, launch.words, launch.environment)
        facts = [(name, fact.state, fact.value) for name, fact in launch.facts.items()]
        found.setdefault(repr((same, facts)), launch)
    return tuple(found.values()) if len(found) <= _MOST else ()


def _documented(plans: Sequence[RunPlan]) -> tuple[Launch, ...]:
    """A launch with all options open for each ZeRO stage, where documents start a script at several."""
    found: dict[object, Launch] = {}
    for plan in plans:
        stage = plan.zero_stage
        facts: dict[str, Fact[object]] = {"zero_stage": stage, "consumer": plan.consumer}  # type: ignore[dict-item]
        found.setdefault((stage.state, stage.value), Launch(plan.command.location, facts=facts))
    return tuple(found.values()) if len(found) > 1 else ()


def _launch(plan: RunPlan) -> Launch:
    given, left = _options(plan)
    kind = plan.parser.kind if plan.parser is not None else ""
    return Launch(plan.command.location, kind, given, left, _words(plan), _environment(plan), facts_of(plan))


def facts_of(plan: RunPlan) -> dict[str, Fact[object]]:
    """The facts of the context of a script, of one run alone."""
    facts: dict[str, Fact[object]] = {}
    for name in ("world_size", "zero_stage", "consumer", "processes_per_node", "nodes"):
        facts[name] = getattr(plan, name)
    facts["launcher"] = known(plan.command.launcher)
    if not plan.config_is_rewritten:
        steps = accumulation_of(plan.batch, plan.batch_world)
        facts["accumulation"] = Fact(steps.state, steps.value, steps.origins, steps.reason)
    return facts


def _options(plan: RunPlan) -> tuple[dict[str, object], dict[str, Fact[object]]]:
    """The options that the command gives, and those that it leaves out."""
    parser, told = plan.parser, plan.given
    if parser is None or told is None or parser.kind not in ("argparse", *FIELDS) or told.problems or not told.values:
        return {}, {}
    given: dict[str, object] = {}
    left: dict[str, Fact[object]] = {}
    for option in parser.options:
        fact = told.values.get(option.dest)
        if option.dest in told.seen:
            value = fact.get_or(_NOTHING) if fact is not None and option.type in ("", *_CONVERTED) else _NOTHING
            value = str(value) if isinstance(value, str) else value  # the words of a command know their place, too
            if type(value) in PLAIN:
                given[option.dest] = value
        elif told.is_whole and (parser.is_closed or parser.lets_pass) and not parser.reads_file:
            left[option.dest] = Fact("known", fact.value) if fact is not None and fact.is_known else Fact("absent")
    return given, left


def _words(plan: RunPlan) -> tuple[str, ...] | None:
    """`sys.argv`, where the launcher adds nothing and every word is known."""
    command = plan.command
    if plan.script is None or command.launcher not in ("torchrun", "accelerate", "python") or plan.is_legacy:
        return None
    if command.hides_words or any(word.text is None for word in command.script_args):
        return None
    return (plan.script, *(word.text or "" for word in command.script_args))


def _environment(plan: RunPlan) -> dict[str, str]:
    """The variables that the processes see, where the launcher hands them on."""
    command = plan.command
    if command.launcher not in _HANDS_ON and plan.nodes.get_or(0) != 1:
        return {}
    return {name: str(fact.get()) for name, fact in command.env.items() if name and fact.is_known}
