"""Which files to look at, and what each one may be, judged by its name; content decides later."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dslint.engine.gitignore import ignores_above, is_ignored, without
from dslint.engine.gitignore import patterns as patterns_of
from dslint.engine.gitindex import repository, tracked

if TYPE_CHECKING:
    from dslint.engine.gitignore import Ignores

# Never training code; the list of ruff plus bytecode folders. ``.vscode`` holds launch.json, which starts programs.
BUILTIN_EXCLUDES = (
    ".bzr", ".direnv", ".eggs", ".git", ".git-rewrite", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox",
    ".pants.d", ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv",
    "__pycache__", "__pypackages__", "_build", "buck-out", "dist", "node_modules", "site-packages", "venv",
)  # fmt: skip

KIND_BY_SUFFIX = {
    ".py": "script",
    ".pyw": "script",
    ".ipynb": "notebook",
    ".json": "json",
    ".jsonc": "json",
    ".json5": "json",
    ".hjson": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".sh": "shell",
    ".bash": "shell",
    ".zsh": "shell",
    ".ksh": "shell",
    ".sbatch": "shell",
    ".slurm": "shell",
    ".pbs": "shell",
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "markdown",
    ".mk": "makefile",
    ".dockerfile": "dockerfile",
    ".just": "justfile",
}
KIND_BY_NAME = {
    "makefile": "makefile",
    "gnumakefile": "makefile",
    "dockerfile": "dockerfile",
    "containerfile": "dockerfile",
    "justfile": "justfile",
}
# Files of settings with tables of tasks.
_TASKS = frozenset({"pyproject.toml", "pixi.toml", "hatch.toml", "tox.ini"})


# Files that only the rules about versions read. Those of other kinds may say which releases are installed as well.
_MANIFESTS = frozenset({".txt", ".in", ".cfg", ".lock", ".toml", ""})
_VERSIONS = re.compile(
    r".*requirements.*\.(txt|in|lock)|requirements\.lock|constraints.*\.txt|(uv|poetry|pdm|pixi|pipfile)\.lock"
    r"|pylock\.(.+\.)?toml|pyproject\.toml|pixi\.toml|setup\.(py|cfg)|pipfile|(environment|conda).*\.ya?ml"
    r"|.*dockerfile.*|\.python-version",
    re.I,
)
_SHELL = re.compile(rb"\b(ba|da|z|k)?sh\b")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may concern dslint.

    ``path`` is what the user sees, with ``/``; ``kind`` is "" when only the content can tell;
    ``explicit`` when the user named the file itself, ``by_hook`` when a hook did, which names whatever has changed.
    """

    path: str
    kind: str
    explicit: bool = False
    by_hook: bool = False

    @property
    def is_wanted(self) -> bool:
        """A person named the file, and hears it where it cannot be read."""
        return self.explicit and not self.by_hook


@dataclass(slots=True)
class Discovery:
    """The outcome of a walk: candidates in path order, missing paths, folders that could not be read."""

    candidates: list[Candidate] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def kind_of(name: str) -> str:
    """The kind a file name promises, "" when the content must tell (no suffix), "-" when it is nothing of ours."""
    suffix = os.path.splitext(name)[1].lower()
    if name in _TASKS:
        return "tasks"
    kind = KIND_BY_NAME.get(name.partition(".")[0].lower())
    if kind is not None and suffix not in KIND_BY_SUFFIX:  # also ``Dockerfile.gpu``
        return kind
    if suffix in _MANIFESTS and is_version_file(name):
        return "manifest"
    if not suffix:
        # .gitignore, .env and the like are known by name: nothing of ours.
        return "-" if name.startswith(".") else ""
    return KIND_BY_SUFFIX.get(suffix, "-")


def is_version_file(path: str) -> bool:
    """The file is one of those that say which releases are installed: ``requirements.txt``, ``uv.lock``."""
    folder, _, name = path.rpartition("/")
    if name.endswith((".txt", ".in")) and folder.rpartition("/")[2] == "requirements":
        return True
    return _VERSIONS.fullmatch(name) is not None


def _kind_at(path: str) -> str:
    kind = kind_of(os.path.basename(path))
    return "manifest" if kind == "-" and is_version_file(path.replace(os.sep, "/")) else kind


def kind_by_content(raw: bytes) -> str:
    """The kind of a file without a telling name: by its shebang or first character."""
    head = raw[:200].lstrip()
    if head.startswith(b"#!"):
        first = head.split(b"\n", 1)[0]
        if b"python" in first:
            return "script"
        return "shell" if _SHELL.search(first) else "-"
    if head.startswith(b"{"):
        return "json"
    return "-"


def is_whole(paths: Sequence[str], root: Path | None) -> bool:
    """A folder is named that is a repository, or the one that the settings are made for (``root``)."""
    folders = [path for path in paths if os.path.isdir(path)]
    return any(Path(path).absolute() == root or os.path.exists(os.path.join(path, ".git")) for path in folders)


