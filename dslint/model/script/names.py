"""Scopes, bindings, and the canonical dotted name of an expression."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.tree import SCOPES, Tree

_BUILTINS = frozenset(dir(builtins))
_MAX_ALIASES = 8


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


class Names:
    """The names of one module: what each is bound to, by scope."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._scopes: dict[int, dict[str, list[Binding]]] = {}
        self._attributes: dict[tuple[int, str], list[Binding]] = {}
        self._global_names: dict[int, set[str]] = {}
        self.star_imports: list[str] = []
        _Collector(self).run()

    # -- scopes -------------------------------------------------------------------------------------------------

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """The module, function, class or comprehension whose names a node sees first."""
        inner, skip = node, False
        for outer in self.tree.parents(node):
            if type(outer) is cst.Param and inner is not outer.name:
                skip = True  # defaults and annotations are evaluated outside of the function
            elif type(outer) in SCOPES and _inside(outer, inner):
                if not skip:
                    return outer
                skip = False
            inner = outer
        return self.tree.module

    def bindings(self, name: str, at: cst.CSTNode) -> list[Binding]:
        """Every binding of the variable that ``name`` means at a node; empty for builtins and star imports."""
        scope = self.scope(at)
        while True:
            if name in self._global_names.get(id(scope), ()):
                scope = self.tree.module
            found = self._scopes.get(id(scope), {}).get(name)
            if found:
                return found
            if scope is self.tree.module:
                return []
            scope = self.scope(scope)
            while isinstance(scope, cst.ClassDef):  # methods do not see the names of their class
                scope = self.scope(scope)

    def attribute_bindings(self, node: cst.Attribute) -> list[Binding]:
        """The assignments to ``self.x`` in the class around a use of ``self.x``."""
        owner = self.tree.enclosing(node, cst.ClassDef)
        if owner is None or not is_self(node.value):
            return []
        return self._attributes.get((id(owner), node.attr.value), [])

    def single_value(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """The expression behind a name or ``self.x`` that is assigned exactly once and never otherwise bound."""
        found: list[Binding] = []
        if isinstance(node, cst.Name):
            found = self.bindings(node.value, node)
        elif isinstance(node, cst.Attribute):
            found = self.attribute_bindings(node)
        return found[0].value if len(found) == 1 and found[0].kind == "assign" else None

    def class_value(self, node: cst.Attribute) -> cst.BaseExpression | None:
        """The expression behind ``self.x`` or ``Class.x`` that only the class body assigns, once."""
        owner: cst.CSTNode | None = None
        if is_self(node.value):
            owner = self.tree.enclosing(node, cst.ClassDef)
        elif isinstance(node.value, cst.Name):
            owner = self.local_class(node.value.value, node)
        if owner is None or self._attributes.get((id(owner), node.attr.value)):
            return None
        found = self._scopes.get(id(owner), {}).get(node.attr.value, [])
        return found[0].value if len(found) == 1 and found[0].kind == "assign" else None

    # -- qualified names ----------------------------------------------------------------------------------------

    def qualified(self, node: cst.CSTNode | None) -> str | None:
        """``dist.barrier`` -> ``torch.distributed.barrier``; ``None`` for anything but imported or builtin names."""
        return self._qualified(node, 0)

    def _qualified(self, node: cst.CSTNode | None, depth: int) -> str | None:
        if depth > _MAX_ALIASES:
            return None
        parts: list[str] = []
        while isinstance(node, cst.Attribute):
            parts.append(node.attr.value)
            node = node.value
        if not isinstance(node, cst.Name):
            return None
        root = self._root(node, depth)
        return ".".join([root, *reversed(parts)]) if root else None

    def _root(self, node: cst.Name, depth: int) -> str | None:
        found = self.bindings(node.value, node)
        if not found:
            return node.value if node.value in _BUILTINS else None
        imports = [b for b in found if b.kind == "import"]
        if imports:
            # ``try: import x ... except ImportError: x = None`` is still the import.
            return imports[0].target if all(b in imports or _is_nothing(b.value) for b in found) else None
        only = found[0]
        # ``dist = torch.distributed``: an alias, not a value of its own.
        if len(found) == 1 and only.kind == "assign" and isinstance(only.value, cst.Attribute | cst.Name):
            return self._qualified(only.value, depth + 1)
        return None

    # -- definitions --------------------------------------------------------------------------------------------

    def local_function(self, call: cst.Call) -> cst.FunctionDef | None:
        """The function or method of this file that a call runs, when there is exactly one candidate."""
        return self.function_named(call.func)

    def function_named(self, node: cst.BaseExpression) -> cst.FunctionDef | None:
        """The function of this file that a name, ``self.method`` or ``super().method`` means."""
        if isinstance(node, cst.Name):
            found = self.bindings(node.value, node)
        elif isinstance(node, cst.Attribute) and (is_self(node.value) or _is_super(node.value)):
            found = self._method_bindings(node)
        else:
            return None
        if len(found) == 1 and isinstance(found[0].node, cst.FunctionDef):
            return found[0].node
        return None

    def _method_bindings(self, node: cst.Attribute) -> list[Binding]:
        """What a method's name means in the class around a node, or in the nearest base class of this file."""
        owner = self.tree.enclosing(node, cst.ClassDef)
        if not isinstance(owner, cst.ClassDef):
            return []
        found = self._scopes.get(id(owner), {}).get(node.attr.value, []) if is_self(node.value) else []
        for base in self.class_bases(owner.name.value) if not found else ():
            parent = self.local_class(base) if "." not in base else None
            found = self._scopes.get(id(parent), {}).get(node.attr.value, []) if parent is not None else []
            if found:
                break
        return found

    def local_class(self, name: str, at: cst.CSTNode | None = None) -> cst.ClassDef | None:
        """The class of this file with that name."""
        found = self.bindings(name, at or self.tree.module)
        return found[0].node if len(found) == 1 and isinstance(found[0].node, cst.ClassDef) else None

    def class_bases(self, name: str) -> list[str]:
        """All base classes of a class of this file, nearest first: qualified names, or bare names of local classes."""
        bases: list[str] = []
        pending, seen = [name], {name}
        while pending:
            node = self.local_class(pending.pop(0))
            for arg in node.bases if node else ():
                value = arg.value.value if isinstance(arg.value, cst.Subscript) else arg.value
                base = self.qualified(value) or (dotted(value) or "")
                if base and base not in seen:
                    seen.add(base)
                    bases.append(base)
                    pending.append(base)
        return bases

    def all_bindings(self) -> Iterator[tuple[str, Binding]]:
        """Every binding of every scope."""
        for scope in self._scopes.values():
            for name, found in scope.items():
                for binding in found:
                    yield name, binding

    def imported(self, *roots: str) -> bool:
        """The module imports one of these packages (or something from one)."""
        targets = [b.target for _, b in self.all_bindings() if b.kind == "import"] + self.star_imports
        return any(t == r or t.startswith(r + ".") for t in targets for r in roots)


class _Collector:
    """Fills the scopes of :class:`Names` from the nodes that bind something."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.tree = names.tree

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
        scope = self.names.scope(at)
        if name in self.names._global_names.get(id(scope), ()):
            scope = self.tree.module
        self.names._scopes.setdefault(id(scope), {}).setdefault(name, []).append(binding)

    def _bind_target(
        self, target: cst.CSTNode, kind: str, value: cst.BaseExpression | None, position: int | None = None
    ) -> None:
        if isinstance(target, cst.Name):
            self._bind(target.value, target, Binding(kind, target, value, position=position))
        elif isinstance(target, cst.Attribute) and is_self(target.value):
            owner = self.tree.enclosing(target, cst.ClassDef)
            if owner is not None:
                found = self.names._attributes.setdefault((id(owner), target.attr.value), [])
                found.append(Binding(kind, target, value, position=position))
        elif isinstance(target, cst.Tuple | cst.List):
            parts = value.elements if isinstance(value, cst.Tuple | cst.List) and kind == "assign" else ()
            matching = len(parts) == len(target.elements) and not any(
                isinstance(e, cst.StarredElement) for e in (*parts, *target.elements)
            )
            for index, element in enumerate(target.elements):
                if matching:
                    self._bind_target(element.value, "assign", parts[index].value)
                else:
                    inner = "unpack" if kind == "assign" else kind
                    self._bind_target(element.value, inner, value, index)

    def _import(self, node: cst.Import) -> None:
        for alias in node.names:
            full = dotted(alias.name)
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                name = alias.asname.name
                self._bind(name.value, node, Binding("import", node, target=full or ""))
            elif full:
                root = full.split(".")[0]
                self._bind(root, node, Binding("import", node, target=root))

    def _import_from(self, node: cst.ImportFrom) -> None:
        module = "." * len(node.relative) + (dotted(node.module) or "")
        if isinstance(node.names, cst.ImportStar):
            self.names.star_imports.append(module)
            return
        for alias in node.names:
            name = alias.asname.name if alias.asname is not None else alias.name
            if isinstance(name, cst.Name) and isinstance(alias.name, cst.Name):
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
        kind = "class" if isinstance(node, cst.ClassDef) else "function"
        self._bind(node.name.value, node.name, Binding(kind, node))

    def _param(self, node: cst.Param) -> None:
        self._bind(node.name.value, node.name, Binding("param", node, node.default))

    def _global(self, node: cst.Global) -> None:
        names = self.names._global_names.setdefault(id(self.names.scope(node)), set())
        names.update(item.name.value for item in node.names)

    def _delete(self, node: cst.Del) -> None:
        self._bind_target(node.target, "other", None)

    def _match(self, node: cst.MatchAs | cst.MatchStar) -> None:
        if node.name is not None:
            self._bind_target(node.name, "other", None)


def _inside(scope: cst.CSTNode, child: cst.CSTNode) -> bool:
    """Decorators, bases and the return annotation stand at a definition, not in its scope."""
    if type(scope) is cst.FunctionDef:
        return child is scope.body or child is scope.params
    return child is scope.body if type(scope) is cst.ClassDef else True


def is_self(node: cst.CSTNode) -> bool:
    """``self`` or ``cls``."""
    return isinstance(node, cst.Name) and node.value in ("self", "cls")


def _is_super(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "super"


def dotted(node: cst.CSTNode | None) -> str | None:
    """The text of a plain dotted name: ``a.b.c``."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    return ".".join([node.value, *reversed(parts)])


def last_name(node: cst.CSTNode | None) -> str:
    """``a.b.c`` and ``f().c`` -> ``c``; a bare name is itself."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def _is_nothing(value: cst.BaseExpression | None) -> bool:
    return isinstance(value, cst.Name) and value.value in ("None", "False")
