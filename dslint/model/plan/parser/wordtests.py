"""Under which tests of `sys.argv` a script reads a file of arguments: alone, or with the words after its name."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from dslint.python.events import Alt, Event, Node, children


def takes_words_beside(tree: Node, files: Collection[Event]) -> bool:
    """Return whether one of the calls that read a file runs where `sys.argv` may hold more than the file's name.

    The parsers of alignment-handbook and its descendants merge the words into what the file says; what they run for
    a command without a file (`parse_args_into_dataclasses`) says nothing of such words. A call under no test of
    `sys.argv` is none of them.
    """
    return any(tests and not any(map(_is_one_word, tests)) for tests in _tests(tree, files, ()))


def _tests(node: Node, files: Collection[Event], above: tuple[ast.expr, ...]) -> Iterator[tuple[ast.expr, ...]]:
    """The tests of `sys.argv` that hold at each of the calls."""
    if isinstance(node, Event):
        if any(node.node is file.node for file in files):
            yield above
        return
    if isinstance(node, Alt):
        test = node.asks or getattr(node.node, "test", None)
        about = (test,) if isinstance(test, ast.expr) and "argv" in ast.unparse(test) else ()
        yield from _tests(node.then, files, (*above, *about))
        yield from _tests(node.orelse, files, above)
        return
    for child in children(node):
        yield from _tests(child, files, above)


def _is_one_word(test: ast.expr) -> bool:
    """Return whether a test holds for a single word only: `len(sys.argv) == 2`, `len(sys.argv[1:]) == 1`."""
    for part in ast.walk(test):
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Eq) and "argv" in ast.unparse(part.left):
            number = part.comparators[0]
            if isinstance(number, ast.Constant) and number.value in (1, 2) and "len" in ast.unparse(part.left):
                return True
    return False
