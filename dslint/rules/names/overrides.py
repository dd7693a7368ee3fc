"""Methods of the project that a library calls: which release calls them with what they do not take, or not at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.model.standing.binding import misfit, of_function, positional
from dslint.model.standing.calls import Made, has_class, made, refusal
from dslint.model.standing.presence import signature_in
from dslint.model.surface import surface

if TYPE_CHECKING:
    from dslint.python.uses.kinds import Derived
    from dslint.rules.libraryuses import LibraryUses

_LIGHTNING = frozenset({"lightning", "pytorch_lightning"})
# Decorators that leave open to a call what the function takes.
_PLAIN = frozenset(
    {
        "override",
        "no_grad",
        "inference_mode",
        "enable_grad",
        "staticmethod",
        "classmethod",
        "rank_zero_only",
        "overrides",
    }
)
# Trainers of trl that do not derive from the one of transformers.
_ON_THEIR_OWN = frozenset({"DDPOTrainer", "AlignPropTrainer", "PPOTrainer", "IterativeTrainer"})


@dataclass(eq=False)
class Override:
    """A method of a class of the project, and the class of a library that calls it.

    ``library`` and ``title`` are the class by the name of its package; ``problems``: why each release fails.
    """

    derived: Derived
    node: ast.FunctionDef | ast.AsyncFunctionDef
    library: str
    title: str
    base: str
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def _table(self) -> str:
        return "lightning" if self.library in _LIGHTNING else self.library

    @property
    def is_hook(self) -> bool:
        """The library alone calls it."""
        return self._table == "lightning"

    def calls(self, release: str) -> tuple[Made, ...] | None:
        """The calls of the method that a release makes."""
        return made(self._table, self.title, self.node.name, release)

    def refusal(self, release: str) -> str:
        """Why a release refuses a class that has such a method at all."""
        return refusal(self._table, self.title, self.node.name, release)

    def misfits(self, release: str) -> bool | None:
        """Whether a release calls the method with what it does not take."""
        calls = self.calls(release)
        if calls is None:
            return None
        signature = of_function(self.node)
        by_caller: dict[str, list[str]] = {}
        for call in calls:
            problem = misfit(signature, call.given, call.names)
            for caller in call.callers:
                by_caller.setdefault(caller, []).append(problem)
        left = [problems for caller, problems in by_caller.items() if not self._replaces(caller)]
        # Where a caller has two forms, it asks the method first what it takes.
        failing = [problems[0] for problems in left if all(problems)]
        self.problems[release] = failing[0] if failing else ""
        return bool(failing)

    def _replaces(self, caller: str) -> bool:
        """The class has a method of its own in the place of the caller."""
        own = self.derived.methods.get(caller) or self.derived.inherited.get(caller)
        if own is None:
            return False
        return not any(
            isinstance(n, ast.Attribute)
            and n.attr == caller
            and getattr(getattr(n.value, "func", None), "id", "") == "super"
            for n in ast.walk(own)
        )

    def lacking(self, release: str) -> str:
        """The parameter of the library's method that the override lacks, by name; empty where nobody knows."""
        known = surface(self.library)
        theirs = signature_in(known, f"{self.base}.{self.node.name}", release) if known is not None else None
        own = of_function(self.node)
        names = {p.name for p in own.parameters}
        more = [p.name for p in positional(theirs) if p.name not in names] if theirs is not None else []
        return more[0] if more else ""


def overrides(view: LibraryUses) -> Iterator[Override]:
    """The methods of classes of the project that a library may call."""
    for derived in view.found.derived:
        for base in derived.bases:
            library, _, rest = base.partition(".")
            title = rest.rpartition(".")[2] or rest
            for layer in _layers(library, title):
                for node in derived.methods.values():
                    if all(_name(d) in _PLAIN for d in node.decorator_list):
                        yield Override(derived, node, *layer, base if layer == (library, title) else ".".join(layer))


def _layers(library: str, title: str) -> Iterator[tuple[str, str]]:
    """The classes that call methods of a class derived from this one."""
    if has_class("lightning" if library in _LIGHTNING else library, title):
        yield library, title
    if (library == "trl" and title.endswith("Trainer") and title not in _ON_THEIR_OWN) or title == "Seq2SeqTrainer":
        yield "transformers", "Trainer"


def _name(node: ast.expr) -> str:
    func = node.func if isinstance(node, ast.Call) else node
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
