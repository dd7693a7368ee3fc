"""Whether a run starts in a container with the little shared memory of Docker's default, and what it needs of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact, absent, known
from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.dockerruns import container_words, words_until
from dslint.model.launch.slurmjob import PER_NODE
from dslint.model.plan.files import Files
from dslint.model.plan.pods import without_shared_memory
from dslint.model.plan.questions import loaders_question
from dslint.model.plan.scriptrun import constant_of, option_of, place_of, script_run
from dslint.model.workspace import Workspace

if TYPE_CHECKING:
    from dslint.model.plan.runplan import RunPlan

_GPUS = re.compile(
    r"--gpus[=\s]+[\"']*(?!\S*device=\w+[\"']*(?:\s|$))(?!1[\s\"'])|--runtime[=\s]+[\"']?nvidia|nvidia-docker\s"
)
_ENGINES = ("docker", "podman", "nerdctl")
_SHARES = re.compile(r"shm|--ipc\b|\bipc:|hostIPC|medium:\s*Memory")
_SERVICES = re.compile(r"^services:", re.MULTILINE)
_SERVICE_GPUS = re.compile(r"^\s*runtime:\s*[\"']?nvidia|^\s*-?\s*capabilities:[^\n]*\bgpu\b|^\s*gpus:\s", re.MULTILINE)
# A command of a document that leaves its reader in a shell.
_RUN_LINE = re.compile(r"^[ \t$>]*(?:sudo )?(?P<run>(?:nvidia-)?docker run\s(?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_INTERACTIVE = re.compile(r"\s-(?:[a-z]*i[a-z]*t|[a-z]*t[a-z]*i)[a-z]*\b|\s-i\s+-t\b|\s--interactive\b")
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash"})
_STARTS = re.compile(r"python|torchrun|deepspeed|accelerate|jupyter|\.sh\b|\s-c\s").search
_OPTION = re.compile(r"(?:\w*_)?(?:num_)?workers|nw")
# Launchers whose numbers of processes share a machine.
_LAUNCHERS = (*PER_NODE, "mpirun", "horovodrun")
_OF_TRAINER = "--dataloader_num_workers"


@dataclass(frozen=True, slots=True)
class Container:
    """A container with GPUs of which nobody says how much memory its processes share.

    ``place`` is where the text starts it; ``is_service``: in a compose file; ``is_pod``: in a manifest of Kubernetes.
    ``workers`` is how many processes each `DataLoader` of the script starts, where somebody says so and there are some.
    """

    place: Location
    is_service: bool
    workers: Fact[int] = field(default_factory=absent)
    is_pod: bool = False


def small_container(
    command: LaunchCommand, files: Files, script: str | None, given: Mapping[str, Fact[Any]]
) -> Container | None:
    """The container that a command runs in, where it certainly has the default; ``None`` for any other command."""
    place = next(iter(command.called_from), command.location)
    source = files.workspace.read(place.path)
    if source is None:
        return None
    mounts = without_shared_memory(place, files.workspace)
    if mounts is not None:
        return Container(mounts, False, _workers(command, files.workspace, script, given), is_pod=True)
    is_service = place.path.endswith((".yml", ".yaml")) and _SERVICES.search(source.text) is not None
    around = _words_around(command)
    if around is not None:
        place, is_small = around[1], _is_small(around[0])
    elif is_service:
        is_small = _SHARES.search(source.text) is None and _SERVICE_GPUS.search(source.text) is not None
    else:
        is_small = _is_small(words_until(source.text, place))
    opened = _opened_before(source, place) if command.in_docs and not is_small else None
    if opened is not None:
        place, is_small = opened, True
    return Container(place, is_service, _workers(command, files.workspace, script, given)) if is_small else None


def _words_around(command: LaunchCommand) -> tuple[str, Location] | None:
    """The words of ``docker run`` around a command as they are known, where a called script puts them together.

    ``None`` for others: there the text itself says more.
    """
    for group in command.wrappers if command.called_from else ():
        words = [word.text if word.text is not None else word.raw for word in group]
        if words[1:2] == ["run"] and words[0].rpartition("/")[2] in _ENGINES:
            return " " + " ".join("UNKNOWN" if re.search(r"\s", word) else word for word in words) + " ", group[
                0
            ].location
    return None


def _is_small(text: str) -> bool:
    """The text runs a container with GPUs and certainly says nothing of shared memory."""
    return container_words(text) is not None and bool(_GPUS.search(text)) and not _SHARES.search(text)


def _opened_before(source: SourceFile, place: Location) -> Location | None:
    """Where a document opens a shell in such a container, before the block with the command; it never speaks of memory.

    What stands inside of it, the command among it, is typed there.
    """
    if "docker" not in source.text or _SHARES.search(source.text):
        return None
    found = None
    for line in _RUN_LINE.finditer(source.text, 0, place.span.start):
        words = line["run"].replace("\\\n", " ").split()
        is_shell = words[-1].rstrip("`") in _SHELLS or (
            bool(_INTERACTIVE.search(line["run"])) and not _STARTS(line["run"])
        )
        if is_shell and _is_small(f" {line['run']}"):
            begin = line.start("run")
            found = source.location(Span(begin, begin + len(line["run"].rstrip())), "the container")
    return found


def _workers(
    command: LaunchCommand, workspace: Workspace, script: str | None, given: Mapping[str, Fact[Any]]
) -> Fact[int]:
    flag = command.script_flag(_OF_TRAINER)
    if flag is not None:
        return _positive(_number(flag), flag.location)
    asked = workspace.memo("loader workers", script, lambda source: _of_loaders(source, workspace)) if script else None
    for number, option, place in asked or ():
        fact = given.get(option) if option else None
        found = _positive(fact.get_or(None) if fact is not None else number, place)
        if found.is_known:
            return found
    for name, fact in given.items() if asked is None else ():
        if _OPTION.fullmatch(name) and fact.origins:
            return _positive(fact.get_or(None), fact.origins[0])
    return absent()


def _of_loaders(source: SourceFile, workspace: Workspace) -> list[tuple[object, str, Location]] | None:
    """What loaders are told of workers: a number, or the option that decides. ``None``: none is seen."""
    run = script_run(source.path, workspace, loaders_question()) if source.path.endswith(".py") else None
    made = [event for event in run.events if "makes-loader" in event.tags and not event.open] if run is not None else []
    values = [(event, event.arguments.get("num_workers")) for event in made]
    found = [
        (constant_of(value), option_of(value), place_of(event, "num_workers"))
        for event, value in values
        if value is not None
    ]
    return found or None


def _positive(number: object, place: Location) -> Fact[int]:
    return known(number, place) if type(number) is int and number > 0 else absent()


def _number(flag: Flag) -> int | None:
    text = flag.value.text if flag.value is not None else None
    return int(text) if text is not None and text.isdecimal() else None


def sharing(plan: RunPlan) -> int:
    """How many processes run on a machine; 0 where nobody says."""
    if plan.command.launcher not in _LAUNCHERS:
        return int(plan.devices.get_or(0))
    return int(plan.processes_per_node.get_or(0) or plan.world_size.get_or(0))
