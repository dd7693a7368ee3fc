"""Packages that lie in another folder than their name says: ``package_dir`` of setuptools."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import partial

from dslint.model.workspace import Workspace

_PAIR = r"""["']?([A-Za-z_][\w.]*)["']?[ \t]*[:=][ \t]*["']?([\w./-]+)["']?"""
_PYTHON = re.compile(r"""["']([A-Za-z_][\w.]*)["'][ \t]*:[ \t]*["']([\w./-]+)["']""")
# The lines of a section or a setting, or the braces of an inline table.
_TOML = re.compile(
    r"^\[tool\.setuptools\.package-dir\]\s*$(.*?)(?=^\[|\Z)|^package-dir[ \t]*=[ \t]*\{(.*?)\}", re.M | re.S
)
_INI = re.compile(r"^package_dir[ \t]*=((?:[^\n]*\n?)(?:[ \t]+\S[^\n]*\n?)*)", re.M)


def installed_paths(module: str, path: str, workspace: Workspace) -> list[str]:
    """Return the paths that a module has without its suffix where the projects around a file put its package."""
    found = []
    for folder in workspace.bases(path):
        packages = workspace.kept(f"package folders of {folder}", partial(_of_folder, folder, workspace))
        for package, place in packages.items():
            if f"{module}.".startswith(f"{package}."):
                rest = module[len(package) + 1 :].replace(".", "/")
                found.append(posixpath.normpath(posixpath.join(folder, place, rest)))
    return found


def _of_folder(folder: str, workspace: Workspace) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, blocks, pairs in (
        ("pyproject.toml", _TOML, re.compile(_PAIR)),
        ("setup.cfg", _INI, re.compile(_PAIR)),
        ("setup.py", None, _PYTHON),
    ):
        source = workspace.read(posixpath.join(folder, name))
        if source is None or not re.search(r"package[_-]dir", source.text):
            continue
        matches = blocks.finditer(source.text) if blocks is not None else ()
        texts = ["".join(part or "" for part in m.groups()) for m in matches] if blocks is not None else [source.text]
        found.update(pair for text in texts for pair in pairs.findall(text))
    return {package: place for package, place in found.items() if workspace.exists(posixpath.join(folder, place))}
