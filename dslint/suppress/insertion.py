"""Comments that suppress findings, put into files so that nothing else about them changes.

A comment stands on a line of its own above the statement, command or key, else at the top of the file. Each text is
parsed before and after: one that would mean something else is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.engine.discovery import kind_of
from dslint.parse.nesting import syntax_tree
from dslint.suppress.logical import physical_lines, python_statements, shell_commands

# Comments stand beside the line in these; in the others at the top of the file, or in the settings.
_BY_LINE = frozenset({"script", "shell", "yaml", "markdown"})
_SETTINGS = frozenset({"json", "notebook"})
_COMMENT_LINE = re.compile(r"[ \t]*#")
_FENCE = re.compile(r"(?P<lead>[ \t>]*)(?:`{3,}|~{3,})")


def kind_in(path: str, text: str) -> str:
    """What comments a file takes: those of a kind, ``toml``, ``other``, or none but entries of the ``settings``."""
    name = path.rpartition("/")[2]
    kind = kind_of(name)
    if kind in _BY_LINE:
        return kind
    if name.endswith(".toml"):
        return "toml"
    if kind in _SETTINGS or text.lstrip()[:1] in ("{", "["):
        return "settings"
    if not kind and text.startswith("#!"):
        return "script" if "python" in text.partition("\n")[0] else "shell"
    return "other"


def with_line_comments(text: str, path: str, findings: Iterable[Finding], reason: str) -> tuple[str, set[str]]:
    """The text with a comment above each finding, and the codes for which that is not possible."""
    kind, source = kind_in(path, text), SourceFile(path, text)
    refused: set[str] = set()
    if kind not in _BY_LINE:
        return text, {finding.code for finding in findings}
    groups: dict[int, set[str]] = {}
    for finding in findings:
        groups.setdefault(_line_above(finding, source, kind), set()).add(finding.code)
    # From the end, so that the lines above stay where they are.
    for line, codes in sorted(groups.items(), reverse=True):
        changed = _inserted(text, line, _comment(kind, f"ignore[{', '.join(sorted(codes))}]", reason), kind)
        if is_same(text, changed, kind):
            text = changed
        else:
            refused |= codes
    return text, refused


def with_file_comment(text: str, path: str, codes: Sequence[str], reason: str) -> str | None:
    """The text with one comment for the whole file; ``None`` where it takes none."""
    kind = kind_in(path, text)
    if kind == "settings" or not codes:
        return None
    comment = _comment(kind, f"ignore-file[{', '.join(sorted(codes))}]", reason)
    if kind == "markdown":
        end = "" if text.endswith("\n") or not text else _line_end(text)
        changed = f"{text}{end}{_line_end(text)}{comment}{_line_end(text)}"
    else:
        lines = text.splitlines(keepends=True)
        # Below the first comments: a shebang, the encoding, directives of Docker and of batch systems stay first.
        at = next((n for n, line in enumerate(lines) if not _COMMENT_LINE.match(line)), len(lines))
        if lines and at == len(lines) and not lines[-1].endswith("\n"):
            lines[-1] += _line_end(text)
        changed = "".join((*lines[:at], comment + _line_end(text), *lines[at:]))
    return changed if is_same(text, changed, kind) else None


def _line_above(finding: Finding, source: SourceFile, kind: str) -> int:
    """The 1-based line that the comment is to stand above."""
    span = finding.location.span
    first = source.line_column(span.start)[0]
    last = source.line_column(max(span.start, span.end - 1))[0]
    if kind == "markdown":
        from dslint.parse.markdown import fences

        block = next((f.span for f in fences(source.text) if f.span.start <= span.start < f.span.end), None)
        if block is None:
            return first
        line = source.line_column(block.start)[0] - 1
        while line > 1 and not _FENCE.match(source.line_text(line)):
            line -= 1  # options of a directive stand between
        return line
    if kind == "yaml":
        from dslint.parse.yamldoc import parse_yaml
        from dslint.suppress.yamlblocks import YamlBlocks

        # A comment in a block scalar would be part of its text: it stands above the key.
        scalar = YamlBlocks(parse_yaml(source)).lines(first)
        first = last = scalar[0] if scalar is not None else first
    lines = {"script": python_statements, "shell": shell_commands}.get(kind)
    return (lines(source.text) if lines is not None else physical_lines)(first, last)[0]


def _inserted(text: str, line: int, comment: str, kind: str) -> str:
    lines = text.splitlines(keepends=True) if "\x0c" not in text else re.findall(r"[^\n]*\n|[^\n]+", text)
    below = lines[line - 1] if line <= len(lines) else ""
    fence = _FENCE.match(below) if kind == "markdown" else None
    lead = fence["lead"] if fence else below[: len(below) - len(below.lstrip(" \t"))]
    return "".join((*lines[: line - 1], f"{lead}{comment}{_line_end(text)}", *lines[line - 1 :]))


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _comment(kind: str, directive: str, reason: str) -> str:
    words = " ".join(reason.split())
    if kind == "markdown":
        return f"<!-- dslint: {directive} {words.replace('--', '-')} -->"
    return f"# dslint: {directive} {words}"


def is_same(before: str, after: str, kind: str) -> bool:
    """Whoever reads the two texts reads the same."""
    try:
        return bool(_meaning(before, kind) == _meaning(after, kind))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _meaning(text: str, kind: str) -> Any:
    if kind == "script":
        return ast.dump(syntax_tree(text))
    if kind == "yaml":
        from dslint.parse.yamldoc import parse_yaml

        doc = parse_yaml(SourceFile("", text))
        return doc.data, [problem.message for problem in doc.problems]
    if kind == "toml":
        from dslint.settings.load import parse_toml

        return parse_toml(text)
    if kind == "markdown":
        from dslint.parse.markdown import fences, indented_blocks

        fenced = list(fences(text))
        return [(f.language, f.text) for f in fenced], [f.text.strip("\r\n") for f in indented_blocks(text, fenced)]
    return _shell_words(text)


def _shell_words(text: str) -> list[tuple[str, str]]:
    """The leaves of the syntax tree but comments; of texts in quotes and here documents every character."""
    from dslint.parse.shell import parse_shell

    doc = parse_shell(SourceFile("", text))
    found, open_nodes = [], [doc.root]
    while open_nodes:
        node = open_nodes.pop()
        if node.type == "comment":
            continue
        if not node.children or node.type in ("heredoc_body", "string", "raw_string"):
            # Line ends between commands are no words.
            if node.type != "\n":
                found.append((node.type, doc.raw(node)))
        else:
            open_nodes += reversed(node.children)
    return found


def with_ignores(text: str, table: Sequence[str], ignores: Mapping[str, Sequence[str]]) -> str | None:
    """A settings text with more ``per-file-ignores``; ``None`` where they have to be written by hand.

    ``table`` is where the settings stand in it: ``("tool", "dslint")`` or nothing.
    """
    import json

    from dslint.settings.load import parse_toml

    old, place = parse_toml(text), (*table, "per-file-ignores")
    wanted = old
    for part in place:
        wanted = wanted.setdefault(part, {})
    present = dict(wanted)
    lines = text.splitlines(keepends=True)
    header = next((n for n, line in enumerate(lines) if line.strip() == f"[{'.'.join(place)}]"), None)
    if header is None:
        if present:
            return None  # an inline table, or one with dots
        lines += [
            "" if not lines or lines[-1].endswith("\n") else "\n",
            "\n" if lines else "",
            f"[{'.'.join(place)}]\n",
        ]
        header = len(lines) - 1
    for path, rules in sorted(ignores.items(), reverse=True):
        items = ", ".join(json.dumps(rule, ensure_ascii=False) for rule in rules)
        key = json.dumps(path, ensure_ascii=False)
        if path not in present:
            lines.insert(header + 1, f"{key} = [{items}]\n")
        else:
            pattern = re.compile(rf"\s*(?:{re.escape(key)}|'{re.escape(path)}')\s*=\s*\[")
            at = next((n for n, line in enumerate(lines) if n > header and pattern.match(line)), None)
            if at is None:
                return None
            end = pattern.match(lines[at]).end()  # type: ignore[union-attr]
            lines[at] = f"{lines[at][:end]}{items}{', ' if present[path] else ''}{lines[at][end:]}"
        wanted[path] = [*rules, *present.get(path, [])]
    changed = "".join(lines)
    try:
        return changed if parse_toml(changed) == old else None
    except ValueError:
        return None
