"""The environment variables that a launch file sets for its launch commands, each once and at its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location, Span
from dslint.model.launch.around import nodes_at
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.batchjob import is_directive
from dslint.model.shell.scope import NOT_EXPORTED

# What every process of a launcher reads, and no shell script uses for itself.
_EVERY = re.compile(r"(?:TORCH_)?NCCL_[A-Z0-9_]+|CUDA_VISIBLE_DEVICES|PYTORCH_[A-Z_]*(?:CUDA|ALLOC)[A-Z_]*")


def is_for_every_process(name: str) -> bool:
    """Whether the processes of a run read the variable: those of NCCL, of the allocator, and the visible devices."""
    return _EVERY.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Setting:
    """``NAME=value`` that a command finds in its environment; ``location`` is the place of both.

    ``is_certain``: no condition decides whether the command finds it.
    """

    name: str
    value: str
    location: Location
    command: LaunchCommand
    is_certain: bool = True

    @property
    def text(self) -> str:
        """As it is worded in messages."""
        return f"{self.name}={self.value}"


def settings(doc: LaunchDoc) -> Iterator[Setting]:
    """The variables that commands of the document see and that the document itself sets, in the order of the text."""
    found: dict[tuple[str, Span], Setting] = {}
    for command in doc.commands:
        for name, fact in command.env.items():
            if not fact.is_known or not fact.origins or not name or is_directive(name):
                continue
            place = fact.origins[0]
            if place.path == doc.source.path and (name, place.span) not in found:
                found[name, place.span] = Setting(name, fact.get(), place, command, _is_certain(doc, place))
    yield from sorted(found.values(), key=lambda setting: setting.location.span)


def _is_certain(doc: LaunchDoc, place: Location) -> bool:
    """The assignment stands behind no condition."""
    kinds = ("if_statement", "case_statement", "list", "while_statement", "for_statement", "function_definition")
    return all(node.type not in kinds for node in nodes_at(doc, place))


def name_span(doc: LaunchDoc, setting: Setting) -> Span | None:
    """Where the name itself stands; ``None`` where the text is not as the shell hands it on."""
    span = setting.location.span
    whole = doc.source.text[span.start : span.end]
    at = whole.find(f"{setting.name}=")
    if at < 0 or doc.source.path.endswith(".ipynb"):
        return None
    return Span(span.start + at, span.start + at + len(setting.name))


def value_span(doc: LaunchDoc, setting: Setting) -> Span | None:
    """Where the plain value stands; ``None`` where it is quoted or computed."""
    name = name_span(doc, setting)
    if name is None:
        return None
    span = Span(name.end + 1, setting.location.span.end)
    return span if doc.source.text[span.start : span.end] == setting.value else None


def is_explained(doc: LaunchDoc, place: Location) -> bool:
    """A comment stands on the line, or alone on the line above."""
    line = place.region.line
    above = doc.source.line_text(line - 1).strip() if line > 1 else ""
    return (above.startswith("#") and not above.startswith(("#!", "#SBATCH"))) or " #" in doc.source.line_text(line)


def kept(command: LaunchCommand) -> Iterator[tuple[str, Location]]:
    """Variables that the shell sets before the command and does not export, with the place of ``NAME=value``."""
    for name, fact in command.env.items():
        if fact.is_unknown and fact.origins and fact.reason.endswith(NOT_EXPORTED):
            yield name, fact.origins[0]
