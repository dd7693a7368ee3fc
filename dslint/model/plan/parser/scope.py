"""Statements and expressions of a module or function, as far as parsers of command lines are concerned.

Only parser objects have values here: ``ArgumentParser(...)``, its groups, and what functions of the project take,
extend and return. A parser that goes where nobody can follow is open. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from dslint.model.plan.parser.calls import Calls, Function
from dslint.model.plan.parser.made import Made
from dslint.model.plan.parser.modules import find_module, load

_PARSES_ON_IMPORT = re.compile(r"^\S.*\.parse_(?:args|known_args)\(", re.M)
_MODULES = 40  # that one script may import and that are looked at


class Scope(Calls):
    """The statements of one module or function."""

    def body(self, statements: list[ast.stmt]) -> None:
        """Follow statements in order."""
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._definition(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            self._assign(node)
        elif isinstance(node, ast.Return):
            if node.value is not None and (made := self.value(node.value)) is not None:
                self.returned.append(made)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                self._module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        else:
            self._compound(node)

    def _compound(self, node: ast.stmt) -> None:
        """Loops, ``with``, ``try`` and the rest: their expressions, then their statements, which may not run."""
        before = self.is_certain
        self.is_certain = before and isinstance(node, (ast.With, ast.AsyncWith, ast.Try))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child)
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                self.is_certain = False
                self.body(child.body)
            else:
                self._escapes(child)
        self.is_certain = before

    def _if(self, node: ast.If) -> None:
        self._escapes(node.test)
        if "__main__" in ast.dump(node.test):
            if self.is_main:
                self.body(node.body)
            return
        before, self.is_certain = self.is_certain, False
        self.body(node.body)
        self.body(node.orelse)
        self.is_certain = before

    def _definition(self, node: Function | ast.ClassDef) -> None:
        """A nested function that adds to a parser of this scope is not followed."""
        if self.depth or self.names or self.adders:
            used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            for name in used & self.names.keys():
                if self.depth:
                    self.names[name].open("a nested function may add options")
            for name in used & self.adders.keys():
                self.adders[name].open("a nested function may add options")
        for decorator in node.decorator_list:
            self.walk.other_library(
                self.module.script.qualified(decorator.func if isinstance(decorator, ast.Call) else decorator)
            )

    def _import_from(self, node: ast.ImportFrom) -> None:
        base = "." * node.level + (node.module or "")
        self._module(base)
        for alias in node.names:
            joint = "." if node.module else ""
            self._module(f"{base}{joint}{alias.name}")

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if self._adder(targets, node.value):
            return
        made = self.value(node.value) if node.value is not None else None
        for target in targets:
            if isinstance(target, ast.Name):
                if made is not None:
                    other = self.names.get(target.id)
                    if not self.is_certain and other is not None and other is not made:
                        other.open("one of several parsers is used")
                        made.open("one of several parsers is used")
                    self.names[target.id] = made
                elif self.is_certain:
                    self.names.pop(target.id, None)
            elif self.module.script.qualified(target).startswith("sys.argv") or (
                isinstance(target, ast.Subscript) and self.module.script.qualified(target.value) == "sys.argv"
            ):
                self.walk.strange = "the script changes `sys.argv`"
            elif made is not None:
                made.open("the parser is stored where others may add options")

    def _adder(self, targets: Sequence[ast.expr], value: ast.expr | None) -> bool:
        """``add = parser.add_argument``: what is called by this name here adds options."""
        if not isinstance(value, ast.Attribute) or value.attr != "add_argument" or len(targets) != 1:
            return False
        made, target = self.value(value.value), targets[0]
        if made is None:
            return False
        inner = self.module.functions.values()
        if not isinstance(target, ast.Name) or not self.is_certain or target.id in self.adders:
            made.open("`add_argument` is handed on")
        elif not self.depth and any(isinstance(n, ast.Name) and n.id == target.id for f in inner for n in ast.walk(f)):
            made.open("a function may add options")
        else:
            self.adders[target.id] = made
        return True

    def _escapes(self, node: ast.AST) -> None:
        """Whatever is done here, a parser in it is out of sight."""
        if isinstance(node, ast.expr):
            made = self.value(node)
            if made is not None and not isinstance(node, ast.Name):
                made.open("the parser is handed on")
        else:
            for child in ast.iter_child_nodes(node):
                self._escapes(child)

    def value(self, node: ast.expr) -> Made | None:
        """The parser that an expression is, else ``None``; calls in it take effect."""
        if isinstance(node, ast.Name):
            if node.id in self.names or node.id in self.parameters:
                return self.names.get(node.id)
            return self.walk.shared.get(self.module.path, {}).get(node.id)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Await):
            return self.value(node.value)
        if isinstance(node, ast.Attribute):
            made = self.value(node.value)
            if made is not None and node.attr.startswith(("_", "add_")):
                made.open(f"`{node.attr}` of the parser is used")
        elif not isinstance(node, (ast.Compare, ast.Lambda)):
            self._parts(node)
        return None

    def _parts(self, node: ast.expr) -> None:
        """A list, a condition, a text: whatever holds a parser hands it on."""
        for child in ast.iter_child_nodes(node):
            made = self.value(child) if isinstance(child, ast.expr) else None
            if made is not None:
                made.open("the parser is handed on")
            elif isinstance(child, (ast.comprehension, ast.keyword)):
                self._escapes(child)

    def _module(self, name: str) -> None:
        """Follow an imported module of the project that parses the command line while it is imported."""
        walk = self.walk
        path = find_module(name, self.module.path, walk.workspace)
        if path is None or path in walk.imported or len(walk.imported) > _MODULES:
            return
        walk.imported.add(path)
        source = walk.workspace.read(path)
        if source is None or not _PARSES_ON_IMPORT.search(source.text):
            return
        other = load(path, walk.workspace)
        if other is not None and other.script.tree is not None:
            names = walk.shared.setdefault(path, {})
            Scope(walk, other, names, is_main=False).body(other.script.tree.body)
