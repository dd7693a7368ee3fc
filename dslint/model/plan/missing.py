"""Scripts that a command names and that are nowhere."""

from __future__ import annotations

import posixpath

from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.plan.appearing import may_appear
from dslint.model.plan.config import Named
from dslint.model.plan.files import Files
from dslint.model.plan.leftbehind import left_behind
from dslint.model.plan.tree import files_like

_SUFFIXES = (".py", ".yaml", ".yml", ".json")


def missing_script(command: LaunchCommand, files: Files) -> Named | None:
    """The script that the command names, or the file of arguments of a tool, when it is in this project and nowhere.

    Or somewhere else than in the folder to which ``cd`` has led. Where its folder is nowhere either, it is of this
    project if one file alone has its name in a folder of that name (``llava/train/train.py`` beside
    ``videollava/train/train.py``). A module counts where its package is one of the project, two names deep.
    """
    word = command.script
    if word is None and command.launcher in ("llamafactory", "axolotl", "xtuner") and command.script_args:
        word = command.script_args[0]
    if word is not None and command.is_module:
        return _missing_module(word, files)
    text = word.text if word is not None else None
    if word is None or not text or not text.endswith(_SUFFIXES):
        return None
    left = left_behind(files, text)
    if left is None and files.find(text):
        return None
    is_start = files.workspace.is_start
    like = files_like(text, files.launch_path, files.workspace) if left is None else []
    meant = like[0] if len(like) == 1 else ""
    if may_appear(files, text, word.raw, is_ours=bool(meant)):
        return None
    return Named(text, word.location, word.raw, left, is_start, meant)


def _missing_module(word: Word, files: Files) -> Named | None:
    """A module that is nowhere in a package of this project; a package of the same name may be installed, too."""
    package, _, name = (word.text or "").rpartition(".")
    if "." not in package or not name.isidentifier() or files.find_module(word.text or "") is not None:
        return None
    folder = package.replace(".", "/")
    top = files.find_module(f"{package.partition('.')[0]}.__init__")
    # Folders inside of a package need no ``__init__.py``.
    inner = posixpath.join(posixpath.dirname(posixpath.dirname(top)), folder) if top is not None else ""
    if not inner or not files.workspace.exists(inner) or files.workspace.exists(f"{inner}/{name}"):
        return None
    return (
        None
        if may_appear(files, f"{folder}/{name}.py", word.raw, is_ours=True)
        else Named(word.text or "", word.location, word.raw)
    )
