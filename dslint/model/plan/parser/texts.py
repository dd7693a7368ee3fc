"""The words of a command as argparse handles them: texts that remember their word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.model.launch.command import Word


class Text(str):
    """The text of a word as argparse handles it."""

    word: Word


def as_text(word: Word) -> Text:
    """The word as argparse would see it; what is not known of it is a text that no option has."""
    name, equals, _ = word.raw.partition("=")
    if word.text is not None:
        text = Text(word.text)
    elif equals and re.fullmatch(r"--?[A-Za-z][\w.-]*", name):
        text = Text(f"{name}=\ue000{word.raw}")
    else:
        text = Text("\ue000" + word.raw)
    text.word = word
    return text


def same_text(extra: str, texts: Sequence[Text]) -> Text:
    """The word behind a text that argparse hands back, perhaps as a copy."""
    if isinstance(extra, Text):
        return extra
    return next((t for t in texts if t == extra), texts[-1])


def text_of_value(value: str, texts: Sequence[Text]) -> Text:
    """The value that argparse cut out of ``--name=value`` as a text with its word."""
    if isinstance(value, Text):
        return value
    text = Text(value)
    whole = next((t for t in reversed(texts) if t.endswith(f"={value}")), None)
    text.word = (whole or same_text(value, texts)).word
    if text.word.text is not None and whole is None:
        text.word = Word(None, text.word.raw, text.word.location)
    return text
