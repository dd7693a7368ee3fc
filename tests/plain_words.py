"""Words that dslint once used, and what is said instead."""

from __future__ import annotations

import re

CODE = re.compile(r"`[^`]*`")
# What we once said, and what is said instead.
OLD = {
    "without a word": "silently",
    "stands": "is",
    "stand": "are",
    "behind": "after",
    "blanks": "whitespace",
    "for ever": "forever",
    "dealt out": "divided",
    "deals out": "divides",
    "thrown away": "discarded",
    "handed on": "passed on",
    "hands on": "passes on",
    "takes itself for": "believes it is",
    "is no option": "is not an option",
    "is no key": "is not a key",
    "is no multiple": "is not a multiple",
}
_OLD = re.compile(rf"\b(?:{'|'.join(OLD)})\b")


def old_words(text: str) -> list[str]:
    """The words of a text that are said otherwise today; code between backticks is not ours."""
    return _OLD.findall(CODE.sub("", " ".join(text.split())))
