"""Scripts that a text calls and that are nowhere, while the project has one of nearly the same name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import Word
from dslint.model.plan.tree import files_by_name
from dslint.model.shell.scope import Scope
from dslint.model.workspace import Workspace

_ENDINGS = (".sh", ".bash", ".slurm", ".sbatch")
# As like as `run_train` and `train_run`, `finetune-lora` and `finetune_lora`.
_ALIKE = 0.8
_FETCHED = re.compile(r"\b(?:wget|curl|git clone|git submodule|unzip|tar|rsync|scp|gsutil|aws s3)\b|<<|>\s*\S+\.sh")


@dataclass(frozen=True, slots=True)
class LostCall:
    """A script that is called by this name; ``meant`` is the file of the project that it is most like."""

    text: str
    location: Location
    meant: str


def lost_calls(
    calls: Sequence[tuple[Word, Scope]], source: SourceFile, workspace: Workspace | None, *, in_docs: bool
) -> tuple[LostCall, ...]:
    """The calls of scripts that are in no folder from which the text may be run."""
    if workspace is None or workspace.is_start or not calls or _FETCHED.search(source.text):
        return ()
    found: dict[str, LostCall] = {}
    for word, scope in calls:
        text = word.text or ""
        if text in found or not text.endswith(_ENDINGS) or not _is_ours(text, scope, source.path, workspace):
            continue
        if not in_docs and source.text.count(posixpath.basename(text)) > 1:
            continue  # the script tests for it, or makes it
        meant = _meant(text, source.path, workspace)
        if meant:
            found[text] = LostCall(text, word.location, meant)
    return tuple(found.values())


def _is_ours(text: str, scope: Scope, path: str, workspace: Workspace) -> bool:
    """The file is nowhere, and its folder is one of this project."""
    folder = posixpath.dirname(text)
    if text.startswith(("/", "~")) or not folder.strip("./") or scope.cwd.is_unknown:
        return False
    around = list(workspace.bases(path))
    if scope.cwd.is_known:
        around += [posixpath.join(base, scope.cwd.get()) for base in around]
    if any(workspace.has(base, text) for base in around):
        return False
    return any(workspace.exists(posixpath.join(base, folder)) for base in around)


def _meant(text: str, path: str, workspace: Workspace) -> str:
    """The one script that is called nearly so in a folder of this name; or so, in another folder."""
    name, folder = posixpath.basename(text), posixpath.normpath(posixpath.dirname(text)).split("/")[-1]
    every = files_by_name(path, workspace)
    same = [found for found in every.get(name, ()) if found != path]
    if same:
        return same[0] if len(same) == 1 else ""
    near = {
        found: _likeness(name, other)
        for other, paths in every.items()
        if other.endswith(_ENDINGS)
        for found in paths
        if posixpath.basename(posixpath.dirname(found)) == folder
    }
    best = max(near.values(), default=0.0)
    most = [found for found, likeness in near.items() if likeness == best]
    return most[0] if best >= _ALIKE and len(most) == 1 else ""


def _likeness(one: str, other: str) -> float:
    """How like two names are, whatever order their words are in and what stands between these."""
    left, right = (re.split(r"[-_.]+", name.lower()) for name in (one, other))
    if sorted(left) == sorted(right):
        return 1.0
    if len(left) != len(right):
        return 0.0  # `train.sh` and `train_lora.sh` are two scripts
    differs = [(a, b) for a, b in zip(left, right, strict=True) if a != b]
    if len(differs) != 1 or any(character.isdigit() for pair in differs for character in "".join(pair)):
        return 0.0
    return SequenceMatcher(None, *differs[0]).ratio()
