"""Which class of a library an object is of: `self` in a class that derives from it, what its constructor gave."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dslint.python.names import Names

# What a class of another module of the project is: its bases by dotted names, and the names that it defines itself.
Foreign = Mapping[str, "Ancestry"]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Bases that give their children no names of a library.
_PLAIN = frozenset({"object", "ABC", "Generic", "Protocol"})
# Most classes of a script derive from it, and it answers to any name that was given to it.
_ANYTHING = "torch.nn.Module"
# Parameters of hooks that a library fills with an object of its own.
_GIVEN = frozenset({"trainer"})


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The classes of libraries that a class derives from; ``own`` are the names that it and its own bases define.

    ``methods`` are those of them, the nearest of each name. ``is_open``: a base is unknown, or it answers to names by
    `__getattr__`.
    """

    bases: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    methods: Mapping[str, Function] = field(default_factory=dict)
    is_open: bool = False


@dataclass
class Objects:
    """Answers for one module.

    ``is_tracked`` tells whether a dotted name is one of a followed library; ``held`` what attributes of objects of a
    class are (`transformers:Trainer.args`); ``foreign`` the classes of other modules.
    """

    names: Names
    is_tracked: Callable[[str], bool]
    held: Mapping[str, str]
    foreign: Foreign
    _known: dict[int, Ancestry] = field(default_factory=dict)

    def ancestry(self, node: ast.ClassDef) -> Ancestry:
        """Return what a class of the module derives from."""
        found = self._known.get(id(node))
        if found is None:
            self._known[id(node)] = Ancestry(is_open=True)  # a class that derives from itself
            found = self._known[id(node)] = self._read(node)
        return found

    def _read(self, node: ast.ClassDef, *, is_parent: bool = False) -> Ancestry:
        own = set() if is_parent else members(node)
        bases: list[str] = []
        methods: dict[str, Function] = {} if is_parent else methods_of(node)
        is_open = "__getattr__" in own or "__getattribute__" in own or any(k.arg is None for k in node.keywords)
        for base in node.bases:
            inner = self._base(base.value if isinstance(base, ast.Subscript) else base, node)
            own |= inner.own
            methods = {**inner.methods, **methods}
            bases += [each for each in inner.bases if each not in bases]
            is_open = is_open or inner.is_open
        return Ancestry(tuple(bases), frozenset(own), methods, is_open)

    def _base(self, base: ast.expr, child: ast.ClassDef) -> Ancestry:
        dotted = self.names.qualified(base)
        if dotted == _ANYTHING:
            return Ancestry()
        if dotted and self.is_tracked(dotted):
            return Ancestry((dotted,))
        if dotted in self.foreign:
            return self.foreign[dotted]
        name = (dotted or getattr(base, "id", "")).rpartition(".")[2]
        if name in _PLAIN:
            return Ancestry()
        node = self.names.class_of(base)
        return self.ancestry(node) if node is not None and node is not child else Ancestry(is_open=True)

    def parents(self, node: ast.ClassDef) -> Ancestry:
        """Return what `super()` means in a class."""
        return self._read(node, is_parent=True)

    @cached_property
    def stored(self) -> frozenset[str]:
        """Return the attributes that the module itself gives to any object."""
        found = set()
        for node in ast.walk(self.names.tree):
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr" and len(node.args) > 1:
                name = node.args[1]
                found.add(str(name.value) if isinstance(name, ast.Constant) else "*")
        return frozenset(found)

    def of(self, root: ast.Name, attributes: list[str]) -> tuple[tuple[str, ...], int]:
        """Return the classes of which an object is that a name and its attributes lead to, and how many they are.

        `self.args.bf16` of a Trainer: the class of the arguments, after one attribute.
        """
        classes = self._of_name(root, attributes[0])
        inner = self._held(classes, attributes[0]) if len(attributes) > 1 else ()
        if not classes or any(map(self._is_own, attributes[: 2 if inner else 1])):
            return (), 0
        return (inner, 1) if inner else (classes, 0)

    def _held(self, classes: Iterable[str], attribute: str) -> tuple[str, ...]:
        """Return the classes of what objects of these classes hold in an attribute."""
        keys = (f"{c.partition('.')[0]}:{c.rpartition('.')[2]}.{attribute}" for c in classes)
        return tuple(dict.fromkeys(self.held[key] for key in keys if key in self.held))

    def _is_own(self, attribute: str) -> bool:
        return attribute.startswith("__") or attribute in self.stored or "*" in self.stored

    def _of_name(self, root: ast.Name, attribute: str) -> tuple[str, ...]:
        owner = self.names.class_around(root)
        if root.id == "self" and owner is not None:
            found = self.ancestry(owner)
            return () if found.is_open or attribute in found.own else found.bases
        bound = self.names.bindings(root)
        if len(bound) != 1:
            return ()
        if bound[0].kind == "parameter" and isinstance(bound[0].node, _FUNCTIONS):
            return self._of_parameter(root, bound[0].node)
        value = bound[0].value if bound[0].kind == "value" else None
        return self._made(value, attribute) if isinstance(value, ast.Call) else ()

    def _made(self, call: ast.Call, attribute: str) -> tuple[str, ...]:
        """Return the class that a call makes an object of, a library's or one of the module that derives from it."""
        dotted = self.names.qualified(call.func)
        if dotted and self.is_tracked(dotted):
            return (dotted,) if dotted.rpartition(".")[2][:1].isupper() else ()
        node = self.names.class_of(call.func)
        found = self.ancestry(node) if node is not None else Ancestry(is_open=True)
        return () if found.is_open or attribute in found.own else found.bases

    def _of_parameter(self, root: ast.Name, function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
        """Return the class that an annotation names, or the one of the object that a library hands to its hooks."""
        every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        annotation = next((arg.annotation for arg in every if arg.arg == root.id), None)
        dotted = self.names.qualified(annotation) if annotation is not None else ""
        if dotted and self.is_tracked(dotted) and dotted.rpartition(".")[2][:1].isupper():
            return (dotted,)
        owner = self.names.class_around(function)
        if owner is None or root.id not in _GIVEN or annotation is not None:
            return ()
        return self._held(self.ancestry(owner).bases, root.id)


def members(node: ast.ClassDef) -> set[str]:
    """Return the names that the body of a class binds."""
    found: set[str] = set()
    for inner in _in_body(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(inner.name)
        elif isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
            found.add(inner.id)
    return found


def methods_of(node: ast.ClassDef) -> dict[str, Function]:
    """Return the methods of a class; the last one of a name counts."""
    return {inner.name: inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)}


def _in_body(node: ast.ClassDef) -> Iterator[ast.AST]:
    pending: list[ast.AST] = list(node.body)
    while pending:
        inner = pending.pop()
        yield inner
        if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(inner)
