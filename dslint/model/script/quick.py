"""Questions to the cheap syntax tree of the standard library, asked before LibCST is worth its price."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Set
from functools import lru_cache
from typing import TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)

# Fields in which no node with children stands: most fields of most nodes.
_PLAIN_FIELDS = frozenset(
    {"id", "attr", "ctx", "op", "ops", "n", "s", "kind", "type_comment", "level", "module", "is_async", "simple"}
)
_LEAVES = (ast.Name, ast.Constant, ast.alias, ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal)


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a type in which nodes stand."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        is_leaf = issubclass(kind, _LEAVES)
        self[kind] = found = () if is_leaf else tuple(name for name in kind._fields if name not in _PLAIN_FIELDS)
        return found


_child_fields = _Fields()


class Flat:
    """The nodes of a module in an order in which the descendants of a node are a slice, and by type.

    Left out are operators and contexts (``Add``, ``Load``), which every owner names in a field.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.order: list[ast.AST] = []
        parents: list[int] = []
        by_type: defaultdict[type[ast.AST], list[int]] = defaultdict(list)
        stack: list[tuple[ast.AST, int]] = [(tree, -1)]
        pop, push, add, fields_of = stack.pop, stack.append, self.order.append, _child_fields
        at = -1
        while stack:
            node, parent = pop()
            at += 1
            kind = type(node)
            add(node)
            parents.append(parent)
            by_type[kind].append(at)
            for name in fields_of[kind]:
                value = getattr(node, name, None)
                if type(value) is list:
                    for item in value:
                        if isinstance(item, ast.AST):
                            push((item, at))
                elif isinstance(value, ast.AST):
                    push((value, at))
        self.ends = _ends(parents)
        self._by_type = dict(by_type)
        self._index: dict[int, int] = {}
        self._name_as_defined()

    def _name_as_defined(self) -> None:
        """Names under which the file imports something else get the name of that thing: see :func:`call_name`."""
        imports = (a for n in self.nodes(ast.ImportFrom) for a in n.names)
        imported = {a.asname: a.name for a in imports if a.asname and a.asname != a.name}
        if imported:
            for name in self.nodes(ast.Name):
                if name.id in imported:
                    name.meant = imported[name.id]  # type: ignore[attr-defined]
        given = ((n.targets[0], n.value) for n in self.nodes(ast.Assign) if isinstance(n.value, ast.Attribute))
        aliases = {t.id: v.attr for t, v in given if isinstance(t, ast.Name)}
        for call in self.nodes(ast.Call) if aliases else ():
            if type(call.func) is ast.Name and call.func.id in aliases:
                call.func.meant = aliases[call.func.id]  # type: ignore[attr-defined]

    def place(self, node: ast.AST) -> int:
        """The index of a node of this module."""
        if not self._index:
            self._index = {id(node): at for at, node in enumerate(self.order)}
        return self._index[id(node)]

    def places(self, *kinds: type[ast.AST]) -> list[int]:
        """The indices of all nodes of exactly these types, in order."""
        if len(kinds) == 1:
            return self._by_type.get(kinds[0], [])
        return sorted(at for kind in kinds for at in self._by_type.get(kind, ()))

    def nodes(self, kind: type[Node]) -> list[Node]:
        """All nodes of exactly this type, in order."""
        order = self.order
        return cast("list[Node]", [order[at] for at in self._by_type.get(kind, ())])

    def function(self, node: ast.AST) -> ast.AST:
        """The function that holds a node; the module for what stands in the body of a class or in no function."""
        at = self.place(node)
        scopes = self.places(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((self.order[s] for s in reversed(scopes) if s < at < self.ends[s]), self.order[0])
        return self.order[0] if isinstance(found, ast.ClassDef) else found

    def inside(self, node: ast.AST) -> list[ast.AST]:
        """A node and all nodes inside it, as ``ast.walk`` without its price."""
        at = self.place(node)
        return self.order[at : self.ends[at]]


def _ends(parents: list[int]) -> list[int]:
    """The index behind the last descendant of each node."""
    ends = list(range(1, len(parents) + 1))
    for at in range(len(parents) - 1, 0, -1):
        above = parents[at]
        if ends[above] < ends[at]:
            ends[above] = ends[at]
    return ends


@lru_cache(maxsize=1)
def flat(tree: ast.Module) -> Flat:
    """The nodes of a module; the prechecks of all rules on one file share them."""
    return Flat(tree)


def call_name(call: ast.Call) -> str:
    """The last part of the called name: ``barrier`` for ``dist.barrier()``; "" for other callees.

    What the file imports under another name, or calls by way of a variable, has its own name once :func:`flat` was
    asked for the nodes.
    """
    func = call.func
    if type(func) is ast.Name:
        return func.__dict__.get("meant") or func.id
    return func.attr if type(func) is ast.Attribute else expression_name(func)


def expression_name(node: ast.expr | None) -> str:
    """The last part of a name, an attribute, or a call of one; "" for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return (node.__dict__.get("meant") or node.id) if isinstance(node, ast.Name) else ""


def derived(nodes: Flat, known: Set[str]) -> set[str]:
    """The classes of the file below known ones, and other names for those."""
    bases = {n.name: {expression_name(_generic(base)) for base in n.bases} for n in nodes.nodes(ast.ClassDef)}
    for assign in nodes.nodes(ast.Assign):
        if isinstance(assign.targets[0], ast.Name):
            bases.setdefault(assign.targets[0].id, set()).add(expression_name(assign.value))
    found: set[str] = set()
    while fresh := {name for name, above in bases.items() if name not in found and above & (known | found)}:
        found |= fresh
    return found


def _generic(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base
