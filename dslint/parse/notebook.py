"""Jupyter notebook -> one Python text that remembers its cells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from dslint.core.source import SourceFile, Span
from dslint.parse.data import ParseProblem

# A cell that starts with one of these still holds Python; any other ``%%magic`` makes it something else.
_PYTHON_CELL_MAGICS = frozenset({"time", "timeit", "capture", "prun", "python", "python3", "px"})
# Lines as ``SourceFile`` counts them, not as ``str.splitlines`` does.
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
# ``%cd x``, ``!pip install``, ``?name``, ``name?``, and assignments from the shell: ``files = !ls``.
# Without a sign, too, for the commands that IPython knows by itself: ``cd ..``.
_BARE_MAGIC = (
    r"(?:cd|ls|ll|pip|conda|mamba|mkdir|cp|mv|rm|rmdir|cat|less|more|man|matplotlib)[ \t]+"
    r"(?!(?:in|is|and|or|if|not|for|else|as)\b)(?:\.\.|[~/\w-])"
)
_LINE_MAGIC = re.compile(
    rf"(?P<indent>[ \t]*)(?:[%!?]|{_BARE_MAGIC}|[\w.\[\]]+\?{{1,2}}[ \t]*$|(?P<target>[\w., \t]+?)=[ \t]*[!%])"
)
_UNREADABLE = "not a readable notebook"
_TEXTS = re.compile(
    r"""\"{3}.*?\"{3}|'{3}.*?'{3}|(?P<open>\"{3}.*|'{3}.*)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*""", re.S
)


def read_notebook(path: str, text: str) -> SourceFile | ParseProblem:
    """The code cells of a notebook, magics masked so that line and column stay what the user sees."""
    try:
        data: Any = json.loads(text)
    except ValueError as error:
        at = getattr(error, "pos", 0)
        return ParseProblem(Span(at, at), f"{_UNREADABLE}: {getattr(error, 'msg', 'no JSON')}")
    except RecursionError:
        return ParseProblem(Span(0, 0), f"{_UNREADABLE}: nested too deeply")
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list):
        return ParseProblem(Span(0, 0), f"{_UNREADABLE}: it has no list of cells")
    parts: list[str] = []
    starts: list[tuple[int, int]] = []
    line = 0
    for number, cell in enumerate(cells, 1):
        source = _code(cell)
        if source is None:
            continue
        code = mask_magics(source)
        code += "" if code.endswith("\n") else "\n"
        starts.append((line, number))
        parts.append(code)
        line += code.count("\n")
    return SourceFile(path, "".join(parts), cells=tuple(starts))


def notebook_text(path: str, text: str) -> SourceFile:
    """The code cells of a notebook as they are written; empty where it cannot be read."""
    read = read_notebook(path, text)
    if isinstance(read, ParseProblem):
        return SourceFile(path, "")
    cells = [_code(cell) for cell in json.loads(text)["cells"]]
    parts = [_outdented(cell) for cell in cells if cell is not None]
    return SourceFile(path, "".join(p if p.endswith("\n") else f"{p}\n" for p in parts), cells=read.cells)


def cell_texts(source: SourceFile) -> Iterator[tuple[int, str]]:
    """The offset and the text of each cell."""
    lines = _LINES.findall(source.text)
    begins = [line for line, _ in source.cells]
    offset = 0
    for begin, end in pairwise([*begins, len(lines)]):
        text = "".join(lines[begin:end])
        yield offset, text
        offset += len(text)


def _outdented(code: str) -> str:
    """A cell without the indentation of its first line, which IPython takes from all lines that have it."""
    first = next((line for line in _LINES.findall(code) if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    return "".join(line.removeprefix(indent) for line in _LINES.findall(code)) if indent else code


def mask_magics(code: str) -> str:
    """A cell as plain Python: what only IPython understands becomes ``pass`` or a comment of the same length.

    In a cell that is indented as a whole columns count from its indentation.
    """
    code = _outdented(code)
    lines = _LINES.findall(code)
    magic = _CELL_MAGIC.match(code)
    if magic and magic.group(1) not in _PYTHON_CELL_MAGICS:
        return "".join(map(_comment, lines))
    if not any(mark in code for mark in "%!?") and not re.search(rf"(?m)^[ \t]*{_BARE_MAGIC}", code):
        return code
    result: list[str] = []
    continued = False
    for line in lines:
        masked = _comment(line) if continued else _masked(line, result)
        continued = masked is not line and line.rstrip("\r\n").endswith("\\")
        result.append(masked)
    return "".join(result)


def _code(cell: object) -> str | None:
    """The text of a code cell; ``None`` for Markdown, raw and broken cells."""
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return None
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(part, str) for part in source):
        source = "".join(source)
    return source if isinstance(source, str) else None


def _is_statement_start(before: list[str]) -> bool:
    """No bracket or backslash is open: ``% total`` may also continue an expression of the line above."""
    if not before:
        return True
    previous = before[-1].rstrip()
    return not previous.endswith(("\\", "(", "[", "{", ",")) and not _is_open("".join(before))


def _is_open(code: str) -> bool:
    """A bracket or a triple-quoted text is open at the end."""
    bare = _TEXTS.sub(lambda match: "(" if match["open"] else "", code)
    return any(bare.count(a) > bare.count(b) for a, b in ("()", "[]", "{}"))


def _masked(line: str, before: list[str]) -> str:
    match = _LINE_MAGIC.match(line)
    if match is None or not _is_statement_start(before):
        return line
    content = line.rstrip("\r\n")
    indent = match["indent"]
    # ``pass`` keeps an indented block alive that holds nothing but magics.
    width = max(len(content) - len(indent) - 4, 0)
    comment = "#" + "-" * (width - 2) if width >= 2 else ""
    return f"{indent}pass{' ' if comment else ''}{comment}{line[len(content) :]}"


def _comment(line: str) -> str:
    content = line.rstrip("\r\n")
    return ("#" + content[1:] if content else "") + line[len(content) :]
