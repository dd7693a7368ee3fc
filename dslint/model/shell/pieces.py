"""What word expansion works on: values of variables, the view of them, and the stretches of a word."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.core.source import Location

# A text that doubles itself in a loop of assignments is no command line.
_MAX_LENGTH = 100_000
# The system sets these for every script, and bash some of them anew at each use: no default ever stands for them.
ALWAYS_SET = re.compile(
    r"BASH\w*|DIRSTACK|EPOCH(?:REALTIME|SECONDS)|E?UID|FUNCNAME|GROUPS|HOME|HOST(?:NAME|TYPE)|IFS|LINENO|LOGNAME|MACHTYPE"
    r"|OPTIND|OSTYPE|PATH|PIPESTATUS|PPID|PWD|S?RANDOM|SECONDS|SHELL|SHELLOPTS|SHLVL|TERM|USER"
)


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


class Lookup:
    """How the expansion sees variables; :meth:`Scope.lookup` makes one.

    ``split`` is false when ``IFS`` may have changed. ``script`` is the path of the file, ``None`` when nobody knows.
    ``used`` are the places that set what was read. ``has_default``: a word has used the default of a variable.
    """

    __slots__ = ("depth", "has_default", "ifs", "places", "script", "split", "used")

    def __init__(self, split: bool, script: str | None) -> None:
        self.split = split
        self.script = script
        self.used: list[Location] = []
        # Where the elements of the array stand that the word consists of.
        self.places: tuple[Location, ...] = ()
        # How many ``${x:-...}`` are open.
        self.depth = 0
        # What ``IFS=,`` in front of it in a ``$( )`` puts between the elements of ``"${array[*]}"``.
        self.ifs: str | None = None
        self.has_default = False

    def get(self, name: str) -> Value | None:
        """The value of a variable, ``None`` when it is not known."""
        raise NotImplementedError

    def is_unset(self, name: str) -> bool:
        """Nothing in the file sets the name, so that ``${NAME:-default}`` stands for its default."""
        raise NotImplementedError

    def is_without(self, name: str) -> bool:  # noqa: ARG002
        """Nothing sets the name, here or outside."""
        return False

    def reason(self, name: str) -> str:
        """Why the name is not known."""
        raise NotImplementedError

    def addresses(self, name: str) -> tuple[Location, ...]:  # noqa: ARG002
        """Where the name got the address of a machine."""
        return ()

    @property
    def folder(self) -> str | None:
        """The directory that the file is in, ``None`` when nobody knows."""
        raise NotImplementedError

    @property
    def home(self) -> str | None:
        """What ``~`` stands for, ``None`` when nobody knows."""
        return None

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
            raise UnknownWordError(self.reason(name), self.addresses(name))
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
        folder = self.folder if name == "PWD" else None
        return Value(folder) if folder is not None else None


class UnknownWordError(Exception):
    """Part of the word is not known; ``why`` says why, as far as anybody can say.

    ``addresses`` is where the address of a machine is asked for that it is.
    """

    def __init__(self, why: str = "", addresses: tuple[Location, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.addresses = addresses


@dataclass(slots=True)
class Piece:
    """A stretch of a word: ``quoted`` text is neither split nor matched against files.

    ``splits`` marks the result of an unquoted expansion. ``items`` is ``"${array[@]}"``.
    """

    text: str
    quoted: bool
    splits: bool = False
    items: tuple[str, ...] | None = None
