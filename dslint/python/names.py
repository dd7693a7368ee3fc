"""What names mean in one module by Python's binding rules alone: imports, aliases, definitions, values given once.

For questions that need no run: a call of `add_argument` is one wherever it stands, and whoever reaches it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from dslint.python.scopes import Comprehension, FunctionNode, parameters, scope_of

_BUILTINS = frozenset(dir(builtins))
_MAX_STEPS = 8
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)
# The nodes that may bind a name, and those inside others that have none inside.
_BINDERS = frozenset(
    (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs,
     ast.MatchStar, ast.MatchMapping, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Name, ast.Attribute)
)  # fmt: skip
_SIGNS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
ScopeNode = ast.ClassDef | FunctionNode | Comprehension
Scope = ast.Module | ScopeNode
Kind = Literal["import", "value", "parameter", "definition", "other"]


@dataclass(frozen=True, slots=True)
class Binding:
    """One place that binds a name: `value` is the whole expression that it gets, `target` what an import means."""

    kind: Kind
    node: ast.AST
    value: ast.expr | None = None
    target: str = ""


class Names:
    """The names of one module, by scope."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._bound: dict[tuple[int, str], list[Binding]] = {}
        self._scopes: dict[int, Scope] = {}
        self._outer: dict[int, Scope] = {}
        self._order: dict[int, int] = {}
        self._fields: dict[tuple[int, str], list[Binding]] = {}
        self._given: set[int] = set()  # targets of plain assignments, which are bound with their value
        self._walk()

    # -- what is bound where ------------------------------------------------------------------------------------

    def _walk(self) -> None:
        pending: list[tuple[ast.AST, Scope]] = [(self.tree, self.tree)]
        while pending:
            node, scope = pending.pop()
            self._order[id(node)] = len(self._order)
            self._scopes[id(node)] = scope
            if type(node) in _BINDERS:
                self._bind(node, scope)
            if isinstance(node, _SCOPES):
                inner = list(self._inside(node, scope))
            else:
                inner = [(child, scope) for child in _children(node)]
            inner.reverse()
            pending += inner

    def _inside(self, node: ScopeNode, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        """Yield the children of a node that is a scope with the scope that they see first."""
        self._outer[id(node)] = scope
        if isinstance(node, _FUNCTIONS):
            for name in parameters(node.args):
                self._note(node, name, Binding("parameter", node))
        if isinstance(node, _COMPREHENSIONS):
            inside = list(ast.iter_child_nodes(node))
        else:
            inside = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        own = {id(child) for child in inside}
        for child in ast.iter_child_nodes(node):  # defaults, decorators and bases are evaluated outside
            yield child, node if id(child) in own else scope

    def _note(self, scope: Scope, name: str, binding: Binding) -> None:
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            own = scope_of(scope)
            if name in own.globals:
                scope = self.tree
            elif name in own.nonlocals:
                scope = self._outer.get(id(scope), self.tree)
        self._bound.setdefault((id(scope), name), []).append(binding)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, target in _imported(node):
                self._note(scope, name, Binding("import", node, None, target))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._note(scope, node.name, Binding("definition", node))
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            self._note(scope, node.name, Binding("other", node))
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self._note(scope, node.rest, Binding("other", node))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            for given in node.targets if isinstance(node, ast.Assign) else (node.target,):
                self._assigned(given, node.value, scope)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in self._given:
            self._note(scope, node.id, Binding("other", node))
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and id(node) not in self._given:
            self._field(node, None, scope)

    def _assigned(self, target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
        """Bind a target, and each part of it where the value has as many."""
        self._given.add(id(target))
        if isinstance(target, ast.Name):
            while isinstance(scope, _COMPREHENSIONS):  # a walrus binds outside
                scope = self._outer[id(scope)]
            if value is not None:
                self._note(scope, target.id, Binding("value", target, value))
        elif isinstance(target, ast.Attribute):
            self._field(target, value, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            parts = value.elts if same and isinstance(value, ast.Tuple | ast.List) else []
            for inner, part in zip(target.elts, parts, strict=False):
                self._assigned(inner, part, scope)

    def _field(self, node: ast.Attribute, value: ast.expr | None, scope: Scope) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            owner = self._class_at(scope)
            if owner is None:
                return
            kind: Kind = "value" if value is not None else "other"
            self._fields.setdefault((id(owner), node.attr), []).append(Binding(kind, node, value))

    # -- what a name means --------------------------------------------------------------------------------------

    def bindings(self, node: ast.Name) -> list[Binding]:
        """Return every binding of the variable that a name means; none for builtins and star imports."""
        return self.named(node.id, self._scopes.get(id(node), self.tree))

    def named(self, name: str, scope: Scope) -> list[Binding]:
        """Return every binding of a name that a scope sees."""
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) and name in scope_of(scope).globals:
            scope = self.tree
        while True:
            found = self._bound.get((id(scope), name))
            if found or scope is self.tree:
                return found or []
            scope = self._outer[id(scope)]
            while isinstance(scope, ast.ClassDef):  # methods do not see the names of their class
                scope = self._outer[id(scope)]

    def before(self, node: ast.AST, other: ast.AST) -> bool:
        """Return whether a node stands before another one."""
        return self._order[id(node)] < self._order[id(other)]

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class in whose body a node stands."""
        scope = self._scopes.get(id(node))
        return self._class_at(scope) if scope is not None else None

    def _class_at(self, scope: Scope) -> ast.ClassDef | None:
        """Return the class whose body a scope is, or is in."""
        while not isinstance(scope, ast.ClassDef):
            if scope is self.tree:
                return None
            scope = self._outer[id(scope)]
        return scope

    def single(self, node: ast.expr) -> ast.expr | None:
        """Return the expression behind a name or `self.x` that is given a value once and never otherwise."""
        found: list[Binding] = []
        if isinstance(node, ast.Name):
            found = self.bindings(node)
            if len(found) == 2 and is_nothing(found[0].value) and self.before(found[1].node, node):
                found = found[1:]  # `x = None`, then `x = make()`
        elif isinstance(node, ast.Attribute) and _is_self(node.value):
            owner = self.class_around(node)
            found = self._fields.get((id(owner), node.attr), []) if owner is not None else []
        return found[0].value if len(found) == 1 and found[0].kind == "value" else None

    def behind(self, node: ast.expr) -> ast.expr:
        """Return what a name stands for, through names that are given a value once."""
        for _ in range(_MAX_STEPS):
            inner = self.single(node)
            if inner is None:
                break
            node = inner
        return node

    def qualified(self, node: ast.AST | None, depth: int = 0) -> str:
        """Return the dotted name of what is imported or built in, whatever the import style; else an empty text."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or depth > _MAX_STEPS:
            return ""
        root = self._root(node, depth)
        return ".".join([root, *reversed(parts)]) if root else ""

    def _root(self, node: ast.Name, depth: int) -> str:
        found = self.bindings(node)
        if not found:
            return node.id if node.id in _BUILTINS else ""
        imports = [b for b in found if b.kind == "import"]
        if imports:
            # `try: import x ... except ImportError: x = None` is still the import.
            return imports[0].target if all(b in imports or is_nothing(b.value) for b in found) else ""
        value = found[0].value if len(found) == 1 and found[0].kind == "value" else None
        if isinstance(value, ast.Name | ast.Attribute):  # `dist = torch.distributed`
            return self.qualified(value, depth + 1)
        if isinstance(value, ast.Call) and self.qualified(value.func, depth + 1) == "importlib.import_module":
            name = value.args[0] if len(value.args) == 1 else None
            return str(name.value) if isinstance(name, ast.Constant) else ""
        return ""

    def called(self, call: ast.Call) -> str:
        """Return the last part of what a call calls, by the name that it has where it is defined."""
        if isinstance(call.func, ast.Name):
            return (self.qualified(call.func) or self._method(call.func) or call.func.id).rpartition(".")[2]
        return call.func.attr if isinstance(call.func, ast.Attribute) else ""

    def _method(self, node: ast.Name) -> str:
        """Return the method behind a name: `add = parser.add_argument`."""
        value = self.single(node)
        return value.attr if isinstance(value, ast.Attribute) else ""

    # -- definitions --------------------------------------------------------------------------------------------

    def definition(self, node: ast.expr) -> ast.AST | None:
        """Return the one function or class of the module that a name means, or that `self.name` does."""
        found: list[Binding] = []
        if isinstance(node, ast.Name):
            found = self.bindings(node)
        elif isinstance(node, ast.Attribute) and _is_self(node.value):
            owner = self.class_around(node)
            found = self._bound.get((id(owner), node.attr), []) if owner is not None else []
        return found[0].node if len(found) == 1 and found[0].kind == "definition" else None

    def class_named(self, name: str, scope: Scope | None = None) -> ast.ClassDef | None:
        """Return the class of the module with a name, also where it derives from what was imported under that name."""
        found = self.named(name, scope or self.tree)
        classes = [b.node for b in found if isinstance(b.node, ast.ClassDef)]
        if len(classes) != 1:
            return None
        others = [b for b in found if b.node is not classes[0] and not is_nothing(b.value)]
        bases = {getattr(base, "id", getattr(base, "attr", "")) for base in classes[0].bases}
        is_base = name in bases and [b.kind for b in others] == ["import"]
        return classes[0] if not others or is_base else None

    def class_of(self, node: ast.expr) -> ast.ClassDef | None:
        """Return the class of the module that an expression names."""
        return self.class_named(node.id, self._scopes.get(id(node))) if isinstance(node, ast.Name) else None

    def bases(self, name: str) -> list[str]:
        """Return all bases of a class of the module, nearest first: dotted names, bare ones of the module's own."""
        found: list[str] = []
        pending, seen = [name], {name}
        while pending:
            node = self.class_named(pending.pop(0))
            for base in node.bases if node else ():
                written = base.value if isinstance(base, ast.Subscript) else base
                full = self._base(written, name)
                if full and full not in seen:
                    seen.add(full)
                    found.append(full)
                    pending.append(full)
        return found

    def _base(self, node: ast.expr, name: str) -> str:
        """Return the name of a base class; one of the same name as the class is what was imported before."""
        if isinstance(node, ast.Name) and node.id == name:
            imports = [b.target for b in self.bindings(node) if b.kind == "import"]
            return imports[0] if imports else ""
        return self.qualified(node) or (ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else "")


class _Tree(Protocol):
    """A tree with its names, which live as long as the tree does."""

    known_names: Names


def names_of(tree: ast.Module) -> Names:
    """Return the names of a module, read once for each tree."""
    kept = cast("_Tree", tree)
    try:
        return kept.known_names
    except AttributeError:
        kept.known_names = Names(tree)
        return kept.known_names


def spelled(tree: ast.Module, node: ast.AST) -> str:
    """Return the code of a node, followed by the full names of what it calls: `run(); torch.distributed.barrier`."""
    called = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    names = names_of(tree) if called else None
    full = [name for function in called if names is not None and (name := names.qualified(function))]
    return "; ".join((ast.unparse(node), *(f"{name}(...)" for name in full)))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes right inside a node in the order of its fields, without the signs of operators and contexts."""
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST) and not isinstance(item, _SIGNS):
                    yield item
        elif isinstance(value, ast.AST) and not isinstance(value, _SIGNS):
            yield value


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, with the dotted name of what they mean."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            top = alias.name.partition(".")[0]
            yield alias.asname or top, alias.name if alias.asname else top
        elif alias.name != "*":
            home = f"{'.' * node.level}{node.module or ''}"
            glue = "" if home.endswith(".") else "."
            yield alias.asname or alias.name, f"{home}{glue}{alias.name}"


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_nothing(value: ast.expr | None) -> bool:
    """Return whether an expression is `None` or `False`, written out."""
    return isinstance(value, ast.Constant) and value.value in (None, False)
