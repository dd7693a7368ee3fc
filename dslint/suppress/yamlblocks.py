"""Shell in block scalars of YAML (``run: |``): its own comments count, and one above the key speaks about all of it."""

from __future__ import annotations

from dslint.core.source import SourceFile, Span
from dslint.parse.data import DataDoc
from dslint.suppress.logical import LogicalLines, shell_commands


class YamlBlocks:
    """The literal block scalars of a file."""

    def __init__(self, doc: DataDoc) -> None:
        self.source: SourceFile = doc.source
        text = doc.source.text
        self.spans = sorted(span for span in doc.values.values() if text[span.start : span.start + 1] == "|")

    def comments(self) -> list[Span]:
        """The comments of the shell in them."""
        from dslint.parse.shell import parse_shell

        found: list[Span] = []
        for span in self.spans:
            start = self.source.text.find("\n", span.start, span.end) + 1
            code = self.source.text[start : span.end] if start else ""
            if "dslint" in code or "DSL" in code:
                found += parse_shell(self.source, code, start).comments
        return found

    def lines(self, line: int) -> tuple[int, int] | None:
        """The first and last line of the block that holds a line or opens on it; ``None`` outside of any."""
        for span in self.spans:
            first = self.source.line_column(span.start)[0]
            last = self.source.line_column(max(span.start, span.end - 1))[0]
            if first <= line <= last:
                return first, last
        return None

    def meant(self, comments: tuple[Span, ...]) -> dict[Span, tuple[int, int]]:
        """The lines of the block below a comment, or beside it; for comments of YAML itself."""
        found = {}
        for comment in comments:
            line, column = self.source.line_column(comment.start)
            is_alone = not self.source.line_text(line)[: column - 1].strip()
            below = len(self.source.line_starts)
            while is_alone and line < below and self.source.line_text(line).lstrip().startswith("#"):
                line += 1
            block = self.lines(line)
            if block is not None and block[0] == line:
                found[comment] = block
        return found

    def logical_lines(self) -> LogicalLines:
        """Commands that go over several lines, inside of the blocks only."""
        commands = shell_commands(self.source.text)
        return lambda start, end: commands(start, end) if self.lines(start) else (start, end)
