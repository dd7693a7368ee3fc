"""What a README says in words of the releases that a project takes: the items of a list of requirements."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.source import SourceFile, Span
from dslint.model.versions.manifests import installs
from dslint.model.versions.requirements import Statement, library_name

# `* pytorch 1.8.0`, `- [transformers](https://...) >= 4.30`, `* <a href="...">PyTorch</a> 2.0+`: the name comes first.
_ITEM = re.compile(
    r"^[ \t]*(?:[*+-]|\d+[.)])[ \t]+(?:<[^>\n]*>|[\[`*_])*(?P<name>[A-Za-z][\w.-]*?)"
    r"(?:<[^>\n]*>|\]\([^)\n]*\)|[\]`*_])*"
    r"[ \t]*(?:version[ \t]+)?(?P<range>(?P<sign>==|>=|<=|~=|≥|>|<|=)?[ \t]*v?(?P<number>\d+(?:\.\d+){1,3})"
    r"(?P<more>(?:[ \t]*,[ \t]*(?:>=|<=|!=|<|>)[ \t]*\d+(?:\.\d+)*)*))(?P<after>[^\n]*)",
    re.M,
)
_OR_LATER = re.compile(
    r"\+|[ \t]*(?:and|or|\()[ \t]*(?:above|later|higher|newer|greater|up)|[ \t]*以上|[ \t]*及以上", re.I
)
# `- torch 2.1 - 2.3`, `* pytorch 1.8.0 or 1.9.0`, `- torch 2.1 works, too`: not one release.
_MORE = re.compile(r"[ \t]*(?:[-/|~]|or\b|to\b|and\b|support|work|is\b|has\b|adds?\b|release)", re.I)


def told(source: SourceFile) -> Iterator[Statement]:
    """What a text tells people to install, and what it lists of libraries that its commands leave open."""
    commands = list(installs(source))
    stated = {statement.name for statement in commands if statement.specifier}
    yield from commands
    yield from (found for found in _listed(source.text) if found.name not in stated)


def _listed(text: str) -> Iterator[Statement]:
    for item in _ITEM.finditer(text):
        library = library_name(item["name"])
        if library is None:
            continue
        later, sign = _OR_LATER.match(item["after"]), (item["sign"] or "").replace("≥", ">=")
        if not later and _MORE.match(item["after"]):
            continue
        number, more = item["number"], item["more"].replace(" ", "").replace("\t", "")
        if later or sign not in ("", "=", "=="):
            specifier = f"{sign if sign not in ('', '=', '==') else '>='}{number}{more}"
        else:
            specifier = f"=={number}" if number.count(".") > 1 else f"=={number}.*"
        yield Statement(library, specifier, Span(item.start("name"), item.end("range")), certain=False)
