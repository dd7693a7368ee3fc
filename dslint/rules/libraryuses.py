"""What rules about names of libraries may ask: the uses of a script, and the releases in which each runs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import SourceFile, Span
from dslint.core.testfiles import is_test_file
from dslint.model.context import Context
from dslint.model.standing.allowance import Allowance, allowance
from dslint.model.standing.presence import first_missing, held, is_there
from dslint.model.standing.standing import Standing, stand
from dslint.model.surface import LIBRARIES, surface
from dslint.python.names import Names, names_of
from dslint.python.scopes import statements
from dslint.python.source import Module
from dslint.python.uses.collect import collect
from dslint.python.uses.kinds import Guards, Uses
from dslint.python.uses.objects import Foreign
from dslint.python.uses.releasetests import ReleaseTests

if TYPE_CHECKING:
    from dslint.core.source import Location
    from dslint.model.surface import Surface
    from dslint.rules.base import RuleMeta
    from dslint.rules.names.librarycalls import LibraryCall

# The packages whose names are followed.
TRACKED = frozenset(LIBRARIES)
# Bytes without which a file imports none of them, and derives from no class that does.
MARKERS = (
    r"torch|deepspeed|transformers|accelerate|trl|peft|datasets|lightning|mmengine|bitsandbytes|diffusers|numpy|timm"
    r"|huggingface_hub|flash_attn|pydantic|vllm|Trainer|Callback",
    r"import",
)


def tracked_in(tree: ast.Module) -> set[str]:
    """The followed packages that a module imports."""
    found: set[str] = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found & TRACKED


def with_held(libraries: Iterable[str]) -> set[str]:
    """Some packages, and those of what objects of their classes hold: a Trainer has an Accelerator."""
    tops = set(libraries)
    return tops | {dotted.partition(".")[0] for key, dotted in held().items() if key.partition(":")[0] in tops}


@dataclass
class LibraryUses:
    """One script as rules about names of libraries see it.

    ``libraries`` are those that it imports, without what the project has a package of its own for; ``foreign`` the
    classes of other modules of the project from which classes of this one derive.
    """

    source: SourceFile
    tree: ast.Module
    context: Context
    libraries: frozenset[str]
    is_notebook: bool = False
    foreign: Foreign = field(default_factory=dict)

    @cached_property
    def module(self) -> Module:
        """The module, for places."""
        return Module(self.source, self.tree)

    @cached_property
    def names(self) -> Names:
        """What its names mean."""
        return names_of(self.tree)

    @cached_property
    def found(self) -> Uses:
        """All its uses of the libraries."""
        return collect(self.tree, self.names, self.libraries, held(), self.foreign)

    @cached_property
    def calls(self) -> list[LibraryCall]:
        """Its calls of functions of the libraries."""
        from dslint.rules.names.librarycalls import calls_of

        return list(calls_of(self))

    # -- releases -----------------------------------------------------------------------------------------------

    @cached_property
    def _allowances(self) -> dict[str, Allowance]:
        return {}

    def allowance(self, library: str) -> Allowance:
        """The releases of a library that the project allows."""
        found = self._allowances.get(library)
        if found is None:
            found = self._allowances[library] = allowance(library, self.context)
        return found

    @staticmethod
    def surface(library: str) -> Surface | None:
        """The names of all releases of a library, where they were read."""
        return surface(library)

    @cached_property
    def _tests(self) -> dict[tuple[str, str], ReleaseTests]:
        return {}

    def tests(self, library: str, release: str) -> ReleaseTests:
        """What tests say where a release of one library is installed, and of others what the project pins."""
        key = (library, release)
        if key not in self._tests:
            self._tests[key] = ReleaseTests(
                self.names,
                self.found,
                lambda name: self._release(name, library, release),
                lambda dotted: self._has(dotted, library, release),
            )
        return self._tests[key]

    def _release(self, name: str, library: str, release: str) -> str | None:
        if name == library:
            return release
        releases = self.allowance(name).releases if name in TRACKED else ()
        return releases[0] if len(releases) == 1 else None

    def _has(self, dotted: str, library: str, release: str) -> bool | None:
        top, _, rest = dotted.partition(".")
        if not rest or top not in TRACKED or top not in self.libraries:
            return None  # nobody knows what is installed at all
        surface = self.surface(top)
        if surface is None or any(
            dotted == patched or dotted.startswith(f"{patched}.") for patched in self.found.patched
        ):
            return None
        if top == library:
            return is_there(surface, dotted, release)
        answers = {is_there(surface, dotted, other) for other in self.allowance(top).releases}
        return answers.pop() if len(answers) == 1 else None

    def runs(self, guards: Guards, library: str, release: str) -> bool:
        """Whether code under guards may run where a release is installed."""
        return not guards or self.tests(library, release).open(guards) in ("yes", "maybe")

    def standing(self, library: str, guards: Guards, fails: Callable[[str], bool | None]) -> Standing | None:
        """How something stands that fails in some releases, under guards."""
        return stand(self.allowance(library), fails, lambda release: self.runs(guards, library, release))

    def missing(self, dotted: str, release: str) -> str:
        """The first part of a dotted name that a release lacks and that the program does not put there itself."""
        if any(dotted == patched or dotted.startswith(f"{patched}.") for patched in self.found.patched):
            return ""
        surface = self.surface(dotted.partition(".")[0])
        return first_missing(surface, dotted, release) if surface is not None else ""

    # -- findings -----------------------------------------------------------------------------------------------

    def finding(
        self,
        meta: RuleMeta,
        node: ast.AST,
        message: str,
        *,
        hint: str = "",
        related: Iterable[Location] = (),
        fix: Fix | None = None,
        severity: Severity | None = None,
        facts: Mapping[str, str | int | float | bool | None] | None = None,
    ) -> Finding:
        """A finding at a node. In a test the mistake of a program is an information."""
        if is_test_file(self.source.path, self.source.text):
            severity = Severity.INFO
        return meta.finding(
            self.module.location(node),
            message,
            hint=hint,
            related=tuple(related),
            fix=None if self.is_notebook else fix,
            severity=severity,
            facts=facts,
        )

    def edit(self, span: Span, text: str, title: str) -> Fix:
        """A safe fix that writes a text in the place of another one."""
        return Fix(title, (Edit(self.source.path, span, text),), Safety.SAFE)
