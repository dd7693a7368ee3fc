"""Commands that a Python file starts with ``subprocess`` (a list of words or a text for the shell) or ``os.system``."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator

from dslint.core.fact import Fact, absent, unknown
from dslint.core.source import SourceFile
from dslint.model.firstlook import SUBMITS, text_may_launch
from dslint.model.launch.sources.snippet import UNKNOWN_WORD, UNKNOWN_WORDS, Snippet
from dslint.model.launch.sources.submitted import submitted_snippets
from dslint.parse.astplaces import AstPlaces
from dslint.parse.nesting import syntax_tree

_STARTERS = frozenset({"run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"})
_OF_OS = frozenset({"system", "popen"})
_TEXTS = frozenset({"getoutput", "getstatusoutput", "system", "popen"})


def python_snippets(source: SourceFile) -> Iterator[Snippet]:
    """The calls with a command line that is written out; parts that the program computes are words nobody knows."""
    try:
        tree = syntax_tree(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the rules about scripts say so
    places = AstPlaces(source)
    if any(word in source.text for word in SUBMITS):
        yield from submitted_snippets(source, tree, _word, places.span)
    for node in ast.walk(tree):
        name = _starter(node)
        if not name or not isinstance(node, ast.Call) or not node.args:
            continue
        given = {k.arg: k.value for k in node.keywords if k.arg}
        is_text = name in _TEXTS or _is_true(given.get("shell"))
        if name == "session":  # of nox: each word is an argument
            line: str | None = " ".join(map(_word, node.args))
        else:
            line = _line(node.args[0], is_text=is_text)
        if line is not None and text_may_launch(line):
            cwd: Fact[str] = unknown("the program sets the directory") if "cwd" in given else absent()
            yield Snippet(line, 0, places.span(node.args[0]), {}, frozenset(), True, cwd)


def _starter(node: ast.AST) -> str:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    owner = node.func.value
    name = owner.id if isinstance(owner, ast.Name) else ""
    if name in ("subprocess", "sp") and node.func.attr in _STARTERS:
        return node.func.attr
    if name == "session" and node.func.attr in ("run", "run_always"):
        return name
    return node.func.attr if name == "os" and node.func.attr in _OF_OS else ""


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _line(node: ast.expr, *, is_text: bool) -> str | None:
    """The command line as a shell would read it; ``None`` when it is not written out."""
    if isinstance(node, ast.List | ast.Tuple):
        words = [_word(item) for item in node.elts]
        return None if is_text or not words or words[0] in (UNKNOWN_WORD, UNKNOWN_WORDS) else " ".join(words)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and not is_text:
        left = _line(node.left, is_text=False)
        right = _line(node.right, is_text=False) if isinstance(node.right, ast.List | ast.Tuple) else None
        return None if left is None else f"{left} {right or UNKNOWN_WORDS}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        return None if is_text or node.args else _text(node.func.value)
    return _text(node) if is_text else None


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = [p.value if isinstance(p, ast.Constant) else None for p in node.values]
    found = ""
    for at, part in enumerate(parts):
        if part is not None:
            found += str(part)
            continue
        before = not found or found[-1].isspace()
        after = at + 1 == len(parts) or str(parts[at + 1] or "x")[0].isspace()
        found += UNKNOWN_WORDS if before and after else "${_}"
    return found


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Starred):
        return UNKNOWN_WORDS
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return shlex.quote(node.value) if "\0" not in node.value else UNKNOWN_WORD
    if isinstance(node, ast.Attribute) and node.attr == "executable":
        return "python"
    if isinstance(node, ast.JoinedStr):
        texts = [p.value if isinstance(p, ast.Constant) else None for p in node.values]
        return "".join('"${_}"' if t is None else shlex.quote(str(t)) for t in texts)
    return UNKNOWN_WORD
