"""Which Python a project runs on: ``.python-version``, workflows, base images, ``conda create``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.source import SourceFile, Span
from dslint.model.versions.requirements import PYTHON, Statement

_RELEASE = re.compile(r"(?:cpython@|python-|Python )?(3\.\d+)(?:\.\d+)?\b")
# `python:3.8-slim`, also behind a registry.
_PYTHON_IMAGE = re.compile(r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(?:[\w.:-]+/)*python:(3\.\d+)(?:\.\d+)?", re.M | re.I)
# `pytorch/pytorch:2.1.2-cuda11.8-cudnn8-devel` comes with that torch.
_TORCH_IMAGE = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(?:docker\.io/)?pytorch/pytorch:(\d+\.\d+(?:\.\d+)?)", re.M | re.I
)
# The `python3` of a distribution (packages.ubuntu.com, packages.debian.org), also below `nvidia/cuda`.
_DISTRIBUTION = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(?:docker\.io/)?(?:library/)?"
    r"(?:(?:ubuntu|debian):|(?:nvcr\.io/)?nvidia/cuda:\S*?)"
    r"(?P<name>(?:ubuntu)?(?:18\.04|20\.04|22\.04|24\.04)|bionic|focal|jammy|noble|buster|bullseye|bookworm)(?![\w.])",
    re.M | re.I,
)
_PYTHON_OF = {
    "18.04": "3.6",
    "20.04": "3.8",
    "22.04": "3.10",
    "24.04": "3.12",
    "bionic": "3.6",
    "focal": "3.8",
    "jammy": "3.10",
    "noble": "3.12",
    "buster": "3.7",
    "bullseye": "3.9",
    "bookworm": "3.11",
}
_ITS_PYTHON = re.compile(
    r"\bapt(?:-get)?\b[^\n]*?\binstall\b(?:\\\r?\n|[^\n;&|])*?[ \t](?:python3|python3-pip)(?=\s|$)"
)
# What brings another Python.
_ANOTHER = re.compile(
    r"python3?\.\d|\bpython-?\d{2,3}\b|conda|mamba|miniforge|\bpyenv\b|\buv\b|deadsnakes|ppa:|\bpixi\b|Python-3"
    r"|\bCOPY[ \t]+--from|\bpython=|\.whl\b|update-alternatives|\basdf\b|\bnix\b",
    re.I,
)
_STAGES = re.compile(r"^[ \t]*FROM[ \t]", re.M | re.I)
_CREATES = re.compile(
    r"\b(?:conda|mamba|micromamba)[ \t]+(?:create|install)\b[^\n;&|`]*?[ \t\"']python[ \t]?"
    r"(==?[ \t]?3\.\d+|[<>]=?3\.\d+)"
    r"|\b(?:uv[ \t]+venv|uv[ \t]+python[ \t]+(?:install|pin)|pyenv[ \t]+(?:install|local|global))\b[^\n;&|`]*?(3\.\d+)"
    r"|\bpython(3\.\d+)[ \t]+-m[ \t]+venv\b"
)
_INSTALLS_PROJECT = re.compile(r"\bpip3?[ \t]+install\b[^\n]*?[ \t](?:\.(?=[\[\s]|$)|-r[ \t]*\S*requirements\.txt)")
_LISTED = re.compile(r"^[ \t-]*[\"']?python-version[\"']?[ \t]*:[ \t]*(\[[^\]]*\]|[^\n#]*)", re.M)
_ITEMS = re.compile(r"^[ \t]*python-version[ \t]*:[ \t]*\n((?:[ \t]*-[^\n]*\n?)+)", re.M)


def python_version_file(source: SourceFile) -> Iterator[Statement]:
    """``.python-version`` of pyenv and uv: one release a line, the first one counts."""
    match = re.match(r"\s*" + _RELEASE.pattern, source.text)
    if match:
        yield Statement(PYTHON, f"=={match[1]}.*", Span(match.start(1), match.end(1)))


def workflow(source: SourceFile) -> Iterator[Statement]:
    """A workflow of GitHub: the Pythons of its jobs, each of which is one of several, and what it installs."""
    from dslint.model.versions.manifests import installs

    spans = [match.span(1) for pattern in (_LISTED, _ITEMS) for match in pattern.finditer(source.text)]
    found = [
        (match[0], Span(start + match.start(), start + match.end()))
        for start, end in spans
        for match in re.finditer(r"(?<![\w.])3\.\d+(?![\w.]*\}\})", source.text[start:end])
    ]
    # One Python on which the project itself is installed is the one that it is meant for.
    is_one = len({release for release, _ in found}) == 1 and _INSTALLS_PROJECT.search(source.text) is not None
    for release, span in found:
        yield Statement(PYTHON, f"=={release}.*", span, certain=is_one)
    yield from installs(source)


def created(source: SourceFile) -> Iterator[Statement]:
    """``conda create -n x python=3.10`` and its relatives in a script, a text or a Dockerfile."""
    for match in _CREATES.finditer(source.text):
        group = next(number for number in (1, 2, 3) if match[number])
        text = match[group].replace(" ", "")
        sign = text.rstrip("0123456789.")
        specifier = f"{sign}{text[len(sign) :]}" if sign[:1] in ("<", ">") and sign else f"=={text.lstrip('=')}.*"
        yield Statement(PYTHON, specifier, Span(match.start(group), match.end(group)))


def base_image(source: SourceFile) -> Iterator[Statement]:
    """What the base images of a Dockerfile come with."""
    for match in _PYTHON_IMAGE.finditer(source.text):
        yield Statement(PYTHON, f"=={match[1]}.*", Span(*match.span(1)))
    yield from _of_distribution(source.text)
    for match in _TORCH_IMAGE.finditer(source.text):
        release = match[1] if match[1].count(".") == 2 else f"{match[1]}.0"
        yield Statement("torch", f"=={release}", Span(*match.span(1)))


def _of_distribution(text: str) -> Iterator[Statement]:
    """The ``python3`` of Ubuntu and Debian, where the one stage installs it by ``apt`` and nothing brings another."""
    found = _DISTRIBUTION.search(text)
    if found is None or len(_STAGES.findall(text)) != 1:
        return
    if _ITS_PYTHON.search(text) and not _ANOTHER.search(re.sub(r"^[ \t]*#[^\n]*", "", text, flags=re.M)):
        release = _PYTHON_OF[found["name"].lower().removeprefix("ubuntu")]
        yield Statement(PYTHON, f"=={release}.*", Span(*found.span("name")))
