"""Where the paths of a launch command lead."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.commandlines import IMAGE_DECIDES
from dslint.model.launch.packagedirs import installed_paths
from dslint.model.plan.tree import below_clone, file_in_image, files_ending, inside_clone, parts_of
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

if TYPE_CHECKING:
    from dslint.model.embedded.heredoc import WrittenConfig

# Folders of a project whose modules an installation makes known by their own names.
_SOURCES = ("src",)


class Files:
    """The files that one command can name, looked up from the folders where people start it.

    Nobody writes down the working directory. It is the folder of the launch file or one of its parents; the
    folder from which most of the named files are found comes first. ``cd NAME/sub`` leads into the clone where that is
    its name. A script that is in none of these folders may still be one: the only file of the project whose path ends
    like it shows from which folder the command is meant to run.
    """

    def __init__(self, command: LaunchCommand, workspace: Workspace, written: Sequence[WrittenConfig] = ()) -> None:
        # The configs that the launch file itself writes.
        self.written = written
        self.workspace = workspace
        self.command = command
        self.script_path = ""
        self.launch_path = command.location.path
        folders = list(workspace.starts(self.launch_path))
        is_known = command.cwd.is_known
        self.clone = inside_clone(command.cwd.get(), self.launch_path, workspace) if is_known else None
        if self.clone is not None and not workspace.is_start:
            folders = [self.clone, *folders]
        elif is_known:
            inside = [posixpath.join(folder, command.cwd.get()) for folder in folders]
            folders = inside if workspace.is_start and command.cwd_is_certain else [*inside, *folders]
        if not workspace.is_start:
            folders += self._meant(folders)
        self.folders, best = _ranked(folders, _literal_paths(command), workspace)
        self.starts = self.folders[:best]

    def after_cd(self) -> list[str]:
        """Where a command whose folder is known runs: a folder for each from which people start the launch file."""
        workspace, cwd = self.workspace, self.command.cwd.get()
        if self.clone is not None and not workspace.is_start:
            return [workspace.normal(self.clone or ".")]
        return list(dict.fromkeys(workspace.normal(posixpath.join(f, cwd)) for f in workspace.starts(self.launch_path)))

    def _meant(self, folders: Sequence[str]) -> list[str]:
        """The folder from which the script is a file, where it is none from any other and only one folder fits.

        A name of one word without a folder (``train.py``) may be that of any file, and where ``cd`` certainly leads is
        no question.
        """
        command, workspace = self.command, self.workspace
        word, cwd = command.script, command.cwd
        text = word.text if word is not None else None
        if not text or text.startswith(("/", "~")) or (cwd.is_known and command.cwd_is_certain and self._is_here()):
            return []
        names = module_paths(text) if command.is_module else (text,)
        if not command.is_module and not text.endswith((".py", ".ipynb")):
            return []
        if any(workspace.has(posixpath.join(f, s), n) for f in folders for s in ("", *_SOURCES) for n in names):
            return []
        if command.in_docs and (said := self._said(names)) is not None:
            return [said]
        for name in names:
            if len(parts_of(name)) < 2 + name.endswith("/__main__.py") and (command.is_module or "_" not in name):
                continue
            found = files_ending(name, self.launch_path, workspace)
            if len(found) == 1:
                return [found[0][: -len("/".join(parts_of(name)))].rstrip("/")]
        return []

    def _said(self, names: Sequence[str]) -> str | None:
        """The one folder that a documentation speaks of, by ``cd`` or a path of the file, and that has the file."""
        workspace = self.workspace
        bases = workspace.bases(self.launch_path)
        cds = workspace.memo("folders of a text", self.launch_path, _folders_said) or ()
        tops = [folder for said in cds for folder in dict.fromkeys(posixpath.join(base, said) for base in bases)]
        inside = [inside_clone(said, self.launch_path, workspace) for said in cds]
        there = [f for f in (*tops, *inside) if f is not None and any(workspace.has(f, name) for name in names)]
        if not there:
            source = workspace.read(self.launch_path)
            text = source.text if source is not None else ""
            ends = [(path, name) for name in names for path in files_ending(name, self.launch_path, workspace)]
            there = [path[: -len(name)] for path, name in ends if "/" in path[: -len(name)] and path in text]
        unique = {workspace.normal(folder or ".") for folder in there}
        return next(iter(unique)) if len(unique) == 1 else None

    def _is_here(self) -> bool:
        """``cd`` leads to a folder of the project."""
        return any(map(self.workspace.exists, self.after_cd()))

    def find_module(self, module: str) -> str | None:
        """The file that ``-m`` runs: also in the folder ``src``, or where an installation puts its package."""
        names = module_paths(module)
        roots = [*self.folders, *(posixpath.join(folder, source) for folder in self.folders for source in _SOURCES)]
        found = next((found for name in names if (found := self.workspace.resolve(name, roots)) is not None), None)
        stems = installed_paths(module, self.launch_path, self.workspace) if found is None else ()
        elsewhere = (f"{stem}{end}" for stem in stems for end in (".py", "/__main__.py"))
        return found or next((path for path in elsewhere if self.workspace.is_file(path)), None)

    def find(self, text: str) -> str | None:
        """The user-facing path of a file that the command names, ``None`` when it is nowhere."""
        if text.startswith("~") or not text:
            return None
        found = self.workspace.resolve(text, self.folders)
        if found is None and text.endswith(".py") and self.command.cwd.reason == IMAGE_DECIDES:
            found = file_in_image(text, self.launch_path, self.workspace)
        return found if found is not None else below_clone(text, self.launch_path, self.workspace)

    def find_at_start(self, text: str) -> str | None:
        """The same, from the folders only in which the other files of the command are found: no guess."""
        return None if text.startswith("~") or not text else self.workspace.resolve(text, self.starts)

    def beside(self, path: str) -> Files:
        """The same look-up with the folder of a script in front: scripts name files relative to themselves too."""
        copy = object.__new__(Files)
        copy.workspace, copy.command, copy.launch_path = self.workspace, self.command, self.launch_path
        copy.script_path, copy.starts, copy.written, copy.clone = path, self.starts, self.written, self.clone
        copy.folders = [*self.folders, posixpath.dirname(path)]
        return copy

    def written_config(self, text: str) -> WrittenConfig | None:
        """The config that the launch file writes under this name before the command; ``None`` where it is not clear."""
        begin = self.command.location.span.start
        named = [
            w for w in self.written if w.target is None or posixpath.normpath(w.target) == posixpath.normpath(text)
        ]
        last = max((at for at, w in enumerate(named) if w.steps and w.at <= begin), default=0)
        named = [w for w in named[last:] if not (w.steps and w.at > begin)]
        if len(named) != 1 or named[0].target is None or named[0].at > begin:
            return None
        return named[0]

    def data(self, path: str) -> DataDoc | None:
        """A JSON or YAML file."""
        is_yaml = path.endswith((".yaml", ".yml"))
        return self.workspace.yaml(path) if is_yaml else self.workspace.json(path)


def _literal_paths(command: LaunchCommand) -> list[str]:
    """Relative paths among the words: what the choice of the folder is decided by."""
    wanted = (".py", ".json", ".yaml", ".yml", ".hjson", ".jsonc")
    texts = [text for word in command.words if (text := word.text) and text.endswith(wanted)]
    if command.script is not None and command.script.text and command.is_module:
        texts.append(module_path(command.script.text))
    values = [t.partition("=")[2] if t.startswith("--") else t for t in texts]
    return [t for t in values if t.endswith(wanted) and not t.startswith(("/", "~"))]


def _ranked(folders: Sequence[str], paths: Iterable[str], workspace: Workspace) -> tuple[list[str], int]:
    """The folders from which most of the paths are files first, and how many of them are equally good."""
    paths = list(paths)
    unique = list(dict.fromkeys(folders))
    if len(unique) < 2 or not paths:
        return unique, len(unique)
    hits = {f: sum(workspace.has(f, p) for p in paths) for f in unique}
    best = max(hits.values())
    return sorted(unique, key=lambda folder: -hits[folder]), sum(count == best for count in hits.values())


# ``cd examples/dreambooth`` anywhere in a documentation.
_CD = re.compile(r"(?:^|[\s`;&(])cd[ \t]+[\"']?([\w./~-]+)[\"']?", re.MULTILINE)


def _folders_said(source: SourceFile) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found.rstrip("/") for found in _CD.findall(source.text) if found.strip("./")))


def module_path(module: str) -> str:
    """``llava.train.train`` -> ``llava/train/train.py``."""
    return module.replace(".", "/") + ".py"


def module_paths(module: str) -> tuple[str, str]:
    """The file of a module, and the one that runs where it is a package."""
    return module_path(module), module.replace(".", "/") + "/__main__.py"


def other_spelling(command: LaunchCommand, files: Files) -> str | None:
    """``train.py`` of ``-m train.py``, ``pkg/train.py`` of ``torchrun pkg.train``; none where the word is right."""
    text = command.script.text if command.script is not None else None
    if text is None:
        return None
    stem = text.removesuffix(".py").removeprefix("./")
    if command.is_module:
        return files.find(f"{stem.replace('.', '/')}.py") if "/" in text or text.endswith(".py") else None
    is_dotted = re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", stem) is not None and stem == text
    return files.find(module_path(text)) if is_dotted and files.find(text) is None else None
