"""Files that ``cd`` has left behind: the command names them as they were named in the folder before."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from dslint.core.source import Location, Span
from dslint.model.plan.files import Files

# Options of programs around the launcher (srun, mpirun, uv, env, conda) that choose a folder of their own.
_FOLDERS = ("-D", "-C", "--chdir", "--directory", "--cwd", "-wdir", "--wdir")


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A file that is not in ``folder``, where the command runs (``""``: the top), and that lies at ``path`` instead."""

    folder: str
    path: str
    place: Location | None = None

    @property
    def from_folder(self) -> str:
        """How the command has to name the file."""
        return posixpath.relpath(self.path, self.folder or ".")


def left_behind(files: Files, text: str) -> LeftBehind | None:
    """Where the file lies that a relative path means without ``cd``; ``None`` when the command finds it, or may do so.

    The folder after ``cd`` must be certain: no test decides about it (``cd data && ./fetch.sh && cd -``), and from one
    place alone, among those from which people start the launch file, it leads to a folder of the project, or to one
    with the script of the command.
    """
    workspace, command = files.workspace, files.command
    # `cd name` of a documentation leads into the clone, also where the project has a folder of its own name.
    if command.in_docs or not (command.cwd.is_known and command.cwd_is_certain and text) or text.startswith(("/", "~")):
        return None
    if _is_checked_out_elsewhere(files):
        return None
    folder = _folder(files)
    if folder is None or workspace.exists(posixpath.join(folder, text)):
        return None
    if files.script_path:
        beside = posixpath.join(posixpath.dirname(files.script_path), text)
        script = workspace.read(files.script_path)
        if workspace.exists(beside) or script is None or "chdir" in script.text:
            return None
    path = files.find(text)
    source = workspace.read(path) if path is not None else None
    if path is None or path.startswith(("..", "/")):
        return None
    place = source.location(Span(0, 0), "the file is here") if source is not None else None
    return LeftBehind(folder, path, place)


# actions/checkout with a path of its own, which may have the name of a folder inside.
_CHECKOUT = re.compile(r"\bactions/checkout\b[^\n]*\n(?:[ \t]+(?![ \t]|- )[^\n]*\n)*?[ \t]+path:")


def _is_checked_out_elsewhere(files: Files) -> bool:
    """A workflow puts the project into a folder below that in which its steps run."""
    if not files.launch_path.endswith((".yml", ".yaml")):
        return False
    source = files.workspace.read(files.launch_path)
    return source is not None and _CHECKOUT.search(source.text) is not None


def _folder(files: Files) -> str | None:
    """The one folder in which the command runs; ``None`` where nobody knows."""
    command, workspace = files.command, files.workspace
    around = [word.raw for words in command.wrappers for word in words]
    if command.cwd.get().startswith("/") or any(word.split("=")[0] in _FOLDERS for word in around):
        return None
    found = files.after_cd()
    folders = [folder for folder in found if not folder.startswith(("..", "/")) and workspace.exists(folder)]
    if any(folder.startswith("..") for folder in found):
        # ``cd ..`` may lead out of the project: the script says from where.
        script = command.script.text if command.script is not None and not command.is_module else None
        holds = [f for f in folders if script and workspace.is_file(workspace.normal(posixpath.join(f, script)))]
        folders = holds
    return ("" if folders[0] == "." else folders[0]) if len(folders) == 1 else None
