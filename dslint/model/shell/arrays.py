"""Elements of arrays: ``A[2]=x``, ``A=([1]=b [0]=a)``, ``declare -A M=([key]=value)``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dslint.core.source import Location
from dslint.model.shell.parameters import arithmetic
from dslint.model.shell.pieces import Lookup, UnknownWordError, Value
from dslint.model.shell.words import INNER, expand_assignment, expand_inner

EMPTY_MAP = Value("", (), keys=())
_ELEMENT = re.compile(r"\[(?P<key>(?:[^][]|\[[^][]*\])+)\](?P<append>\+?)=", re.DOTALL)


def named_element(raw: str, is_map: bool, lookup: Lookup) -> tuple[str | int, str]:
    """The key and the value of ``[key]=value``.

    Raises:
        UnknownWordError: one of them is not known.
    """
    match = _ELEMENT.match(raw)
    if match is None or match["append"]:
        raise UnknownWordError
    return element_key(match["key"], is_map, lookup), expand_assignment(raw[match.end() :], lookup)


def element_key(text: str, is_map: bool, lookup: Lookup) -> str | int:
    """The key between the brackets of an element.

    Raises:
        UnknownWordError: it is not known.
    """
    return expand_inner(text, lookup) if is_map else arithmetic(text, lookup, INNER)


def with_elements(old: Value | None, new: Mapping[str | int, str], is_map: bool, place: Location) -> Value:
    """The array with these elements set; those of ``old`` stay.

    Raises:
        UnknownWordError: the array would have gaps.
    """
    items = [] if old is None else list(old.items) if old.items is not None else [old.text]
    places = [] if old is None else list(old.places) if len(old.places) == len(items) else [place] * len(items)
    keys: list[str | int] = list(old.keys) if old is not None and old.keys is not None else list(range(len(items)))
    if is_map and old is not None and old.keys is None:
        raise UnknownWordError
    for key, text in sorted(new.items()) if not is_map else new.items():
        if key in keys:
            at = keys.index(key)
            items[at], places[at] = text, place
        elif is_map or key == len(items):
            keys.append(key)
            items.append(text)
            places.append(place)
        else:
            raise UnknownWordError
    origins = (place,) if old is None else (*old.origins, place)
    made = Value("", tuple(items), origins, tuple(places))
    if is_map:
        return replace(made, text=dict(zip(keys, items, strict=True)).get("0", ""), keys=tuple(map(str, keys)))
    return replace(made, text=items[0] if items else "")
