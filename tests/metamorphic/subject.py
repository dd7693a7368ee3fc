"""What is rewritten, and the list of rewrites."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from random import Random


@dataclass(frozen=True)
class Subject:
    """A small project; ``path`` is the script in it that is rewritten."""

    files: Mapping[str, str]
    path: str

    @property
    def text(self) -> str:
        return self.files[self.path]

    def with_text(self, text: str) -> Subject:
        return replace(self, files={**self.files, self.path: text})

    def beside(self, name: str, text: str) -> Subject:
        """The same with another module in the folder of the script."""
        return replace(self, files={**self.files, str(PurePosixPath(self.path).with_name(name)): text})

    @property
    def is_imported(self) -> bool:
        """Another file of the project names the module: what it offers must stay."""
        path = PurePosixPath(self.path)
        stem = path.parent.name if path.stem == "__init__" else path.stem
        others = (text for other, text in self.files.items() if other != self.path and other.endswith(".py"))
        return path.stem == "__init__" or any(stem in text for text in others)


Apply = Callable[[Subject, Random], "Subject | None"]


@dataclass(frozen=True)
class Rewrite:
    """One way to say the same.

    Attributes:
        name: kebab-case, what was done.
        phase: rewrites of the tree come before those of the text, then come bytes, and a notebook comes last.
        keeps_interface: other modules find the same names in the module afterwards.
        apply: the rewritten project, or ``None`` where it does not apply.
    """

    name: str
    phase: int
    keeps_interface: bool
    apply: Apply


REWRITES: dict[str, Rewrite] = {}


def _add(name: str, phase: int, keeps: bool, apply: Apply) -> None:
    assert name not in REWRITES, name
    REWRITES[name] = Rewrite(name, phase, keeps, apply)


def of_tree(name: str, keeps: bool = True) -> Callable[[Callable[[ast.Module], bool]], Callable[[ast.Module], bool]]:
    """Registers a function that changes the tree in place and says whether it did."""

    def register(function: Callable[[ast.Module], bool]) -> Callable[[ast.Module], bool]:
        def apply(subject: Subject, _: Random) -> Subject | None:
            tree = ast.parse(subject.text)
            if not function(tree):
                return None
            return subject.with_text(ast.unparse(ast.fix_missing_locations(tree)) + "\n")

        _add(name, 0, keeps, apply)
        return function

    return register


def of_text(name: str, phase: int = 2) -> Callable[[Callable[[str], str | None]], Callable[[str], str | None]]:
    """Registers a function from text to text."""

    def register(function: Callable[[str], str | None]) -> Callable[[str], str | None]:
        def apply(subject: Subject, _: Random) -> Subject | None:
            text = function(subject.text)
            return None if text is None or text == subject.text else subject.with_text(text)

        _add(name, phase, True, apply)
        return function

    return register


def of_project(name: str, phase: int = 1, keeps: bool = False) -> Callable[[Apply], Apply]:
    """Registers a function from project to project."""

    def register(function: Apply) -> Apply:
        _add(name, phase, keeps, function)
        return function

    return register


# ---- what most rewrites of a tree need -------------------------------------------------------------------------


def used_names(tree: ast.AST) -> set[str]:
    """All identifiers of a file."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    return names


class Fresh:
    """Names that the file does not use yet."""

    def __init__(self, tree: ast.AST) -> None:
        self._used = used_names(tree)

    def __call__(self, base: str) -> str:
        name, count = base, 1
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        return name


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BODIES = ("body", "orelse", "finalbody")


