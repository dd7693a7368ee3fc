"""What all views of a plan show: the plan with its versions, its arithmetic and what is not known of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact
from dslint.core.source import Location
from dslint.model.launch.meeting import Meeting, devices, meeting
from dslint.model.plan.effective import Filled, Triangle, filled_values, triangle_of, with_default
from dslint.model.plan.recipe import NO_COMMAND
from dslint.model.shell.batchjob import MACHINE, is_directive

if TYPE_CHECKING:
    from dslint.engine.planning import Planned
    from dslint.engine.surroundings import Surroundings
    from dslint.model.context import VersionFact
    from dslint.model.launch.command import LaunchCommand, Word
    from dslint.model.plan.runplan import RunPlan

# A variable of the shell alone: the command does not see it, unless it came from outside.
_NOT_EXPORTED = "is set but not exported"
# What `dslint plan` calls the parsers of `model/plan/parser/`; any other kind is open.
_PARSERS = {"argparse": "argparse", "hf": "dataclasses", "trl": "dataclasses", "none": "none"}


@dataclass(frozen=True, slots=True)
class Parser:
    """The parser of a script. ``kind``: ``argparse`` | ``dataclasses`` | ``open`` | ``none``; ``library`` makes it.

    ``is_open``: it may take more than dslint sees, ``why`` says how that comes. ``path`` is the file with the parser.
    """

    kind: str
    library: str
    is_open: bool
    why: str
    path: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that cannot be read, and why; ``at`` where it stands, if that is one place."""

    what: str
    why: str
    at: Location | None = None


@dataclass(frozen=True, slots=True)
class View:
    """One run for people and programs.

    ``configs`` are the paths of the configs by role (``deepspeed``, ``accelerate``, ``arguments``). ``filled`` is what
    stands in place of ``"auto"``. ``env`` holds the variables of the script, ``directives`` what it asks of its queue.
    ``remarks`` say what does not fit together, ``ignored`` which numbers of the user files contradict.
    """

    plan: RunPlan
    triangle: Triangle
    filled: Sequence[Filled]
    versions: Mapping[str, VersionFact]
    configs: Mapping[str, str]
    env: Mapping[str, Fact[str]]
    directives: Mapping[str, Fact[str]]
    unknown: Sequence[Unknown]
    remarks: Sequence[str]
    ignored: Sequence[str]

    @property
    def command(self) -> LaunchCommand:
        """The launch command."""
        return self.plan.command

    @property
    def launcher(self) -> str | None:
        """Who starts the processes; ``None`` where no command of the project does."""
        return None if self.command.launcher == NO_COMMAND else self.command.launcher

    @property
    def is_plain(self) -> bool:
        """One process of plain Python that nobody hands a config: an evaluation, a conversion, ``python -m pip``."""
        plan = self.plan
        counts = (plan.nodes, plan.processes_per_node, plan.world_size)
        return (
            self.launcher == "python"
            and not self.configs
            and not plan.missing
            and plan.zero_stage.is_absent
            and all(fact.is_absent for fact in counts)
        )

    @property
    def module(self) -> str | None:
        """The dotted module that runs."""
        command = self.command
        return command.script.text if command.is_module and command.script is not None else None

    @property
    def arguments(self) -> Mapping[str, Fact[Any]]:
        """What the script holds: the values that the command states and the defaults that are certain."""
        parsed = self.plan.given.values if self.plan.given is not None else {}
        shown = {name: fact for name, fact in parsed.items() if fact.is_known or name in self.plan.passed}
        effective = {name: with_default(fact) for name, fact in self.plan.arguments.items() if fact.is_known}
        return {**self.plan.passed, **shown, **effective}

    @property
    def devices(self) -> Fact[tuple[str, ...]]:
        """The devices of one node that its processes share."""
        return devices(self.command)

    @property
    def meeting(self) -> Meeting:
        """Where the processes meet, as far as the command says it."""
        return meeting(self.command)

    @property
    def parser(self) -> Parser | None:
        """The parser of the script; ``None`` without a script that can be read."""
        profile = self.plan.profile
        found = self.plan.parser or (profile.parser if profile is not None else None)
        if found is not None:
            path = found.location.path if found.location is not None else self.plan.script or ""
            kind = _PARSERS.get(found.kind, "open")
            return Parser(kind, _LIBRARIES.get(found.kind, found.kind), not found.is_closed, found.open_because, path)
        if profile is None:
            return None
        return Parser(_PARSERS["none"], "", False, "", profile.args_path or profile.path)


