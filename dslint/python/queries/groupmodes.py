"""Modes of a program: the sides of tests that it takes, by which names it asks for them again, and what they hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from dslint.python.events import Alt, Call, Event, Try, events
from dslint.python.queries.asked import expressions_of

# A variable of the launcher, with what holds where there is none.
_ABSENT = re.compile(r"(?:environ\.get|getenv)\(\s*['\"](?:LOCAL_RANK|RANK|WORLD_SIZE)['\"]\s*,")
_EMPTY = frozenset({
    *("self", "args", "cfg", "config", "opt", "opts", "params", "parser"),
    *("os", "environ", "env", "torch", "dist", "np", "None"),
})  # fmt: skip
_MAKES = re.compile(
    r"(?i)init_?(?:dist|process|torch|group)|initialize_|setup_?(?:dist|ddp|env)|launch|spawn|init_?for"
)
_SHORT = 60


@dataclass(frozen=True, slots=True)
class Side:
    """The side of a test (1 where it holds, 0 else), or a handler of a `try` (its number from 1 on; 0: the body)."""

    node: Alt | Try
    number: int

    @property
    def code(self) -> list[ast.AST]:
        """Return the code of the side."""
        if isinstance(self.node, Alt):
            return code_of(self.node, self.number)
        handlers = getattr(self.node.node, "handlers", ())
        return list(handlers[self.number - 1].body) if 0 < self.number <= len(handlers) else []


def may_make(node: ast.AST) -> bool:
    """Return whether code that was not read may make a group, by its words."""
    names = (getattr(inner, "attr", getattr(inner, "id", "")) for inner in ast.walk(node))
    return any(_MAKES.search(name) for name in names)


def makes_unread(side: Side, makes: Callable[[Event], bool]) -> bool:
    """Return whether the side of a test calls code, unknown to the interpreter, that may make a group."""
    if isinstance(side.node, Try):
        return False
    if any(makes(event) for event in events(side.node.then if side.number else side.node.orelse)):
        return False
    return any(may_make(part) for part in code_of(side.node, side.number))


def may_lack(alt: Alt) -> bool:
    """Return whether a test asks for a variable of the launcher, and has an answer where there is none."""
    return any(_ABSENT.search(ast.unparse(part)) for part in expressions_of(alt))


def code_of(alt: Alt, number: int) -> list[ast.AST]:
    """Return the code of a side of a test."""
    found = getattr(alt.node, "body" if number else "orelse", None)
    return found if isinstance(found, list) else [found] if isinstance(found, ast.AST) else []


def leaves(alt: Alt, number: int) -> bool:
    """Return whether code that was not interpreted, since no rank comes there, leaves the block."""
    leaving = (ast.Return, ast.Raise, ast.Break, ast.Continue)
    return any(isinstance(inner, leaving) for part in code_of(alt, number) for inner in ast.walk(part))


def lanes_of(alt: Alt, number: int) -> int:
    """Return the ranks that take a side."""
    return alt.then_lanes if number else alt.else_lanes


def words_of(side: Side) -> set[str]:
    """Return the names by which a program may ask for a mode again: those of its test, and those that it sets."""
    node, module = side.node.node, side.node.module
    inside = [node.test] if isinstance(node, ast.If | ast.IfExp) else []
    blocks = [node, *getattr(node, "handlers", ())]
    around = [s for block in blocks for name in ("body", "orelse") for s in _statements(block, name)]
    inside += [target for n in around if isinstance(n, ast.Assign) for target in n.targets]
    function = module.function(node)
    if isinstance(function, ast.FunctionDef) and (function.end_lineno or 0) - function.lineno < _SHORT:
        assigned = (n for n in ast.walk(function) if isinstance(n, ast.Assign))
        inside += [target for n in assigned for target in n.targets if isinstance(target, ast.Attribute)]
    return {word for part in inside for word in _names(part)}


def _statements(block: ast.AST, name: str) -> list[ast.stmt]:
    found = getattr(block, name, None)
    return found if isinstance(found, list) else []


def _names(node: ast.AST) -> set[str]:
    found: set[str] = set()
    for inner in ast.walk(node):
        name = getattr(inner, "attr", getattr(inner, "id", getattr(inner, "value", "")))
        if isinstance(name, str) and name.isidentifier():
            found.add(name)
    return found - _EMPTY


def given_to(call: Call) -> set[str]:
    """Return the names that get what a call returns."""
    parent = call.module.parents.get(call.node)
    while isinstance(parent, ast.expr):
        parent = call.module.parents.get(parent)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return {word for target in targets for word in _names(target)}
