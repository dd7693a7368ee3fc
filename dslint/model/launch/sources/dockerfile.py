"""``RUN``, ``CMD`` and ``ENTRYPOINT`` of a Dockerfile, in shell form and in exec form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from dslint.core.fact import Fact, unknown
from dslint.core.source import SourceFile, Span
from dslint.model.firstlook import text_may_launch
from dslint.model.launch.commandlines import IMAGE_DECIDES
from dslint.model.launch.sources.snippet import Snippet, command_line, shell_text, value_at
from dslint.model.shell.pieces import Value

_INSTRUCTION = re.compile(r"[ \t]*(?P<name>[A-Za-z]+)(?:[ \t]+|\\\r?\n)(?P<rest>.*)", re.DOTALL)
_FLAGS = re.compile(r"(?:[ \t]*--[a-z]+=\S+)+")
_PAIR = re.compile(r"([A-Za-z_]\w*)=(\"[^\"$`\\]*\"|'[^']*'|[^\s\"'$`\\]*)(?=\s|$)")
_OLD_PAIR = re.compile(r"([A-Za-z_]\w*)[ \t]+([^\s=\"'$`\\][^\"'$`\\\n]*)$")


# What stands after the name of the image in `docker run image ...`.
_ADDED = " $DOCKER_RUN_WORDS"


def dockerfile_snippets(source: SourceFile) -> Iterator[Snippet]:
    """The instructions that may launch something; the image decides over the directory and further variables."""
    variables: dict[str, Value | None] = {}
    start_of: dict[str, tuple[str, int]] = {}
    for start, line in _logical_lines(source.text):
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        name, rest, base = found["name"].upper(), found["rest"].rstrip(), start + found.start("rest")
        if name == "FROM":
            yield from _started(start_of, variables)
            variables, start_of = {}, {}
        elif name in ("ENV", "ARG"):
            variables |= _pairs(source, rest, Span(start, start + len(line.rstrip())))
        elif name == "RUN":
            flags = _FLAGS.match(rest)
            yield from _snippets(" " * flags.end() + rest[flags.end() :] if flags else rest, base, [], variables)
        elif name in ("CMD", "ENTRYPOINT"):
            start_of[name] = (rest, base)
    yield from _started(start_of, variables)


def _started(start_of: dict[str, tuple[str, int]], variables: dict[str, Value | None]) -> Iterator[Snippet]:
    """What a container of a stage starts: the last ``ENTRYPOINT`` with the words of the last ``CMD``."""
    entry, cmd = start_of.get("ENTRYPOINT"), start_of.get("CMD")
    words = _exec_form(entry[0]) if entry is not None else None
    if entry is not None and (cmd is None or words is None):
        yield from _snippets(*entry, [], variables, is_open=cmd is None)
    elif cmd is not None:
        yield from _snippets(*cmd, words or [], variables)


def entry_words(source: SourceFile) -> list[str]:
    """The words of the last ``ENTRYPOINT``, behind which stand those of ``docker run``; none for one of a shell."""
    found: list[object] | None = None
    for _, line in _logical_lines(source.text):
        instruction = _INSTRUCTION.match(line)
        name = instruction["name"].upper() if instruction is not None else ""
        if instruction is not None and name in ("FROM", "ENTRYPOINT"):
            found = _exec_form(instruction["rest"].rstrip()) if name == "ENTRYPOINT" else None
    return [str(word) for word in found or ()]


def _snippets(
    rest: str, base: int, before: list[object], variables: dict[str, Value | None], *, is_open: bool = False
) -> Iterator[Snippet]:
    """The commands of one instruction; ``is_open``: ``docker run`` adds the words of its own command."""
    image: Fact[str] = unknown(IMAGE_DECIDES)
    known = (dict(variables), frozenset(variables), True, image)
    words = _exec_form(rest)
    line = _without_comments(rest) if words is None else command_line([*before, *words])
    if not text_may_launch(line):
        return
    at = shell_text(words) if words is not None and not before else None
    if is_open and words is not None and at is None:
        line += _ADDED
    if words is None:
        yield Snippet(line, base, None, *known)
    else:
        text = line if at is None else str(words[at])
        yield Snippet(text, 0, Span(base, base + len(rest)), *known)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Instructions with their continued lines; comment lines between these belong to them."""
    start = at = 0
    is_open = False
    for line in text.splitlines(keepends=True):
        at += len(line)
        bare = line.strip()
        if is_open and (not bare or bare.startswith("#")):
            continue
        is_open = line.rstrip("\r\n \t").endswith("\\") and not (not is_open and bare.startswith("#"))
        if not is_open:
            yield start, text[start:at]
            start = at
    if start < at:
        yield start, text[start:at]


def _without_comments(text: str) -> str:
    """Docker takes whole comment lines, and empty ones, out of a continued instruction before the shell sees it."""
    return re.sub(r"(?m)^[ \t]*(?:#.*)?\r?\n", lambda m: " " * len(m[0]), text)


def _exec_form(text: str) -> list[object] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        words = json.loads(text)
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(w, str) for w in words) else None


def _pairs(source: SourceFile, rest: str, span: Span) -> dict[str, Value | None]:
    old = _OLD_PAIR.match(rest)
    if old is not None:
        return {old[1]: value_at(source, old[2].strip(), span)}
    named = dict.fromkeys(re.findall(r"([A-Za-z_]\w*)=", rest))
    return {**named, **{n: value_at(source, v.strip("\"'"), span) for n, v in _PAIR.findall(rest)}}