_LIBRARIES = {"hf": "HfArgumentParser", "trl": "TrlParser", "lightning": "LightningCLI"}


def views_of(planned: Planned) -> list[View]:
    """The views of all plans."""
    return [_view(plan, planned.surroundings) for plan in planned.plans]


def _view(plan: RunPlan, surroundings: Surroundings) -> View:
    command, triangle = plan.command, triangle_of(plan)
    filled = tuple(filled_values(plan, triangle))
    env = {name: fact for name, fact in command.env.items() if name and not is_directive(name)}
    env = {name: fact for name, fact in env.items() if not fact.reason.endswith(_NOT_EXPORTED)}
    directives = {name: fact for name, fact in command.env.items() if is_directive(name)}
    directives = {name: fact for name, fact in directives.items() if not name.startswith(MACHINE)}
    return View(
        plan,
        triangle,
        filled,
        _versions(plan, surroundings),
        _configs(plan),
        env,
        directives,
        tuple(_unknown(plan, triangle, env)),
        tuple(_remarks(triangle)),
        plan.ignored,
    )


def _versions(plan: RunPlan, surroundings: Surroundings) -> dict[str, VersionFact]:
    context = surroundings.context(plan.script or plan.command.location.path)
    found = {"deepspeed": context.deepspeed, **dict(sorted(context.libraries.items()))}
    return {name: fact for name, fact in found.items() if fact.is_known}


def _configs(plan: RunPlan) -> dict[str, str]:
    found = {
        "deepspeed": plan.config.path if plan.config is not None else plan.config_path.get_or(""),
        "accelerate": plan.accelerate.path if plan.accelerate is not None else "",
        "arguments": plan.recipe.path if plan.recipe is not None else "",
    }
    return {role: path for role, path in found.items() if path}


def _unknown(plan: RunPlan, triangle: Triangle, env: Mapping[str, Fact[str]]) -> Iterator[Unknown]:
    command = plan.command
    facts: dict[str, Fact[Any]] = {
        "nodes": plan.nodes,
        "processes_per_node": plan.processes_per_node,
        "world_size": plan.world_size,
        "configs.deepspeed": plan.config_path,
        "zero_stage": plan.zero_stage,
        "precision": plan.precision,
        "devices": devices(command),
        "batch.train": triangle.train,
        "batch.micro": triangle.micro,
        "batch.accumulation": triangle.steps,
        "cwd": command.cwd,
        **{f"env.{name}": fact for name, fact in env.items()},
    }
    for what, fact in facts.items():
        if fact.is_unknown:
            yield Unknown(what, fact.reason, fact.origins[0] if fact.origins else None)
    if "" in command.env:
        yield Unknown("env", command.env[""].reason)
    if command.script is not None and plan.script is None and command.script.text is not None:
        yield Unknown("script", f"`{command.script.text}` is not in the project", command.script.location)
    for index, word in enumerate(command.argv):
        if word.text is None:
            yield Unknown(f"argv[{index}]", why_of(word), word.location)
    for named in plan.missing:
        where = f" in `{named.left.folder or '.'}`" if named.left is not None else ""
        yield Unknown("configs.missing", f"`{named.text}` does not exist{where}", named.location)


def why_of(word: Word) -> str:
    """Why a word is not known."""
    return word.why or f"`{word.raw}` is not known here"


def _remarks(triangle: Triangle) -> Iterator[str]:
    if triangle.verdict.is_wrong:
        yield triangle.verdict.message
