"""What a shell script has set at one point: variables, exports, directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.shell.pieces import Lookup, Value

# The end of the reason for which a command does not see a variable of the shell.
NOT_EXPORTED = "is set but not exported"


@dataclass(frozen=True, slots=True)
class Template:
    """A command line kept in a variable: its text as written and where that begins in the file.

    ``scope`` is the state at the assignment, whose values bash put into it.
    """

    text: str
    start: int
    scope: Scope


@dataclass(slots=True)
class Scope:
    """Variables by name: a value, or ``None`` when it is not known; a name that is missing was never set.

    ``open`` says that a sourced file or an ``eval`` may have set any name.
    """

    values: dict[str, Value | None] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    open: bool = False
    export_all: bool = False
    cwd: Fact[str] = field(default_factory=absent)
    # The path of the script, ``None`` where the text is no script of its own.
    script: str | None = None
    templates: dict[str, Template] = field(default_factory=dict)

    def copy(self) -> Scope:
        """The same state for a subshell or a branch."""
        return Scope(
            dict(self.values),
            set(self.exported),
            self.open,
            self.export_all,
            self.cwd,
            self.script,
            dict(self.templates),
        )

    def assign(self, name: str, value: Value | None, export: bool = False) -> None:
        """``name=value``."""
        self.values[name] = value
        self.templates.pop(name, None)
        if export or self.export_all:
            self.exported.add(name)

    def remove(self, name: str) -> None:
        """``unset name``."""
        self.values.pop(name, None)
        self.templates.pop(name, None)
        self.exported.discard(name)

    def forget(self, names: Iterable[str] | None) -> None:
        """These variables (``None``: all) may have changed."""
        if names is None:
            self.open = True
            self.values = dict.fromkeys(self.values)
            self.templates = {}
        else:
            self.values.update(dict.fromkeys(names))
            self.templates = {n: t for n, t in self.templates.items() if n not in names}

    def merge(self, other: Scope) -> None:
        """Control flow may have come here with either state: what differs is not known."""
        for name in self.values.keys() | other.values.keys():
            mine, theirs = self.values.get(name, _UNSET), other.values.get(name, _UNSET)
            if mine is None or theirs is None or (mine.text, mine.items) != (theirs.text, theirs.items):
                self.values[name] = None
        self.forget(self.exported ^ other.exported)
        self.templates = {n: t for n, t in self.templates.items() if other.templates.get(n) is t}
        self.exported |= other.exported
        self.open = self.open or other.open
        self.export_all = self.export_all or other.export_all
        if self.cwd.value != other.cwd.value or self.cwd.state != other.cwd.state:
            self.cwd = unknown("the directory depends on a condition")

    def lookup(self) -> Lookup:
        """The view that word expansion needs."""
        return Lookup(
            self.values.get,
            lambda name: name not in self.values and not self.open,
            split="IFS" not in self.values,
            script=self.script,
            folder=None if self.cwd.is_unknown or self.script is None else self.cwd.get_or("."),
        )

    def environment(self) -> dict[str, Fact[str]]:
        """What a command started here finds in its environment, as far as this script sets it."""
        env: dict[str, Fact[str]] = {}
        for name, value in self.values.items():
            if not name[0].isalpha() and name[0] != "_":
                continue  # an argument of the script or of a function
            if value is None:
                env[name] = unknown(f"`{name}` is computed or set under a condition")
            elif name not in self.exported:
                env[name] = unknown(f"`{name}` {NOT_EXPORTED}", *value.origins)
            else:
                env[name] = known(value.text, *value.origins)
        if self.open:
            env[""] = unknown("a sourced file or `eval` may set any variable")
        return env


# A text that no variable holds, so that "set here, unset there" counts as a difference.
_UNSET = Value("\0unset")
