"""What one module of a release defines, imports and asks of other libraries, from its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeGuard

from surface import guards, signatures
from surface.classes import Class, read_class
from surface.dynamic import listed_names, strings_of

# How much of a module's names is known: all, all that stubs list (its names come from C), some.
CLOSED, STUB, OPEN = 0, 1, 2

# What lazy packages call the table of their modules and names; the second one is huggingface_hub's.
_STRUCTURES = ("_import_structure", "_SUBMOD_ATTRS")
# Functions of transformers 5 that register an alias.
_ALIASING = {"_create_tokenization_alias", "_create_module_alias"}


@dataclass
class Entry:
    """One way in which a name is bound: kind ``v`` value, ``f`` function, ``c`` class, ``i`` import."""

    kind: str
    target: str = ""
    sig: signatures.Sig | None = None
    cls: Class | None = None


@dataclass
class Need:
    """Something that must exist while the module is imported."""

    dotted: str
    conditions: tuple[str, ...]


@dataclass
class Module:
    """A module as its text tells."""

    name: str
    package: bool
    names: dict[str, Entry] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    listed: list[str] | None = None
    opened: int = CLOSED
    lazy: dict[str, list[str]] | None = None
    structured: bool = False
    # A lazy module takes its place; of its own names only the extra objects are left.
    replaced: bool = False
    extra: list[str] = field(default_factory=list)
    required: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    # Old modules of a package -> new ones, as transformers 5 keeps them alive.
    legacy: dict[str, str] = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)
    # It holds the fallback of lazy modules from `XTokenizerFast` to `XTokenizer`.
    fallback: bool = False
    future: bool = False

    def absolute(self, name: str | None, level: int) -> str:
        """The module that ``from ..name import`` means here."""
        if not level:
            return name or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - level + self.package]
        return ".".join([*parts, *([name] if name else [])])


class Reader:
    """Walks the statements of a module as they run on import."""

    def __init__(self, module: Module, stub: bool) -> None:
        self.module = module
        self.stub = stub
        self.literals: dict[str, list[str]] = {}
        self.loops = 0

    def read(self, body: Iterable[ast.stmt], conditions: tuple[str, ...] = ()) -> None:
        """All statements of a block."""
        for node in body:
            handler = getattr(self, "_" + type(node).__name__.lower(), None)
            if handler is not None:
                handler(node, conditions)

    def bind(self, name: str, entry: Entry) -> None:
        """Bind a name; a definition counts more than the value it has where something is not installed."""
        old = self.module.names.get(name)
        rank = {"v": 0, "i": 1, "f": 2, "c": 3}
        if old is None or rank[entry.kind] >= rank[old.kind]:
            self.module.names[name] = entry

    def _import(self, node: ast.Import, conditions: tuple[str, ...]) -> None:
        for alias in node.names if not self.stub else ():
            self.module.needs.append(Need(alias.name, conditions))
            name = alias.asname or alias.name.split(".")[0]
            self.bind(name, Entry("i", alias.name if alias.asname else name))

    def _importfrom(self, node: ast.ImportFrom, conditions: tuple[str, ...]) -> None:
        source = self.module.absolute(node.module, node.level)
        if source == "__future__":
            self.module.future |= any(alias.name == "annotations" for alias in node.names)
        for alias in node.names:
            if alias.name == "*":
                self.module.stars.append(source)
                self.module.needs.append(Need(source, conditions))
                continue
            if self.stub and alias.asname != alias.name and node.level == 0:
                # A stub imports for its annotations.
                continue
            self.module.needs.append(Need(f"{source}:{alias.name}", conditions))
            self.bind(alias.asname or alias.name, Entry("i", f"{source}:{alias.name}"))

    def _functiondef(self, node: ast.FunctionDef, conditions: tuple[str, ...]) -> None:
        if node.name == "__getattr__":
            self._module_getattr(node)
            return
        again = self.stub and node.name in self.module.names
        sig = None if again or signatures.is_overloaded(node) else signatures.of_function(node)
        self.bind(node.name, Entry("f", sig=sig))
        self._uses(signatures.evaluated(node, self.module.future), conditions)

    _asyncfunctiondef = _functiondef

    def _classdef(self, node: ast.ClassDef, conditions: tuple[str, ...]) -> None:
        cls = read_class(node)
        cls.unlisted |= self.stub
        self.bind(node.name, Entry("c", cls=cls))
        self._uses([*node.bases, *node.decorator_list], conditions)
        for inner in node.body if not self.stub else ():
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._uses(signatures.evaluated(inner, self.module.future), conditions)
            elif isinstance(inner, (ast.Assign, ast.AnnAssign)) and inner.value is not None:
                self._uses([inner.value], conditions)

    def _assign(self, node: ast.Assign, conditions: tuple[str, ...]) -> None:
        self._uses([node.value], conditions)
        if isinstance(node.value, ast.Call) and signatures.last_name(node.value.func) == "define_import_structure":
            self.module.structured = True
        for target in node.targets:
            self._target(target, node.value)

    def _annassign(self, node: ast.AnnAssign, conditions: tuple[str, ...]) -> None:
        if node.value is not None:
            self._uses([node.value], conditions)
        if node.value is not None or self.stub:
            self._target(node.target, node.value)

    def _augassign(self, node: ast.AugAssign, conditions: tuple[str, ...]) -> None:
        if isinstance(node.target, ast.Name) and node.target.id == "__all__":
            self._extend_listed(node.value)

    def _target(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._target(element, None)
        elif isinstance(target, ast.Starred):
            self._target(target.value, None)
        elif isinstance(target, ast.Name):
            self._assigned(target.id, value)
        elif isinstance(target, ast.Subscript):
            self._item(target, value)

    def _assigned(self, name: str, value: ast.expr | None) -> None:
        if name == "__all__" and value is not None:
            self.module.listed = strings_of(value, self.literals)
        elif name == "_LEGACY_MODULE_ALIASES" and isinstance(value, ast.Dict):
            self.module.legacy.update({ast.literal_eval(k): ast.literal_eval(v) for k, v in _pairs(value)})
        elif name in _STRUCTURES and isinstance(value, ast.Dict):
            self.module.lazy = dict(self._structure(value))
        texts = strings_of(value, self.literals) if value is not None else None
        if texts is not None:
            self.literals[name] = texts
        dotted = _dotted(value)
        known = self.module.names.get(dotted.split(".")[0]) if dotted else None
        if dotted and known is not None and "." not in dotted and name != dotted:
            # `old_name = NewName`: what the other name is.
            self.bind(name, known)
        else:
            self.bind(name, Entry("v"))

    def _structure(self, value: ast.Dict) -> Iterable[tuple[str, list[str]]]:
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant):
                yield str(key.value), strings_of(item, self.literals) or []

    def _item(self, target: ast.Subscript, value: ast.expr | None) -> None:
        where, key = ast.unparse(target.value), target.slice
        if where == "_import_structure" and isinstance(key, ast.Constant) and value is not None:
            lazy = self.module.lazy = self.module.lazy or {}
            lazy.setdefault(str(key.value), []).extend(strings_of(value, self.literals) or [])
        elif where == "sys.modules":
            self._registered(key, value)
        elif where == "globals()":
            self._global_name(key)

    def _registered(self, key: ast.expr, value: ast.expr | None) -> None:
        """``sys.modules[...] = ...``: the lazy module of a package, an alias of a module, or anything."""
        if isinstance(key, ast.Constant):
            if dotted := _dotted(value):
                self.module.aliases[str(key.value)] = dotted
        elif isinstance(value, ast.Call) and signatures.last_name(value.func) == "_LazyModule":
            self._lazy_module(value)
        elif isinstance(key, ast.Name) and key.id == "__name__":
            self.module.opened = OPEN

    def _lazy_module(self, call: ast.Call) -> None:
        self.module.lazy = self.module.lazy or {}
        self.module.replaced = True
        for word in call.keywords:
            if word.arg == "extra_objects" and isinstance(word.value, ast.Dict):
                for name, _ in self._structure(word.value):
                    self.bind(name, Entry("v"))
                    self.module.extra.append(name)
        for node in ast.walk(call):
            if isinstance(node, ast.Call) and signatures.last_name(node.func) == "define_import_structure":
                self.module.structured = True

    def _global_name(self, key: ast.expr) -> None:
        if isinstance(key, ast.Constant):
            self.bind(str(key.value), Entry("v"))
        else:
            self.module.opened = OPEN

    def _expr(self, node: ast.Expr, conditions: tuple[str, ...]) -> None:
        call = node.value
        if _about_itself(call):
            self.module.opened = OPEN
        if isinstance(call, ast.Call) and signatures.last_name(call.func) in _ALIASING and len(call.args) == 2:
            old, new = (ast.unparse(each).split(".")[-1].strip("'\"") for each in call.args)
            self.module.legacy[old] = new
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            if _sets_itself(call):
                self._global_name(call.args[1])
            return
        where, method = call.func.value, call.func.attr
        if isinstance(where, ast.Name) and where.id == "__all__" and call.args:
            self._extend_listed(call.args[0], one=method == "append")
        elif isinstance(where, ast.Subscript) and ast.unparse(where.value) == "_import_structure" and call.args:
            key = where.slice
            if isinstance(key, ast.Constant) and self.module.lazy is not None:
                found = strings_of(call.args[0], self.literals, one=method == "append") or []
                self.module.lazy.setdefault(str(key.value), []).extend(found)
        elif method == "update" and ast.unparse(where) in ("globals()", "vars()"):
            self._update(call)

    def _update(self, call: ast.Call) -> None:
        if len(call.args) == 1 and isinstance(call.args[0], ast.Dict):
            for name, _ in self._structure(call.args[0]):
                self.bind(name, Entry("v"))
        else:
            self.module.opened = OPEN

    def _extend_listed(self, value: ast.expr, one: bool = False) -> None:
        found = strings_of(value, self.literals, one)
        if found is None or self.module.listed is None:
            if found is None:
                # Some of the listed names are not known: a star import takes all that is public.
                self.module.listed = None
        else:
            self.module.listed += found

    def _module_getattr(self, node: ast.FunctionDef) -> None:
        if self.stub:
            self.module.opened = OPEN
            return
        names, complete = listed_names(node, self.literals)
        for name in names:
            if name not in self.module.names:
                self.bind(name, Entry("v"))
        if not complete:
            self.module.opened = OPEN

    def _if(self, node: ast.If, conditions: tuple[str, ...]) -> None:
        test = ast.unparse(node.test)
        if test.endswith("TYPE_CHECKING") and not test.startswith("not "):
            self._type_checking(node, conditions)
            return
        if "__name__" in test and "__main__" in test:
            return
        found = guards.of_test(node.test)
        if test.endswith("TYPE_CHECKING"):
            found = ()
        self.read(node.body, conditions + found)
        self.read(node.orelse, conditions + guards.negated(found))

    def _type_checking(self, node: ast.If, conditions: tuple[str, ...]) -> None:
        """Only the other branch runs; of the first one a lazy module may tell more than its own table."""
        self.read(node.orelse, conditions)

    def _try(self, node: ast.Try, conditions: tuple[str, ...]) -> None:
        caught = any(map(guards.catches_missing, node.handlers))
        self.read(node.body, (*conditions, "try") if caught else conditions)
        for handler in node.handlers:
            self.read(handler.body, (*conditions, "failed"))
        # `try: if not is_x_available(): raise ...` with the imports in its else, as transformers writes them.
        probe = _probe(node.body)
        self.read(node.orelse, conditions + (probe or (("try",) if caught else ())))
        self.read(node.finalbody, conditions)

    _trystar = _try

    def _for(self, node: ast.For, conditions: tuple[str, ...]) -> None:
        self._target(node.target, None)
        self.read([*node.body, *node.orelse], conditions)

    def _while(self, node: ast.While, conditions: tuple[str, ...]) -> None:
        self.read([*node.body, *node.orelse], conditions)

    def _with(self, node: ast.With, conditions: tuple[str, ...]) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self._target(item.optional_vars, None)
        suppressed = any("suppress" in ast.unparse(item.context_expr) for item in node.items)
        self.read(node.body, (*conditions, "try") if suppressed else conditions)

    def _delete(self, node: ast.Delete, conditions: tuple[str, ...]) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name) and not conditions:
                self.module.names.pop(target.id, None)

    def _uses(self, nodes: Iterable[ast.expr], conditions: tuple[str, ...]) -> None:
        """Attributes of imported modules that are read while the module is imported."""
        for node in nodes:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Lambda):
                    break
                dotted = _dotted(inner) if isinstance(inner, ast.Attribute) else ""
                entry = self.module.names.get(dotted.split(".")[0]) if dotted else None
                if entry is not None and entry.kind == "i":
                    rest = dotted.split(".")[1:]
                    self.module.needs.append(Need(".".join([entry.target.replace(":", "."), *rest]), conditions))


def read_module(name: str, package: bool, text: str, stub: bool, whole: str) -> Module:
    """The module with this text, which may be the outline of the whole one; one that cannot be parsed is open."""
    module = Module(name, package)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        module.opened = OPEN
        return module
    Reader(module, stub).read(tree.body)
    for names in re.findall(r"^[ \t]+global ([\w, \t]+)", whole, re.M):
        # What functions bind in the module when they are called.
        for each in names.split(","):
            if each.strip().isidentifier():
                module.names.setdefault(each.strip(), Entry("v"))
    module.required = _required(tree)
    module.fallback = '.endswith("TokenizerFast")' in text
    return module


def _about_itself(call: ast.expr) -> bool:
    """The module is given to a function that may add names to it."""
    if not isinstance(call, ast.Call) or not call.args or signatures.last_name(call.func) == "setattr":
        return False
    return ast.unparse(call.args[0]) == "sys.modules[__name__]"


def _sets_itself(call: ast.expr) -> TypeGuard[ast.Call]:
    """It is ``setattr(sys.modules[__name__], ...)``."""
    if not isinstance(call, ast.Call) or signatures.last_name(call.func) != "setattr" or len(call.args) < 2:
        return False
    return "sys.modules" in ast.unparse(call.args[0])


def _pairs(value: ast.Dict) -> Iterable[tuple[ast.expr, ast.expr]]:
    return ((key, item) for key, item in zip(value.keys, value.values, strict=True) if key is not None)


def _required(tree: ast.Module) -> list[str]:
    """The definitions that transformers exports by the decorator ``@requires``."""
    return [
        node.name
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        and any(signatures.last_name(each) == "requires" for each in node.decorator_list)
    ]


def _probe(body: list[ast.stmt]) -> tuple[str, ...] | None:
    if len(body) == 1 and isinstance(body[0], ast.If) and isinstance(body[0].body[-1], ast.Raise):
        return guards.negated(guards.of_test(body[0].test))
    return None


def _dotted(node: ast.expr | None) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
