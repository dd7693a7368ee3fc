"""What a name means: its bindings, the canonical dotted name of an expression, local functions and classes."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from dslint.model.context import Vocabulary, is_named
from dslint.model.script.bindings import Binding, bindings_of
from dslint.model.script.callers import Callers
from dslint.model.script.dotted import dotted, is_none, is_self, is_super, last_name
from dslint.model.script.instances import Instances
from dslint.model.script.tree import Tree

_BUILTINS = frozenset(dir(builtins))
_MAX_ALIASES = 8


class Names:
    """The names of one module: what each is bound to, by scope. ``own`` are names that the project's settings add."""

    def __init__(self, tree: Tree, own: Vocabulary | None = None) -> None:
        self.tree = tree
        self.own = own or Vocabulary()
        self._scopes: dict[int, cst.CSTNode] = {}
        self._bound = bindings_of(tree)
        self._meant: dict[tuple[int, str], list[Binding]] = {}
        self.callers = Callers(self)
        self._instances = Instances(self)

    # -- scopes -------------------------------------------------------------------------------------------------

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """The module, function, class or comprehension whose names a node sees first."""
        found = self._scopes.get(id(node))
        if found is None:
            # The node of another tree sees the module, and may not live as long as this object.
            if self.tree.parent(node) is None:
                return self.tree.module
            found = self._scopes[id(node)] = self.tree.scope(node)
        return found

    def bindings(self, name: str, at: cst.CSTNode) -> list[Binding]:
        """Every binding of the variable that ``name`` means at a node; empty for builtins and star imports."""
        scope = self.scope(at)
        key = (id(scope), name)
        found = self._meant.get(key)
        if found is None:
            found = self._meant[key] = self._seen_from(scope, name)
        return found

    def _seen_from(self, scope: cst.CSTNode, name: str) -> list[Binding]:
        while True:
            if name in self._bound.global_names.get(id(scope), ()):
                scope = self.tree.module
            found = self._bound.scopes.get(id(scope), {}).get(name)
            if found:
                return found
            if scope is self.tree.module:
                return []
            scope = self.scope(scope)
            while type(scope) is cst.ClassDef:  # methods do not see the names of their class
                scope = self.scope(scope)

    def attribute_bindings(self, node: cst.Attribute) -> list[Binding]:
        """The assignments to ``self.x`` in the class around a use of ``self.x``."""
        owner = self.tree.enclosing(node, cst.ClassDef)
        if owner is None or not is_self(node.value):
            return []
        return self._bound.attributes.get((id(owner), node.attr.value), [])

    def class_attribute(self, owner: cst.ClassDef, name: str) -> list[Binding]:
        """The assignments to ``self.x`` in a class and in its bases of this file."""
        classes = [owner, *filter(None, (self.local_class(b) for b in self.class_bases(owner.name.value)))]
        return [b for c in classes for b in self._bound.attributes.get((id(c), name), ())]

    def member_bindings(self, node: cst.Attribute) -> list[Binding]:
        """The assignments to ``name.x`` in the scope around a use of ``name.x``."""
        if type(node.value) is not cst.Name:
            return []
        return self._bound.members.get((id(self.scope(node)), node.value.value, node.attr.value), [])

    def single_value(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """The expression behind a name or ``self.x`` that is assigned exactly once and never otherwise bound."""
        found: list[Binding] = []
        if type(node) is cst.Name:
            found = self.bindings(node.value, node)
        elif type(node) is cst.Attribute:
            found = self.attribute_bindings(node)
        if len(found) == 2 and isinstance(node, cst.Name) and self._is_replaced(found, node):
            return found[1].value
        return found[0].value if len(found) == 1 and found[0].kind == "assign" else None

    def _is_replaced(self, found: list[Binding], use: cst.Name) -> bool:
        """``x = None``, then ``x = make()`` in the same block, and a use behind it."""
        first, last = found
        if first.kind != "assign" or last.kind != "assign" or not is_none(first.value):
            return False
        lines = [self.tree.enclosing(b.node, cst.SimpleStatementLine) for b in found]
        if None in lines or self.tree.parent(lines[0]) is not self.tree.parent(lines[1]):  # type: ignore[arg-type]
            return False
        return self.tree.position(lines[0]) < self.tree.position(lines[1]) < self.tree.position(use)  # type: ignore[arg-type]

    def class_value(self, node: cst.Attribute) -> cst.BaseExpression | None:
        """The expression behind ``self.x`` or ``Class.x`` that only the class body assigns, once."""
        owner: cst.CSTNode | None = None
        if is_self(node.value):
            owner = self.tree.enclosing(node, cst.ClassDef)
        elif type(node.value) is cst.Name:
            owner = self.local_class(node.value.value, node)
        if owner is None or self._bound.attributes.get((id(owner), node.attr.value)):
            return None
        found = self._bound.scopes.get(id(owner), {}).get(node.attr.value, [])
        return found[0].value if len(found) == 1 and found[0].kind == "assign" else None

    # -- qualified names ----------------------------------------------------------------------------------------

    def qualified(self, node: cst.CSTNode | None) -> str | None:
        """``dist.barrier`` -> ``torch.distributed.barrier``; ``None`` for anything but imported or builtin names."""
        return self._qualified(node, 0)

    def _qualified(self, node: cst.CSTNode | None, depth: int) -> str | None:
        if depth > _MAX_ALIASES:
            return None
        parts: list[str] = []
        while type(node) is cst.Attribute:
            parts.append(node.attr.value)
            node = node.value
        if type(node) is not cst.Name:
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
        if len(found) == 1 and only.kind == "assign" and isinstance(only.value, cst.Call):
            return self._imported_by_call(only.value, depth)
        return None

    def _imported_by_call(self, call: cst.Call, depth: int) -> str | None:
        """``dist = importlib.import_module("torch.distributed")``."""
        given = call.args[0].value if len(call.args) == 1 else None
        if not isinstance(given, cst.SimpleString) or last_name(call.func) != "import_module":
            return None
        name = given.evaluated_value
        is_import = self._qualified(call.func, depth + 1) == "importlib.import_module"
        return name if is_import and isinstance(name, str) else None

    def is_own(self, node: cst.BaseExpression, words: tuple[str, ...]) -> bool:
        """The expression has a name that the project's settings list."""
        if not words:
            return False
        full = self.qualified(node)
        return is_named(full or last_name(node), words) if full or isinstance(node, cst.Name | cst.Attribute) else False

    def called(self, call: cst.Call) -> str:
        """The last part of what a call calls, by the name that it has where it is defined: ``barrier`` for ``wait()``
        after ``wait = dist.barrier``; of an attribute of an object, the name of the attribute."""
        if type(call.func) is cst.Name and (full := self.qualified(call.func)):
            return full.rpartition(".")[2]
        return last_name(call.func)

    # -- definitions --------------------------------------------------------------------------------------------

    def local_function(self, call: cst.Call) -> cst.FunctionDef | None:
        """The function or method of this file that a call runs, when there is exactly one candidate; also
        ``__call__`` of an object whose class stands here."""
        return self.function_named(call.func) or self._instances.call_method(call.func)

    def function_named(self, node: cst.BaseExpression) -> cst.FunctionDef | None:
        """The function of this file that a name, ``self.method``, ``super().method`` or ``x.method`` means."""
        if type(node) is cst.Name:
            found = self.bindings(node.value, node)
        elif type(node) is cst.Attribute and (is_self(node.value) or is_super(node.value)):
            found = self._method_bindings(node)
        elif type(node) is cst.Attribute:
            return self._instances.method(node)
        else:
            return None
        if len(found) == 1 and type(found[0].node) is cst.FunctionDef:
            return found[0].node
        return None

    def _method_bindings(self, node: cst.Attribute) -> list[Binding]:
        """What a method's name means in the class around a node, or in the nearest base class of this file."""
        owner = self.tree.enclosing(node, cst.ClassDef)
        if type(owner) is not cst.ClassDef:
            return []
        found = self._bound.scopes.get(id(owner), {}).get(node.attr.value, []) if is_self(node.value) else []
        for base in self.class_bases(owner.name.value) if not found else ():
            parent = self.local_class(base) if "." not in base else None
            found = self._bound.scopes.get(id(parent), {}).get(node.attr.value, []) if parent is not None else []
            if found:
                break
        return found

    def member(self, owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        """The method that the body of a class of this file defines, once, under a name."""
        found = self._bound.scopes.get(id(owner), {}).get(name, [])
        only = found[0].node if len(found) == 1 else None
        return only if type(only) is cst.FunctionDef else None

    @property
    def star_imports(self) -> list[str]:
        """The modules of ``from x import *``."""
        return self._bound.star_imports

    def local_class(self, name: str, at: cst.CSTNode | None = None) -> cst.ClassDef | None:
        """The class of this file with that name."""
        found = self.bindings(name, at or self.tree.module)
        classes = [b.node for b in found if type(b.node) is cst.ClassDef]
        if len(classes) != 1:
            return None
        # ``class TrainingArguments(TrainingArguments)``: what was imported under that name is its base.
        bases = [last_name(base.value) for base in classes[0].bases]
        others = [b for b in found if b.node is not classes[0] and not is_none(b.value)]  # `None` where there is none
        are_bases = name in bases and [b.kind for b in others] == ["import"]
        return classes[0] if len(found) == 1 or are_bases else None

    def class_bases(self, name: str) -> list[str]:
        """All base classes of a class of this file, nearest first: qualified names, or bare names of local classes."""
        bases: list[str] = []
        pending, seen = [name], {name}
        while pending:
            node = self.local_class(pending.pop(0))
            for arg in node.bases if node else ():
                value = arg.value.value if type(arg.value) is cst.Subscript else arg.value
                base = self.qualified(value) or (dotted(value) or "")
                if base and base not in seen:
                    seen.add(base)
                    bases.append(base)
                    pending.append(base)
        return bases

    def all_bindings(self) -> Iterator[tuple[str, Binding]]:
        """Every binding of every scope."""
        for scope in self._bound.scopes.values():
            for name, found in scope.items():
                for binding in found:
                    yield name, binding

    def imported(self, *roots: str) -> bool:
        """The module imports one of these packages (or something from one)."""
        return any(t == r or t.startswith(r + ".") for t in self._imports for r in roots)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every name that is written in the module, also of attributes: a look here spares most searches."""
        return frozenset(node.value for node in self.tree.every(cst.Name))

    @cached_property
    def _imports(self) -> list[str]:
        targets = list(self._bound.star_imports)
        for _, binding in self.all_bindings():
            if binding.kind != "import":
                continue
            if type(binding.node) is cst.Import:  # ``import torch.distributed`` binds ``torch`` only
                targets += [dotted(alias.name) or "" for alias in binding.node.names]
            else:
                targets.append(binding.target)
        targets += filter(None, (self._imported_by_call(call, 0) for call in self.tree.every(cst.Call)))
        return list(dict.fromkeys(targets))


def _is_nothing(value: cst.BaseExpression | None) -> bool:
    return type(value) is cst.Name and value.value in ("None", "False")
