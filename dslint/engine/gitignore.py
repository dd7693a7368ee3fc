"""The ignore files of git: which ones hold at a folder, and their patterns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from dslint.engine.gitindex import git_folder, repository, tracked

if TYPE_CHECKING:
    from typing import TypeAlias

    from pathspec import GitIgnoreSpec

    # Each ignore file in force: the folder its patterns are relative to, its path, and the folder that a user named
    # ("" for none): patterns that leave out that one as a whole do not count. Outermost first.
    Ignores: TypeAlias = list[tuple[str, str, str]]


def is_ignored(absolute: str, ignores: Ignores) -> bool:
    """Whether the ignore files leave out a path (a folder ends with ``/``): the innermost that speaks of it decides."""
    for base, file, named in reversed(ignores):
        spec = _ignore_file(file, named)
        include = spec.check_file(absolute[len(base) + 1 :]).include if spec else None
        if include is not None:
            return include
    return False


def ignores_above(top: str) -> Ignores:
    """The ignore files of the repository above ``top``, outermost first; none outside a git checkout."""
    root = repository(top)
    if root is None:
        return []
    chain = [top]
    while chain[-1] != root:
        chain.append(os.path.dirname(chain[-1]))
    places = [(root, file) for file in _files_for_all_folders(root)]
    places += [(folder, os.path.join(folder, ".gitignore")) for folder in reversed(chain[1:])]
    return [(base, file, f"{top[len(base) + 1 :]}/" if top != base else "") for base, file in places]


def patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    """Patterns in the language of ``.gitignore``."""
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def without(spec: GitIgnoreSpec, folder: str) -> GitIgnoreSpec:
    """The patterns that do not leave out a folder as a whole."""
    kept = [p for p in spec.patterns if not p.include or p.match_file(folder) is None]
    return spec if len(kept) == len(spec.patterns) else type(spec)(kept)


@lru_cache(maxsize=256)
def _ignore_file(path: str, named: str) -> GitIgnoreSpec | None:
    """The patterns of an ignore file, without those that leave out the folder ``named`` by the user."""
    lines = _read(path).splitlines()
    try:
        spec = patterns(lines) if lines else None
    except ValueError:
        return None
    return without(spec, named) if spec and named else spec


def forget_git() -> None:
    """Read indexes and ignore files again: those on disk may have changed."""
    for kept in (_ignore_file, _excludes_file, repository, tracked):
        kept.cache_clear()


def _read(path: str) -> str:
    """The text of a file, empty when there is none to read."""
    try:
        # A pipe with this name would block.
        if not os.path.isfile(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except (OSError, ValueError):
        return ""


# --- what holds in every folder of a checkout (gitignore(5)) -----------------------------------------------------


def _files_for_all_folders(root: str) -> Iterator[str]:
    """The user's own excludes (``core.excludesFile``), then those of the checkout (``.git/info/exclude``)."""
    own = git_folder(root)
    # A worktree shares them with the checkout that it belongs to.
    shared = os.path.join(own, _read(os.path.join(own, "commondir")).strip())
    chosen = os.path.join(_xdg_config(), "git", "ignore")
    for config in (*_user_configs(), os.path.join(shared, "config")):
        stated = _excludes_file(config)
        if stated is not None:
            chosen = os.path.join(root, os.path.expanduser(stated)) if stated else ""
    if chosen:
        yield chosen
    yield os.path.join(shared, "info", "exclude")


def _xdg_config() -> str:
    return os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")


def _user_configs() -> list[str]:
    """The configuration files outside of a checkout, the weakest first (git-config(1), FILES)."""
    system = os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"
    user = os.environ.get("GIT_CONFIG_GLOBAL")
    users = [user] if user else [os.path.join(_xdg_config(), "git", "config"), os.path.expanduser("~/.gitconfig")]
    return users if os.environ.get("GIT_CONFIG_NOSYSTEM") else [system, *users]


_SECTION = re.compile(r"\s*\[\s*([\w.-]+)\s*(\"[^\"]*\")?\s*\]")
_KEY = re.compile(r"\s*excludesfile\s*=\s*(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^#;\"]*))", re.I)


@lru_cache(maxsize=32)
def _excludes_file(config: str) -> str | None:
    """``core.excludesFile`` of a configuration file, read as text: git itself would run what some keys name."""
    text = _read(config)
    if "excludesfile" not in text.lower():
        return None
    inside, found = False, None
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            inside = section[1].lower() == "core" and not section[2]
            line = line[section.end() :]
        key = _KEY.match(line) if inside else None
        if key:
            found = (key["quoted"] or key["plain"] or "").strip()
    return found
