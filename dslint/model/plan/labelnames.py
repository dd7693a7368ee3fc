"""``--label_names a b`` of a command, joined with what the script makes of these batch keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dslint.core.finding import Severity
from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand, Word, canonical
from dslint.model.launch.launchers.base import flag_name, glued_value
from dslint.model.plan.scriptprofile import ScriptProfile
from dslint.model.workspace import Workspace

if TYPE_CHECKING:
    from dslint.python.queries.labels import Verdict

FLAG = "--label_names"
_STRATEGIES = ("--eval_strategy", "--evaluation_strategy")


@dataclass(frozen=True, slots=True)
class LabelNames:
    """A list of label names that the Trainer cannot gather without harm.

    ``location`` is the first name that is no label, ``made`` are the places where the script makes such a key.
    """

    location: Location
    names: tuple[str, ...]
    verdict: Verdict
    made: tuple[Location, ...] = ()


def read_label_names(command: LaunchCommand, profile: ScriptProfile | None, workspace: Workspace) -> LabelNames | None:
    """What the command says, ``None`` when it is harmless or nobody can tell.

    Only for a script whose arguments transformers' ``HfArgumentParser`` reads into ``TrainingArguments``.
    """
    words = _listed(command) if command.script_flag(FLAG) is not None else ()
    names = [word.text for word in words if word.text]
    if not names or profile is None or not profile.parsed.kind:
        return None
    # The look at the script costs a parse: only a name that is no label is worth it.
    from dslint.python.queries.labels import Evaluation, extra_names, judge

    extra = extra_names(names)
    source = workspace.read(profile.args_path)
    if not extra or source is None or "Trainer" not in source.text:
        return None
    from dslint.python.source import Module, read

    module = read(source)
    if not isinstance(module, Module):
        return None
    evaluation = Evaluation([module])
    verdict = judge(names, evaluation) if not evaluation.sets_label_names() else None
    if verdict is None:
        return None
    if not evaluation.is_called() and _never_evaluates(command, profile):
        verdict = replace(verdict, severity=Severity.INFO, why=f"{verdict.why} (`eval_strategy` is `no`)")
    place = next(word.location for word in words if word.text in extra)
    made = tuple(p.module.location(p.node, p.label) for p in verdict.produced)
    return LabelNames(place, tuple(names), verdict, made)


def _listed(command: LaunchCommand) -> list[Word]:
    """The values of the last ``--label_names``, as argparse takes them (``nargs="+"``)."""
    found: list[Word] = []
    is_open = False
    for word in command.script_args:
        name = flag_name(word)
        if name is not None:
            is_open = canonical(name) == FLAG
            glued = glued_value(word, name) if is_open else None
            found = ([] if glued is None else [glued]) if is_open else found
            is_open = is_open and glued is None
        elif is_open:
            found.append(word)
    return found


def _never_evaluates(command: LaunchCommand, profile: ScriptProfile) -> bool:
    """The training loop never evaluates: ``no`` is the default of ``eval_strategy``."""
    flag = command.script_flag(*_STRATEGIES)
    text = flag.value.text if flag is not None and flag.value is not None else None
    if command.script_flag("--eval_on_start") or (flag is not None and text != "no"):
        return False
    own = {"eval_strategy", "evaluation_strategy", "eval_on_start"}
    is_default = profile.parsed.kind == "exact" and not own & (profile.parsed.fields | profile.parsed.rewritten)
    return text == "no" or (is_default and not command.may_hide_flags())
