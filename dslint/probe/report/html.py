"""The report as one HTML file without scripts or outside resources."""

from __future__ import annotations

import html
from collections.abc import Iterator

from dslint.probe.outcome import ArmOutcome
from dslint.probe.report import Run, why
from dslint.probe.runner import Report

_STYLE = """\
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%}
td,th{border:1px solid #ccc;padding:.3rem .5rem;text-align:left;vertical-align:top}
code,pre{font:13px/1.4 ui-monospace,monospace}pre{background:#f5f5f5;padding:.6rem;overflow-x:auto;white-space:pre-wrap}
.CONFIRMED{color:#b00020;font-weight:600}.NOT_REPRODUCED{color:#1b6e20}.NEEDS{color:#0b5394}.INCONCLUSIVE{color:#8a6d00}
"""


def render(run: Run) -> str:
    """A complete page."""
    rows = "".join(
        f"<tr><td><code>{_e(f'{r.experiment}/{r.case}')}</code><td>{_e(', '.join(r.rules))}"
        f'<td class="{r.verdict.name}">{r.verdict.value}<td>{r.seconds:.1f}<td>{_e(r.reason)}'
        for r in run.reports
    )
    head = "<tr><th>experiment<th>rules<th>verdict<th>seconds<th>what was seen"
    sections = "".join("".join(_section(report)) for report in run.reports)
    left = "".join(f"<li>{_e(str(f.location))} {f.code} {_e(f.name)}: {_e(why(f))}" for f in run.without)
    rest = f"<h2>Findings without an experiment</h2><ul>{left}</ul>" if run.without else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Probe report</title><style>{_STYLE}</style>'
        f"<h1>Probe report</h1><p>{_e(run.line())}. {_e(run.summary.machine)}.</p>"
        f"<table>{head}{rows}</table>{sections}{rest}</html>\n"
    )


def _e(text: str) -> str:
    return html.escape(text)


def _section(report: Report) -> Iterator[str]:
    yield f"<h2>{_e(f'{report.experiment}/{report.case}')}</h2>"
    yield f'<p><span class="{report.verdict.name}">{report.verdict.value}</span> {_e(report.reason)}</p>'
    if report.explanation:
        yield f"<p>Account of the collectives: {_e(report.explanation)}</p>"
    for finding in report.findings:
        yield f"<p>Finding: <code>{_e(str(finding.location))}</code> {finding.code} {_e(finding.message)}</p>"
    for label, arm in [("As fixed", report.fixed), *(("As written", arm) for arm in report.written)]:
        if arm is not None:
            yield f"<p>{label}: {arm.kind.value} after {arm.seconds:.2f} s</p><pre>{_e(_told(arm))}</pre>"
    yield f"<p>Repeat: <code>dslint probe --case {_e(f'{report.experiment}/{report.case}')}</code></p>"


def _told(arm: ArmOutcome) -> str:
    lines = [arm.sentence()]
    for rank in arm.ranks:
        if rank.stack:
            lines.append(f"stack of rank {rank.rank}: " + " < ".join(rank.stack[:8]))
    return "\n".join(lines)
