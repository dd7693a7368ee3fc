"""The ``--launcher`` option of OpenMMLab scripts, which says how the processes were started."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dslint.core.source import SourceFile
from dslint.model.plan.parser.options import Option

# The config file may name the launcher as well.
_FROM_CONFIG = re.compile(
    r"get\(\s*[\"']launcher[\"']|[\"']launcher[\"']\s+(?:not\s+)?in\b|(?:is_none|hasattr)\(\w+, [\"']launcher"
)
# ``args.launcher = "pytorch"``: the script sees for itself who started it.
_SETS = re.compile(r"\b(?!(?:cfg|config)\.)\w+\.launcher\s*=[^=]")
_BUILDS = re.compile(r"\bRunner\.from_cfg\(|\bRUNNERS\.build\(|\binit_dist\(")


def openmmlab_launcher(source: SourceFile, options: Mapping[str, Option]) -> Option | None:
    """The option of a script that builds a runner and is told by it alone how it was started."""
    option, text = options.get("launcher"), source.text
    if option is None or not {"pytorch", "slurm"} <= set(option.choices or ()):
        return None
    return option if _BUILDS.search(text) and not _FROM_CONFIG.search(text) and not _SETS.search(text) else None
