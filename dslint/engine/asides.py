"""Files beside the work of a project: tests, archived folders, copies of public packages, notebooks beside scripts.

What is found there is as true as elsewhere, and rarely what the people who start a run have to mend today: errors and
warnings become notes that say so. A file that is named on the command line is looked at for its own sake, and so is
what lies in a folder that is named: only the folders below it count. A hook (``--force-exclude``) names whatever has
changed: its files are what a look at the whole folder makes of them.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.core.testfiles import is_test, may_be_test
from dslint.engine.gitindex import repository, tracked
from dslint.rules.own import METAS
from dslint.rules.registry import BY_CODE

TEST = "a test"
ARCHIVED = "an archived folder"
COPY = "a copy of another project"
NOTEBOOK = "a notebook"

_FOLDERS = (
    (re.compile(r"(?:unit_?|integration_?)?tests?"), TEST),
    (re.compile(r"_?(?:legacy|old|archived?|archives|deprecated|obsolete|attic|backups?|bak)|.+[_-](?:old|legacy|bak)"),
     ARCHIVED),
    (re.compile(r"third[_-]?part(?:y|ies)|3rd[_-]?party|vendor(?:ed|s)?|externals?|site-packages|submodules"), COPY),
)  # fmt: skip
_NAME = re.compile(r"""(?m)\bname\s*=\s*["']([\w.-]+)["']""")
# A package counts as a copy when so many of its modules are those of the public one, and so large a part of them.
_KNOWN_MODULES = 5
_KNOWN_PART = 0.6


def lowered(
    findings: Iterable[Finding], asked: Sequence[str], given: Collection[str], by_hook: bool = False
) -> Iterator[Finding]:
    """Yield the findings, those in files beside the work as notes; ``asked`` are the paths that the user named.

    ``by_hook``: a hook has named the files.
    """
    if by_hook:
        asked = [".", *filter(os.path.isdir, asked)]
        given = [*given, *tracked(repository(os.getcwd()) or os.getcwd())]
    named = {os.path.abspath(path) for path in asked}
    roots = sorted((path for path in named if os.path.isdir(path)), key=len, reverse=True)
    kinds: dict[str, str] = {}
    has_scripts = any(path.endswith(".py") for path in given)
    for finding in findings:
        path = finding.location.path
        is_note = finding.severity is Severity.INFO and BY_CODE[finding.code].severity == Severity.INFO.value
        if is_note or finding.code in METAS:
            yield finding
            continue
        if path not in kinds:
            kinds[path] = _kind(os.path.abspath(path), named, roots, has_scripts)
        # Script rules speak softly of tests by themselves, where they see one file only, too.
        is_lower = finding.severity is not Severity.INFO or kinds[path] == TEST
        yield _as_note(finding, kinds[path]) if kinds[path] and is_lower else finding


def _as_note(finding: Finding, kind: str) -> Finding:
    message = f"{finding.message} (a note, since this is in {kind})"
    return replace(finding, severity=Severity.INFO, message=message, aside=kind)


def _kind(path: str, named: Collection[str], roots: Sequence[str], has_scripts: bool) -> str:
    root = next((root for root in roots if path.startswith(root + os.sep)), None)
    if path in named or root is None:
        return ""
    *folders, file = path[len(root) + 1 :].split(os.sep)
    for index, folder in enumerate(folders):
        kind = next((kind for pattern, kind in _FOLDERS if pattern.fullmatch(folder.lower())), "")
        if kind or is_copy(os.path.join(root, *folders[: index + 1]), root):
            return kind or COPY
    if may_be_test(path) and is_test(path, _text(path)):
        return TEST
    return NOTEBOOK if file.endswith(".ipynb") and has_scripts else ""


@functools.lru_cache(maxsize=512)
def is_copy(folder: str, root: str) -> bool:
    """Return whether a folder is a public library by its name and modules, and not the project itself."""
    from dslint.model.surface import surface

    name = os.path.basename(folder)
    history = surface(name)
    if history is None or not os.path.isfile(os.path.join(folder, "__init__.py")) or _calls_itself(root, name):
        return False
    modules = [entry.partition(".")[0] for entry in os.listdir(folder) if re.fullmatch(r"[a-z]\w*(\.py)?", entry)]
    known = sum(bool(history.presence(f"{name}.{module}").in_releases) for module in modules)
    return known >= _KNOWN_MODULES and known >= _KNOWN_PART * len(modules)


def _calls_itself(root: str, name: str) -> bool:
    """Return whether the project that the user looks at is this library."""
    if os.path.basename(root).lower() == name:
        return True
    texts = (_text(os.path.join(root, file)) for file in ("pyproject.toml", "setup.py", "setup.cfg"))
    return any(name in {found.replace("-", "_").lower() for found in _NAME.findall(text)} for text in texts)


def _text(path: str) -> str:
    """Return the text of a file; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
