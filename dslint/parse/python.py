"""Python text -> LibCST module with positions on demand.

The standard library's parser goes first: it costs a tenth of LibCST, names the exact place of a mistake, and
refuses the nesting depths at which LibCST's native parser would exhaust the stack and end the process.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.core.garbage import no_collections
from dslint.core.source import Location, SourceFile, Span
from dslint.parse.data import ParseProblem
from dslint.parse.nesting import deep_place, syntax_tree, too_deep, too_deep_to_guess

if TYPE_CHECKING:
    import libcst as cst

    from dslint.parse.statements import Statements

TOO_DEEP = "the code is nested too deeply to be read"
_DEPTH_MESSAGES = ("too many nested parentheses", "too many statically nested blocks", "too many levels of indentation")


@dataclass(frozen=True, slots=True)
class ScriptProblem(ParseProblem):
    """Why a script could not be read.

    ``invalid`` is true when Python itself refuses the text (a syntax error), false when Python accepts it and
    only dslint's parser does not.
    """

    invalid: bool = True


@dataclass(slots=True)
class ScriptDoc:
    """A parsed script. ``tree`` is ``None`` when only LibCST understands the text (syntax of a newer Python).

    ``parents``: the nodes around one, the nearest first, once somebody has laid out the tree; places are cheaper then.
    """

    source: SourceFile
    module: cst.Module
    tree: ast.Module | None = None
    parents: Callable[[cst.CSTNode], Iterator[cst.CSTNode]] | None = None
    _statements: Statements | None = field(default=None, repr=False)
    _spans: Mapping[cst.CSTNode, tuple[int, int]] | None = field(default=None, repr=False)
    _is_whole: bool = field(default=False, repr=False)
    _comments: tuple[Span, ...] | None = field(default=None, repr=False)

    @property
    def path(self) -> str:
        """The path the user sees."""
        return self.source.path

    def span(self, node: cst.CSTNode) -> Span:
        """Where a node stands, without the whitespace and comments it owns."""
        from dslint.parse.places import places

        found = self._spans.get(node) if self._spans is not None else None
        if found is None and not self._is_whole:
            found = self._within_statement(node)
        if found is None and not self._is_whole:
            # Most findings ask for one place; who asks for a second one behind it will ask for more.
            self._is_whole = self._spans is not None
            with no_collections():
                self._spans = places(self.module, None if self._is_whole else node)
            found = self._spans.get(node)
        return Span(*found) if found else Span(0, 0)

    def _within_statement(self, node: cst.CSTNode) -> tuple[int, int] | None:
        if self.parents is None or self.tree is None:
            return None
        if self._statements is None:
            from dslint.parse.statements import Statements

            try:
                self._statements = Statements(self.source, self.module, self.tree)
            except ValueError:
                self.parents = None
                return None
        with no_collections():
            return self._statements.place(node, self.parents(node))

    def location(self, node: cst.CSTNode, label: str = "") -> Location:
        """The place of a node for a finding."""
        return self.source.location(self.span(node), label)

    @property
    def comments(self) -> tuple[Span, ...]:
        """The spans of all comments."""
        if self._comments is None:
            self._comments = tuple(comment_spans(self.source.text))
        return self._comments


def parse_script(source: SourceFile, tree: ast.Module | ScriptProblem | None = None) -> ScriptDoc | ScriptProblem:
    """The script as a CST, or why there is none; ``tree`` is the answer of :func:`parse_ast` if it was asked before."""
    tree = tree or parse_ast(source)
    if isinstance(tree, ScriptProblem):
        if tree.message == TOO_DEEP or too_deep_to_guess(source.text):
            return tree
    else:
        deep = too_deep(source, tree)
        if deep is not None:
            return ScriptProblem(deep, TOO_DEEP, invalid=False)
    return parse_cst(source, tree)


def parse_ast(source: SourceFile) -> ast.Module | ScriptProblem:
    """The standard library's tree, or the first place that Python refuses."""
    try:
        with no_collections():
            return syntax_tree(source.text)
    except SyntaxError as error:
        if error.msg and error.msg.startswith(_DEPTH_MESSAGES):
            return ScriptProblem(_error_span(source, error.lineno, error.offset), TOO_DEEP, invalid=False)
        return ScriptProblem(_error_span(source, error.lineno, error.offset), f"syntax error: {error.msg}")
    except (RecursionError, MemoryError):
        return ScriptProblem(deep_place(source), TOO_DEEP, invalid=False)
    except ValueError:  # up to Python 3.11, a NUL is no SyntaxError
        at = max(source.text.find("\0"), 0)
        return ScriptProblem(Span(at, at + 1), "syntax error: source code cannot contain null bytes")


def parse_cst(source: SourceFile, tree: ast.Module | ScriptProblem) -> ScriptDoc | ScriptProblem:
    """The CST of a text that :func:`parse_ast` has seen; its problem stands unless LibCST knows better."""
    import libcst as cst

    try:
        with no_collections():
            module = cst.parse_module(source.text)
    except cst.ParserSyntaxError as error:
        if isinstance(tree, ScriptProblem):
            return tree
        span = _error_span(source, error.raw_line, error.raw_column + 1)
        return ScriptProblem(
            span, "Python accepts this file but LibCST does not, so that most script rules are not asked", invalid=False
        )
    except RecursionError:
        return ScriptProblem(Span(0, 0), TOO_DEEP, invalid=False)
    except Exception as error:
        # LibCST builds nodes that validate themselves and let other errors through on odd input.
        if isinstance(tree, ScriptProblem):
            return tree
        return ScriptProblem(Span(0, 0), f"dslint's parser cannot read this file ({type(error).__name__})", False)
    return ScriptDoc(source, module, None if isinstance(tree, ScriptProblem) else tree)


def comment_spans(text: str) -> list[Span]:
    """The exact comment tokens of a Python text, up to the place where it stops being Python."""
    if "#" not in text:
        return []
    # tokenize splits lines at "\n" only, as universal newlines would; a lone "\r" keeps its width.
    lines = text.splitlines(keepends=True) if "\r" in text else None
    source = SourceFile("", text)
    spans: list[Span] = []
    reader = io.StringIO(text, newline="").readline if lines is None else iter(_physical_lines(text)).__next__
    try:
        for token in tokenize.generate_tokens(reader):
            if token.type == tokenize.COMMENT:
                start = source.offset(*_one_based(token.start))
                spans.append(Span(start, start + len(token.string.rstrip("\r"))))
    except (tokenize.TokenError, SyntaxError, ValueError, IndexError, RecursionError):
        pass  # what came before the mistake still counts
    return spans


def _one_based(position: tuple[int, int]) -> tuple[int, int]:
    return position[0], position[1] + 1


def _physical_lines(text: str) -> Iterator[str]:
    """Lines as ``SourceFile`` counts them."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start : end + 1]
        start = end + 1
    if start < len(text):
        yield text[start:]


def _error_span(source: SourceFile, line: int | None, column: int | None) -> Span:
    """The span from a 1-based line and column (which parsers sometimes give past the end) to the end of the line."""
    starts = source.line_starts
    row = min(max(line or 1, 1), len(starts))
    length = len(source.line_text(row))
    start = starts[row - 1] + min(max((column or 1) - 1, 0), length)
    return Span(start, max(start, starts[row - 1] + length))
