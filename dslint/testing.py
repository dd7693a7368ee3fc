"""Tests of a project's own rules: each example of a rule is a test case.

With pytest::

    import pytest
    from dslint.testing import ExampleCase, example_cases

    @pytest.mark.parametrize("case", example_cases("tools/my_rules.py"), ids=str)
    def test_example(case: ExampleCase) -> None:
        case.check()
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dslint.core.finding import Finding, Severity
from dslint.engine.fixer import fix_paths
from dslint.engine.projectrules import activate
from dslint.engine.run import check_paths
from dslint.rules.base import Example
from dslint.rules.own import RULE_CRASHED
from dslint.rules.registry import PROJECT
from dslint.settings import Settings, make_settings


@dataclass(frozen=True)
class ExampleCase:
    """One example of the rule in ``file``: ``code`` is that of the rule."""

    file: str
    code: str
    example: Example

    def __str__(self) -> str:
        kind = "bad" if self.example.at else "good"
        return f"{self.code}-{kind}-{self.example.title.replace(' ', '-')}"

    def check(self) -> None:
        """A bad example is reported exactly where it says, and its fix gives the promised text; a good one is silent.

        Raises:
            AssertionError: it does not do so; the message says what was found.
        """
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            try:
                os.chdir(folder)
                Path(".git").mkdir()  # a project of its own: nothing above it is read
                for path, text in self.example.files.items():
                    Path(path).parent.mkdir(parents=True, exist_ok=True)
                    Path(path).write_bytes(text.encode())
                self._judge()
            finally:
                os.chdir(here)

    def _settings(self, **more: object) -> Settings:
        stated = {**self.example.settings, "cache": False, "jobs": 1, "rules": [self.file], **more}
        return make_settings(stated, run_rules=True)

    def _judge(self) -> None:
        found = check_paths(["."], self._settings(**{"extend-select": [self.code]})).findings
        crashed = [f.message for f in found if f.code == RULE_CRASHED.code]
        assert not crashed, crashed[0]
        mine = [f for f in found if f.code == self.code]
        if not self.example.at:
            loud = [_shown(f) for f in found if f.code == self.code or f.severity is not Severity.INFO]
            assert not loud, f"a good example must be silent, found: {'; '.join(loud)}"
            return
        places = {str(f.location): f"{f.location} {f.severity.value}" for f in mine}
        wanted = sorted(place if " " in place else places.get(place, place) for place in self.example.at)
        assert sorted(f"{f.location} {f.severity.value}" for f in mine) == wanted, "; ".join(map(_shown, mine))
        if self.example.fixed is not None:
            self._judge_fix()

    def _judge_fix(self) -> None:
        is_unsafe = PROJECT[self.code].meta.fix == "unsafe"
        done = fix_paths(["."], self._settings(select=[self.code]), is_unsafe, {})
        assert not done.refused, done.refused[0]
        texts = {**self.example.files, **done.after}
        assert texts == {**self.example.files, **(self.example.fixed or {})}


def example_cases(file: str | os.PathLike[str]) -> list[ExampleCase]:
    """The examples of the rule in a file, relative to the working directory.

    Raises:
        ValueError: the file holds no rule that dslint can use, or one without a bad and a good example.
    """
    path = str(Path(file).absolute())
    activate([path])
    ((code, rule),) = PROJECT.items()
    cases = [ExampleCase(path, code, example) for example in rule.examples]
    if len({bool(case.example.at) for case in cases}) != 2:
        raise ValueError(f"{file}: a rule needs at least one bad(...) and one good(...) example")
    return cases


def _shown(finding: Finding) -> str:
    return f"{finding.location} {finding.severity.value} {finding.code}: {finding.message}"