def discover(paths: Sequence[str], settings: ExcludeSettings, texts: Collection[str] = ()) -> Discovery:
    """Walk files and folders; each file is listed once, under the first spelling met.

    ``texts`` are paths whose text is given (standard input): they need not exist.
    """
    out = Discovery()
    seen: set[str] = set()
    walker = _Walker(settings, out)
    for given in paths:
        path = _display(given)
        try:
            mode = 0 if path in texts else os.stat(given).st_mode
        except (OSError, ValueError) as error:
            out.missing.append(f"{given}: {getattr(error, 'strerror', None) or error}")
            continue
        if stat.S_ISDIR(mode):
            found: Iterator[Candidate] = walker.walk(path)
        else:
            found = walker.named(path)
        for candidate in found:
            real = os.path.abspath(candidate.path)
            if real not in seen:
                seen.add(real)
                out.candidates.append(candidate)
    return out


@dataclass(frozen=True, slots=True)
class ExcludeSettings:
    """What the walk leaves out: gitignore-style patterns, relative to ``root``."""

    root: str = "."
    exclude: tuple[str, ...] = BUILTIN_EXCLUDES
    extend_exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    respect_gitignore: bool = True


class _Walker:
    def __init__(self, settings: ExcludeSettings, out: Discovery) -> None:
        self.settings = settings
        self.out = out
        patterns = (*settings.exclude, *settings.extend_exclude)
        # Plain names, all of the built-in ones, need no pattern engine.
        self.names = {p for p in patterns if not any(c in p for c in "/*?[!\\")}
        globs = [p for p in patterns if p not in self.names]
        self.all_patterns = patterns_of(globs) if globs else None
        self.patterns = self.all_patterns
        self.root = os.path.abspath(settings.root)

    def named(self, path: str) -> Iterator[Candidate]:
        """A file the user named: excludes hold only with --force-exclude."""
        if self.settings.force_exclude and self._excluded_by_path(os.path.abspath(path), False):
            return
        kind = _kind_at(path)
        yield Candidate(path, "" if kind == "-" else kind, explicit=True, by_hook=self.settings.force_exclude)

    def walk(self, top: str) -> Iterator[Candidate]:
        """The files under a folder, folders after files, in name order."""
        above = os.path.abspath(top)
        if self.settings.force_exclude and self._excluded_by_path(above, True):
            return
        ignores = ignores_above(above) if self.settings.respect_gitignore else []
        # Who names an excluded folder wants to see it; what is excluded inside of it stays so.
        self.patterns = self.all_patterns
        if self.all_patterns and not (self.root + os.sep).startswith(above + os.sep):
            self.patterns = without(self.all_patterns, self._relative(above) + "/")
        stack = [(top, above, ignores)]
        while stack:
            shown, absolute, ignores = stack.pop()
            try:
                with os.scandir(absolute) as scan:
                    entries = sorted(scan, key=lambda e: e.name)
            except OSError as error:
                self.out.unreadable.append((shown, error.strerror or str(error)))
                continue
            if self.settings.respect_gitignore and any(e.name == ".gitignore" for e in entries):
                ignores = [*ignores, (absolute, os.path.join(absolute, ".gitignore"), "")]
            folders = []
            for entry in entries:
                path = entry.name if shown == "." else f"{shown}/{entry.name}"
                role = self._role(entry, ignores)
                if role == "folder":
                    folders.append((path, entry.path, ignores))
                elif role != "-":
                    yield Candidate(path, role)
            stack.extend(reversed(folders))

    def _role(self, entry: os.DirEntry[str], ignores: Ignores) -> str:
        """``folder``, the kind of a file, or ``-`` for what is left out."""
        try:
            # A link to a folder is not followed: its target is walked where it stands, and loops end.
            if entry.is_dir(follow_symlinks=False):
                return "-" if self._skipped(entry.path, True, ignores) else "folder"
            kind = _kind_at(entry.path)
            # is_file() is false for pipes, sockets and dangling links.
            if kind == "-" or not entry.is_file() or self._skipped(entry.path, False, ignores):
                return "-"
        except OSError:
            return "-"
        return kind

    def _skipped(self, absolute: str, folder: bool, ignores: Ignores) -> bool:
        if self._excluded(absolute, folder):
            return True
        # Nearly every file of a checkout is tracked, and a look into a set is cheaper than fifty patterns.
        if not ignores or absolute in self._tracked(absolute):
            return False
        return is_ignored(absolute + ("/" if folder else ""), ignores)

    def _tracked(self, absolute: str) -> frozenset[str]:
        root = repository(os.path.dirname(absolute))
        return tracked(root) if root else frozenset()

    def _excluded(self, absolute: str, folder: bool) -> bool:
        if os.path.basename(absolute) in self.names:
            return True
        if self.patterns is None:
            return False
        return self.patterns.match_file(self._relative(absolute) + ("/" if folder else ""))

    def _excluded_by_path(self, absolute: str, folder: bool) -> bool:
        """Whether a walk from the root would leave out this path or a folder above it."""
        self.patterns = self.all_patterns
        return not self.names.isdisjoint(self._relative(absolute).split(os.sep)) or self._excluded(absolute, folder)

    def _relative(self, absolute: str) -> str:
        top = self.root.rstrip(os.sep) + os.sep
        return absolute[len(top) :] if absolute.startswith(top) else os.path.basename(absolute)


def _display(path: str) -> str:
    """The path the user sees: relative below the working directory, however it was spelled."""
    shown = os.path.normpath(path)
    here = os.getcwd()
    if os.path.isabs(shown) and (shown + os.sep).startswith(here + os.sep):
        shown = os.path.relpath(shown, here)
    return shown.replace(os.sep, "/")
