"""Scripts of OpenMMLab and XTuner by their names: their command line is known where the file is not in the project."""

from __future__ import annotations

import re

from dslint.model.launch.command import LaunchCommand, Word

# ``tools/train.py`` of mmdetection and its kin; what a config is called when it comes from outside.
_PATH = re.compile(r"""(?:^|.*/)["']?tools/(?:train|test)\.py["']?""")
_XTUNER = re.compile(r"""(?:^|.*/)xtuner/tools/(?:train|test)\.py["']?""")
_MODULE = re.compile(r"(?:xtuner|mm[a-z]+\d?)\.tools\.(?:train|test)")
_CONFIG = re.compile(r"\$\{?\w*(?:config|cfg)", re.IGNORECASE)
OPENMMLAB = "openmmlab"


def convention_of(command: LaunchCommand) -> str:
    """:data:`OPENMMLAB` for a script of that family by its path and its first operand, a config; else empty.

    ``tools/train.py`` alone may be anybody's: it takes a config that is a Python file.
    """
    word = command.script
    if word is None:
        return ""
    if command.is_module:
        return OPENMMLAB if _MODULE.fullmatch(word.text or "") else ""
    path = word.text if word.text is not None else word.raw
    if _XTUNER.fullmatch(path):
        return OPENMMLAB
    first = command.script_args[0] if command.script_args else None
    return OPENMMLAB if _PATH.fullmatch(path) and first is not None and _is_config(first) else ""


def _is_config(word: Word) -> bool:
    return word.text.endswith(".py") if word.text is not None else _CONFIG.search(word.raw) is not None
