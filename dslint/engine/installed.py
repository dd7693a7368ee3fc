"""The versions of the libraries that a program finds, by the metadata of what is installed. Nothing is imported.

The interpreter is the one that the program names in its first line; of another environment than that of dslint
itself the usual folders are looked at.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from glob import glob

from dslint.core.source import SourceFile, Span
from dslint.model.context import VersionFact
from dslint.model.versions.requirements import FOLLOWED

INSTALLED = "<installed>"
_INFO = re.compile(r"(?P<name>[A-Za-z0-9_.-]+?)-(?P<version>\d[^-]*?)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_VERSION = re.compile(rb"^Version:[ \t]*([^\s+]+)", re.MULTILINE)
_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)?)?")
# pip writes this where the path of the interpreter is too long for a first line.
_EXEC = re.compile(r"'''exec' [\"']?([^\s\"']+)")
_HEAD = 4096


def installed_versions(program: str, environ: Mapping[str, str]) -> dict[str, VersionFact] | None:
    """The releases of the libraries that a program of a Python environment finds; ``None`` where nobody knows which."""
    python = interpreter_of(program, environ)
    if python is None:
        return None
    paths = search_path(python, environ)
    return _versions(paths) if paths else None


def which(name: str, environ: Mapping[str, str]) -> str | None:
    """The file that a shell would start under this name."""
    folders = [""] if "/" in name else environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def interpreter_of(program: str, environ: Mapping[str, str]) -> str | None:
    """The Python that runs a program: itself, or the one that its first line names."""
    path = which(program, environ) if program else None
    if path is None or _PYTHON.fullmatch(os.path.basename(path)):
        return path
    try:
        with open(path, "rb") as file:
            lines = file.read(_HEAD).decode("utf-8", "replace").split("\n")
    except OSError:
        return None
    words = lines[0][2:].split() if lines[0].startswith("#!") else []
    if len(words) > 1 and words[0].endswith("/env"):
        return which(words[-1], environ) if _PYTHON.fullmatch(words[-1]) else None
    longer = _EXEC.match(lines[1]) if len(lines) > 1 else None
    found = longer[1] if longer is not None else words[0] if words else ""
    return found if _PYTHON.fullmatch(os.path.basename(found)) else None


def search_path(python: str, environ: Mapping[str, str]) -> list[str]:
    """The folders in which an interpreter looks for packages; none where its installation has another shape."""
    own = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if _is_this(python):
        return [*own, *(path for path in sys.path if path)]
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    release = re.search(r"(\d+\.\d+)$", os.path.realpath(python))
    names = [f"python{release[1]}", "python3"] if release is not None else ["python3*"]
    folders = [
        folder
        for top in (prefix, os.path.join(prefix, "local"))
        for name in names
        for kind in ("site-packages", "dist-packages")
        for folder in sorted(glob(os.path.join(re.sub(r"([*?[])", r"[\1]", top), "lib*", name, kind)))
    ]
    if release is None and len({os.path.dirname(folder) for folder in folders}) > 1:
        return []
    return [*own, *(_of_user(release[1], prefix, environ) if release is not None else ()), *folders] if folders else []


def _is_this(python: str) -> bool:
    """The interpreter is that of dslint: the same file in the same folder, for environments share it by links."""
    here = sys.executable or "/"
    folders = [os.path.realpath(os.path.dirname(os.path.abspath(path))) for path in (python, here)]
    return folders[0] == folders[1] and os.path.realpath(python) == os.path.realpath(here)


def _of_user(release: str, prefix: str, environ: Mapping[str, str]) -> Iterator[str]:
    if environ.get("PYTHONNOUSERSITE") or os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        return
    base = environ.get("PYTHONUSERBASE") or os.path.join(environ.get("HOME", ""), ".local")
    yield os.path.join(base, "lib", f"python{release}", "site-packages")


def _versions(paths: list[str]) -> dict[str, VersionFact]:
    found: dict[str, tuple[str, str]] = {}
    for folder in dict.fromkeys(paths):
        for library, version, path in _in_folder(folder):
            found.setdefault(library, (version, path))
    text = "".join(f"{library} {version} ({path})\n" for library, (version, path) in sorted(found.items()))
    source, facts, at = SourceFile(INSTALLED, text), dict[str, VersionFact](), 0
    for library, (version, _) in sorted(found.items()):
        end = source.line_after(at)
        facts[library] = VersionFact(f"=={version}", source.location(Span(at, end - 1)), "installed")
        at = end
    return facts


def _in_folder(folder: str) -> Iterator[tuple[str, str, str]]:
    """The libraries in a folder: name, version, and where the metadata lie."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        match = _INFO.fullmatch(name)
        library = re.sub(r"[-_.]+", "-", match["name"]).lower() if match is not None else ""
        if match is None or library not in FOLLOWED:
            continue
        path = os.path.join(folder, name)
        stated = _stated(os.path.join(path, "METADATA")) or _stated(os.path.join(path, "PKG-INFO")) or _stated(path)
        yield library, stated or match["version"].partition("+")[0], path


def _stated(path: str) -> str:
    """The version that a file of metadata states, without what a builder has added to it."""
    try:
        with open(path, "rb") as file:
            match = _VERSION.search(file.read(_HEAD))
    except OSError:
        return ""
    return match[1].decode("ascii", "replace") if match is not None else ""
