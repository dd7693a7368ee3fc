"""Versions in the lock files of uv, poetry, pdm and pipenv, and in pylock.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.source import SourceFile, Span
from dslint.model.versions.requirements import PYTHON, Statement, library_name

# Lock files are generated: a fixed form, often megabytes of it, so no TOML parser.
_PACKAGE = re.compile(r'^\[\[packages?\]\][ \t]*\r?\nname = "([^"\n]+)"[ \t]*\r?\nversion = "([^"\n]+)"', re.M)
# An item of `conda-lock.yml` or of `pixi.lock`; the name of a conda package may stand in its address only.
_ITEM = re.compile(r"^[ \t]*(?:name|- name):[ \t]*([\w.-]+)[ \t]*\r?\n[ \t]*version:[ \t]*[\"']?([\d.]+\w*)", re.M)
_ADDRESS = re.compile(r"^- conda:[ \t]*\S+/([\w.-]+?)-(\d[\w.]*)-[^/\s]+\.(?:conda|tar\.bz2)", re.M)
_PYTHONS = re.compile(r'^requires-python = "([^"\n]+)"', re.M)


def toml_lock(source: SourceFile) -> Iterator[Statement]:
    """``uv.lock``, ``poetry.lock``, ``pdm.lock``, ``pylock.toml``; forks give two versions of one package."""
    for match in _PACKAGE.finditer(source.text):
        library = library_name(match[1])
        if library:
            yield Statement(library, f"=={match[2]}", Span(match.start(2), match.end(2)))
    python = _PYTHONS.search(source.text)
    if python:
        yield Statement(PYTHON, python[1].replace(" ", ""), Span(*python.span(1)))


def yaml_lock(source: SourceFile) -> Iterator[Statement]:
    """``conda-lock.yml`` and ``pixi.lock``; several systems give one package several times."""
    for pattern in (_ITEM, _ADDRESS):
        for match in pattern.finditer(source.text):
            library = library_name(match[1])
            if library == PYTHON:
                yield Statement(PYTHON, "==" + ".".join(match[2].split(".")[:2]) + ".*", Span(*match.span(2)))
            elif library:
                yield Statement(library, f"=={match[2]}", Span(*match.span(2)))


def pipfile_lock(source: SourceFile) -> Iterator[Statement]:
    """``Pipfile.lock``."""
    from dslint.parse.data import join_pointer
    from dslint.parse.jsondoc import parse_json

    doc = parse_json(source)
    for section in ("default", "develop"):
        for name, pointer, _ in doc.children(f"/{section}"):
            library = library_name(name)
            version = doc.get(join_pointer(pointer, "version"))
            if library and isinstance(version, str):
                yield Statement(library, version, doc.values[join_pointer(pointer, "version")], section == "default")
