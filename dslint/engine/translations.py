"""A page and its translations: what is found in each of them alike is one finding, with several places."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from dslint.core.finding import Finding

_LANGUAGE = r"(?:zh|cn|en|ja|jp|ko|kr|fr|de|es|pt|ru|vi|chinese|english)(?:[-_](?:cn|hans|tw|hant|us|jp|kr|br))?"
_SUFFIX = re.compile(rf"[-_.]{_LANGUAGE}$", re.IGNORECASE)
_FOLDER = re.compile(_LANGUAGE, re.IGNORECASE)


def page_of(path: str) -> tuple[str, bool]:
    """The name that a page and its translations have in common, and whether a language stands in this one."""
    folder, name = posixpath.split(path)
    stem, dot, suffix = name.rpartition(".")
    plain = _SUFFIX.sub("", stem)
    folders = ["*" if _FOLDER.fullmatch(part) else part for part in folder.split("/")]
    return "/".join([*folders, plain + dot + suffix]), plain != stem or "*" in folders


def joined_pages(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of pages in several languages joined: at the page without a language, else at the first one.

    The n-th of a page is joined with the n-th of its translation, where code and message are the same.
    """
    numbers: Counter[tuple[str, str, str]] = Counter()
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        path = finding.location.path
        key: object = id(finding)
        if path.endswith((".md", ".mdx", ".rst")):
            same = (path, finding.code, finding.message)
            numbers[same] += 1
            key = (page_of(path)[0], finding.code, finding.message, numbers[same])
        groups.setdefault(key, []).append(finding)
    return sorted((_joined(group) for group in groups.values()), key=lambda finding: finding.sort_key)


def _joined(group: list[Finding]) -> Finding:
    if len(group) == 1:
        return group[0]
    first, *others = sorted(group, key=lambda f: (page_of(f.location.path)[1], f.location.path))
    places = tuple(other.location.labelled("the same in another language") for other in others)
    return replace(first, related=(*first.related, *places))
