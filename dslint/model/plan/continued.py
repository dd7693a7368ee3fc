"""Paths by which one run goes on from what another one has written: a folder of checkpoints, an adapter."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.fact import Fact
from dslint.core.source import Location
from dslint.model.workspace import Workspace

if TYPE_CHECKING:
    from dslint.model.plan.runplan import RunPlan

_WRITES = re.compile(
    r"(?:output|save|out|checkpoint|ckpt|export)_?(?:dir|path|folder|root|to)|save|work_dir|outdir|logdir|log_dir|exp_dir",
    re.IGNORECASE,
)
# Options that say where something is written, beside those above, or that name no path of this project.
_NO_READER = re.compile(r"out|save|log|dump|result|write|dest|cache|export|name$", re.IGNORECASE)
_PATH = re.compile(r"[\w./@+=-]*/[\w./@+=-]+")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A run reads ``text`` at ``location``, which nobody writes; another one writes ``meant`` at ``written``."""

    option: str
    text: str
    meant: str
    location: Location
    written: Location


def misspelt_continuations(plans: Sequence[RunPlan], workspace: Workspace) -> dict[int, tuple[Elsewhere, ...]]:
    """The paths that a run reads and that only another spelling of them is written, by the index of its plan."""
    outputs: dict[tuple[str, ...], Location] = {}
    for plan in plans:
        for _, text, place in _paths(plan, is_writer=True):
            outputs.setdefault(_parts(text), place)
    by_likeness: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for output in outputs:
        by_likeness.setdefault(_like(output), set()).add(output)
    found: dict[int, tuple[Elsewhere, ...]] = {}
    for index, plan in enumerate(plans) if len(outputs) else ():
        mistakes = tuple(_mistakes(plan, outputs, by_likeness, workspace))
        if mistakes:
            found[index] = mistakes
    return found


def _mistakes(
    plan: RunPlan,
    outputs: dict[tuple[str, ...], Location],
    by_likeness: dict[tuple[str, ...], set[tuple[str, ...]]],
    workspace: Workspace,
) -> Iterator[Elsewhere]:
    for option, text, place in _paths(plan, is_writer=False):
        parts = _parts(text)
        starts = [parts[:count] for count in range(2, len(parts) + 1)]
        if any(start in outputs for start in starts):
            continue
        meant = {output for start in starts for output in by_likeness.get(_like(start), ())}
        if len(meant) == 1 and not _exists(text, plan, workspace):
            (output,) = meant
            yield Elsewhere(option, text, "/".join(output), place, outputs[output])


def _exists(text: str, plan: RunPlan, workspace: Workspace) -> bool:
    """The path, or a folder at its beginning below the first one, is in the project: then it is no misspelling."""
    parts = _parts(text)
    bases = workspace.bases(plan.command.location.path)
    return any(workspace.exists(posixpath.join(base, *parts[:2])) for base in bases)


def _paths(plan: RunPlan, is_writer: bool) -> Iterator[tuple[str, str, Location]]:
    """Options of a run that name paths: those that it writes to, or the others that somebody states."""
    for option, fact in plan.arguments.items():
        path = _path(fact)
        if path is None or bool(_WRITES.fullmatch(option)) != is_writer:
            continue
        text, place = path
        if is_writer or not (_NO_READER.search(option) or place.path.endswith(".py")):
            yield option, text, place


def _path(fact: Fact[object]) -> tuple[str, Location] | None:
    text = fact.value if fact.is_known else None
    if not isinstance(text, str) or not fact.origins or not _PATH.fullmatch(text) or len(_parts(text)) < 2:
        return None
    return text, fact.origins[0]


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split("/") if part not in ("", "."))


def _like(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The same for paths that differ in case, and in dashes for underscores, only."""
    return tuple(re.sub(r"[-_.]", "", part).lower() for part in parts)
