"""Findings as diagnostics of the protocol, by the URI under which the client shows the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsprotocol import types

from dslint.core.finding import Finding, Severity
from dslint.core.source import OUTSIDE, Location, SourceFile
from dslint.engine.session import Look
from dslint.parse.jsondoc import parse_json
from dslint.report.place import assumption_lines, message_of, one_line
from dslint.report.sources import FileSources
from dslint.rules.own import UNUSED_SUPPRESSION
from dslint.server.documents import Documents
from dslint.server.pages import page_of
from dslint.server.positions import Text
from dslint.translate import Translator, english
from dslint.translate.findings import translated

SOURCE = "dslint"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}


class Places:
    """Where findings of one look stand for the client. ``texts`` are what the look has seen of open documents."""

    def __init__(self, documents: Documents, texts: Mapping[str, str]) -> None:
        self._documents = documents
        self._sources = FileSources(texts)
        self._texts: dict[tuple[str, int | None], Text] = {}
        self._cells: dict[str, Any] = {}

    def uri(self, path: str) -> str:
        """The URI under which the client has a file."""
        return self._documents.uri(path)

    def text(self, path: str, cell: int | None = None) -> Text:
        """The text of a file, or of a cell, with its positions."""
        key = (path, cell)
        if key not in self._texts:
            text = self._sources.text(path) if cell is None else "\n".join(self._sources.lines(path, cell))
            self._texts[key] = Text(text, self._documents.encoding)
        return self._texts[key]

    def of(self, location: Location) -> types.Location:
        """The place of a finding: in a notebook that is open as one the cell, else the file."""
        path, region = location.path, location.region
        if region.cell is None:
            return types.Location(self._documents.uri(path), self.text(path).region(region))
        uri = self._documents.cell_uri(path, region.cell)
        if uri is not None:
            return types.Location(uri, self.text(path, region.cell).region(region))
        return types.Location(self._documents.uri(path), self._in_json(path, region.cell, region.line))

    def _in_json(self, path: str, cell: int, line: int) -> types.Range:
        """The string of a notebook's JSON that holds a line of a cell: a client may show the file as text."""
        text = self.text(path)
        if path not in self._cells:
            self._cells[path] = parse_json(SourceFile(path, text.text))
        values = self._cells[path].values
        for pointer in (f"/cells/{cell - 1}/source/{line - 1}", f"/cells/{cell - 1}/source", ""):
            if pointer in values:
                return text.range(values[pointer]) if pointer else types.Range(text.position(0), text.position(0))
        return types.Range(text.position(0), text.position(0))


def diagnostic(
    finding: Finding, places: Places, versions: Mapping[str, int | None], translate: Translator = english
) -> types.Diagnostic:
    """A finding as the client shows it."""
    said = [message_of(finding), *map(translate, assumption_lines(finding))]
    if finding.hint:
        said.append(one_line(finding.hint))
    page = page_of(finding.code)
    return types.Diagnostic(
        range=places.of(finding.location).range,
        message="\n".join(said),
        severity=_SEVERITIES[finding.severity],
        code=finding.code,
        code_description=types.CodeDescription(page) if page else None,
        source=SOURCE,
        tags=_tags(finding) or None,
        related_information=[
            types.DiagnosticRelatedInformation(places.of(other), one_line(other.label) or translate("see here"))
            for other in finding.related
            if not other.path.startswith(OUTSIDE)
        ]
        or None,
        data=data_of(finding, places, versions),
    )


def _tags(finding: Finding) -> list[types.DiagnosticTag]:
    """Struck out where the text is an old name; faded where nothing reads it."""
    words = set(finding.name.split("-"))
    if words & {"deprecated", "legacy"}:
        return [types.DiagnosticTag.Deprecated]
    if finding.code == UNUSED_SUPPRESSION.code or words & {"inert", "ignored"}:
        return [types.DiagnosticTag.Unnecessary]
    return []


def data_of(finding: Finding, places: Places, versions: Mapping[str, int | None]) -> dict[str, Any]:
    """What comes back with a request for code actions: the rule, the pointer of a key, and the fix as edits."""
    data: dict[str, Any] = {"name": finding.name}
    if finding.pointer is not None:
        data["pointer"] = finding.pointer
    if finding.fix is not None:
        edits = [
            {
                "uri": places.uri(edit.path),
                "version": versions.get(edit.path),
                "range": _plain(places.text(edit.path).range(edit.span)),
                "newText": edit.text,
            }
            for edit in finding.fix.edits
        ]
        data["fix"] = {"title": finding.fix.title, "safety": finding.fix.safety.value, "edits": edits}
    return data


def _plain(found: types.Range) -> dict[str, Any]:
    start, end = found.start, found.end
    return {
        "start": {"line": start.line, "character": start.character},
        "end": {"line": end.line, "character": end.character},
    }


def by_uri(
    look: Look, documents: Documents, least: Severity, translate: Translator = english
) -> dict[str, list[types.Diagnostic]]:
    """The diagnostics of a look that are at least as bad as ``least``, by URI; ``documents`` are those it has seen."""
    places, versions = Places(documents, look.texts), documents.versions()
    found: dict[str, list[types.Diagnostic]] = {}
    for finding in translated(tuple(look.result.findings), translate):
        if finding.severity.rank >= least.rank and not finding.location.path.startswith(OUTSIDE):
            uri = places.of(finding.location).uri
            found.setdefault(uri, []).append(diagnostic(finding, places, versions, translate))
    return found
