"""Code blocks of Markdown, fenced (CommonMark 4.5), indented (4.4) or in HTML, with their positions in the host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslint.core.source import Span

# Up to three spaces may stand before a fence; inside list items the indentation is larger, and a nested list or
# a quotation puts its own marks before it. Backtick fences may not have a backtick in their info string.
_OPEN = re.compile(
    r"(?P<lead>(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t])))*[ \t]*)(?P<fence>`{3,}(?!.*`)|~{3,})(?P<info>.*)"
)
_LINE = re.compile(r".*\n|.+")
# Lines of four blanks or more behind an empty one.
_INDENTED = re.compile(r"(?:\A|^[ \t]*\n)((?:(?: {4}|\t)[ \t]*\S.*(?:\n|\Z)|[ \t]*\n)+)", re.MULTILINE)
_PREFORMATTED = re.compile(r"<pre\b[^>]*>(.*?)</pre>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_ENTITY = re.compile(r"&(?:#\d+|\w+);")
_QUOTE = re.compile(r"[ \t]*(?:>[ \t]?)+")
# A directive of MyST for a code block, and the options at the begin of its body.
_DIRECTIVE = re.compile(r"\{(?:code-block|code|sourcecode)\}")
_OPTIONS = re.compile(r"(?:[ \t]*:[\w-]+:.*\n)+")
_SHELL = frozenset({"bash", "sh", "shell", "zsh", "console", "shell-session", "shellsession", "sh-session", "terminal"})


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced code block. ``span`` covers its lines; ``text`` has the same length.

    In ``text`` quotation marks of the container are blanked, so that offsets stay those of the host.
    """

    language: str
    span: Span
    text: str

    @property
    def is_shell(self) -> bool:
        """The info string names a shell."""
        return self.language in _SHELL


def fences(text: str) -> Iterator[Fence]:
    """All fenced code blocks in the order of the text; one that is never closed runs to the end."""
    start: tuple[str, int, str, bool] | None = None  # fence, offset of the body, info, inside a quotation
    inside_item = False
    after = 0
    for begin, end in [*_marked_lines(text), (len(text), len(text))]:
        if start is not None and inside_item:
            # A fence this deep stands in a list item, and the item may end before this line.
            stop = _item_end(text, after, begin)
            if stop is not None:
                yield _fence(start, text, stop)
                start = None
        after = end
        plain = text[begin:end].rstrip("\r\n")
        if start is not None:
            closes = _closes(plain, start[0], start[3])
            if not closes and not (inside_item and _ends_item(plain)) and begin < len(text):
                continue
            yield _fence(start, text, begin)
            start = None
            if closes:
                continue
        start = _opens(plain, end)
        inside_item = start is not None and _is_deep(plain)


def indented_blocks(text: str, fenced: Sequence[Fence]) -> Iterator[Fence]:
    """The code blocks that are marked by their indentation alone or `<pre>` (CommonMark 4.4), outside of fences.

    A paragraph of a list item may look the same: whether a block is code, its text must say.
    """
    for match in _INDENTED.finditer(text):
        if not any(f.span.start < match.end(1) and match.start(1) < f.span.end for f in fenced):
            yield Fence("", Span(*match.span(1)), match[1])
    for match in _PREFORMATTED.finditer(text) if "<pre" in text.lower() else ():
        is_own = not any(f.span.start < match.end(1) and match.start(1) < f.span.end for f in fenced)
        if is_own and not _ENTITY.search(match[1]):
            yield Fence("", Span(*match.span(1)), _TAG.sub(lambda tag: re.sub(r"[^\n]", " ", tag[0]), match[1]))


def _marked_lines(text: str) -> Iterator[tuple[int, int]]:
    """The lines that may begin or end a fence, with their line ends."""
    following = {mark: text.find(mark) for mark in ("```", "~~~")}
    while places := [at for at in following.values() if at >= 0]:
        at = min(places)
        end = text.find("\n", at) + 1 or len(text)
        yield text.rfind("\n", 0, at) + 1, end
        for mark, place in following.items():
            if 0 <= place < end:
                following[mark] = text.find(mark, end)


def _item_end(text: str, begin: int, end: int) -> int | None:
    """Where the first line begins that stands in no list item any more."""
    for line in _LINE.findall(text, begin, end):
        if _ends_item(line):
            return begin
        begin += len(line)
    return None


def _ends_item(line: str) -> bool:
    return bool(line.strip()) and len(line) - len(line.lstrip()) < 2


def _opens(line: str, after: int) -> tuple[str, int, str, bool] | None:
    match = _OPEN.fullmatch(line)
    return (match["fence"], after, match["info"], ">" in match["lead"]) if match else None


def _is_deep(line: str) -> bool:
    return len(line) - len(line.lstrip(" ")) >= 4


def _fence(start: tuple[str, int, str, bool], host: str, end: int) -> Fence:
    _, offset, info, quoted = start
    options = _OPTIONS.match(host, offset, end) if _DIRECTIVE.match(info.strip()) else None
    offset = options.end() if options is not None else offset
    text = host[offset:end]
    text = _QUOTE.sub(lambda m: " " * len(m[0]), text) if quoted else text
    return Fence(_language(info), Span(offset, end), text)


def _closes(line: str, fence: str, quoted: bool) -> bool:
    if quoted:
        line = _QUOTE.sub("", line)
    if fence not in line:
        return False
    line = line.strip(" \t")
    return len(line) >= len(fence) and not line.strip(fence[0])


def _language(info: str) -> str:
    """``{.bash title="x"}``, ``bash title=x``, ``{code-block} bash`` -> ``bash``."""
    words = [w for w in re.split(r"[\s,{}]+", info.strip().strip("{}")) if w]
    if _DIRECTIVE.match(info.strip()):
        words = words[1:]
    return words[0].lstrip(".").lower() if words else ""


_ENVIRONMENT = r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?"
_PROMPT = re.compile(
    rf"{_ENVIRONMENT}(?:\$|>>>(?=[ \t]+(?:python3?|torchrun|deepspeed|accelerate)[ \t]))[ \t]+", re.MULTILINE
)
_MORE = re.compile(rf"{_ENVIRONMENT}>[ \t]+")
# A comment behind the `\` ends the command, whatever the author meant: what follows is none of its output.
_GOES_ON = re.compile(r"\\(?:[ \t]+#[^\r\n]*)?[\r\n]*$")


def without_prompts(text: str) -> str:
    """A shell session as a script of the same length: prompts and the output between commands become blanks.

    A text without ``$ `` prompts is returned as it is. Some write ``>>> python3 train.py`` for a prompt.
    """
    if not _PROMPT.search(text):
        return text
    out = []
    continued = False
    for line in re.findall(r".*\n|.+", text):
        prompt = _PROMPT.match(line) or (_MORE.match(line) if continued else None)
        if prompt:
            line = " " * prompt.end() + line[prompt.end() :]
        elif not continued and not line.lstrip().startswith("#"):
            line = re.sub(r"[^\r\n]", " ", line)
        continued = _GOES_ON.search(line) is not None
        out.append(line)
    return "".join(out)
