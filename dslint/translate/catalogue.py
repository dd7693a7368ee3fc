"""A compiled catalogue: whole texts by themselves, texts with values in them by their templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

_PLACEHOLDER = re.compile(r"\{(\d+)\}")
# A part of a part of a part of a text is a value.
_DEEPEST = 3
# Between two sentences, or two statements of one.
_BOUNDARY = re.compile(r"(?<=[.?!]) (?=[A-Z`])|(?<=;) ")
# What a value and the text beside it end and begin with.
_MIXED = re.compile(r"[\u4e00-\u9fff]\|[A-Za-z0-9`]|[A-Za-z0-9`]\|[\u4e00-\u9fff]")
_MARK = r"[\u3000-\u303f\uff00-\uffef]"
_WIDE = re.compile(rf"[\u4e00-\u9fff]\|[\u4e00-\u9fff]|{_MARK}\|.|.\|{_MARK}")
_ENDS = {".": "。", ";": "；", "?": "？", "!": "！"}


@dataclass(slots=True)
class Template:
    """A text with placeholders in English and in the other language.

    ``key`` is the longest piece of the English text that never changes: a text without it is another one. ``code``
    are the placeholders between backticks: what stands there is somebody's code, and stays as it is.
    """

    english: str
    other: str
    key: str
    weight: int
    code: frozenset[str]
    _pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, english: str, other: str) -> Template:
        """Return the template of an entry."""
        pieces = _PLACEHOLDER.split(english)[::2]
        code = (match[1] for match in _PLACEHOLDER.finditer(english) if english[: match.start()].count("`") % 2)
        return cls(english, other, max(pieces, key=len), sum(map(len, pieces)), frozenset(code))

    def values(self, text: str) -> dict[str, str] | None:
        """Return what stands at the placeholders of a text; ``None`` where it is another text."""
        if self.key not in text:
            return None
        if self._pattern is None:
            self._pattern = re.compile(_regex(self.english, self.code), re.DOTALL)
        match = self._pattern.fullmatch(text)
        return {name[1:]: value for name, value in match.groupdict().items()} if match else None

    def filled(self, values: dict[str, str]) -> str:
        """Return the text of the other language around the values."""
        text, *rest = _PLACEHOLDER.split(self.other)
        for name, piece in zip(rest[::2], rest[1::2], strict=True):
            # Code of somebody is framed by backticks, which are no letters of the sentence.
            join = "".join if text.count("`") % 2 else _spaced
            text = join((join((text, values[name])), piece))
        return text


def _spaced(parts: tuple[str, str]) -> str:
    """Two parts with a space between Chinese and Latin letters, and none between Chinese ones or at their marks."""
    before, after = parts
    left, right = before.removesuffix(" "), after.removeprefix(" ")
    edges = left[-1:] + "|" + right[:1]
    if (left, right) == (before, after):
        return f"{left} {right}" if _MIXED.fullmatch(edges) else left + right
    return left + right if _WIDE.fullmatch(edges) else before + after


def _regex(english: str, code: frozenset[str]) -> str:
    """The pattern of a template; a placeholder that comes twice is the same text twice, and code has no backtick."""
    parts, seen = _PLACEHOLDER.split(english), set()
    pattern = ""
    for index, part in enumerate(parts):
        if index % 2 == 0:
            pattern += re.escape(part)
        else:
            kind = "[^`]*?" if part in code else ".*?"
            pattern += f"(?P=p{part})" if part in seen else f"(?P<p{part}>{kind})"
            seen.add(part)
    return pattern


@dataclass(slots=True)
class Catalogue:
    """The texts of a language: ``whole`` as they are, ``templates`` the most particular first.

    ``phrases`` are parts of texts: they are asked for what stands at a placeholder only.
    """

    whole: dict[str, str]
    templates: tuple[Template, ...]
    phrases: tuple[Template, ...]
    parts: dict[str, str]
    _known: dict[tuple[str, bool], str | None] = field(default_factory=dict)
    _inside: tuple[Template, ...] = ()

    def __post_init__(self) -> None:
        """Put phrases and templates in one order: ``{0}, {1}`` must not divide what is known as a whole."""
        self._inside = _by_weight((*self.phrases, *self.templates))

    @classmethod
    @lru_cache(maxsize=2)
    def read(cls, language: str) -> Catalogue:
        """Return the catalogue that the distribution has for a language."""
        return cls.of(Path(__file__).with_name(f"{language}.json").read_text(encoding="utf-8"))

    @classmethod
    def of(cls, compiled: str) -> Catalogue:
        """Return the catalogue of a compiled text (scripts/generate_translations.py)."""
        rows = json.loads(compiled)
        return cls(rows["whole"], _templates(rows["templates"]), _templates(rows["phrases"]), rows["parts"])

    def __call__(self, text: str) -> str:
        """Return the text in the language; one that it does not know as it is."""
        found = self._translated(text, 0)
        return text if found is None else found

    def knows(self, text: str) -> bool:
        """Return whether there is a translation of the whole text (values inside may stay as they are)."""
        return self._translated(text, 0) is not None

    def _translated(self, text: str, depth: int) -> str | None:
        asked = (text, depth > 0)
        if asked not in self._known:
            self._known[asked] = self._found(text, depth)
        return self._known[asked]

    def _found(self, text: str, depth: int) -> str | None:
        exact = (self.parts.get(text) if depth else None) or self.whole.get(text)
        if exact is not None:
            return exact
        for template in self._inside if depth else self.templates:
            values = template.values(text)
            if values is not None:
                return template.filled(
                    {n: value if n in template.code else self._value(value, depth) for n, value in values.items()}
                )
        return self._sentences(text, depth)

    def _sentences(self, text: str, depth: int) -> str | None:
        """A text of several sentences, or one with a full stop that its entry lacks, each of them known by itself."""
        known = []
        for sentence in _BOUNDARY.split(text):
            found = self._translated(sentence, depth) if sentence != text else None
            end = _ENDS.get(sentence[-1:])
            if found is None and end:
                found = self._translated(sentence[:-1], depth)
                found = found and found + end
            if found is None:
                return None
            known.append(found)
        return "".join(known)

    def _value(self, value: str, depth: int) -> str:
        """What stands at a placeholder: a name or number as it is, words of dslint translated."""
        if depth >= _DEEPEST or (value.startswith("`") and value.endswith("`") and value.count("`") == 2):
            return value
        return self._translated(value, depth + 1) or value


def _templates(rows: list[list[str]]) -> tuple[Template, ...]:
    return _by_weight([Template.of(english, other) for english, other in rows])


def _by_weight(templates: Iterable[Template]) -> tuple[Template, ...]:
    """The templates, those with the most fixed text first."""
    return tuple(sorted(templates, key=lambda template: -template.weight))
