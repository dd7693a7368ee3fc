"""Shell text to a syntax tree with positions in code points of the host file (tree-sitter, error tolerant)."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from dslint.core.source import Location, SourceFile, Span
from dslint.parse.shelllex import PLACEHOLDER, CommandText

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Nodes whose inside never holds a comment or a syntax error that matters.
_LEAVES = frozenset({"word", "string", "raw_string", "number", "variable_name", "heredoc_body", "comment"})


@dataclass(slots=True, eq=False)
class Syntax:
    """The syntax tree of a text, wherever the text stands; readers keep here what follows from the text alone.

    ``root`` is one object, so that nodes are made once: they keep their children.
    """

    root: Node
    # Code-point offset of every byte, empty for ASCII, where both are the same.
    points: array[int]
    # The simple commands that were read, by the offset at which they begin; ``None``: it is not finished.
    commands: dict[int, CommandText | None] = field(default_factory=dict)
    # Names that the code below a node sets, by the identity of the node.
    assigned: dict[int, frozenset[str] | None] = field(default_factory=dict)


@dataclass(slots=True)
class ShellDoc:
    """A parsed shell text: a whole file, a fenced block of Markdown, or a string that a shell runs.

    ``text`` is the fragment, which begins at ``base`` in ``source.text``. Spans of this class and of its methods
    count from the begin of the host file.
    """

    source: SourceFile
    text: str
    base: int
    syntax: Syntax
    # Set for a text that stands nowhere as it is (the value of a variable): every node is reported here.
    anchor: Span | None = None
    # The same text before names that nobody sets took the place of what another program fills in.
    written: str = ""
    _notes: tuple[tuple[Span, ...], tuple[Span, ...]] | None = field(default=None, repr=False)

    @property
    def root(self) -> Node:
        """The node of the whole text."""
        return self.syntax.root

    @property
    def comments(self) -> tuple[Span, ...]:
        """The comments in the order of the text."""
        return self._noted()[0]

    @property
    def errors(self) -> tuple[Span, ...]:
        """The places that the grammar could not read."""
        return self._noted()[1]

    def _noted(self) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Comments and errors: few texts are asked for them, and the whole tree must be walked."""
        if self._notes is None:
            found = list(_notable(self.root)) if "#" in self.text or self.root.has_error else []
            spans = [(node.type == "comment", self.span(node)) for node in found]
            self._notes = tuple(s for is_comment, s in spans if is_comment), tuple(s for c, s in spans if not c)
        return self._notes

    def local(self, node: Node) -> Span:
        """The range of a node in ``text``."""
        points = self.syntax.points
        if points:
            return Span(points[node.start_byte], points[node.end_byte])
        return Span(node.start_byte, node.end_byte)

    def start(self, node: Node) -> int:
        """Where a node begins in ``text``."""
        points = self.syntax.points
        return points[node.start_byte] if points else node.start_byte

    def span(self, node: Node) -> Span:
        """The range of a node in the host file."""
        if self.anchor is not None:
            return self.anchor
        return self.local(node).shifted(self.base)

    def source_span(self, start: int, end: int) -> Span:
        """The range in the host file of a range of ``text``."""
        return self.anchor if self.anchor is not None else Span(start + self.base, end + self.base)

    def raw(self, node: Node) -> str:
        """The text of a node as written."""
        points = self.syntax.points
        if points:
            return self.text[points[node.start_byte] : points[node.end_byte]]
        return self.text[node.start_byte : node.end_byte]

    def location(self, node: Node, label: str = "") -> Location:
        """The place of a node in the host file."""
        return self.source.location(self.span(node), label)

    @property
    def span_in_source(self) -> Span:
        """The whole fragment in the host file."""
        return Span(self.base, self.base + len(self.text))


# Stands for a carriage return at the end of a line: bash takes it for a letter like any other, the grammar does not.
RETURN = "\ue00d"


def as_bash_reads(text: str) -> str:
    """The text of a script, of the same length, in which :data:`RETURN` stands for what Windows puts at line ends."""
    return text.replace("\r\n", f"{RETURN}\n") if "\r\n" in text else text


def with_returns(text: str) -> str:
    """A piece of such a text as it stands in the file."""
    return text.replace(RETURN, "\r") if RETURN in text else text


def parse_shell(source: SourceFile, text: str | None = None, base: int = 0, anchor: Span | None = None) -> ShellDoc:
    """Parse the shell text of a file, or the fragment ``text`` that begins at ``base`` in it.

    ``text`` must be as long as the range it stands for (a caller may have blanked prompts in it), unless
    ``anchor`` says where to report it.
    """
    code = source.text if text is None else text
    return ShellDoc(source, code, base, _syntax(code), anchor=anchor)


# A script that many others call is read once for each call.
@lru_cache(maxsize=64)
def _syntax(code: str) -> Syntax:
    data = code.encode("utf-8", "surrogatepass")
    if "<" in code:
        # The parser loses the rest of a command over ``<x>``; a variable of the same length keeps all positions.
        data = PLACEHOLDER.sub(lambda m: "$" + "_" * (len(m[0]) - 1), code).encode("utf-8", "surrogatepass")
    return Syntax(_parser().parse(data).root_node, _code_points(code, len(data)))


def in_order(root: Node, skipped: Set[str] = frozenset()) -> Iterator[Node]:
    """A node and all below it in the order of the text, without those of the skipped types and what they hold."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in reversed(node.children) if child.type not in skipped)


def expansions(root: Node, shell: ShellDoc, skipped: Set[str] = frozenset()) -> Iterator[tuple[Node, str]]:
    """The expansions of variables in a node, ``$X`` and ``${X:-1}``, with the name of each."""
    for node in in_order(root, skipped):
        if node.type in ("simple_expansion", "expansion"):
            name = next((child for child in node.children if child.type == "variable_name"), None)
            if name is not None:
                yield node, shell.raw(name)


def _notable(root: Node) -> Iterator[Node]:
    """Comments and errors in the order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "comment" or node.is_error or node.is_missing:
            yield node
        if node.type not in _LEAVES:
            stack.extend(reversed(node.children))


def _code_points(text: str, size: int) -> array[int]:
    """Byte offset -> code-point offset, also for the end of the text."""
    if size == len(text):
        return array("L")
    points = array("L")
    for run in re.finditer(r"[\0-\x7f]+|[^\0-\x7f]+", text):
        # Nearly all characters are one byte: whole stretches of them at once.
        if run[0].isascii():
            points.extend(range(*run.span()))
            continue
        for index, char in enumerate(run[0], run.start()):
            points.extend((index,) * (2 if char < "\u0800" else 3 if char < "\U00010000" else 4))
    points.append(len(text))
    return points


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
