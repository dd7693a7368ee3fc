"""The programs that a project installs: ``[project.scripts]``, ``console_scripts`` of setup.cfg and setup.py."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import partial

from dslint.core.source import SourceFile
from dslint.model.workspace import Workspace

# ``fairseq-train = "fairseq_cli.train:cli_main"`` in TOML, INI and lists of Python alike.
_ENTRY = re.compile(
    r"""(?:^|["'])[ \t]*["']?([A-Za-z][\w.-]*)["']?[ \t]*=[ \t]*["']?([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)""", re.M
)
# Where they stand: behind one of these, up to the next section or bracket.
_TOML = re.compile(r"^\[(?:project|tool\.poetry)\.scripts\]\s*$(.*?)(?=^\[|\Z)", re.M | re.S)
_INI = re.compile(r"""console_scripts["']?\s*[=:]\s*(?:\[(.*?)\]|((?:\n[ \t]+\S[^\n]*)+))""", re.S)
_FILES = {"pyproject.toml": _TOML, "setup.cfg": _INI, "setup.py": _INI}


def console_scripts(path: str, workspace: Workspace) -> Mapping[str, str]:
    """The modules behind the programs that the projects around a file install, by the names of the programs."""
    found: dict[str, str] = {}
    for folder in workspace.bases(path):
        inner = workspace.kept(f"console scripts of {folder}", partial(_of_folder, folder, workspace))
        found = {**inner, **found}
    return found


def _of_folder(folder: str, workspace: Workspace) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, pattern in _FILES.items():
        source = workspace.read(posixpath.join(folder, name))
        if source is not None:
            found.update(_entries(source, pattern))
    return found


def _entries(source: SourceFile, pattern: re.Pattern[str]) -> dict[str, str]:
    blocks = ("".join(part or "" for part in match.groups()) for match in pattern.finditer(source.text))
    return {name: module for block in blocks for name, module, _ in _ENTRY.findall(block)}
