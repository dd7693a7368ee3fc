"""What each launch command of a script gives to it, for the interpretation of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import OUTSIDE, Location
from dslint.model.deepspeed.batch import FROM_LOADERS, MICRO, accumulation_of, micro_batch_of
from dslint.model.launch.launchers.environment import sets
from dslint.model.trainerargs import fields_ever
from dslint.python.launches import FIELDS, PLAIN, Launch, text_value

if TYPE_CHECKING:
    from dslint.model.plan.parser.options import Passed, ScriptParser
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

    if any(plan.command.launcher == NO_COMMAND for plan in plans):
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
    words, variables, places = _words(plan), _environment(plan), _places(plan, given)
    is_whole = bool(given) and plan.given is not None and (plan.given.is_whole or plan.recipe is not None)
    return Launch(plan.command.location, kind, given, left, words, variables, facts_of(plan), places, is_whole)


def _places(plan: RunPlan, given: Iterable[str]) -> dict[str, Location]:
    """Where the options stand that are given: on the command line, which wins, or in a file of arguments."""
    found: dict[str, Location] = {}
    for name in given:
        fact = plan.passed.get(name)
        if fact is not None and fact.origins:
            found[name] = fact.origins[0]
        elif plan.recipe is not None and plan.recipe.has(f"/{name}"):
            found[name] = plan.recipe.value(f"/{name}")
    return found


def facts_of(plan: RunPlan) -> dict[str, Fact[object]]:
    """The facts of the context of a script, of one run alone."""
    facts: dict[str, Fact[object]] = {}
    for name in ("world_size", "zero_stage", "consumer", "processes_per_node", "nodes"):
        facts[name] = getattr(plan, name)
    facts["launcher"] = known(plan.command.launcher)
    if not plan.config_is_rewritten:
        steps = accumulation_of(plan.batch, plan.batch_world)
        facts["accumulation"] = Fact(steps.state, steps.value, steps.origins, steps.reason)
        micro = micro_batch_of_run(plan)
        facts["micro_batch"] = Fact(micro.state, micro.value, micro.origins, micro.reason)
    return facts


def micro_batch_of_run(plan: RunPlan) -> Fact[int]:
    """The samples of a micro batch on each process; where accelerate asks the loaders for them the reason says so."""
    config, is_launched = plan.config, plan.command.launcher == "accelerate"
    is_left = config is None and plan.config_path.is_absent and plan.zero_stage.is_known
    is_auto = config is not None and config.get(f"/{MICRO}") == "auto" and plan.consumer.get_or("") == "accelerate"
    if is_launched and (is_left or is_auto):
        return unknown(FROM_LOADERS)
    return micro_batch_of(plan.batch, plan.batch_world)


def _options(plan: RunPlan) -> tuple[dict[str, object], dict[str, Fact[object]]]:
    """The options that the command gives, and those that it leaves out."""
    parser, told = plan.parser, plan.given
    if parser is None or told is None or parser.kind not in ("argparse", *FIELDS):
        return {}, {}
    stated = _of_file(plan, parser, told) if parser.kind in FIELDS else {}
    problems = [p for p in told.problems if p.kind != "missing" or p.option is None or p.option.dest not in stated]
    if problems or not (told.values or stated):
        return {}, {}
    given = {**stated, **_of_library(plan, parser)}
    left: dict[str, Fact[object]] = {}
    for option in parser.options:
        fact = told.values.get(option.dest)
        if option.dest in told.seen:
            value = fact.get_or(_NOTHING) if fact is not None and option.type in ("", *_CONVERTED) else _NOTHING
            value = str(value) if isinstance(value, str) else value  # the words of a command know their place, too
            if type(value) in PLAIN:
                given[option.dest] = value
        elif option.dest in stated:
            continue
        elif told.is_whole and (parser.is_closed or parser.lets_pass) and not parser.reads_file:
            left[option.dest] = Fact("known", fact.value) if fact is not None and fact.is_known else Fact("absent")
    return given, left


def _of_file(plan: RunPlan, parser: ScriptParser, told: Passed) -> dict[str, object]:
    """The plain values of a file of arguments; what stands on the command line wins over it."""
    data = plan.recipe.data if plan.recipe is not None else None
    if not isinstance(data, dict) or plan.command.may_hide_flags():
        return {}
    types = {option.dest: option.type for option in parser.options}
    return {
        name: text_value(value, types[name]) if isinstance(value, str) and types.get(name) in _CONVERTED else value
        for name, value in data.items()
        if isinstance(name, str) and name not in told.seen and type(value) in PLAIN
    }


def _of_library(plan: RunPlan, parser: ScriptParser) -> dict[str, object]:
    """The texts of options that are fields of a class of a library, which knows their types."""
    if not parser.libraries or parser.kind not in FIELDS or plan.command.may_hide_flags():
        return {}
    own = {option.dest for option in parser.options}
    names = {name for owner in parser.libraries for name in fields_ever(owner)} - own
    texts = {name: fact.get_or(None) for name, fact in plan.passed.items() if name in names}
    return {name: str(text) for name, text in texts.items() if text is not None}


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
    found = {name: fact for name, fact in command.env.items() if name and fact.is_known}
    return {name: str(fact.get()) for name, fact in found.items() if not _is_of_host(fact) or _may_decide(name, plan)}


def _is_of_host(fact: Fact[str]) -> bool:
    """The variable comes from the environment in which a command is started, and from no file."""
    return bool(fact.origins) and fact.origins[0].path.startswith(OUTSIDE)


def _may_decide(name: str, plan: RunPlan) -> bool:
    """The script speaks of it, and it is the same for all processes. The others would make each run another one."""
    return name in plan.reads and not sets(plan.command, name)
