"""Every example of every rule, judged by the whole program: the examples are the tests of the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import pytest
from metamorphic.examples import LEFT_OUT
from plain_words import old_words

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location, SourceFile
from dslint.engine.fixer import Fixed, fix_paths
from dslint.engine.run import Result, check_paths
from dslint.report import FORMATS, renderer
from dslint.report.options import ReportOptions
from dslint.report.sources import FileSources
from dslint.rules.base import Example
from dslint.rules.own import RULE_CRASHED
from dslint.rules.registry import LoadedRule, all_rules, load_rule
from dslint.settings import Settings, make_settings


class Case(NamedTuple):
    rule: LoadedRule
    example: Example

    @property
    def code(self) -> str:
        return self.rule.meta.code

    def settings(self, root: Path, **more: object) -> Settings:
        chosen = {"extend-select": [self.code]} if self.rule.meta.optional else {}
        return make_settings({**chosen, **self.example.settings, "cache": False, "jobs": 1, **more}, root)


def cases() -> Iterator[pytest.param]:
    for info in all_rules():
        rule = load_rule(info.code)
        for example in rule.examples:
            kind = "bad" if example.at else "good"
            yield pytest.param(Case(rule, example), id=f"{info.code}-{kind}-{example.title.replace(' ', '-')[:60]}")


CASES = list(cases())
# What the examples that have run so far have said, for the test at the end.
SAID: set[tuple[str, str]] = set()
SEEN: set[int] = set()
BAD = [case for case in CASES if case.values[0].example.at]
GOOD = [case for case in CASES if not case.values[0].example.at]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()  # a project of its own: nothing above it is read
    return tmp_path


def write(project: Path, case: Case) -> None:
    for path, text in case.example.files.items():
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())


def checked(project: Path, case: Case, **more: object) -> Result:
    write(project, case)
    result = check_paths(["."], case.settings(project, **more))
    assert not result.problems
    crashed = [finding.message for finding in result.findings if finding.code == RULE_CRASHED.code]
    assert crashed == []
    return result


def marked(finding: Finding) -> str:
    return f"{finding.location} {finding.severity.value}"


def own(case: Case, result: Result) -> list[Finding]:
    return [finding for finding in result.findings if finding.code == case.code]


@pytest.mark.parametrize("case", BAD)
def test_a_bad_example_is_reported_exactly_well_formed_in_every_format_and_fixed(project: Path, case: Case) -> None:
    """One test, since all of it is said about one run."""
    result = checked(project, case)
    found = own(case, result)
    SAID.update((case.code, finding.message) for finding in found)
    SEEN.add(id(case.example))
    assert_reported_where_it_says(case, found)
    assert_well_formed(case, found)
    assert_every_format_prints(result.findings)
    assert_fixes_are_as_safe_as_the_rule_says(project, case, found)


def assert_reported_where_it_says(case: Case, found: list[Finding]) -> None:
    # A place without severity stands for any.
    severities = {marked(f).rpartition(" ")[0]: marked(f) for f in found}
    expected = sorted(place if " " in place else severities.get(place, place) for place in case.example.at)
    assert sorted(map(marked, found)) == expected, "\n".join(f"{f.location}: {f.message}" for f in found)


def assert_well_formed(case: Case, found: list[Finding]) -> None:
    """One sentence, and exact places."""
    for finding in found:
        assert finding.name == case.rule.meta.name
        assert finding.message
        assert not finding.message.rstrip().endswith(".")
        assert len(finding.message) <= 180, finding.message
        assert finding.message.count("`") % 2 == 0
        assert finding.hint[:1] == finding.hint[:1].upper()
        for text in (finding.message, finding.hint, *(other.label for other in finding.related)):
            assert "\n" not in text
            assert text == text.strip()
            assert_counts_and_articles_agree(text)
            assert old_words(text) == [], text
        assert all(other.label for other in finding.related), "the report would show a place without a word"
        for location in (finding.location, *finding.related):
            assert_exact(location, case.example)


# Words of one thing that end like those of many, and identifiers that are spoken with another sound.
_ONE = re.compile(
    r"(?<![\w.:=`'-])1 (?!(?:is|has|was|process|stays|means|runs|needs|starts|wins|gets|refuses)\b)[a-z]+s\b(?!`)"
)
_VOWEL = re.compile(r"\b[Aa] `?(?:[AEIOaeio]|u(?!n|s|t)|U(?!S|UID))")
_CONSONANT = re.compile(r"\b[Aa]n `?(?:[bcdgjkpqtvwyz]|[BCDGJKPQTVWYZ][a-z])")


def assert_counts_and_articles_agree(text: str) -> None:
    """``1 node`` and not ``1 nodes``, ``an `Adam` `` and not ``a `Adam` ``."""
    quoted = re.sub(r"`[^`]*\s[^`]*`", "``", text)  # code of the user
    for wrong in (_ONE, _VOWEL, _CONSONANT):
        assert not wrong.search(quoted), f"{wrong.search(quoted)} in: {text}"


def assert_exact(location: Location, example: Example) -> None:
    """The lines and columns are those of the span in the text of the example."""
    if location.path not in example.files or location.region.cell is not None:
        return
    text = example.files[location.path]
    assert 0 <= location.span.start <= location.span.end <= len(text)
    assert SourceFile(location.path, text).region(location.span) == location.region


def assert_every_format_prints(findings: Sequence[Finding]) -> None:
    for name in FORMATS:
        out = renderer(name)(findings, FileSources(), ReportOptions(color=name == "full"))
        assert all(finding.code in out for finding in findings), name


def fixed(case: Case, project: Path, overrides: dict[str, str] | None = None) -> Fixed:
    # Only its own fixes; but what a suppression is for can be judged only when all rules run.
    selection = {} if case.rule.meta.kind == "dslint" else {"select": [case.code]}
    return fix_paths(["."], case.settings(project, **selection), case.rule.meta.fix == "unsafe", overrides)


def assert_fixes_are_as_safe_as_the_rule_says(project: Path, case: Case, found: list[Finding]) -> None:
    """Never refused, done after one run, and with the text that the example promises, if it does."""
    fixes = [finding.fix for finding in found if finding.fix]
    if case.rule.meta.fix == "none":
        assert fixes == []
    if case.rule.meta.fix == "unsafe":
        assert {fix.safety.value for fix in fixes} <= {"unsafe"}
    if not fixes and case.example.fixed is None:
        return
    first = fixed(case, project)
    assert first.refused == []
    texts = {**case.example.files, **first.after}
    if case.example.fixed is not None:
        assert texts == {**case.example.files, **case.example.fixed}
        assert [marked(finding) for finding in own(case, first.result) if finding.fix] == []
    assert fixed(case, project, texts).changed == []


@pytest.mark.parametrize("case", GOOD)
def test_a_good_example_is_silent_under_all_rules(project: Path, case: Case) -> None:
    loud = [
        f"{marked(f)} {f.code}: {f.message}"
        for f in checked(project, case).findings
        if f.code == case.code or (f.severity is not Severity.INFO and f.code not in LEFT_OUT)
    ]
    assert loud == []


@pytest.mark.parametrize("info", [info for info in all_rules() if info.fix != "none"], ids=lambda info: info.code)
def test_a_rule_with_a_fix_shows_it_in_an_example(info: object) -> None:
    assert any(example.fixed for example in load_rule(info.code).examples)  # type: ignore[attr-defined]


def test_headlines_of_all_examples_are_short() -> None:
    """What is to be done belongs in the hint, and other places are related locations."""
    if len(SEEN) < len(BAD):
        pytest.skip("only some of the examples have run")
    lengths = [len(message) for _, message in SAID]
    assert len(lengths) > 1100
    assert median(lengths) <= 110
    assert quantiles(lengths, n=20)[18] <= 140
