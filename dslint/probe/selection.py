"""From findings, rules or names to the cases to run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dslint.core.finding import Finding
from dslint.probe.experiment import Case, Subject
from dslint.probe.registry import Entry, entries, of_finding, of_rule


@dataclass(slots=True)
class Selection:
    """What to run, and which findings no experiment speaks about.

    ``work`` holds a case once, with all findings that ask for it with the same parameters.
    """

    work: list[tuple[Entry, Case, tuple[Finding, ...]]] = field(default_factory=list)
    without: list[Finding] = field(default_factory=list)


class UnknownName(ValueError):  # noqa: N818 - the name says the mistake
    """No experiment has this name; the message suggests the nearest one."""


def from_subjects(subjects: Iterable[Subject]) -> Selection:
    """The experiments for findings."""
    chosen = Selection()
    wanted: dict[str, tuple[Entry, Case, list[Finding]]] = {}
    for subject in subjects:
        found = of_finding(subject)
        if found is None:
            chosen.without.append(subject.finding)
            continue
        entry, case = found
        key = json.dumps([entry.experiment.name, case.name, dict(case.params)], sort_keys=True)
        wanted.setdefault(key, (entry, case, []))[2].append(subject.finding)
    chosen.work = [(entry, case, tuple(findings)) for entry, case, findings in wanted.values()]
    return chosen


def from_rules(codes: Sequence[str]) -> Selection:
    """All cases of some rules."""
    chosen = Selection()
    for code in codes:
        chosen.work += [(entry, case, ()) for entry, case in of_rule(code)]
    return chosen


def from_names(names: Sequence[str]) -> Selection:
    """Experiments by ``name`` or ``name/case``.

    Raises:
        UnknownName: there is none.
    """
    chosen = Selection()
    for name in names:
        experiment, _, wanted = name.partition("/")
        found = [
            (entry, case, ())
            for entry in entries()
            for case in entry.experiment.cases
            if entry.experiment.name == experiment and wanted in ("", case.name)
        ]
        if not found:
            raise UnknownName(f"unknown experiment `{name}`{_near(name)}")
        chosen.work += found
    return chosen


def everything() -> Selection:
    """The whole library, negative controls included."""
    return Selection([(entry, case, ()) for entry in entries() for case in entry.experiment.cases])


def _near(name: str) -> str:
    from difflib import get_close_matches

    known = [e.experiment.name for e in entries()]
    known += [f"{e.experiment.name}/{case.name}" for e in entries() for case in e.experiment.cases]
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean `{near[0]}`?" if near else "; `dslint probe --list` shows all"
