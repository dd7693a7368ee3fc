"""Three-valued facts: a value is known (and from where), absent, or unknown (and why)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dslint.core.source import Location

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """A value that a file states, does not state, or states in a way that cannot be read.

    No rule fires on an unknown fact. Make one with :func:`known`, :func:`absent` or :func:`unknown`.
    ``origins`` are the places that the value comes from, in the order of the arithmetic.
    """

    state: str
    value: T | None = None
    origins: tuple[Location, ...] = ()
    reason: str = ""

    @property
    def is_known(self) -> bool:
        """The value can be relied on."""
        return self.state == "known"

    @property
    def is_absent(self) -> bool:
        """Nobody sets the value: the default of its reader applies."""
        return self.state == "absent"

    @property
    def is_unknown(self) -> bool:
        """Somebody may set the value, but it cannot be read statically."""
        return self.state == "unknown"

    def get(self) -> T:
        """The value of a known fact.

        Raises:
            ValueError: the fact is absent or unknown.
        """
        if self.state != "known":
            raise ValueError(f"the fact is {self.state}: {self.reason}")
        return self.value  # type: ignore[return-value]

    def get_or(self, default: U) -> T | U:
        """The known value, else ``default``."""
        return self.value if self.state == "known" else default  # type: ignore[return-value]

    def or_else(self, other: Fact[T]) -> Fact[T]:
        """This fact unless it is absent: an unknown value is never replaced by a default."""
        return other if self.state == "absent" else self

    def map(self, function: Callable[[T], U]) -> Fact[U]:
        """The fact of a derived value; absent and unknown stay so."""
        if self.state != "known":
            return Fact(self.state, None, self.origins, self.reason)
        return Fact("known", function(self.get()), self.origins)

    def at(self) -> str:
        """``"8 (run.sh:4)"``: the value with its places, for messages."""
        places = ", ".join(str(o) for o in self.origins)
        # A number made from a file and from a flag of dslint has both.
        said = ", ".join(filter(None, (places, self.reason if places else "")))
        return f"{self.value} ({said})" if said else f"{self.value}"


def known(value: T, *origins: Location) -> Fact[T]:
    """A value that a file or the user states."""
    return Fact("known", value, origins)


def absent() -> Fact[T]:
    """Nobody states the value."""
    return Fact("absent")


def unknown(reason: str, *origins: Location) -> Fact[T]:
    """The value cannot be read; ``reason`` is for ``dslint plan`` and debug output."""
    return Fact("unknown", None, origins, reason)


def product(a: Fact[int], b: Fact[int]) -> Fact[int]:
    """``a x b`` when both are known; unknown wins over absent."""
    for fact in (a, b):
        if not fact.is_known:
            return a if a.is_unknown else (b if b.is_unknown else fact)
    return known(a.get() * b.get(), *a.origins, *(o for o in b.origins if o not in a.origins))
