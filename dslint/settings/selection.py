"""Which rules are on: codes, prefixes, names and ``ALL``, the most specific one decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dslint.rules.registry import BY_CODE, UnknownSelector, find, may_be_missing

# A file that cannot be judged must never look like a clean one: only an explicit ``ignore`` hides these.
ALWAYS_ON = frozenset({"DSL900", "DSL901", "DSL902"})


def prefix_of(selector: str) -> str:
    """A selector as a code prefix: a name gives its code, ``ALL`` the empty prefix.

    Raises:
        UnknownSelector: no rule matches.
    """
    wanted = selector.strip()
    if not wanted:
        raise UnknownSelector(selector)
    if may_be_missing(wanted):
        return wanted
    found = find(wanted)
    if wanted.upper() == "ALL":
        return ""
    return wanted.upper() if found[0].code.startswith(wanted.upper()) else found[0].code


def split_pointer_selector(selector: str) -> tuple[str, str | None]:
    """``"DSL160:/zero_optimization"`` -> ``("DSL160", "/zero_optimization")``; the pointer is for config files."""
    rule, colon, pointer = selector.partition(":")
    return (rule, pointer) if colon else (selector, None)


@dataclass(frozen=True, slots=True)
class Layer:
    """The selection of one source of settings, as prefixes; ``select`` is ``None`` where it does not say."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    extend_ignore: tuple[str, ...] = ()


def is_enabled(code: str, layers: Iterable[Layer]) -> bool:
    """Whether a code is on after all layers, of which a later one overrules the earlier ones.

    Within a layer the longest matching prefix decides; ``ignore`` wins a draw. Optional rules begin switched off, and
    no prefix switches them on: ``DSL3`` means the rules that one gets without asking; the whole code, the name and
    ``ALL`` ask for them. (ruff does the same for preview rules with ``explicit-preview-rules``.)
    """
    is_optional = code in BY_CODE and BY_CODE[code].optional
    state = not is_optional
    for layer in layers:
        if layer.select is not None:
            state = code in ALWAYS_ON
        asked = (*(layer.select or ()), *layer.extend_select)
        on = _longest(code, [p for p in asked if p in ("", code)] if is_optional else asked)
        off = _longest(code, (*layer.ignore, *layer.extend_ignore))
        if max(on, off) >= 0:
            state = on > off
    return state


def longest_match(code: str, prefixes: Iterable[str]) -> str | None:
    """The most specific of the prefixes that match a code."""
    return max((p for p in prefixes if code.startswith(p)), key=len, default=None)


def _longest(code: str, prefixes: Sequence[str]) -> int:
    match = longest_match(code, prefixes)
    return -1 if match is None else len(match)
