"""Where the words of a command stand, and how they are edited there."""

from __future__ import annotations

import difflib
import re
from itertools import pairwise

from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Location, Span
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.plan.parser.options import ScriptParser

# What documentation writes where a reader shall put something else.
_PLACEHOLDER = re.compile(r"[<>\[\]{}|…]|\.\.\.|^-+$")


def is_placeholder(word: Word) -> bool:
    """``<model>``, ``[--flag]``, ``...``: no word that anybody passes."""
    return _PLACEHOLDER.search(word.raw) is not None or not (word.text or word.raw).strip(" :\\")


def is_cut_off(word: Word, command: LaunchCommand) -> bool:
    """``--switch \\ # why``: the backslash escapes a blank, so that the comment becomes words of the command."""
    for other in command.script_args:
        if (other.text or "").lstrip().startswith("#") and (other.text or "")[0].isspace():
            return True
        if other is word:
            return False
    return False


def set_to_nothing(word: Word, command: LaunchCommand) -> bool:
    """The word behind this one is a variable that the file sets to nothing (``API_KEY=""``): a form to fill in."""
    variable = re.fullmatch(r"\$\{?(\w+)\}?", word.lost.partition(" ")[0])
    if variable is None:
        return False
    name = variable[1]
    places = command.variable(name).origins
    return any(place.span.end - place.span.start <= len(f'{name}=""') for place in places)


def is_bracketed(word: Word, command: LaunchCommand) -> bool:
    """The word stands in brackets of several words: ``--task [train, eval]``, ``--data {file of the data}``."""
    words = command.script_args
    at = next((i for i, other in enumerate(words) if other is word), 0)
    first = next((i for i in range(at, -1, -1) if words[i].raw.startswith(("[", "{", "-"))), at)
    # What the shell takes for the end of the command may cut off the closing one.
    closed = any(w.raw.endswith(("]", "}")) for w in words[first:at])
    return words[first].raw.startswith(("[", "{")) and not closed


def place_of(word: Word) -> Location:
    """The place to change: where the text of the word is written, which may be an assignment above the command."""
    return word.location if not word.origins or (word.text or "") in word.raw else word.origins[0]


def similar(flag: str, parser: ScriptParser) -> str:
    """The option of the parser that a flag was meant to be; empty where none is close."""
    names = [name for option in parser.options for name in option.flags if name.startswith("--")]
    plain = {re.sub(r"[-_.]", "", name).lower(): name for name in names}
    same = plain.get(re.sub(r"[-_.]", "", flag).lower())
    if same is not None:
        return same
    return next(iter(difflib.get_close_matches(flag, names, 1, 0.8)), "")


def renamed(word: Word, old: str, new: str) -> Fix | None:
    """Write another flag in the place of this one; safe where only hyphens and underscores differ."""
    if not word.raw.startswith(old) or word.location.path.endswith(".ipynb"):
        return None
    start = word.location.span.start
    is_same = re.sub(r"[-_]", "", old) == re.sub(r"[-_]", "", new)
    edit = Edit(word.location.path, Span(start, start + len(old)), new)
    return Fix(f"Write `{new}`", (edit,), Safety.SAFE if is_same else Safety.UNSAFE)


def previous(word: Word, command: LaunchCommand) -> Word | None:
    """The word in front of this one among the arguments of the script."""
    words = command.script_args
    return next((a for a, b in pairwise(words) if b is word), None)
