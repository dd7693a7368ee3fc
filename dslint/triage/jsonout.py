"""The diagnosis as JSON. ``version`` grows when a key changes its meaning or goes; new keys may come."""

from __future__ import annotations

import json
from typing import Any

from dslint.triage.hit import Hit
from dslint.triage.verdict import Diagnosis, Verdict

VERSION = 1


def render(diagnosis: Diagnosis) -> str:
    """One JSON object with ``version``, ``story``, ``files`` and ``verdicts``, most telling first."""
    document = {
        "version": VERSION,
        "story": diagnosis.story,
        "origin": _hit(diagnosis.origin) if diagnosis.origin else None,
        "files": [
            {"path": f.path, "rank": f.rank, "bytes": f.bytes, "lines": f.lines, "ranks": sorted(f.ranks)}
            for f in diagnosis.files
        ],
        "verdicts": [_verdict(verdict) for verdict in diagnosis.verdicts],
    }
    return json.dumps(document, indent=2) + "\n"


def _verdict(verdict: Verdict) -> dict[str, Any]:
    symptom = verdict.symptom
    return {
        "symptom": symptom.name,
        "title": symptom.title,
        "meaning": symptom.meaning,
        "role": symptom.role,
        "after_timeout": verdict.late,
        "ranks": verdict.ranks,
        "count": verdict.count,
        "details": verdict.details,
        "rules": list(symptom.rules),
        "causes": [{"text": c.text, "rules": list(c.rules), "commands": list(c.commands)} for c in verdict.causes],
        "lines": [_hit(hit) for hit in verdict.hits],
    }


def _hit(hit: Hit) -> dict[str, Any]:
    return {"file": hit.file, "line": hit.line, "rank": hit.rank, "host": hit.host or None, "text": hit.text}
