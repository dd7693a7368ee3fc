"""Requirements that are no name of an index: ``git+https://...``, the address of a wheel, a folder of this machine."""

from __future__ import annotations

import re

from dslint.core.source import Span
from dslint.model.versions.requirements import Statement, library_name

# Whose repositories the libraries are developed in; what others have under the same name is a copy.
_OWNERS = frozenset(
    {"huggingface", "microsoft", "deepspeedai", "pytorch", "lightning-ai", "pytorchlightning", "internlm", "open-mmlab",
     "timdettmers", "bitsandbytes-foundation", "webdataset", "lvwerra"}
)  # fmt: skip
_HEADS = ("", "main", "master", "HEAD")
_NAMED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[\w\s,.-]*\])?\s*@\s*(?=\S)")
_GIT = re.compile(
    r"git\+(?:\w+://)?(?:[\w.-]+@)?[\w.-]+[/:](?:[\w.-]+/)*?(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?"
    r"(?:@(?P<ref>[^#\s;]+))?(?:#(?P<extra>[^\s;]*))?(?:$|[\s;])"
)
_TAG = re.compile(r"v?(\d+(?:\.\d+)+(?:\.?post\d+)?)$")
_WHEEL = re.compile(
    r"(?:https?|file)://\S*/(?P<name>[A-Za-z0-9_.]+)-(?P<version>\d[\w.]*)(?:(?:%2B|\+)[\w.]+)?-[^/\s]*\.whl", re.I
)
_FOLDER = re.compile(r"(?:file:/*)?(?:\.{1,2}/|/)?(?:[\w.-]+/)*(?P<name>[\w.-]+?)/?(?:\[[\w,-]*\])?$")
# `name/` or `a/name` is a folder only where nothing of a requirement follows.
_IS_FOLDER = re.compile(r"(?:file:|\.{1,2}/|/|[\w.-]+/)[\w./-]*(?:\[[\w,-]*\])?$")


def addressed(text: str, start: int, certain: bool) -> Statement | None:
    """The statement of a requirement that gives an address, with or without ``name @`` in front; else ``None``."""
    named = _NAMED.match(text)
    address = text[named.end() :] if named else text.lstrip()
    start += len(text) - len(text.lstrip())
    span = Span(start, start + len(text.strip()))
    marked = certain and ";" not in address
    git = _GIT.match(address)
    if git is not None:
        library = library_name(named[1]) if named else _of_repository(git)
        return _from_git(library, git, span, marked) if library else None
    wheel = _WHEEL.match(address)
    if wheel is not None:
        library = library_name(wheel["name"])
        return Statement(library, f"=={wheel['version']}", span, marked) if library else None
    folder = _FOLDER.match(address.strip()) if _IS_FOLDER.match(address.strip()) else None
    if folder is not None:
        library = library_name(named[1] if named else folder["name"])
        return Statement(library, "", span, marked, taken_from="folder") if library else None
    return None


def _of_repository(git: re.Match[str]) -> str | None:
    egg = re.search(r"egg=([\w.-]+)", git["extra"] or "")
    return library_name(egg[1] if egg else git["name"])


def _from_git(library: str, git: re.Match[str], span: Span, certain: bool) -> Statement:
    ref = git["ref"] or ""
    tag = _TAG.match(ref)
    if tag is not None:
        return Statement(library, f"=={tag[1]}", span, certain)
    is_own = git["owner"].lower() in _OWNERS and "subdirectory" not in (git["extra"] or "")
    return Statement(library, "", span, certain, taken_from="git" if is_own and ref in _HEADS else "commit")
