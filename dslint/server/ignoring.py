"""How a finding is ignored where it stands: a comment in the language of its file, or a line of the settings."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

from lsprotocol import types

from dslint.core.finding import Finding
from dslint.core.source import SourceFile, Span
from dslint.engine.discovery import kind_of
from dslint.parse.yamldoc import parse_yaml
from dslint.server.diagnostics import Places
from dslint.server.documents import shown, uri_of
from dslint.settings import Settings
from dslint.suppress.logical import LogicalLines, physical_lines, python_statements, shell_commands

_SETTINGS = "dslint.toml"


@dataclass(frozen=True)
class Ignoring:
    """An edit that ignores a finding; ``created`` is a file that it makes, ``title`` says what it does."""

    title: str
    uri: str
    edit: types.TextEdit
    created: bool = False


def ignoring(finding: Finding, places: Places, settings: Settings) -> Ignoring | None:
    """The comment where the file can have one, else an entry of the settings."""
    region = finding.location.region
    kind = "script" if region.cell is not None else kind_of(finding.location.path.rpartition("/")[2])
    if region.cell is not None and places.of(finding.location).uri == places.uri(finding.location.path):
        return None  # a notebook that the client shows as JSON
    return (_comment(finding, places, kind) if kind != "json" else None) or _entry(finding, places, settings)


def _comment(finding: Finding, places: Places, kind: str) -> Ignoring | None:
    location = finding.location
    text = places.text(location.path, location.region.cell).text
    first, _ = _lines_of(kind, text)(location.region.line, location.region.end_line)
    source = SourceFile(location.path, text)
    if first > len(source.line_starts):
        return None
    line = source.line_text(first)
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    end = "\r\n" if "\r\n" in text else "\n"
    start = source.offset(first, 1)
    comment = f"{indent}# dslint: ignore[{finding.code}]{end}"
    if kind == "yaml" and not _is_comment(SourceFile(location.path, text[:start] + comment + text[start:]), start):
        return None
    place = places.of(location)
    position = places.text(location.path, location.region.cell).position(start)
    edit = types.TextEdit(types.Range(position, position), comment)
    return Ignoring(f"Ignore {finding.code} here", place.uri, edit)


def _lines_of(kind: str, text: str) -> LogicalLines:
    if kind in ("script", "notebook"):
        return python_statements(text)
    return physical_lines if kind == "yaml" else shell_commands(text)


def _is_comment(source: SourceFile, start: int) -> bool:
    """What was put in is a comment of YAML, and not a line of a text inside of it."""
    line = Span(start, source.line_after(start))
    return any(line.start <= span.start < line.end for span in parse_yaml(source).comments)


def _entry(finding: Finding, places: Places, settings: Settings) -> Ignoring | None:
    """A line of ``per-file-ignores``, with the pointer of the key where the finding has one."""
    glob = os.path.relpath(os.path.abspath(finding.location.path), settings.root).replace(os.sep, "/")
    if glob.startswith("../"):
        return None
    rule = f"{finding.code}:{finding.pointer}" if finding.pointer else finding.code
    entry = f"{json.dumps(glob)} = [{json.dumps(rule)}]\n"
    file = settings.source or os.path.join(settings.root, _SETTINGS)
    name = os.path.basename(file)
    path = shown(os.path.abspath(file))
    what = "for this key " if finding.pointer else ""
    title = f"Ignore {finding.code} {what}in {name}"
    header = "[tool.dslint.per-file-ignores]" if name == "pyproject.toml" else "[per-file-ignores]"
    if settings.source is None:
        start = types.Position(0, 0)
        return Ignoring(title, uri_of(path), types.TextEdit(types.Range(start, start), f"{header}\n{entry}"), True)
    text = places.text(path)
    found = re.search(rf"^[ \t]*{re.escape(header)}[ \t]*(?:#[^\n]*)?(?:\n|\Z)", text.text, re.MULTILINE)
    present = re.search(rf"^[ \t]*{re.escape(json.dumps(glob))}[ \t]*=[ \t]*\[[ \t]*", text.text, re.MULTILINE)
    if present is not None and found is not None:
        position = text.position(present.end())
        more = json.dumps(rule) + ("" if text.text.startswith("]", present.end()) else ", ")
        return Ignoring(title, places.uri(path), types.TextEdit(types.Range(position, position), more))
    if json.dumps(glob) in text.text or (found is None and "per-file-ignores" in text.text):
        return None  # a table in another spelling is the user's to change
    if found is not None:
        position = text.position(found.end())
        return Ignoring(title, places.uri(path), types.TextEdit(types.Range(position, position), entry))
    gap = "" if not text.text or text.text.endswith("\n\n") else "\n" if text.text.endswith("\n") else "\n\n"
    return Ignoring(title, places.uri(path), types.TextEdit(types.Range(text.end, text.end), f"{gap}{header}\n{entry}"))
