"""The commands that install, one after the other, into one environment: a stage of a Dockerfile, a job of a workflow.

What a later command asks for changes what an earlier one has installed, and pip does not look back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dslint.core.source import Span
from dslint.model.versions.allowed import Bound
from dslint.model.versions.manifests import installs
from dslint.model.versions.project import StatedFile
from dslint.model.versions.requirements import Statement, library_name
from dslint.model.versions.solve import holding
from dslint.model.versions.ways import bound_of

# Images without any library, and those of torch, which bring more than they say.
_EMPTY = re.compile(
    r"(?:[\w.-]+(?::\d+)?/)*(?:python|nvidia/cuda|ubuntu|debian|continuumio/miniconda3?|condaforge/\w+|alpine|rocm/dev-\S+)"
    r"(?:[:@]\S+)?$"
)
_TORCH = re.compile(r"(?:docker\.io/)?pytorch/pytorch:(\d+\.\d+\.\d+)")
_WITH_TORCH = frozenset(("numpy", "torchvision", "torchaudio", "pillow", "triton", "setuptools", "fsspec", "protobuf"))
_STAGE = re.compile(r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(\S+)", re.M | re.I)
_JOBS = re.compile(r"^jobs:[^\n]*$", re.M)
_JOB = re.compile(r"^(?P<indent>[ ]+)[\w-]+:[ \t]*(?:#[^\n]*)?$", re.M)
_PYTHON = re.compile(r"python-version[\"']?[ \t]*:[ \t]*[\"']?(3\.\d+)(?:\.\d+)?[\"']?[ \t]*$", re.M)
# What of a script runs once, and always.
_CHOOSES = re.compile(r"^\s*(?:if|case|for|while|function)\b|\(\)\s*\{|&&|\|\|", re.M)
# Who else installs, or decides what runs: nobody follows these.
_OPAQUE = re.compile(
    r"\b(?:poetry|pdm|uv(?![ \t]+pip\b)|pixi|pipenv|conda|mamba|micromamba|hatch|rye|tox|nox)\b[^\n;&|]*"
    r"\b(?:install|sync|add|update|create|run)\b"
    r"|\bgit\+|\bcurl\b[^\n]*\|[ \t]*(?:ba)?sh\b|--pre\b|--target\b|^[ \t]*-?[ \t]*if:[ \t]|^[ \t]*container:",
    re.M,
)
_COMMAND = re.compile(r"\b(?:pip3?(?:\.\d+)?|mim)[ \t]+(?P<verb>install|uninstall)\b(?P<rest>(?:\\\r?\n|[^\n;&|])*)")
_FILE = re.compile(r"(?:^|\s)(?:-r|--requirement)[ =]*[\"']?(?P<path>[^\s\"']+)")
_CONSTRAINT = re.compile(r"(?:^|\s)(?:-c|--constraint)[ =]")
_SELF = re.compile(r"(?:^|\s)(?:-e[ \t]+|--editable[ =])?[\"']?\.(?:\[(?P<extras>[\w,-]+)\])?[\"']?(?=\s|$)")
_UPGRADE = re.compile(r"(?:^|\s)(?:-U|--upgrade|--force-reinstall)(?=\s|$)")
_OPEN = re.compile(r"(?:^|\s)[\"']?([A-Za-z][\w.-]*)[^\s\"']*\$")


class Step(NamedTuple):
    """One command: what it asks for, whether newer releases replace older ones, and what it takes away."""

    bounds: dict[str, list[Bound]]
    is_upgrade: bool = False
    has_requirements: bool = True
    unknown: frozenset[str] = frozenset()


class Course(NamedTuple):
    """What one environment gets; ``python`` is empty where the file does not say."""

    steps: tuple[Step, ...]
    python: str
    unknown: frozenset[str]


def courses(file: StatedFile, files: Sequence[StatedFile], python: str) -> Iterator[Course]:
    """The environments of one file whose commands are all understood, with more than one command."""
    text, name = file.source.text, file.name
    parts = (
        _stages(text)
        if "dockerfile" in name
        else _jobs(text)
        if name.endswith((".yml", ".yaml"))
        else [(0, len(text), "")]
        if name.endswith(".sh") and not _CHOOSES.search(text)
        else []
    )
    statements = list(installs(file.source)) if parts else []
    for start, end, image in parts:
        if _OPAQUE.search(text, start, end):
            continue
        first, unknown = _of_image(file, image, start)
        found = _PYTHON.search(text, start, end)
        steps = list(_steps(file, files, statements, (start, end), found[1] if found else python))
        if steps and None not in steps:
            yield Course((*first, *filter(None, steps)), found[1] if found else "", unknown)


def _stages(text: str) -> list[tuple[int, int, str]]:
    """The stages of a Dockerfile that begin with an image of which it is known what it brings."""
    found = list(_STAGE.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [
        (match.end(), end, match[1])
        for match, end in zip(found, ends, strict=True)
        if _EMPTY.match(match[1]) or _TORCH.match(match[1])
    ]


def _jobs(text: str) -> list[tuple[int, int, str]]:
    """The jobs of a workflow."""
    jobs = _JOBS.search(text)
    first = _JOB.search(text, jobs.end()) if jobs else None
    if jobs is None or first is None:
        return []
    heads = [match for match in _JOB.finditer(text, jobs.end()) if match["indent"] == first["indent"]]
    ends = [match.start() for match in heads[1:]] + [len(text)]
    return [(match.end(), end, "") for match, end in zip(heads, ends, strict=True)]


def _of_image(file: StatedFile, image: str, at: int) -> tuple[list[Step], frozenset[str]]:
    match = _TORCH.match(image)
    if match is None:
        return [], frozenset()
    start = file.source.text.rfind(image, 0, at)
    statement = Statement("torch", f"=={match[1]}", Span(start, start + len(image)))
    return [Step({"torch": [bound_of(file.source, statement)]}, has_requirements=False)], _WITH_TORCH


def _steps(
    file: StatedFile, files: Sequence[StatedFile], statements: list[Statement], part: tuple[int, int], python: str
) -> Iterator[Step | None]:
    """The commands in a part of a file; ``None`` for one that is not understood."""
    text = file.source.text
    for command in _COMMAND.finditer(text, *part):
        line = text[text.rfind("\n", 0, command.start()) + 1 : command.start()].lstrip()
        if line.startswith("#"):
            continue
        rest = command["rest"].replace("\\\n", " ")
        mine = [s for s in statements if command.start() <= s.span.start < command.end()]
        names = {library_name(word) for word in re.findall(r"(?<![\w./-])[A-Za-z][\w.-]*", rest)}
        if command["verb"] == "uninstall":
            yield Step({}, unknown=frozenset(filter(None, names)))
            continue
        bounds: dict[str, list[Bound]] = {}
        for statement in mine:
            bounds.setdefault(statement.name, []).append(bound_of(file.source, statement))
        included = _included(rest, files, python)
        if included is None or _CONSTRAINT.search(rest):
            yield None
            return
        for name, more in included.items():
            bounds.setdefault(name, []).extend(more)
        taken = {name for name, found in bounds.items() if any(bound.taken_from for bound in found)}
        unknown = {found for word in _OPEN.findall(rest) if (found := library_name(word))} | taken
        kept = {name: found for name, found in bounds.items() if name not in unknown}
        yield Step(kept, bool(_UPGRADE.search(rest)), "--no-dep" not in rest, frozenset(unknown))


def _included(rest: str, files: Sequence[StatedFile], python: str) -> dict[str, list[Bound]] | None:
    """What requirement files and the project itself add; ``None`` where one of them is not there."""
    found: dict[str, list[Bound]] = {}
    asked = [[match["path"].rsplit("/", 1)[-1].lower()] for match in _FILE.finditer(rest)]
    own = _SELF.search(rest)
    if own:
        asked.append(["pyproject.toml", "setup.py", "setup.cfg"])
    for names in asked:
        read = [file for file in files if file.name in names]
        if not read:
            return None
        for file in read:
            for name, bounds in file.bounds.items():
                held = holding([bound for bound in bounds if not bound.group], python)
                if held and name != "python":
                    found.setdefault(name, []).extend(held)
    return found
