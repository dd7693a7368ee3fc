"""What an option makes of its texts: whether it takes them, and the value that the script gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location
from dslint.model.plan.parser.options import Option
from dslint.model.plan.parser.texts import Text
from dslint.python.launches import FALSE_WORDS, TRUE_WORDS


def converts(option: Option, text: str) -> bool:
    """The converter of the option takes the text."""
    if option.type == "bool" and option.nargs == "?":  # HfArgumentParser
        return text.lower() in (*TRUE_WORDS, *FALSE_WORDS)
    if option.type not in ("int", "float"):
        return True
    try:
        (int if option.type == "int" else float)(text)
    except ValueError:
        return False
    return True


def is_choice(option: Option, text: str) -> bool:
    """The text is among the choices, once it is converted."""
    assert option.choices is not None
    if option.type in ("int", "float"):
        return _value(option, text) in option.choices
    # Without a converter numbers among the choices are never met by a text, but HfArgumentParser compares texts.
    return text in option.choices or any(text == str(choice) for choice in option.choices if option.type == "")


def _value(option: Option, text: str) -> Any:
    """The text, converted."""
    if option.type == "int":
        return int(text)
    if option.type == "float":
        return float(text)
    if option.type == "bool" and option.nargs == "?":
        return text.lower() in TRUE_WORDS
    return text


def given_value(option: Option, texts: list[Text], words: Sequence[Text]) -> Fact[Any]:
    """What the script gets from these texts; ``words`` are all of the command, for the place of a bare option."""
    places: tuple[Location, ...] = tuple(p for t in texts for p in (t.word.location, *t.word.origins))
    if not places:
        named = (t for t in reversed(words) if t.startswith("-") and any(f.startswith(t) for f in option.flags))
        places = tuple(t.word.location for t in list(named)[:1])
    if option.is_opaque or option.action in ("store_const", "append_const", "count", "append", "extend", "boolean"):
        return unknown("the action of the option decides", *places)
    if option.action in ("store_true", "store_false"):
        return known(option.action == "store_true", *places)
    if any(t.word.text is None for t in texts):
        return unknown(f"`{next(t.word.raw for t in texts if t.word.text is None)}` is not known here", *places)
    if not all(converts(option, t) for t in texts):
        return unknown("it is refused", *places)
    found = [_value(option, t) if option.type else str(t) for t in texts]
    if option.nargs in ("+", "*", "...", "A...") or isinstance(option.nargs, int):
        return known(found, *places)
    if not found:
        return known(True, *places) if option.type == "bool" else unknown("the constant of the option", *places)
    return known(found[0], *places)
