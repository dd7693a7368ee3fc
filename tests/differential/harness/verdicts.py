"""What dslint says about a case, and whether that is what the library does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dslint.core.fact import known
from dslint.core.finding import Finding, Severity
from dslint.core.source import SourceFile
from dslint.engine.inputs import syntax_findings
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.view import view_of
from dslint.parse.jsondoc import parse_json
from dslint.rules.index import RULES
from dslint.rules.registry import load_rule

# Errors about keys that the library ignores without a word: a misspelt section, a precision that nobody fills in. It
# raises nothing, and does nothing of what they say; that the parsed result is the same without them is their proof.
IGNORED_KEYS = ("DSL101", "DSL142")


@functools.cache
def _rules() -> tuple[tuple[tuple[str, ...], Callable[[Any, Context], Iterable[Finding]]], ...]:
    on = [load_rule(rule.code) for rule in RULES if rule.kind == "config" and not rule.optional]
    return tuple((rule.meta.consumers, rule.module.check) for rule in on)


def findings(text: str, world: int, release: str, consumer: str = "deepspeed") -> list[Finding]:
    """All findings of the config rules that are on by default."""
    doc = parse_json(SourceFile("ds_config.json", text))
    context = Context(world_size=known(world), deepspeed=VersionFact(f"=={release}"), consumer=known(consumer))
    reader = view_of(doc, context).consumer
    found = list(syntax_findings(doc))
    for consumers, check in _rules():
        if not consumers or reader in consumers:
            found += check(doc, context)
    return found


def errors(found: Iterable[Finding]) -> list[Finding]:
    """Those that say: this stops."""
    return [f for f in found if f.severity is Severity.ERROR]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case before both.

    ``raised`` is ``None`` where the machine cannot tell; ``stage`` says where the library raised.
    """

    case: Any
    raised: bool | None
    error: str
    where: str
    stage: str
    said: tuple[Finding, ...]
    ignored: tuple[str, ...] = ()

    @property
    def claims(self) -> bool:
        """dslint says that this stops, or that a key is lost that the library is proved to ignore."""
        return bool(self.said)

    @property
    def proved_ignored(self) -> bool:
        """Every error is about a key without which the library reads the very same."""
        return bool(self.said) and all(f.code in IGNORED_KEYS and f.pointer in self.ignored for f in self.said)

    @property
    def kind(self) -> str:
        """``agree`` | ``ignored`` (agrees about a key that is lost) | ``false alarm`` | ``miss`` | ``not judged``."""
        if self.raised is None:
            return "not judged"
        if self.raised:
            return "agree" if self.claims else "miss"
        if self.proved_ignored:
            return "ignored"
        return "false alarm" if self.claims else "agree"
