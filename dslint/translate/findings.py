"""Findings in the language of their reader; codes, names, places, fixes and facts stay as they are."""

from __future__ import annotations

from dataclasses import replace

from dslint.core.finding import Finding
from dslint.core.source import Location
from dslint.translate import Translator, english


def translated(found: tuple[Finding, ...], translate: Translator) -> tuple[Finding, ...]:
    """Return the findings with their sentences translated, in the same order."""
    return found if translate is english else tuple(_finding(finding, translate) for finding in found)


def _finding(finding: Finding, translate: Translator) -> Finding:
    fix = finding.fix
    return replace(
        finding,
        message=translate(finding.message),
        hint=translate(finding.hint) if finding.hint else "",
        location=_location(finding.location, translate),
        related=tuple(_location(location, translate) for location in finding.related),
        assumptions=tuple(translate(sentence) for sentence in finding.assumptions),
        fix=replace(fix, title=translate(fix.title)) if fix is not None else None,
    )


def _location(location: Location, translate: Translator) -> Location:
    return location.labelled(translate(location.label)) if location.label else location
