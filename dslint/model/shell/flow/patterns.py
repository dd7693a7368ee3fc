"""Patterns of ``case`` and ``[[ == ]]`` and regular expressions of ``[[ =~ ]]``, as far as they are simple."""

from __future__ import annotations

import re

from dslint.model.shell.pieces import Lookup, UnknownWordError
from dslint.model.shell.words import expand_assignment

_PART = re.compile(r"""(?P<quoted>"(?:[^"\\`]|\\.)*"|'[^']*')|\\(?P<escaped>.)|(?P<bare>[^"'\\`]+)""", re.DOTALL)
_SET = re.compile(r"\[(?P<not>[!^]?)(?P<body>[\w,./:@+ -]+)\]")
_GLOB = frozenset("*?[")
# The part of the extended regular expressions that Python reads in the same way.
_REGEX = re.compile(r"\^?(?:[\w/:,=@ -]|\\[.*+?/-]|[.][*+?]?|\[[\w,./:^-]+\][*+?]?|[()|]|(?<=[\w)])[*+?])*\$?")


def matches(raw: str, text: str, lookup: Lookup) -> bool:
    """Whether ``text`` matches the pattern ``raw``.

    Raises:
        UnknownWordError: nobody can say.
    """
    regex: list[str] = []
    at = 0
    while at < len(raw):
        part = _PART.match(raw, at)
        if part is None:
            raise UnknownWordError
        at = part.end()
        if part["quoted"]:
            regex.append(re.escape(expand_assignment(part["quoted"], lookup)))
        elif part["escaped"]:
            regex.append(re.escape(part["escaped"]))
        elif "$" in part["bare"]:
            value = expand_assignment(part["bare"], lookup)
            if set(value) & (_GLOB | {"\\"}) or set(part["bare"]) & {"*", "?", "["}:
                raise UnknownWordError
            regex.append(re.escape(value))
        else:
            regex.append(_glob(part["bare"]))
    return re.fullmatch("".join(regex), text, re.DOTALL) is not None


def _glob(bare: str) -> str:
    if set(bare) & set("()~{}"):
        raise UnknownWordError
    out: list[str] = []
    at = 0
    while at < len(bare):
        char = bare[at]
        if char == "[":
            found = _SET.match(bare, at)
            if found is None or re.search(r"[a-zA-Z]-", found["body"]):
                # Ranges of letters depend on the locale.
                raise UnknownWordError
            out.append(f"[{'^' if found['not'] else ''}{_set(found['body'])}]")
            at = found.end()
            continue
        out.append({"*": ".*", "?": "."}.get(char) or re.escape(char))
        at += 1
    return "".join(out)


def _set(body: str) -> str:
    if not re.fullmatch(r"(?:0-9)?[^-]*-?", body):
        raise UnknownWordError
    return body.replace("-", r"\-") if "0-9" not in body else "0-9" + body[3:].replace("-", r"\-")


def is_literal(raw: str) -> bool:
    """The pattern is one text without variables."""
    bare = re.sub(r"'[^']*'", "", raw)
    return not set(bare) & set("$`\\") and not set(re.sub(r'"[^"]*"', "", bare)) & (_GLOB | set("(){}~|"))


def found(raw: str, text: str) -> bool:
    """Whether the regular expression ``raw`` of ``=~`` is found in ``text``.

    Raises:
        UnknownWordError: it is not one that Python reads as bash does.
    """
    if not _REGEX.fullmatch(raw) or re.search(r"\[[^]]*[a-zA-Z]-", raw) or not text.isascii():
        raise UnknownWordError
    try:
        return re.search(raw.removesuffix("$") + (r"\Z" if raw.endswith("$") else ""), text) is not None
    except re.error:
        raise UnknownWordError from None
