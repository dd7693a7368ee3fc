"""A Python file as ``ast`` sees it: its calls, classes, imports and texts, collected in one walk.

The standard library parser costs a tenth of LibCST. The run plan needs declarations only, so it reads scripts
here; rules that judge the script itself work on the concrete tree.
"""

from __future__ import annotations

import ast
import gc
import warnings
from dataclasses import dataclass, field

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location, SourceFile, Span


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

    def qualified(self, node: ast.expr) -> str:
        """``transformers.HfArgumentParser`` for a name or attribute chain, else an empty string."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.imports.get(node.id, node.id))
        return ".".join(reversed(parts))

    def location(self, node: ast.expr | ast.stmt | ast.keyword, label: str = "") -> Location:
        """The place of a node; ``ast`` counts columns in UTF-8 bytes, dslint in code points."""
        start = self._offset(node.lineno, node.col_offset)
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return self.source.location(Span(start, end), label)

    def literal(self, node: ast.expr, label: str = "") -> Fact[object]:
        """The value of a literal expression (``4``, ``-1``, ``[0.9, 0.95]``), else unknown."""
        try:
            return known(ast.literal_eval(node), self.location(node, label))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return unknown("the script computes it", self.location(node))

    def _offset(self, line: int, column: int) -> int:
        text = self.source.line_text(line)
        chars = column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))
        return self.source.offset(line, chars + 1)


def read_script(source: SourceFile) -> PyScript:
    """Parse and walk once."""
    script = PyScript(source)
    # The collector would look at every node again and again and find nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        tree = _parse(source.text)
        if tree is not None:
            _collect(tree, script)
    finally:
        if collecting:
            gc.enable()
    return script


def text_of(node: ast.expr | None) -> str | None:
    """The value of a string literal."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _parse(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
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
    elif isinstance(node, ast.ClassDef):
        script.classes[node.name] = node
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        script.functions.add(node.name)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.split(".")[0]
            script.imports[alias.asname or top] = alias.name if alias.asname else top
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        joint = "" if not node.module else "."
        for alias in node.names:
            script.imports[alias.asname or alias.name] = f"{module}{joint}{alias.name}"
