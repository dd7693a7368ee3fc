"""A Python file as ``ast`` sees it: its calls, classes, imports and texts, collected in one walk.

The standard library parser costs a tenth of LibCST. The run plan needs declarations only, so it reads scripts
here; rules that judge the script itself work on the concrete tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.core.fact import Fact, known, unknown
from dslint.core.garbage import no_collections
from dslint.core.source import Location, SourceFile
from dslint.parse.astplaces import AstPlaces
from dslint.parse.nesting import syntax_tree


@dataclass(slots=True)
class PyScript:
    """What the run plan reads of one Python file. A file with a syntax error is an empty one."""

    source: SourceFile
    calls: list[ast.Call] = field(default_factory=list)
    # The same calls with the dotted origin of what they call.
    called: list[tuple[str, ast.Call]] = field(default_factory=list)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    # Attributes that the file assigns to: ``args.deepspeed_config = ...`` -> ``deepspeed_config``.
    assigned_attributes: set[str] = field(default_factory=set)
    # Local name -> dotted origin: ``TrainingArguments`` -> ``transformers.TrainingArguments``.
    imports: dict[str, str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    # The same attributes with the name they belong to: ``args.launcher``.
    assigned_dotted: set[str] = field(default_factory=set)
    # Imported names that the module then defines itself, and the last line of that definition.
    redefined: dict[str, int] = field(default_factory=dict)
    tree: ast.Module | None = None
    _constants: dict[str, ast.expr] | None = None
    _places: AstPlaces | None = None

    def qualified(self, node: ast.expr) -> str:
        """``transformers.HfArgumentParser`` for a name or attribute chain, else an empty string."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        is_own = node.lineno > self.redefined.get(node.id, node.lineno)
        parts.append(node.id if is_own else self.imports.get(node.id, node.id))
        return ".".join(reversed(parts))

    def location(self, node: ast.expr | ast.stmt | ast.keyword, label: str = "") -> Location:
        """The place of a node."""
        if self._places is None:
            self._places = AstPlaces(self.source)
        return self.source.location(self._places.span(node), label)

    def literal(self, node: ast.expr, label: str = "") -> Fact[object]:
        """The value of a literal expression (``4``, ``-1``, ``[0.9, 0.95]``) or of a constant, else unknown."""
        resolved = self.resolved(node)
        places = [self.location(n, label) for n in dict.fromkeys((resolved, node))]
        try:
            return known(ast.literal_eval(resolved), *places)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return unknown("the script computes it", self.location(node))

    def resolved(self, node: ast.expr) -> ast.expr:
        """What a name stands for that the file sets in one place only; any other node is itself."""
        for _ in range(4):
            if not isinstance(node, ast.Name) or self.tree is None:
                break
            if self._constants is None:
                self._constants = _constants(self.tree)
            if node.id not in self._constants:
                break
            node = self._constants[node.id]
        return node


# Syntax trees are large; several questions about a script follow each other.
_KEPT = 8
_recent: list[PyScript] = []


def read_script(source: SourceFile) -> PyScript:
    """Parse and walk once; who asks again for one of the last scripts gets the same."""
    for script in reversed(_recent):
        if script.source == source:
            return script
    script = _read(source)
    _recent.append(script)
    del _recent[:-_KEPT]
    return script


def _read(source: SourceFile) -> PyScript:
    script = PyScript(source)
    with no_collections():
        tree = _parse(source.text)
        if tree is not None:
            script.tree = tree
            script.redefined = _redefined(tree)
            _collect(tree, script)
    return script


def text_of(node: ast.expr | None) -> str | None:
    """The value of a string literal."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _parse(text: str) -> ast.Module | None:
    try:
        return syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# Nodes without children that the collection needs.
_LEAVES = frozenset(
    {ast.Name, ast.Constant, ast.Load, ast.Store, ast.Del, ast.alias, ast.arg, ast.Pass, ast.JoinedStr}
    | set(ast.operator.__subclasses__())
    | set(ast.cmpop.__subclasses__())
    | set(ast.unaryop.__subclasses__())
    | set(ast.boolop.__subclasses__())
)


def _collect(tree: ast.Module, script: PyScript) -> None:
    # ``ast.walk`` asks every node for its fields by name and visits leaves; this takes a third of its time.
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        kind = node.__class__
        if kind in _NOTED:
            _note(node, script)
        for value in node.__dict__.values():
            if value.__class__ is list:
                stack += [item for item in value if item.__class__ not in _LEAVES and isinstance(item, ast.AST)]
            elif value.__class__ not in _LEAVES and isinstance(value, ast.AST):
                stack.append(value)
    script.calls.sort(key=lambda call: (call.lineno, call.col_offset))
    script.called = [(script.qualified(call.func), call) for call in script.calls]


_NOTED = frozenset(
    {ast.Call, ast.Attribute, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom}
)


def _note(node: ast.AST, script: PyScript) -> None:
    if isinstance(node, ast.Call):
        script.calls.append(node)
    elif isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Store):
            script.assigned_attributes.add(node.attr)
            if isinstance(node.value, ast.Name):
                script.assigned_dotted.add(f"{node.value.id}.{node.attr}")
    elif isinstance(node, ast.ClassDef):
        script.classes[node.name] = node
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        script.functions.add(node.name)
    else:
        _note_import(node, script)


def _note_import(node: ast.AST, script: PyScript) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.split(".")[0]
            script.imports[alias.asname or top] = alias.name if alias.asname else top
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        joint = "" if not node.module else "."
        for alias in node.names:
            script.imports[alias.asname or alias.name] = f"{module}{joint}{alias.name}"


def _redefined(tree: ast.Module) -> dict[str, int]:
    """``class TrainingArguments(TrainingArguments)``: an imported name in its bases, the class of the file below.

    ``TrainingArguments = MoreArguments`` counts, too. Definitions of the module itself only: below ``try`` and
    ``if`` either may be the one that counts.
    """
    imported: set[str] = set()
    ends: dict[str, int] = {}
    for node in _with_tried_imports(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
            imported.update(names)
            for name in names:
                ends.pop(name, None)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name in imported:
                ends[node.name] = node.end_lineno or node.lineno
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name) and target.id in imported]
            ends.update(dict.fromkeys(names, node.end_lineno or node.lineno))
    return ends


def _with_tried_imports(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, and in front of a ``try`` or ``if`` the imports in it."""
    for node in body:
        if isinstance(node, (ast.Try, ast.If)):
            yield from (inner for inner in ast.walk(node) if isinstance(inner, (ast.Import, ast.ImportFrom)))
        yield node


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that are bound once in the whole file, by a plain assignment."""
    values: dict[str, ast.expr] = {}
    bound: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values[node.target.id] = node.value
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] = bound.get(node.id, 0) + 1
        elif isinstance(node, ast.arg):
            bound[node.arg] = bound.get(node.arg, 0) + 1
        elif isinstance(node, ast.alias):
            name = (node.asname or node.name).split(".")[0]
            bound[name] = bound.get(name, 0) + 1
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound[node.name] = bound.get(node.name, 0) + 1
    return {name: value for name, value in values.items() if bound.get(name) == 1}
