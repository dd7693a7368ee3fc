"""Where the paths of a launch command lead."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch

from dslint.model.launch.command import LaunchCommand
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

# A comment or an assignment.
_HARMLESS = re.compile(r"\s*(?:#|(?:export\s+|local\s+)?\w+=)")
# A name that the reader of a documentation replaces by his own.
_PLACEHOLDER = re.compile(
    r"(?:^|/)(?:path[_/-]?to|your|my|some|xxx+)[_./-]|[<>{}]|\.\.\.|(?:^|[/_-])your(?:[/_.-]|$)", re.I
)
# A script that writes files may write its config.
_SCRIPT_WRITES = re.compile(
    r"json\.dump\(|yaml\.\w*dump\(|\.write(?:_text)?\(|[\"']w[bt+]?[\"']|shutil\.copy|hf_hub_download"
)
_WRITES = r"(?:>>?|\b(?:tee|cp|mv|ln|install|wget|curl|sed -i|jq|envsubst|git clone|touch)\b)"
_VARIABLE = re.compile(r"\$\{?(\w+)")


class Files:
    """The files that one command can name, looked up from the folders where people start it.

    Nobody writes down the working directory. It is the folder of the launch file or one of its parents; the
    folder from which most of the named files are found comes first.
    """

    def __init__(self, command: LaunchCommand, workspace: Workspace) -> None:
        self.workspace = workspace
        self.command = command
        self.script_path = ""
        self.launch_path = command.location.path
        folders = list(workspace.bases(self.launch_path))
        if command.cwd.is_known:
            inside = [posixpath.join(folder, command.cwd.get()) for folder in folders]
            folders = [*inside, *folders]
        self.folders = _ranked(folders, _literal_paths(command), workspace)

    def find(self, text: str) -> str | None:
        """The user-facing path of a file that the command names, ``None`` when it is nowhere."""
        if text.startswith("~") or not text:
            return None
        return self.workspace.resolve(text, self.folders)

    def beside(self, path: str) -> Files:
        """The same look-up with the folder of a script in front: scripts name files relative to themselves too."""
        copy = object.__new__(Files)
        copy.workspace, copy.command, copy.launch_path = self.workspace, self.command, self.launch_path
        copy.script_path = path
        copy.folders = [*self.folders, posixpath.dirname(path)]
        return copy

    def data(self, path: str) -> DataDoc | None:
        """A JSON or YAML file."""
        is_yaml = path.endswith((".yaml", ".yml"))
        return self.workspace.yaml(path) if is_yaml else self.workspace.json(path)

    def is_written(self, text: str, raw: str = "") -> bool:
        """The launch file creates or changes this file, so what lies on the disk is not what runs."""
        source = self.workspace.read(self.launch_path)
        if source is None:
            return False
        names = {posixpath.basename(text), *_VARIABLE.findall(raw)} - {""}
        pattern = "|".join(rf"\b{re.escape(name)}\b" for name in sorted(names))
        # A longer line is data: it must not cost a quadratic search.
        shell = "\n".join(line for line in source.text.splitlines() if len(line) < 4000)
        if re.search(rf"{_WRITES}[^\n;|&]*(?:{pattern})", shell):
            return True
        written = set(re.findall(rf"{_WRITES}[^\n;|&]*?\$\{{?(\w+)", shell))
        return any(_may_hold(shell, variable, text) for variable in written)

    def may_appear(self, text: str, raw: str = "", named_by: str = "") -> bool:
        """A file that is nowhere may still be there when the command runs.

        Silent outside the project, where the working directory is unknown, and where another command or the
        script itself mentions the file. ``named_by`` is the path of the file that names it.
        """
        if text.startswith(("/", "~")) or self._is_away() or self.is_written(text, raw):
            return True
        if all(self.workspace.normal(posixpath.join(f, text)).startswith("..") for f in self.folders):
            return True
        if _PLACEHOLDER.search(text) or not self._is_at_home(text) or self._is_ignored(text):
            return True
        name = posixpath.basename(text)
        script = self.workspace.read(self.script_path) if self.script_path else None
        if script is not None and name in script.text:
            is_own = named_by == self.script_path and script.text.count(name) == 1
            if not is_own or _SCRIPT_WRITES.search(script.text):
                return True
        return self._mentioned_elsewhere(name, _VARIABLE.findall(raw))

    def _is_away(self) -> bool:
        """The command runs in a folder that is unknown or not in this project."""
        cwd = self.command.cwd
        if not cwd.is_known:
            return cwd.is_unknown
        bases = self.workspace.bases(self.launch_path)
        return not any(self.workspace.exists(self.workspace.normal(posixpath.join(b, cwd.get()))) for b in bases)

    def _is_at_home(self, text: str) -> bool:
        """The command runs in this project: its script is here, or at least the folder of the file is."""
        folder = posixpath.normpath(posixpath.dirname(text) or ".")
        return bool(self.script_path) or (
            posixpath.basename(folder) not in (".", "..")
            and any(self.workspace.exists(posixpath.join(f, folder)) for f in self.folders)
        )

    def _is_ignored(self, text: str) -> bool:
        """git ignores the file, so that it stands only where it is used."""
        name = posixpath.basename(text)
        for folder in self.workspace.bases(self.launch_path):
            source = self.workspace.read(posixpath.join(folder, ".gitignore"))
            for line in source.text.splitlines() if source is not None else ():
                pattern = line.strip().strip("/")
                if pattern and pattern[0] not in "#!" and (fnmatch(name, pattern) or fnmatch(text, pattern)):
                    return True
        return False

    def _mentioned_elsewhere(self, name: str, variables: Sequence[str]) -> bool:
        """Another command of the launch file speaks of the file: it may make it."""
        source = self.workspace.read(self.launch_path)
        if source is None:
            return False
        span = self.command.location.span
        others = source.text[: span.start] + "\n" + source.text[span.end :]
        for line in others.splitlines():
            if _HARMLESS.match(line):
                continue
            if name in line and not _names_config(line, re.escape(name)):
                return True
            for variable in variables:
                used = rf"\$\{{?{variable}\b"
                if re.search(used, line) and not _names_config(line, used):
                    return True
        return False


def _may_hold(shell: str, variable: str, text: str) -> bool:
    """An assignment of the shell variable can have given it this text, other variables standing for anything."""
    for value in re.findall(rf"\b{variable}=[\"']?([^\s\"';]+)", shell):
        parts = re.split(r"\$\{?\w+[^}/]*\}?|\$\w+", value)
        if any(parts) and re.fullmatch(".*".join(map(re.escape, parts)), text):
            return True
    return False


def _names_config(line: str, pattern: str) -> bool:
    """Another launch hands the same file to its script."""
    return re.search(rf"--\w*(?:deepspeed|config)\w*[ =]\S*{pattern}", line) is not None


def _literal_paths(command: LaunchCommand) -> list[str]:
    """Relative paths among the words: what the choice of the folder is decided by."""
    texts = [w.text for w in command.words if w.text]
    if command.script is not None and command.script.text and command.is_module:
        texts.append(module_path(command.script.text))
    values = [t.partition("=")[2] if t.startswith("--") else t for t in texts]
    wanted = (".py", ".json", ".yaml", ".yml", ".hjson", ".jsonc")
    return [t for t in values if t.endswith(wanted) and not t.startswith(("/", "~"))]


def _ranked(folders: Sequence[str], paths: Iterable[str], workspace: Workspace) -> list[str]:
    paths = list(paths)
    unique = list(dict.fromkeys(folders))
    if len(unique) < 2 or not paths:
        return unique
    hits = {f: sum(workspace.is_file(workspace.normal(posixpath.join(f, p))) for p in paths) for f in unique}
    return sorted(unique, key=lambda folder: -hits[folder])


def module_path(module: str) -> str:
    """``llava.train.train`` -> ``llava/train/train.py``."""
    return module.replace(".", "/") + ".py"
