"""The suppression comments of one file, applied to its findings; those that match nothing are findings too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dslint.core.finding import Finding
from dslint.core.fix import Edit, Fix
from dslint.core.source import SourceFile, Span
from dslint.core.suppressed import Suppressed
from dslint.rules.own import UNUSED_SUPPRESSION
from dslint.rules.registry import BY_CODE
from dslint.suppress.directives import Directive, Selector, parse_comment
from dslint.suppress.logical import LogicalLines, physical_lines

_WHY = "so it would only hide the next real mistake"


@dataclass(slots=True)
class _Placed:
    """A directive, the line it speaks about (``None``: the whole file), and which of its selectors were needed.

    ``last`` is the last line where it speaks about a block.
    """

    directive: Directive
    line: int | None
    last: int = 0
    used: set[int] = field(default_factory=set)

    def meets(self, first: int, last: int) -> bool:
        """The directive speaks about one of these lines."""
        return self.line is None or (first <= max(self.line, self.last) and self.line <= last)

    def match(self, code: str) -> int | None:
        """The index of the selector that names the code, -1 for a blanket directive."""
        if self.directive.mistake:
            return None
        if not self.directive.selectors:
            return None if code == UNUSED_SUPPRESSION.code else -1
        for index, selector in enumerate(self.directive.selectors):
            if selector.prefix is not None and code.startswith(selector.prefix):
                return index
        return None


class Suppressions:
    """The directives of one file. Only comment tokens count: a string that looks like a comment does nothing."""

    def __init__(self, source: SourceFile, directives: list[_Placed], logical_lines: LogicalLines) -> None:
        self.source = source
        self.logical_lines = logical_lines
        # The nearest directive answers first; a file-level one is used only where no other is.
        self.directives = sorted(directives, key=lambda d: d.line is None)

    @classmethod
    def from_comments(
        cls,
        source: SourceFile,
        comments: Iterable[Span],
        logical_lines: LogicalLines = physical_lines,
        blocks: Mapping[Span, tuple[int, int]] | None = None,
    ) -> Suppressions:
        """Read the directives from comment tokens. ``logical_lines`` says which lines belong together.

        ``blocks`` are the lines that a comment speaks about where these are not those beside it.
        """
        placed = []
        spans = sorted(comments)
        for comment in spans:
            line, column = source.line_column(comment.start)
            own_line = not source.line_text(line)[: column - 1].strip()
            for directive in parse_comment(source.text, comment, own_line):
                if directive.whole_file:
                    placed.append(_Placed(directive, None))
                elif blocks and comment in blocks:
                    placed.append(_Placed(directive, *blocks[comment]))
                elif not own_line:
                    placed.append(_Placed(directive, line))
                elif directive.style == "ignore" or directive.selectors:
                    # On a line of its own flake8's blanket form means that line only: nothing.
                    placed.append(_Placed(directive, _next_line(source, comment, spans)))
        return cls(source, placed, logical_lines)

    def __bool__(self) -> bool:
        return bool(self.directives)

    def apply(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[Suppressed]]:
        """Findings to report, and those that a directive of this file suppresses."""
        kept: list[Finding] = []
        suppressed: list[Suppressed] = []
        for finding in findings:
            by = self._suppressor(finding) if finding.location.path == self.source.path else None
            if by is None:
                kept.append(finding)
            else:
                suppressed.append(Suppressed(finding, by.reason, "inSource", self.source.location(by.span)))
        return kept, suppressed

    def _suppressor(self, finding: Finding) -> Directive | None:
        if not self.directives:
            return None
        span = finding.location.span
        first, _ = self.source.line_column(span.start)
        last, _ = self.source.line_column(max(span.start, span.end - 1))
        first, last = self.logical_lines(first, last)
        for placed in self.directives:
            if placed.meets(first, last):
                index = placed.match(finding.code)
                if index is not None:
                    placed.used.add(index)
                    return placed.directive
        return None

    def unused(self, judged: Callable[[str], bool] = BY_CODE.__contains__) -> list[Finding]:
        """One finding for each directive that suppressed nothing, after :meth:`apply`.

        ``judged`` says whether a rule did run: the suppression of one that did not may well be needed.
        """
        findings = [f for placed in self.directives for f in self._judge(placed, judged)]
        return self.apply(findings)[0]

    def _judge(self, placed: _Placed, judged: Callable[[str], bool]) -> list[Finding]:
        directive = placed.directive
        if directive.mistake:
            return [self._finding(directive, f"{directive.mistake}: it suppresses nothing")]
        if not directive.selectors:
            unneeded = directive.style == "ignore" and not placed.used and _all_judged("", judged)
            message = f"this suppression matches no finding, {_WHY}"
            return [self._finding(directive, message, self._without(directive, ()))] if unneeded else []
        idle = [s for i, s in enumerate(directive.selectors) if s.is_ours and i not in placed.used and _idle(s, judged)]
        if not idle:
            return []
        problem = next((s.problem for s in idle if s.problem), "")
        names = ", ".join(f"`{s.text}`" for s in idle)
        message = f"{problem}: it suppresses nothing" if problem else f"no finding of {names} here, {_WHY}"
        left = tuple(s for s in directive.selectors if s not in idle)
        # A mistyped code is to be mended, not deleted.
        return [self._finding(directive, message, None if problem else self._without(directive, left))]

    def _finding(self, directive: Directive, message: str, fix: Fix | None = None) -> Finding:
        hint = f"{fix.title}" if fix else "Correct the comment"
        return UNUSED_SUPPRESSION.finding(self.source.location(directive.span), message, hint=hint, fix=fix)

    def _without(self, directive: Directive, left: Sequence[Selector]) -> Fix | None:
        """The fix that leaves only the selectors ``left``, nothing of the comment when there are none."""
        path = self.source.path
        if left:
            whole = Span(directive.selectors[0].span.start, directive.selectors[-1].span.end)
            separator = ", " if directive.style == "ignore" else ","
            return Fix("Delete the unused codes", (Edit(path, whole, separator.join(s.text for s in left)),))
        span = _removable(self.source.text, directive)
        return None if span is None else Fix("Delete the comment", (Edit(path, span, ""),))


def _idle(selector: Selector, judged: Callable[[str], bool]) -> bool:
    return selector.prefix is None or _all_judged(selector.prefix, judged)


def _all_judged(prefix: str, judged: Callable[[str], bool]) -> bool:
    meant = [code for code in BY_CODE if code.startswith(prefix)]
    # A rule of the project that was not loaded has judged nothing.
    return bool(meant) and all(judged(code) for code in meant if not code.startswith("DSL9"))


def _next_line(source: SourceFile, comment: Span, comments: Sequence[Span]) -> int:
    """The first line after a comment that holds more than blanks and comments."""
    own = {source.line_column(c.start)[0] for c in comments if c.start >= comment.start}
    line = source.line_column(max(comment.start, comment.end - 1))[0] + 1
    while line <= len(source.line_starts):
        text = source.line_text(line).strip()
        if text and not (line in own and text.startswith(("#", "//", "/*"))):
            return line
        line += 1
    return line


def _removable(text: str, directive: Directive) -> Span | None:
    """What to delete so that nothing of the directive is left; ``None`` where that could change the meaning."""
    start, end = directive.span.start, directive.span.end
    comment = text[directive.comment.start : directive.comment.end]
    if start > directive.comment.start:
        return Span(start - len(text[:start]) + len(text[:start].rstrip(" \t")), end)
    if end < directive.comment.start + len(comment.rstrip()):
        following = re.match(r"\s*(?=#|//)", text[end : directive.comment.end])
        if following:
            return Span(start, end + following.end())
        if not comment.startswith(("/*", "<!--")):
            return None
        end = directive.comment.end
    line_start = text.rfind("\n", 0, start) + 1
    if text[line_start:start].strip():
        return Span(line_start + len(text[line_start:start].rstrip()), end)
    if text[:line_start].rstrip("\r\n").endswith("\\"):
        return None  # inside a continued command the line ends the command
    newline = text.find("\n", end)
    if newline >= 0 and text[end:newline].strip():
        return Span(start, end)
    return Span(line_start, len(text) if newline < 0 else newline + 1)
