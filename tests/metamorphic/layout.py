"""The same tokens on other lines, in other encodings, among comments."""

from __future__ import annotations

import ast
import io
import itertools
import json
import tokenize
from pathlib import PurePosixPath
from random import Random

from metamorphic.subject import Subject, is_future, is_text, of_project, of_text, of_tree, statements


@of_tree("unparsed")
def unparsed(tree: ast.Module) -> bool:
    return True


@of_text("line-ends-of-windows", phase=3)
def crlf(text: str) -> str | None:
    return text.replace("\n", "\r\n") if "\r" not in text else None


@of_text("byte-order-mark", phase=3)
def byte_order_mark(text: str) -> str | None:
    return "\ufeff" + text if not text.startswith("\ufeff") else None


@of_text("coding-line")
def coding_line(text: str) -> str | None:
    return f"#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n{text}" if not text.startswith("\ufeff") else None


@of_text("no-last-line-end")
def no_last_line_end(text: str) -> str | None:
    return text.rstrip("\n")


@of_text("form-feeds")
def form_feeds(text: str) -> str | None:
    return text.replace("\n\n\ndef ", "\n\n\f\ndef ").replace("\n\n\nclass ", "\n\n\f\nclass ")


def _string_lines(text: str) -> set[int]:
    """Lines that begin inside of a text or of a continued line."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING or (token.start[0] != token.end[0] and token.type != tokenize.NEWLINE):
            inside |= set(range(token.start[0] + 1, token.end[0] + 1))
    lines = text.split("\n")
    return inside | {n + 2 for n, line in enumerate(lines) if line.endswith("\\")}


def _indented(text: str, by: str) -> str | None:
    if "\ufeff" in text or "\r" in text or "\t" in text:
        return None
    inside = _string_lines(text)
    new = []
    for number, line in enumerate(text.split("\n"), 1):
        body = line.lstrip(" ")
        width = len(line) - len(body)
        new.append(line if number in inside else by * (width // 4) + " " * (width % 4) + body)
    return "\n".join(new)


@of_text("tabs")
def tabs(text: str) -> str | None:
    return _indented(text, "\t")


@of_text("two-blanks")
def two_blanks(text: str) -> str | None:
    return _indented(text, "  ")


@of_text("comments")
def comments(text: str) -> str | None:
    """A comment above each statement, which names rules of dslint without addressing it."""
    tree = ast.parse(text)
    starts = {n.lineno: n.col_offset for n in ast.walk(tree) if isinstance(n, ast.stmt)}
    if ";" in text or "\r" in text or "\ufeff" in text:
        return None
    new: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if number in starts and line[: starts[number]].strip() == "" and not line.lstrip().startswith(("elif", "else")):
            new.append(line[: starts[number]] + "# if rank == 0: dist.barrier()  # TODO: see `save_checkpoint`")
        new.append(line)
    return "\n".join(new)


@of_text("blanks-at-line-ends")
def blanks_at_line_ends(text: str) -> str | None:
    inside = _string_lines(text.removeprefix("\ufeff")) if "\r" not in text else {0}
    if inside == {0} or "\\\n" in text:
        return None
    return "\n".join(line if n in inside else line + "  " for n, line in enumerate(text.split("\n"), 1))


@of_text("semicolons")
def semicolons(text: str) -> str | None:
    """Neighbouring simple statements of one block share a line."""
    if "\r" in text or "\ufeff" in text or "#" in text:
        return None
    simple = (ast.Expr, ast.Assign, ast.Import, ast.AugAssign, ast.Pass, ast.Return, ast.Continue, ast.Break)
    lines = text.split("\n")
    for node in reversed(list(ast.walk(ast.parse(text)))):
        body = getattr(node, "body", None)
        for first, second in reversed(list(itertools.pairwise(body)) if isinstance(body, list) else []):
            both = isinstance(first, simple) and isinstance(second, simple) and not is_text(first)
            if both and first.lineno == first.end_lineno and second.lineno == first.lineno + 1 == second.end_lineno:
                lines[first.lineno - 1] += "; " + lines[second.lineno - 1].strip()
                del lines[second.lineno - 1]
                return semicolons("\n".join(lines)) or "\n".join(lines)
    return None


def _calls(text: str) -> list[ast.Call]:
    tree = ast.parse(text)
    formatted = {id(n) for f in ast.walk(tree) if isinstance(f, ast.JoinedStr) for n in ast.walk(f)}
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and id(n) not in formatted]
    return [c for c in calls if c.end_lineno == c.lineno and text.isascii()]


@of_text("calls-over-lines")
def calls_over_lines(text: str) -> str | None:
    """A line for each argument, and a comma behind the last."""
    if "\r" in text or "\ufeff" in text:
        return None
    lines = text.split("\n")
    for call in sorted(_calls(text), key=lambda c: (-c.lineno, -c.col_offset)):
        arguments = sorted((*call.args, *call.keywords), key=lambda a: (a.lineno, a.col_offset))
        if not arguments or isinstance(arguments[0], ast.GeneratorExp) or call.end_lineno != call.lineno:
            continue
        line = lines[call.lineno - 1]
        if ";" in line or "#" in line:
            continue
        pieces = [line[a.col_offset : a.end_col_offset] for a in arguments]
        if "\n" in "".join(pieces):
            continue
        head = (
            line[: arguments[0].col_offset].rstrip("* ")
            if line[: arguments[0].col_offset].rstrip().endswith("(")
            else None
        )
        if head is None or line[: call.end_col_offset].count("\n"):
            continue
        tail = line[call.end_col_offset - 1 :]
        lines[call.lineno - 1] = head + "".join(f"\n        {p}," for p in pieces) + "\n    " + tail
        # One call of a line: what moved has other columns now.
        done = "\n".join(lines)
        if not _parses(done):
            lines[call.lineno - 1] = line
    new = "\n".join(lines)
    return new if _parses(new) and ast.dump(ast.parse(new)) == ast.dump(ast.parse(text)) else None


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@of_text("backslashes")
def backslashes(text: str) -> str | None:
    """A backslash before the last attribute of each statement that is one line."""
    if "\r" in text or "\ufeff" in text or "#" in text:
        return None
    lines = text.split("\n")
    for statement in ast.walk(ast.parse(text)):
        if isinstance(statement, (ast.Expr, ast.Assign)) and statement.lineno == statement.end_lineno:
            value = statement.value.func if isinstance(statement.value, ast.Call) else None
            line = lines[statement.lineno - 1]
            if isinstance(value, ast.Attribute) and ";" not in line and "\\" not in line:
                at = (value.end_col_offset or 0) - len(value.attr) - 1
                lines[statement.lineno - 1] = line[:at] + "\\\n        " + line[at:]
    new = "\n".join(lines)
    return new if _parses(new) and ast.dump(ast.parse(new)) == ast.dump(ast.parse(text)) else None


@of_text("parentheses")
def parentheses(text: str) -> str | None:
    """Around each value and each test."""
    if "\r" in text or "\ufeff" in text or ";" in text:
        return None
    lines = text.split("\n")
    for node in sorted((n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.stmt)), key=lambda n: -n.lineno):
        value = getattr(node, "test" if isinstance(node, (ast.If, ast.While)) else "value", None)
        if (
            not isinstance(node, (ast.If, ast.While, ast.Assign, ast.Expr))
            or not isinstance(value, ast.expr)
            or is_text(node)
        ):
            continue
        last = lines[value.end_lineno - 1]  # type: ignore[operator]
        if not text.isascii():
            return None
        lines[value.end_lineno - 1] = last[: value.end_col_offset] + ")" + last[value.end_col_offset :]  # type: ignore[operator]
        first = lines[value.lineno - 1]
        lines[value.lineno - 1] = first[: value.col_offset] + "(" + first[value.col_offset :]
    new = "\n".join(lines)
    return new if _parses(new) and ast.dump(ast.parse(new)) == ast.dump(ast.parse(text)) else None


@of_project("notebook", phase=4)
def notebook(subject: Subject, _: Random) -> Subject | None:
    """Each statement of the module in a cell of its own."""
    if sum(path.endswith((".py", ".sh")) for path in subject.files) > 1 or subject.text.startswith("\ufeff"):
        return None
    tree = ast.parse(subject.text)
    if (tree.body and is_future(tree.body[0])) or "__name__" in subject.text or "\r" in subject.text:
        return None
    lines = subject.text.split("\n")
    cells = []
    ends = [s.end_lineno or 0 for s in tree.body]
    for at, end in enumerate(ends):
        start = ends[at - 1] if at else 0
        cells.append("\n".join(lines[start:end]).strip("\n"))
    if any(ast.unparse(ast.parse(cell)) == "" for cell in cells):
        return None
    code = [{"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": c} for c in cells]
    text = json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    files = {path: body for path, body in subject.files.items() if path != subject.path}
    path = str(PurePosixPath(subject.path).with_suffix(".ipynb"))
    return Subject({**files, path: text}, path)


# ---- noise ------------------------------------------------------------------------------------------------------


def _noisy(tree: ast.Module, lines: str) -> bool:
    """Statements that do nothing for the run, at the head of each body of a function or loop and behind the imports."""
    done = False
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.For)) and not is_text(node.body[0]):
            node.body[0:0] = statements(lines)
            done = True
    last = max((n for n, s in enumerate(tree.body) if isinstance(s, (ast.Import, ast.ImportFrom))), default=-1)
    tree.body[last + 1 : last + 1] = statements(lines)
    return done or bool(tree.body)


@of_tree("noise-formatted-text")
def noise_formatted(tree: ast.Module) -> bool:
    return _noisy(tree, "noted = 3\nprint(f'{noted=} {noted!r:>{10}} {{rank}} {[n for n in range(noted)]}')")


@of_tree("noise-comprehensions")
def noise_comprehensions(tree: ast.Module) -> bool:
    return _noisy(
        tree, "squares = {n: [m * m for m in range(n)] for n in range(4) if n % 2}\nkey = lambda row: (row, 0)"
    )


@of_tree("noise-logger")
def noise_logger(tree: ast.Module) -> bool:
    done = _noisy(tree, "logging.getLogger(__name__).info('at step %d', 0)\nassert True, 'never'")
    tree.body.insert(sum(1 for s in tree.body[:1] if is_future(s)), statements("import logging")[0])
    return done


@of_tree("noise-docstrings")
def noise_docstrings(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not is_text(node.body[0]):
            node.body.insert(0, ast.Expr(ast.Constant("if rank == 0:\n    dist.barrier()\n")))
    if not (tree.body and (is_future(tree.body[0]) or is_text(tree.body[0]))):
        tree.body.insert(0, ast.Expr(ast.Constant("Calls dist.init_process_group and deepspeed.initialize.")))
    return True


@of_tree("noise-annotations")
def noise_annotations(tree: ast.Module) -> bool:
    done = False
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if argument.annotation is None and argument.arg not in ("self", "cls"):
                    argument.annotation = ast.Constant("object")
                    done = True
    return done


@of_tree("noise-unused-class")
def noise_unused(tree: ast.Module) -> bool:
    tree.body += statements(
        "class Unused:\n    limit: int = 3\n\n    def __call__(self, *values, **words):\n"
        "        match values:\n            case [first, *_]:\n                return first\n"
        "            case _:\n                return words\n"
    )
    return True
