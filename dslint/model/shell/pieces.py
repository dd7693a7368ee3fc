"""What word expansion works on: values of variables, the view of them, and the stretches of a word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dslint.core.source import Location

# A text that doubles itself in a loop of assignments is no command line.
_MAX_LENGTH = 100_000


@dataclass(frozen=True, slots=True)
class Value:
    """What a variable holds: a text, or the elements of an array, with the places that set it.

    ``places`` says for every element where it stands. ``first`` is the number of the first element: 0 in an
    array, 1 among the arguments of a script. ``is_default``: it stands for a variable that the environment may set
    (``X=${X:-4}``). ``keys`` are the names of the elements of an associative array, ``None`` for any other value.
    """

    text: str = ""
    items: tuple[str, ...] | None = None
    origins: tuple[Location, ...] = ()
    places: tuple[Location, ...] = ()
    first: int = 0
    is_default: bool = False
    keys: tuple[str, ...] | None = None


def _no_reason(_: str) -> str:
    return ""


@dataclass(slots=True)
class Lookup:
    """How the expansion sees variables.

    ``get`` returns a value, ``None`` when it is not known. ``is_unset`` says that nothing in the file sets the
    name, so that ``${NAME:-default}`` stands for its default. ``split`` is false when ``IFS`` may have changed.
    ``script`` is the path of the file, ``folder`` the directory that it is in; ``None`` when nobody knows.
    ``reason`` says why a name is not known. ``has_default`` is set by a word that uses the default of a variable.
    """

    get: Callable[[str], Value | None]
    is_unset: Callable[[str], bool]
    split: bool = True
    script: str | None = None
    folder: str | None = None
    used: list[Location] = field(default_factory=list)
    # Where the elements of the array stand that the word consists of.
    places: tuple[Location, ...] = ()
    # How many ``${x:-...}`` are open.
    depth: int = 0
    # What ``IFS=,`` in front of it in a ``$( )`` puts between the elements of ``"${array[*]}"``.
    ifs: str | None = None
    reason: Callable[[str], str] = _no_reason
    has_default: bool = False

    def read(self, name: str) -> Value:
        """The value of a variable, remembering where it was set.

        Raises:
            UnknownWordError: the value is not known.
        """
        value = self.get(name)
        if value is None and self.script is not None:
            had_default = self.has_default
            value = self._own(name) if self.is_unset(name) else None
            self.has_default = had_default
        if value is None:
            raise UnknownWordError(self.reason(name))
        if len(value.text) > _MAX_LENGTH or (value.items is not None and len(value.items) > _MAX_LENGTH // 10):
            raise UnknownWordError
        self.has_default |= value.is_default
        self.used += [o for o in value.origins if o not in self.used]
        return value

    @property
    def joiner(self) -> str | None:
        """What stands between the elements of ``"${array[*]}"``."""
        return self.ifs if self.ifs is not None else " " if self.split else None

    def _own(self, name: str) -> Value | None:
        """What bash itself sets: the path of the script and the directory."""
        if name in ("0", "BASH_SOURCE"):
            return Value(self.script or "")
        return Value(self.folder) if name == "PWD" and self.folder is not None else None


class UnknownWordError(Exception):
    """Part of the word is not known; ``why`` says why, as far as anybody can say."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a word: ``quoted`` text is neither split nor matched against files.

    ``splits`` marks the result of an unquoted expansion. ``items`` is ``"${array[@]}"``.
    """

    text: str
    quoted: bool
    splits: bool = False
    items: tuple[str, ...] | None = None
