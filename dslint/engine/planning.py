"""The given paths -> documents -> run plans: what ``dslint check`` and ``dslint plan`` have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from dslint.core.garbage import seldom_collected
from dslint.core.looked import Looked
from dslint.engine.discovery import BUILTIN_EXCLUDES, Candidate, Discovery, ExcludeSettings, discover
from dslint.engine.inputs import Inputs, sort_files
from dslint.engine.launchstage import LaunchReader, LaunchStage, cores, written_by
from dslint.engine.neighbours import neighbouring_files
from dslint.engine.surroundings import Surroundings
from dslint.model.firstlook import may_name_config

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.model.launch.command import LaunchCommand
    from dslint.model.plan.runplan import RunPlan
    from dslint.model.workspace import Workspace
    from dslint.settings import Settings

# A run over fewer files than this may be a part of a project.
_PARTIAL_RUN = 50


@dataclass(frozen=True, slots=True)
class Planned:
    """The plans of the given paths, in the order of files and lines.

    ``problems`` are one-line errors (a missing path). ``unread`` are files that could not be read or parsed.
    """

    plans: Sequence[RunPlan]
    problems: Sequence[str]
    unread: Sequence[Finding]
    files: int
    surroundings: Surroundings
    workspace: Workspace


def plan_paths(paths: Sequence[str], settings: Settings, overrides: Mapping[str, str] | None = None) -> Planned:
    """The plans of all commands in the given files, and of those that start a given script or read a given config."""
    overrides = overrides or {}
    surroundings = Surroundings(settings, overrides)
    found = discover(paths, excludes_of(settings), overrides)
    inputs, read_data = sort_files(found, overrides)
    given = {c.path for c in found.candidates}
    workspace = workspace_of(overrides)
    files = list(inputs.launch_files.values())
    with seldom_collected(), LaunchStage(files, LaunchReader(overrides), settings.jobs or cores()) as launch:
        inputs.launch = launch
        read_data()
        around = files_around(inputs, given, overrides)
        plans = plans_of(around, naming_scripts(around), workspace, surroundings, is_thorough=True)
        unread = [*inputs.findings, *(finding for read in launch for finding in read.findings)]
    shown = [plan for plan in plans if not given.isdisjoint(_files_of(plan))]
    shown.sort(key=lambda plan: (plan.command.location.path, plan.command.location.span))
    return Planned(shown, found.missing, unread, inputs.files, surroundings, workspace)


def _files_of(plan: RunPlan) -> set[str]:
    """The files that a plan joins."""
    docs = (plan.config, plan.accelerate, plan.recipe)
    joined = {plan.command.location.path, plan.script or "", *(doc.path for doc in docs if doc is not None)}
    if plan.profile is not None:
        joined.add(plan.profile.args_path)
    return joined


def excludes_of(settings: Settings) -> ExcludeSettings:
    """Which files the walk leaves out."""
    return ExcludeSettings(
        root=str(settings.root),
        exclude=tuple(settings.exclude) if settings.exclude is not None else BUILTIN_EXCLUDES,
        extend_exclude=tuple(settings.extend_exclude),
        force_exclude=settings.force_exclude,
        respect_gitignore=settings.respect_gitignore,
    )


def naming_scripts(inputs: Inputs, looked: Looked | None = None) -> list[str]:
    """The scripts and notebooks that may hand a config over; ``looked`` knows what was said of these bytes before."""
    says, all_of_them = (looked or Looked()).says, (*inputs.scripts.items(), *inputs.notebooks.items())
    return [path for path, raw in all_of_them if says(may_name_config, path, raw)]


def workspace_of(overrides: Mapping[str, str]) -> Workspace:
    """The files around the working directory."""
    from dslint.model.workspace import Workspace

    return Workspace(Path(), overrides)


def load(found: Discovery, overrides: Mapping[str, str]) -> Inputs:
    """Everything that the candidates hold."""
    inputs, read_data = sort_files(found, overrides)
    inputs.launch = list(LaunchStage(list(inputs.launch_files.values()), LaunchReader(overrides)))
    read_data()
    return inputs


def files_around(inputs: Inputs, given: set[str], overrides: Mapping[str, str]) -> Inputs:
    """The files that may use the given ones: a hook or an editor passes a few, the rest stands in the project."""
    joinable = [*inputs.scripts, *(d.source.path for d in (*inputs.configs, *inputs.accelerate))]
    if not joinable or len(given) > _PARTIAL_RUN:
        return inputs
    kinds = ("shell", "script", "yaml") if inputs.configs else ("shell",)
    others = [(p, kind) for p, kind in neighbouring_files(joinable, kinds) if p not in given]
    near = load(Discovery([Candidate(p, kind) for p, kind in others]), overrides)
    return Inputs(
        {**inputs.scripts, **near.scripts},
        inputs.notebooks,
        launch=[*inputs.launch, *near.launch],
        accelerate=[*inputs.accelerate, *near.accelerate],
        recipes=[*inputs.recipes, *near.recipes],
    )


def plans_of(
    around: Inputs,
    naming: list[str],
    workspace: Workspace,
    surroundings: Surroundings,
    is_thorough: bool = False,
    built: Callable[[RunPlan], None] = lambda _: None,
) -> list[RunPlan]:
    """The plans of all launch commands; ``is_thorough``: with the profile of every script, also where no rule asks.

    ``built``: see :func:`build_plans`.
    """
    # The plans of the first files are built while others are still being read.
    commands: Iterator[LaunchCommand] = (command for read in around.launch for command in read.commands)
    first = next(commands, None)
    if first is None and not (around.recipes or naming):
        return []
    from dslint.model.plan.runplan import build_plans

    reader, counts, written = surroundings.stated_consumer, surroundings.stated_counts, written_by(around.launch)
    commands = chain([first], commands) if first is not None else commands
    return build_plans(commands, workspace, reader, around.recipes, naming, written, is_thorough, counts, built)
