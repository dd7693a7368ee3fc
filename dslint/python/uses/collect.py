"""One walk over a module that finds what it uses of libraries: imports, attributes, calls, classes that derive."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from dslint.python.names import Names
from dslint.python.uses.ends import ends, never_runs, raises
from dslint.python.uses.kinds import Derived, Guard, Guards, Use, Uses
from dslint.python.uses.objects import Foreign, Objects

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Calls after which only some releases are left: the others have raised.
_DEMANDS = frozenset({"require_version", "require_version_core", "check_min_version"})
_Caught = frozenset[str]


def collect(
    tree: ast.Module,
    names: Names,
    libraries: frozenset[str],
    held: Mapping[str, str] | None = None,
    foreign: Foreign | None = None,
) -> Uses:
    """Return what a module uses of some libraries, by the names of their packages; for ``held`` see `Objects`."""
    walk = _Walk(tree, names, libraries)
    walk.objects = Objects(names, walk.is_tracked, held or {}, foreign or {})
    return walk.run()


class _Walk:
    objects: Objects

    def __init__(self, tree: ast.Module, names: Names, libraries: frozenset[str]) -> None:
        self._tree = tree
        self._names = names
        self._libraries = libraries
        self._found = Uses()
        # Where each function is named, by its definition: the guards of these places.
        self._ways: dict[int, list[Guards]] = {}
        self._roots: dict[int, tuple[str, ...]] = {}
        self._lazy_annotations = any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__" and _names_annotations(node)
            for node in tree.body
        )

    def run(self) -> Uses:
        self._block(self._tree.body, (), frozenset())
        return self._found

    # -- statements ---------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], guards: Guards, caught: _Caught) -> None:
        functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        for statement in body:
            if isinstance(statement, _FUNCTIONS):
                self._signature(statement, guards, caught)
                functions.append(statement)
            elif isinstance(statement, ast.ClassDef):
                self._class(statement, guards, caught)
            else:
                guards = self._statement(statement, guards, caught)
            if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
                break
        for function in functions:
            self._block(function.body, self._called(function, guards), frozenset())

    def _statement(self, node: ast.stmt, guards: Guards, caught: _Caught) -> Guards:
        """Look at a statement; return the guards of what comes after it."""
        if isinstance(node, ast.If):
            return self._if(node, guards, caught)
        if isinstance(node, ast.Try):
            return self._try(node, guards, caught)
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, guards, caught)
        elif isinstance(node, ast.Assert):
            self._expression(node.test, guards, caught)
            return (*guards, Guard("test", True, node.test))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._expression(node.value, guards, caught)
            if self._names.called(node.value) in _DEMANDS:
                return (*guards, Guard("test", True, node.value))
            self._patches(node.value)
        elif isinstance(node, ast.AnnAssign):
            inner = [node.value] if self._lazy_annotations else [node.annotation, node.value]
            for part in (node.target, *inner):
                if part is not None:
                    self._expression(part, guards, caught)
        else:
            self._given(node, guards)
            for field in ast.iter_child_nodes(node):
                if isinstance(field, ast.stmt | ast.ExceptHandler | ast.match_case):
                    continue
                self._expression(field, guards, caught)
            for block in _blocks(node):
                self._block(block, guards, caught)
        return guards

    def _given(self, node: ast.stmt, guards: Guards) -> None:
        """Note flags, and modules that the program itself puts into `sys.modules`."""
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name):
                self._found.flags.setdefault(id(target), guards)
            elif isinstance(target, ast.Subscript) and self._names.qualified(target.value) == "sys.modules":
                name = target.slice.value if isinstance(target.slice, ast.Constant) else None
                self._found.patched.add(str(name))

    def _if(self, node: ast.If, guards: Guards, caught: _Caught) -> Guards:
        self._expression(node.test, guards, caught)
        then, other = Guard("test", True, node.test), Guard("test", False, node.test)
        if not never_runs(node.test, self._names):
            self._block(node.body, (*guards, then), caught)
        if not (isinstance(node.test, ast.Constant) and node.test.value):
            self._block(node.orelse, (*guards, other), caught)
        if ends(node.body):
            return (*guards, other)
        return (*guards, then) if node.orelse and ends(node.orelse) else guards

    def _try(self, node: ast.Try, guards: Guards, caught: _Caught) -> Guards:
        handled = {name for h in node.handlers if not raises(h) for name in self._caught(h)}
        tried, is_open = self._tried(node.body)
        works = Guard("works", True, tried=tried, is_open=is_open)
        fails = Guard("works", False, tried=tried, is_open=is_open)
        for given in node.body:
            self._given(given, (*guards, works))
        self._block(node.body, guards, caught | handled)
        for handler in node.handlers:
            self._block(handler.body, (*guards, fails), caught)
        self._block(node.orelse, (*guards, works), caught)
        self._block(node.finalbody, guards, caught)
        is_left = bool(node.handlers) and all(ends(handler.body) for handler in node.handlers)
        return (*guards, works) if is_left else guards

    def _caught(self, handler: ast.ExceptHandler) -> Iterator[str]:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for kind in kinds:
            yield "" if kind is None else kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "")

    def _tried(self, body: list[ast.stmt]) -> tuple[tuple[str, ...], bool]:
        """Return the names of libraries that a block imports, and whether something else in it may fail."""
        found: list[str] = []
        is_open = False
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                dotted = [name for name, _ in _imported(node)]
                found += [name for name in dotted if self.is_tracked(name)]
                is_open = is_open or not all(map(self.is_tracked, dotted))
            elif not isinstance(node, ast.Pass | ast.FunctionDef | ast.ClassDef):
                is_open = is_open or not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
        return tuple(found), is_open

    def _import(self, node: ast.Import | ast.ImportFrom, guards: Guards, caught: _Caught) -> None:
        for (dotted, home), alias in zip(_imported(node), node.names, strict=True):
            if self.is_tracked(dotted):
                kind = "module" if isinstance(node, ast.Import) or alias.name == "*" else "name"
                self._found.uses.append(Use(kind, (dotted,), alias, guards, caught, home=home))  # type: ignore[arg-type]

    # -- definitions --------------------------------------------------------------------------------------------

    def _signature(self, node: ast.FunctionDef | ast.AsyncFunctionDef, guards: Guards, caught: _Caught) -> None:
        parts: list[ast.AST | None] = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
        if not self._lazy_annotations:
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
            parts += [node.returns, *(a.annotation for a in every if a is not None)]
        for part in parts:
            if part is not None:
                self._expression(part, guards, caught)

    def _class(self, node: ast.ClassDef, guards: Guards, caught: _Caught) -> None:
        for part in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self._expression(part, guards, caught)
        if node.bases:
            known = self.objects.ancestry(node)
            bases = tuple(dict.fromkeys((*filter(self.is_tracked, self._names.bases(node.name)), *known.bases)))
            if bases:
                self._found.derived.append(Derived(node, bases, guards, caught, known.methods))
        self._block(node.body, guards, caught)

    def _called(self, function: ast.stmt, guards: Guards) -> Guards:
        """Return the guards of the body of a function: those of its block, and that somebody calls it."""
        return (*guards, Guard("called", ways=self._ways.setdefault(id(function), [])))

    def _note_call(self, name: ast.Name, guards: Guards) -> None:
        """A function of the module is named here."""
        bound = self._names.bindings(name)
        if len(bound) == 1 and isinstance(bound[0].node, _FUNCTIONS):
            self._ways.setdefault(id(bound[0].node), []).append(guards)

    # -- expressions --------------------------------------------------------------------------------------------

    def _expression(self, node: ast.AST, guards: Guards, caught: _Caught) -> None:
        pending: list[tuple[ast.AST, Guards, ast.Call | None]] = [(node, guards, None)]
        while pending:
            current, under, call = pending.pop()
            if isinstance(current, ast.BoolOp):
                is_and = isinstance(current.op, ast.And)
                for value in current.values:
                    pending.append((value, under, None))
                    under = (*under, Guard("test", is_and, value))
            elif isinstance(current, ast.IfExp):
                pending.append((current.test, under, None))
                pending.append((current.body, (*under, Guard("test", True, current.test)), None))
                pending.append((current.orelse, (*under, Guard("test", False, current.test)), None))
            elif isinstance(current, ast.Attribute | ast.Name):
                inner = self._chain(current, under, caught, call)
                if inner is not None:
                    pending.append((inner, under, None))
            elif isinstance(current, ast.Call):
                pending.append((current.func, under, current))
                pending += [(part, under, None) for part in (*current.args, *(k.value for k in current.keywords))]
                self._by_text(current, under, caught)
                self._super(current, under, caught)
            else:
                pending += [(child, under, None) for child in ast.iter_child_nodes(current)]

    def _chain(self, node: ast.expr, guards: Guards, caught: _Caught, call: ast.Call | None) -> ast.expr | None:
        """Note a name of a library; return what is left to look at where it is none."""
        parts: list[str] = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name):
            return root
        homes = self._meant(root)
        if not homes:
            self._note_call(root, guards)
            if parts:
                self._of_object(node, root, parts[::-1], (guards, caught, call))
        if not homes or (not parts and call is None):
            return None
        dotted = tuple(".".join((home, *reversed(parts))) for home in homes)
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            self._found.patched.update(dotted)
        else:
            self._found.uses.append(Use("attribute", dotted, node, guards, caught, call, home=homes[0]))
        return None

    def _of_object(
        self, node: ast.expr, root: ast.Name, attributes: list[str], around: tuple[Guards, _Caught, ast.Call | None]
    ) -> None:
        """Note an attribute of an object whose class is one of a library: `self.tokenizer` in a Trainer."""
        classes, at = self.objects.of(root, attributes)
        if not classes or not isinstance(getattr(node, "ctx", None), ast.Load):
            return
        guards, caught, call = around
        inner = node
        for _ in attributes[at + 1 :]:
            assert isinstance(inner, ast.Attribute)
            inner, call = inner.value, None
        dotted = tuple(f"{each}.{attributes[at]}" for each in classes)
        self._found.uses.append(Use("attribute", dotted, inner, guards, caught, call, home=classes[0], is_bound=True))

    def _meant(self, root: ast.Name) -> tuple[str, ...]:
        """Return the dotted names that a name may mean, all of libraries; empty where it may be something else."""
        bound = self._names.bindings(root)
        key = id(bound)
        if key not in self._roots or not bound:
            imports = [b.target for b in bound if b.kind == "import"]
            if imports and len(imports) == len(bound):
                known = tuple(dict.fromkeys(imports))
            elif imports:
                known = ()  # a fall-back of the module's own, which nobody can tell apart here
            else:
                found = self._names.qualified(root)
                known = (found,) if found else ()
            self._roots[key] = known if known and all(map(self.is_tracked, known)) else ()
        return self._roots[key]

    def _by_text(self, call: ast.Call, guards: Guards, caught: _Caught) -> None:
        """`importlib.import_module("transformers.models.x")` imports a module, too."""
        if len(call.args) != 1 or not isinstance(call.args[0], ast.Constant):
            return
        if self._names.qualified(call.func) not in ("importlib.import_module", "__import__"):
            return
        name = call.args[0].value
        if isinstance(name, str) and self.is_tracked(name):
            self._found.uses.append(Use("module", (name,), call.args[0], guards, caught, home=name))

    def _super(self, call: ast.Call, guards: Guards, caught: _Caught) -> None:
        """`super().log(logs)` calls the method of the one base of a library, where no class of the project has it."""
        func = call.func
        if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Call):
            return
        owner = self._names.class_around(call)
        if getattr(func.value.func, "id", "") != "super" or owner is None:
            return
        parents = self.objects.parents(owner)
        if len(parents.bases) != 1 or parents.is_open or func.attr in parents.own:
            return
        base = parents.bases[0]
        use = Use("attribute", (f"{base}.{func.attr}",), func, guards, caught, call, home=base, is_bound=True)
        self._found.uses.append(use)

    def _patches(self, call: ast.Call) -> None:
        """`setattr(torch, "float8", x)` puts a name into a library."""
        if self._names.qualified(call.func) == "setattr" and len(call.args) == 3:
            home, name = self._names.qualified(call.args[0]), call.args[1]
            if home and isinstance(name, ast.Constant) and isinstance(name.value, str):
                self._found.patched.add(f"{home}.{name.value}")

    def is_tracked(self, dotted: str) -> bool:
        return dotted.partition(".")[0] in self._libraries


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block
    for case in getattr(node, "cases", ()):
        yield case.body


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield what each alias of an import means, with the module that it names; relative ones begin with a dot."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield alias.name, alias.name
        else:
            home = f"{'.' * node.level}{node.module or ''}"
            yield (home if alias.name == "*" else f"{home}.{alias.name}"), home


def _names_annotations(node: ast.ImportFrom) -> bool:
    return any(alias.name == "annotations" for alias in node.names)
