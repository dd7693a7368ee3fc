"""Library versions that project files state, each with its exact place. Files are read as text, never run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dslint.core.source import SourceFile, Span
from dslint.model.context import VersionFact

if TYPE_CHECKING:
    from packaging.markers import Marker

LIBRARIES = ("deepspeed", "transformers", "accelerate", "torch", "xtuner", "mmengine", "trl", "lightning", "webdataset")
_MENTION = re.compile(r"deepspeed|transformers|accelerate|torch|xtuner|mmengine|trl|lightning|webdataset", re.I)
# tokenizers is read for what a pin of it says of transformers: the releases of transformers that first require more.
_TOKENIZERS = "tokenizers"
_REQUIRED_TOKENIZERS = (
    ((0, 14), "4.34.0"), ((0, 19), "4.40.0"), ((0, 20), "4.45.0"), ((0, 21), "4.47.0"), ((0, 22), "4.56.0"),
    ((0, 23, 1), "5.16.0"),
)  # fmt: skip
_ALIASES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-lightning": "lightning"}


@dataclass(frozen=True, slots=True)
class Statement:
    """One place where a file names a library: ``certain`` unless an extra or an environment marker decides."""

    name: str
    specifier: str
    span: Span
    certain: bool = True


def parse_versions(source: SourceFile, included: Iterable[SourceFile] = ()) -> dict[str, VersionFact]:
    """The versions of the libraries dslint knows that one project file states, by library.

    The file's name says how to read it: requirements and constraints, pyproject.toml, setup.cfg, setup.py, conda
    environments, Pipfile, pixi.toml, the lock files of uv, poetry, pdm and pipenv, pylock.toml; of Dockerfiles, shell
    scripts and texts the ``pip install`` lines. A library without a version, and
    one with contradictory versions, is left out.

    ``included`` are the files that a requirements file names with ``-r`` and ``-c``: pip installs what satisfies all of
    them together, so they count as one file.
    """
    by_library: dict[str, list[tuple[SourceFile, Statement]]] = {}
    readers = [(source, _reader(source.path.rsplit("/", 1)[-1].lower())), *((s, requirements_txt) for s in included)]
    for read, reader in readers:
        if reader is None or not _MENTION.search(read.text):
            continue
        for statement in reader(read):
            if statement.specifier:
                by_library.setdefault(statement.name, []).append((read, statement))
    facts = {library: _joined(statements) for library, statements in by_library.items()}
    pin, transformers = facts.pop(_TOKENIZERS, None), facts.get("transformers")
    if pin is not None and transformers is not None:
        facts["transformers"] = _limited(transformers, pin)
    return {library: fact for library, fact in facts.items() if fact}


def _limited(transformers: VersionFact, tokenizers: VersionFact) -> VersionFact:
    """`tokenizers==0.15.1` beside an open range of transformers: pip takes none that requires a newer one."""
    release = re.fullmatch(r"==(\d+(?:\.\d+)*)", tokenizers.specifier)
    if release is None or transformers.specifier.startswith("=="):
        return transformers
    given = tuple(int(part) for part in release[1].split("."))
    limit = next((first for needed, first in _REQUIRED_TOKENIZERS if given < needed), None)
    return replace(transformers, specifier=f"{transformers.specifier},<{limit}") if limit else transformers


def is_requirements(path: str) -> bool:
    """Whether a file is read as ``requirements.txt`` is, and so may name others with ``-r`` and ``-c``."""
    return _reader(path.rsplit("/", 1)[-1].lower()) is requirements_txt


def _reader(name: str) -> Callable[[SourceFile], Iterable[Statement]] | None:
    from dslint.model.versions import lockfiles, manifests

    if name.endswith(".lock") or (name.startswith("pylock.") and name.endswith("toml")):
        return lockfiles.pipfile_lock if name == "pipfile.lock" else lockfiles.toml_lock
    if name == "pyproject.toml":
        return manifests.pyproject
    if name == "pixi.toml":
        return manifests.pixi
    if name == "pipfile":
        return manifests.pipfile
    if name == "setup.cfg":
        return manifests.setup_cfg
    if name == "setup.py":
        return manifests.setup_py
    if name.endswith((".yml", ".yaml")):
        return manifests.conda
    if "dockerfile" in name or name.endswith((".sh", ".md", ".dockerfile")):
        return manifests.installs
    return requirements_txt if name.endswith((".txt", ".in")) else None


def _joined(statements: list[tuple[SourceFile, Statement]]) -> VersionFact | None:
    """One fact out of all statements about a library that hold together."""
    chosen = [(source, s) for source, s in statements if s.certain] or statements
    specifiers = list(dict.fromkeys(s.specifier for _, s in chosen))
    if len(specifiers) > 1 and not chosen[0][1].certain:
        return None
    pins = [s for s in specifiers if s.startswith("==") and "," not in s and "*" not in s]
    if len(pins) > 1:
        return None
    source, first = chosen[0] if not pins else next(pair for pair in chosen if pair[1].specifier == pins[0])
    base = source.path.rsplit("/", 1)[-1]
    label = f"{first.name} {first.specifier} stated here"
    return VersionFact(pins[0] if pins else ",".join(specifiers), source.location(first.span, label), base)


def library_name(name: str) -> str | None:
    """The known library behind a package name as people write it."""
    plain = re.sub(r"[-_.]+", "-", name.strip().lower())
    plain = _ALIASES.get(plain, plain)
    return plain if plain in LIBRARIES or plain == _TOKENIZERS else None


_SIMPLE = re.compile(
    r"\s*[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[\w\s,.-]*\])?\s*((?:==|>=|<=|!=|<|>)\s*\d+(?:\.\d+)*(?:\s*,\s*(?:>=|<=|!=|<|>)"
    r"\s*\d+(?:\.\d+)*)*)?\s*$"
)
_START = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# An address without the name of the package in front.
_FROM_GIT = re.compile(r"\s*git\+\S+/([\w.-]+?)(?:\.git)?@v?(\d+(?:\.\d+)+)(?:[#;\s]|$)")
_TAG = re.compile(r"\.git@v?(\d+(?:\.\d+)+)(?:[#;\s]|$)")


def requirement(text: str, start: int, certain: bool = True) -> Statement | None:
    """The statement in a PEP 508 requirement that stands at ``start``; None for other libraries and other systems."""
    from_git = _FROM_GIT.match(text) if "git+" in text else None
    if from_git:
        cloned = library_name(from_git[1])
        start += len(text) - len(text.lstrip())
        return (
            Statement(cloned, f"=={from_git[2]}", Span(start, start + len(text.strip())), certain) if cloned else None
        )
    match = _START.match(text)
    library = library_name(match[1]) if match else None
    if library is None or match is None:
        return None
    span = Span(start + match.start(1), start + len(text.rstrip()))
    simple = _SIMPLE.match(text)
    if simple:  # most lines; the rest is worth an import
        return Statement(library, (simple[1] or "").replace(" ", ""), span, certain)
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        parsed = Requirement(text.strip())
    except InvalidRequirement:
        return None
    if parsed.marker is not None and not _on_linux(parsed.marker):
        return None
    tag = _TAG.search(parsed.url or "")
    specifier = f"=={tag[1]}" if tag else _ordered(text, str(parsed.specifier))
    return Statement(library, specifier, span, certain and parsed.marker is None)


def _ordered(text: str, specifier: str) -> str:
    """``packaging`` sorts the parts of a range; keep them as written."""
    return ",".join(sorted(specifier.split(","), key=lambda part: text.replace(" ", "").find(part)))


def _on_linux(marker: Marker) -> bool:
    """Whether a requirement can apply where people train: Linux, some Python."""
    system = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
    for minor in range(8, 15):
        if marker.evaluate({**system, "python_version": f"3.{minor}", "python_full_version": f"3.{minor}.9"}):
            return True
    return "extra" in str(marker)


_TXT_LINE = re.compile(r"^[^\r\n]*", re.M)
_TXT_END = re.compile(r"\s#|\s--\w|\s*\\\s*$")


def requirements_txt(source: SourceFile) -> Iterator[Statement]:
    """``requirements.txt`` and ``constraints.txt``."""
    for line in _TXT_LINE.finditer(source.text):
        text = line[0]
        if not text.strip() or text.lstrip()[0] in "#-":
            continue
        end = _TXT_END.search(text)
        found = requirement(text[: end.start()] if end else text, line.start())
        if found:
            yield found
