"""Who reads a DeepSpeed config where no launch command shows it: scripts and files of accelerate that name it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, absent, known
from dslint.core.source import Location
from dslint.model.workspace import Workspace

if TYPE_CHECKING:
    from dslint.model.plan.scriptprofile import Reader
    from dslint.parse.data import DataDoc

# Why a reader is unknown that is certainly none of those that dslint knows.
OWN_RULES = "fills the config by its own rules"
# ``f"{folder}/{name}.json"`` may mean any file: only those near the script count.
_NEAR = 2


@dataclass(frozen=True, slots=True)
class User:
    """A file that hands a config to a library. ``is_weak``: another program in front may read it in its place."""

    consumer: str
    location: Location
    is_weak: bool = False


def config_users(
    scripts: Iterable[str], accelerate: Iterable[DataDoc], configs: Sequence[str], workspace: Workspace
) -> dict[str, list[User]]:
    """The users of each of the ``configs`` (user-facing paths) among the scripts and accelerate files of a project.

    ``scripts`` are those that may name one (:func:`dslint.model.firstlook.may_name_config`).
    """
    from dslint.model.plan.scriptprofile import profile_of

    users: dict[str, list[User]] = {}
    by_path = {workspace.normal(path): path for path in configs}
    for path in scripts:
        profile = profile_of(path, workspace)
        for reader in profile.readers if profile is not None else ():
            for config in _configs(reader, path, by_path, workspace):
                users.setdefault(by_path[config], []).append(User(reader.consumer, reader.location))
    for doc in accelerate:
        text = doc.get("/deepspeed_config/deepspeed_config_file")
        found = workspace.resolve(text, workspace.bases(doc.path)) if isinstance(text, str) else None
        if found in by_path:
            place = doc.value("/deepspeed_config/deepspeed_config_file")
            users.setdefault(by_path[found], []).append(User("accelerate", place, is_weak=True))
    return users


def agreed_reader(of_runs: Iterable[Fact[str]], users: Sequence[User]) -> Fact[str]:
    """The one library that all users of a config hand it to; a known ``unknown`` where they contradict each other.

    Absent when nobody says. A run of which the reader is not visible has no say.
    """
    stated: dict[str, tuple[Location, ...]] = {}
    for fact in of_runs:
        if fact.is_known or fact.reason.endswith(OWN_RULES):
            stated.setdefault(fact.get_or("unknown"), fact.origins)
    for user in users:
        if not user.is_weak:
            stated.setdefault(user.consumer, (user.location,))
    if not stated:
        stated = {user.consumer: (user.location,) for user in users}
    if len(stated) > 1:
        return known("unknown", *(place for places in stated.values() for place in places))
    for consumer, places in stated.items():
        return known(consumer, *places)
    return absent()


def _configs(reader: Reader, script: str, by_path: Mapping[str, str], workspace: Workspace) -> Iterator[str]:
    """The normal paths of the configs that a script names, from its own folder or one above."""
    bases = workspace.bases(script)
    if reader.path:
        found = workspace.resolve(reader.path, bases)
        if found is not None and found in by_path:
            yield found
        return
    if reader.pattern.startswith("*"):
        bases = bases[:_NEAR]
    patterns = [workspace.normal(posixpath.join(base, reader.pattern)) for base in bases]
    yield from (path for path in by_path if any(fnmatchcase(path, pattern) for pattern in patterns))