def bodies(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Every list of statements: its owner and the name of the field, the inner ones first."""
    for node in reversed(list(ast.walk(tree))):
        for field in _BODIES:
            value = getattr(node, field, None)
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield node, field


def each_body(tree: ast.AST, change: Callable[[list[ast.stmt], ast.AST], list[ast.stmt] | None]) -> bool:
    """Replaces lists of statements by what ``change`` makes of them and their owner; whether any changed."""
    done = False
    for owner, field in list(bodies(tree)):
        new = change(getattr(owner, field), owner)
        if new is not None:
            setattr(owner, field, new)
            done = True
    return done


def each_statement(tree: ast.AST, change: Callable[[ast.stmt], list[ast.stmt] | None]) -> bool:
    """Replaces statements by what ``change`` makes of them; whether any changed."""

    def of_body(body: list[ast.stmt], _: ast.AST) -> list[ast.stmt] | None:
        results = [(statement, change(statement)) for statement in body]
        if all(new is None for _, new in results):
            return None
        return [part for old, new in results for part in ([old] if new is None else new)]

    return each_body(tree, of_body)


def header(statement: ast.stmt) -> list[tuple[ast.AST, str]]:
    """The expressions that run when the statement begins: owner and field (a ``while`` runs its test again)."""
    if isinstance(statement, ast.If):
        return [(statement, "test")]
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        return [(statement, "iter")]
    if isinstance(statement, (ast.Expr, ast.Assign, ast.Return, ast.AugAssign)) and statement.value is not None:
        return [(statement, "value")]
    return []


_INNER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.NamedExpr)


class _Replacer(ast.NodeTransformer):
    def __init__(self, change: Callable[[ast.expr], ast.expr | None], everywhere: bool) -> None:
        self.change, self.everywhere, self.done = change, everywhere, False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _INNER) and not self.everywhere:
            return node
        node = self.generic_visit(node)
        new = self.change(node) if isinstance(node, ast.expr) else None
        self.done = self.done or new is not None
        return new or node


def replaced(tree: ast.AST, change: Callable[[ast.expr], ast.expr | None], everywhere: bool = True) -> bool:
    """Replaces expressions inside ``tree``, the inner ones first; ``everywhere``: also where they may not run."""
    replacer = _Replacer(change, everywhere)
    replacer.generic_visit(tree)
    return replacer.done


def hoisted(tree: ast.AST, change: Callable[[ast.expr, list[ast.stmt]], ast.expr | None], everywhere: bool) -> bool:
    """``change`` replaces expressions of statements, and may add statements that come before the statement."""

    def of_statement(statement: ast.stmt) -> list[ast.stmt] | None:
        before: list[ast.stmt] = []
        done = False
        for owner, field in header(statement):
            holder = ast.Expr(getattr(owner, field))
            done = replaced(holder, lambda node: change(node, before), everywhere) or done
            setattr(owner, field, holder.value)
        return [*before, statement] if done else None

    return each_statement(tree, of_statement)


def statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def after_imports(tree: ast.Module, new: Iterable[ast.stmt]) -> None:
    """Puts statements behind the imports of a module."""
    last = max((n for n, s in enumerate(tree.body) if isinstance(s, (ast.Import, ast.ImportFrom))), default=-1)
    if last < 0 and tree.body and is_text(tree.body[0]):
        last = 0
    tree.body[last + 1 : last + 1] = list(new)


def is_text(statement: ast.stmt) -> bool:
    """A docstring."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def dotted(node: ast.AST) -> str:
    """``a.b.c``, or nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def clone(node: ast.AST) -> ast.AST:
    return copy.deepcopy(node)


def local_names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> list[str]:
    """The names that are read (``ast.Load``) or bound (``ast.Store``) in order, each once."""
    found = [n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)]
    return list(dict.fromkeys(found))


def own_jumps(nodes: Iterable[ast.stmt]) -> bool:
    """A ``break`` or ``continue`` of a loop around these statements."""
    return any(
        isinstance(node, (ast.Break, ast.Continue))
        or (
            not isinstance(node, (ast.For, ast.While, ast.AsyncFor, *FUNCTIONS, ast.ClassDef))
            and own_jumps(
                n for n in ast.iter_child_nodes(node) if isinstance(n, (ast.stmt, ast.excepthandler, ast.match_case))
            )
        )
        or (isinstance(node, (ast.For, ast.While, ast.AsyncFor)) and own_jumps(node.orelse))
        for node in nodes
    )


def leaves(nodes: Iterable[ast.AST]) -> bool:
    """A ``return``, ``yield`` or ``await`` of the function around these statements."""
    for node in nodes:
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)):
            return True
        if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)) and leaves(ast.iter_child_nodes(node)):
            return True
    return False
