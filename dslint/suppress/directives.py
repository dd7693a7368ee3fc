"""The grammar of suppression comments.

``# noqa``, ``# noqa: E501,DSL201``          as flake8 reads them
``# flake8: noqa``                           on its own line: the whole file
``# dslint: ignore``, ``# dslint: ignore[DSL201, uneven-loop] reason``
``# dslint: ignore-file[DSL201] reason``     the whole file

They may stand behind other text of a comment (``# type: ignore  # noqa: DSL201``). Comments of JSON begin with
``//`` or ``/*``, those of Markdown are ``<!-- ... -->`` and speak about the block of code below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Span
from dslint.rules.registry import UnknownSelector
from dslint.settings.selection import prefix_of

_LEAD = r"(?<![`'\"])(?:#|//|/\*|<!--)\s*"
# A mistyped code of ours (DSL2O1) must not be read as the prefix DSL2.
_CODE = r"(?:DSL\w+|[A-Z]+[0-9]+)"
_CODES = rf"{_CODE}(?:[,\s]+{_CODE})*"
_NOQA = re.compile(rf"{_LEAD}noqa(?!\w)(?::\s?(?P<codes>{_CODES}))?", re.IGNORECASE)
_FLAKE8_FILE = re.compile(rf"#\s*flake8[:=]\s*noqa(?!\w)(?::\s?(?P<codes>{_CODES}))?", re.IGNORECASE)
_OWN = re.compile(
    rf"{_LEAD}dslint\s*:\s*(?P<word>[\w-]+)\s*(?:(?<=[\w\s])\[(?P<rules>[^\]\n]*)\])?(?P<open>\[)?", re.IGNORECASE
)
# Where a comment goes on with a remark for another tool, which is not the reason of ours.
_NEXT = re.compile(r"\s+(?=(?:#|//)\s*(?:noqa|nosec|fmt|isort|mypy|pragma|pylint|pyright|ruff|type|dslint)\b)")
_WORDS = {"ignore": False, "ignore-file": True}
# What people write who know another tool.
_OTHER_WORDS = frozenset({"noqa", "disable", "skip", "allow", "off", "suppress", "ignore-next-line", "disable-file"})


@dataclass(frozen=True, slots=True)
class Selector:
    """One rule of a directive: as written, where, and the code prefix it means (``None``: no such rule)."""

    text: str
    span: Span
    prefix: str | None
    problem: str = ""

    @property
    def is_ours(self) -> bool:
        """dslint's business; ``E501`` in a ``noqa`` is not."""
        return self.prefix is not None or bool(self.problem)


@dataclass(frozen=True, slots=True)
class Directive:
    """One suppression. ``selectors`` is empty for a blanket one.

    ``style``: ``noqa`` | ``ignore``; ``span`` is what the directive takes of its ``comment``, reason included.
    ``mistake`` says what is wrong when it is no directive at all but looks like one.
    """

    style: str
    whole_file: bool
    comment: Span
    span: Span
    selectors: tuple[Selector, ...] = ()
    reason: str = ""
    mistake: str = ""


def parse_comment(text: str, comment: Span, own_line: bool) -> Iterator[Directive]:
    """The directives in one comment token of a file; ``own_line``: nothing but blanks stands before it."""
    words = text[comment.start : comment.end]
    lowered = words.lower()
    if "noqa" in lowered:
        file_level = _FLAKE8_FILE.match(words) if own_line else None
        for match in [file_level] if file_level else _NOQA.finditer(words):
            selectors = tuple(_codes(match, comment))
            end, reason = _rest(words, match.end())
            span = Span(comment.start + match.start(), comment.start + end)
            yield Directive("noqa", match is file_level, comment, span, selectors, reason)
    if "dslint" in lowered:
        for match in _OWN.finditer(words):
            directive = _own(words, match, comment)
            if directive:
                yield directive


def _own(words: str, match: re.Match[str], comment: Span) -> Directive | None:
    word = match["word"].lower().replace("_", "-")
    end, reason = _rest(words, match.end())
    span = Span(comment.start + match.start(), comment.start + end)
    mistake = ""
    if word not in _WORDS:
        if word not in _OTHER_WORDS and not _resembles(word):
            return None  # prose that begins with the name of the tool
        mistake = f"`dslint: {match['word']}` is no directive, did you mean `dslint: ignore`?"
    elif match["open"]:
        mistake = f"`{match[0].strip()}` lacks its closing bracket"
    if mistake:
        return Directive("ignore", False, comment, span, mistake=mistake)
    rules = tuple(_rules(match, comment)) if match["rules"] is not None else ()
    if match["rules"] is not None and not rules:
        mistake = "`dslint: ignore[]` names no rule"
    return Directive("ignore", _WORDS[word], comment, span, rules, reason, mistake)


def _resembles(word: str) -> bool:
    from difflib import get_close_matches

    return bool(get_close_matches(word, _WORDS, n=1, cutoff=0.75))


def _codes(match: re.Match[str], comment: Span) -> Iterator[Selector]:
    if match["codes"]:
        for part in re.finditer(_CODE, match["codes"], re.IGNORECASE):
            start = match.start("codes") + part.start()
            yield _selector(part[0], Span(start, start + len(part[0])).shifted(comment.start), foreign_allowed=True)


def _rules(match: re.Match[str], comment: Span) -> Iterator[Selector]:
    for part in re.finditer(r"[^,\s]+", match["rules"]):
        start = match.start("rules") + part.start()
        yield _selector(part[0], Span(start, start + len(part[0])).shifted(comment.start), foreign_allowed=False)


def _selector(text: str, span: Span, foreign_allowed: bool) -> Selector:
    if foreign_allowed and not text.upper().startswith("DSL"):
        return Selector(text, span, None)
    try:
        return Selector(text, span, prefix_of(text))
    except UnknownSelector as error:
        return Selector(text, span, None, str(error))


def _rest(words: str, start: int) -> tuple[int, str]:
    """Where the directive ends that began before ``start``, and the reason in between."""
    following = _NEXT.search(words, start)
    end = following.start() if following else len(words.rstrip())
    for opening, closing in (("/*", "*/"), ("<!--", "-->")):
        if words.startswith(opening) and words.endswith(closing):
            end = min(end, len(words) - len(closing))
    end = max(start, end)
    return end, words[start:end].strip().lstrip("-—–:;,. ").strip()
