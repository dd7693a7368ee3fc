"""Where a module gives names their values: assignments, imports, loops, parameters, definitions, by scope."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from dslint.model.script.dotted import dotted, is_self
from dslint.model.script.tree import Tree


@dataclass(frozen=True, slots=True)
class Binding:
    """One way in which a name gets a value.

    ``kind``: ``import`` | ``assign`` | ``unpack`` | ``loop`` | ``with`` | ``except`` | ``param`` | ``function`` |
    ``class`` | ``augmented`` | ``other``. ``target`` is the qualified name of an import. ``value`` is the assigned
    expression (for ``unpack`` the whole right side, ``position`` the place in it; for ``with`` the context manager,
    for ``loop`` the iterable, for ``param`` the default).
    """

    kind: str
    node: cst.CSTNode
    value: cst.BaseExpression | None = None
    target: str = ""
    position: int | None = None


@dataclass(slots=True)
class Bindings:
    """All bindings of a module. A scope or class stands in a key as the ``id`` of its node.

    ``scopes``: by scope and name; ``attributes``: of ``self.x``, by class and attribute; ``members``: of ``name.x``, by
    the scope of the assignment, name and attribute; ``global_names``: what a scope declares ``global``;
    ``star_imports``: the modules of ``from x import *``. ``position`` is ``None`` from a starred target on.
    """

    scopes: dict[int, dict[str, list[Binding]]] = field(default_factory=dict)
    attributes: dict[tuple[int, str], list[Binding]] = field(default_factory=dict)
    members: dict[tuple[int, str, str], list[Binding]] = field(default_factory=dict)
    global_names: dict[int, set[str]] = field(default_factory=dict)
    star_imports: list[str] = field(default_factory=list)


def bindings_of(tree: Tree) -> Bindings:
    """Every binding of a module, in source order."""
    collector = _Collector(tree)
    collector.run()
    return collector.found


class _Collector:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.found = Bindings()

    def run(self) -> None:
        handlers = {
            cst.Import: self._import,
            cst.ImportFrom: self._import_from,
            cst.Assign: self._assign,
            cst.AnnAssign: self._annotated,
            cst.AugAssign: self._augmented,
            cst.NamedExpr: self._walrus,
            cst.For: self._loop,
            cst.CompFor: self._loop,
            cst.WithItem: self._with,
            cst.ExceptHandler: self._except,
            cst.FunctionDef: self._definition,
            cst.ClassDef: self._definition,
            cst.Param: self._param,
            cst.Global: self._global,
            cst.Del: self._delete,
            cst.MatchAs: self._match,
            cst.MatchStar: self._match,
        }
        get = handlers.get
        for node in self.tree.order:
            handler = get(type(node))
            if handler is not None:
                handler(node)  # type: ignore[operator]

    def _bind(self, name: str, at: cst.CSTNode, binding: Binding) -> None:
        scope = self.tree.scope(at)
        if name in self.found.global_names.get(id(scope), ()):
            scope = self.tree.module
        self.found.scopes.setdefault(id(scope), {}).setdefault(name, []).append(binding)

    def _bind_target(
        self, target: cst.CSTNode, kind: str, value: cst.BaseExpression | None, position: int | None = None
    ) -> None:
        if type(target) is cst.Name:
            self._bind(target.value, target, Binding(kind, target, value, position=position))
        elif type(target) is cst.Attribute and is_self(target.value):
            owner = self.tree.enclosing(target, cst.ClassDef)
            if owner is not None:
                found = self.found.attributes.setdefault((id(owner), target.attr.value), [])
                found.append(Binding(kind, target, value, position=position))
        elif type(target) is cst.Attribute and type(target.value) is cst.Name:
            scope = self.tree.scope(target)
            members = self.found.members.setdefault((id(scope), target.value.value, target.attr.value), [])
            members.append(Binding(kind, target, value, position=position))
        elif isinstance(target, cst.Tuple | cst.List):
            parts = value.elements if isinstance(value, cst.Tuple | cst.List) and kind == "assign" else ()
            matching = len(parts) == len(target.elements) and not any(
                type(e) is cst.StarredElement for e in (*parts, *target.elements)
            )
            place: int | None = 0
            for index, element in enumerate(target.elements):
                if type(element) is cst.StarredElement:
                    place = None  # nobody knows how many it takes
                if matching:
                    self._bind_target(element.value, "assign", parts[index].value)
                else:
                    inner = "unpack" if kind == "assign" else kind
                    self._bind_target(element.value, inner, value, place)
                place = place + 1 if place is not None else None

    def _import(self, node: cst.Import) -> None:
        for alias in node.names:
            full = dotted(alias.name)
            if alias.asname is not None and type(alias.asname.name) is cst.Name:
                name = alias.asname.name
                self._bind(name.value, node, Binding("import", node, target=full or ""))
            elif full:
                root = full.split(".")[0]
                self._bind(root, node, Binding("import", node, target=root))

    def _import_from(self, node: cst.ImportFrom) -> None:
        module = "." * len(node.relative) + (dotted(node.module) or "")
        if isinstance(node.names, cst.ImportStar):
            self.found.star_imports.append(module)
            return
        for alias in node.names:
            name = alias.asname.name if alias.asname is not None else alias.name
            if type(name) is cst.Name and type(alias.name) is cst.Name:
                glue = "" if module.endswith(".") else "."
                self._bind(name.value, node, Binding("import", node, target=f"{module}{glue}{alias.name.value}"))

    def _assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._bind_target(target.target, "assign", node.value)

    def _annotated(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._bind_target(node.target, "assign", node.value)

    def _augmented(self, node: cst.AugAssign) -> None:
        self._bind_target(node.target, "augmented", None)

    def _walrus(self, node: cst.NamedExpr) -> None:
        self._bind_target(node.target, "assign", node.value)

    def _loop(self, node: cst.For | cst.CompFor) -> None:
        self._bind_target(node.target, "loop", node.iter)

    def _with(self, node: cst.WithItem) -> None:
        if node.asname is not None:
            self._bind_target(node.asname.name, "with", node.item)

    def _except(self, node: cst.ExceptHandler) -> None:
        if node.name is not None:
            self._bind_target(node.name.name, "except", None)

    def _definition(self, node: cst.FunctionDef | cst.ClassDef) -> None:
        kind = "class" if type(node) is cst.ClassDef else "function"
        self._bind(node.name.value, node.name, Binding(kind, node))

    def _param(self, node: cst.Param) -> None:
        self._bind(node.name.value, node.name, Binding("param", node, node.default))

    def _global(self, node: cst.Global) -> None:
        names = self.found.global_names.setdefault(id(self.tree.scope(node)), set())
        names.update(item.name.value for item in node.names)

    def _delete(self, node: cst.Del) -> None:
        self._bind_target(node.target, "other", None)

    def _match(self, node: cst.MatchAs | cst.MatchStar) -> None:
        if node.name is not None:
            self._bind_target(node.name, "other", None)
