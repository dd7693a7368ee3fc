"""A name of a library that a release in use lacks: one sentence for each way in which that happens."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.core.source import Span
from dslint.model.standing.presence import is_made_by_others, is_there, presence
from dslint.model.standing.standing import Standing

if TYPE_CHECKING:
    from dslint.core.fix import Fix
    from dslint.model.standing.allowance import Allowance
    from dslint.python.uses.kinds import Use
    from dslint.rules.base import RuleMeta
    from dslint.rules.libraryuses import LibraryUses

_ALL = frozenset({"", "Exception", "BaseException"})
# The handlers that catch the absence of each kind.
CAUGHT = {
    "module": _ALL | {"ImportError", "ModuleNotFoundError"},
    "name": _ALL | {"ImportError"},
    "attribute": _ALL | {"AttributeError"},
}
_MOST_RELATED = 3
_SHOWN = 48


@dataclass(frozen=True, slots=True)
class Gone:
    """A use of a name that some release lacks: ``part`` is the first part of the name that is not there."""

    use: Use
    part: str
    standing: Standing

    @property
    def error(self) -> str:
        """What Python says, in one word."""
        return {"module": "ModuleNotFoundError", "name": "ImportError", "attribute": "AttributeError"}[self.failure]

    @property
    def failure(self) -> str:
        """Which of the three fails: the module of an import, the name that it asks for, or an attribute."""
        if self.use.kind == "attribute":
            return "attribute"
        is_module = self.use.kind == "module" or self.use.home == self.part or self.use.home.startswith(f"{self.part}.")
        return "module" if is_module else "name"


def gone(view: LibraryUses, use: Use) -> Gone | None:
    """How a use fails in releases that the project allows; ``None`` where it works, or somebody handles it."""
    library = use.name.partition(".")[0]
    if library not in view.libraries or library == use.name or is_made_by_others(use.name):
        return None
    surface = view.surface(library)
    if surface is None or any(
        len(presence(surface, dotted).in_releases) == len(surface.releases) for dotted in use.dotted
    ):
        return None
    standing = view.standing(library, use.guards, lambda release: _fails(view, use, release))
    if standing is None:
        return None
    if use.kind == "attribute" and not standing.change:
        return None  # what no release has, another package puts there
    part = view.missing(use.name, standing.release)
    found = Gone(use, part, standing)
    return None if not part or use.caught & CAUGHT[found.failure] else found


def _fails(view: LibraryUses, use: Use, release: str) -> bool | None:
    """Whether a release lacks all that a use may mean."""
    if use.kind == "attribute" and len(use.dotted) == 1 and view.missing(use.home, release):
        return None  # the import of its root has failed before
    answers = [is_missing(view, dotted, release) for dotted in use.dotted]
    return False if False in answers else None if None in answers else True


def is_missing(view: LibraryUses, dotted: str, release: str) -> bool | None:
    """Whether a release lacks a name for certain; ``None`` where nobody knows."""
    if view.missing(dotted, release):
        return True
    surface = view.surface(dotted.partition(".")[0])
    return False if surface is not None and is_there(surface, dotted, release) else None


def message(found: Gone) -> str:
    """What is not there, in which release, since when, and what Python says."""
    standing, library = found.standing, found.standing.allowance.library
    name = found.part.rpartition(".")[2] if found.failure == "name" else found.part
    shown = name if len(name) <= _SHOWN else f"...{name[3 - _SHOWN :]}"
    return f"{who(standing)} has no `{shown}`{since(standing)}: `{found.error}`" + (
        "" if standing.reach == "oldest" or library == "" else " on every rank"
    )


def who(standing: Standing) -> str:
    """Which release lacks it: the one in use, what a fresh install takes, or the oldest one allowed."""
    library = standing.allowance.library
    if standing.reach == "all":
        return f"{library} {_range(standing.allowance)}"
    if standing.reach == "fresh":
        return f"a fresh install takes {library} {standing.release}, which"
    return f"{library} {standing.release}, which the project allows,"


def since(standing: Standing) -> str:
    """When that changed."""
    if not standing.change:
        return ""
    if standing.came:
        return f" (new in {standing.change})"
    return f" (removed in {standing.change})"


def changed(standing: Standing) -> str:
    """From or up to which release that holds."""
    return f"{'before' if standing.came else 'since'} {standing.change}"


def _range(allowed: Allowance) -> str:
    releases = allowed.releases
    return releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"


def hint(standing: Standing, moved: str = "") -> str:
    """What to do."""
    library = standing.allowance.library
    if moved:
        return f"Import it from `{moved.rpartition('.')[0]}`"
    if not standing.change:
        return "Look the name up in the release that you install"
    sign = ">=" if standing.came else "<"
    return f"Pin `{library}{sign}{standing.change}`, or write the code for the release that you install"


def findings(meta: RuleMeta, view: LibraryUses, uses: Iterable[Use]) -> Iterator[Finding]:
    """One finding for each name that some allowed release lacks, with the other places that use it."""
    found = [one for one in (gone(view, use) for use in uses) if one is not None]
    for first, *others in _grouped(found):
        yield _report(meta, view, first, others)


def _grouped(found: Sequence[Gone]) -> list[list[Gone]]:
    """The names of one module together; of those that only the oldest release lacks, all of a library."""
    groups: dict[tuple[str, str], list[Gone]] = {}
    for one in found:
        library = one.standing.allowance.library
        home = one.use.home if one.failure == "name" else one.part
        key = (library, "") if one.standing.reach == "oldest" else (f"{library} {one.standing.reach}", home)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _report(meta: RuleMeta, view: LibraryUses, found: Gone, others: list[Gone]) -> Finding:
    standing = found.standing
    library = standing.allowance.library
    moved = moved_to(view, found)
    more = [view.module.location(o.use.node, f"`{o.part}` is missing too") for o in others][:_MOST_RELATED]
    return view.finding(
        meta,
        found.use.node,
        message(found),
        hint=hint(standing, moved),
        related=(*standing.allowance.origins, *more),
        fix=_moved_fix(view, found, moved) if moved and not others else None,
        severity=standing.severity,
        facts={"name": found.part, "library": library, "release": standing.release},
    )


def moved_to(view: LibraryUses, found: Gone) -> str:
    """The new place of a name in the releases that lack it, if it has one."""
    surface = view.surface(found.standing.allowance.library)
    new = presence(surface, found.use.name).moved_to if surface is not None else None
    return new if surface is not None and new is not None and is_there(surface, new, found.standing.release) else ""


def _moved_fix(view: LibraryUses, found: Gone, new: str) -> Fix | None:
    """Write the new place of a name that an import alone asks for, where all allowed releases have it."""
    library = found.standing.allowance.library
    home, _, name = new.rpartition(".")
    statement = view.module.statement(found.use.node)
    if not isinstance(statement, ast.ImportFrom) or len(statement.names) != 1 or found.use.kind != "name":
        return None
    if name != statement.names[0].name or statement.module is None:
        return None
    surface = view.surface(library)
    if surface is None or not all(is_there(surface, new, release) for release in view.allowance(library).releases):
        return None
    span = view.module.span(statement)
    at = view.source.text.find(statement.module, span.start, span.end)
    return view.edit(Span(at, at + len(statement.module)), home, f"Import it from `{home}`") if at >= 0 else None
