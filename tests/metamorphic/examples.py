"""The examples of all script rules, and what dslint says of a project."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dslint.core.finding import Finding, Severity
from dslint.engine.run import check_paths
from dslint.rules.base import Example
from dslint.rules.own import RULE_CRASHED
from dslint.rules.registry import LoadedRule, all_rules, load_rule
from dslint.settings import Settings, make_settings


@dataclass(frozen=True)
class Case:
    """An example of a rule."""

    rule: LoadedRule = field(repr=False)
    example: Example

    @property
    def code(self) -> str:
        return self.rule.meta.code

    @property
    def name(self) -> str:
        return f"{self.code} {self.example.title}"

    @property
    def files(self) -> Mapping[str, str]:
        return self.example.files

    @property
    def is_bad(self) -> bool:
        return bool(self.example.at)

    @property
    def severities(self) -> set[str]:
        """Those that the example names."""
        return {place.partition(" ")[2] for place in self.example.at} - {""}

    def scripts(self) -> list[str]:
        """The files to rewrite: where the rule fires, or every script of a good example."""
        told = {place.partition(" ")[0].rpartition(":")[0] for place in self.example.at}
        return sorted(p for p in self.files if p.endswith(".py") and (not told or p in told))

    def settings(self, root: Path, **more: object) -> Settings:
        chosen = {"extend-select": [self.code]} if self.rule.meta.optional else {}
        return make_settings({**chosen, **self.example.settings, "cache": False, "jobs": 1, **more}, root)


# What keeps these silent is a comment, which no rewrite of the tree keeps.
_BY_COMMENT = frozenset({("DSL698", "the code knows")})


def _cases() -> Iterator[Case]:
    for info in all_rules():
        if info.code[3] in "267":
            rule = load_rule(info.code)
            for example in rule.examples:
                case = Case(rule, example)
                if case.scripts() and (info.code, example.title) not in _BY_COMMENT:
                    yield case


CASES = tuple(_cases())


def write(root: Path, files: Mapping[str, str]) -> None:
    """A project of its own, and nothing else in the folder."""
    shutil.rmtree(root, ignore_errors=True)
    (root / ".git").mkdir(parents=True)
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())


def findings(root: Path, case: Case, files: Mapping[str, str], **more: object) -> list[Finding]:
    """What dslint says; the working directory is the project afterwards.

    Raises:
        AssertionError: a rule crashed, or a file could not be read.
    """
    write(root, files)
    os.chdir(root)
    result = check_paths(["."], case.settings(root, **more))
    assert not result.problems, result.problems
    crashed = [f.message for f in result.findings if f.code == RULE_CRASHED.code]
    assert not crashed, crashed
    return list(result.findings)


def own(case: Case, found: list[Finding]) -> list[Finding]:
    return [f for f in found if f.code == case.code]


# Examples are excerpts: they leave out helpers (`make_model()`), which is a mistake in a whole script.
LEFT_OUT = frozenset(("DSL722",))


def loud(case: Case, found: list[Finding]) -> list[Finding]:
    """What a good example must not bring forth."""
    return [f for f in found if f.code == case.code or (f.severity is not Severity.INFO and f.code not in LEFT_OUT)]
