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
    tree = _parse(source.text)
    if tree is not None:
        _collect(tree, script)
    return script


def text_of(node: ast.expr | None) -> str | None:
    """The value of a string literal."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _parse(text: str) -> ast.Module | None:
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    finally:
        if collecting:
            gc.enable()


def _collect(tree: ast.Module, script: PyScript) -> None:
    # ``ast.walk`` asks every node for its fields by name; the instance dictionary holds the same values.
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        _note(node, script)
        for value in node.__dict__.values():
            if isinstance(value, ast.AST):
                stack.append(value)
            elif isinstance(value, list):
                stack += [item for item in value if isinstance(item, ast.AST)]
    script.calls.sort(key=lambda call: (call.lineno, call.col_offset))


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
