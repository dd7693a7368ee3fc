"""Parsers that a program has made its own: by a class that changes how words are read, or by what it sets on one."""

from __future__ import annotations

import argparse
import ast

from dslint.python import attributes
from dslint.python.machine import Machine
from dslint.python.values import ClassAtom, Instance

# What a class may define without a change of which words are taken: what it runs then is seen.
_HARMLESS = frozenset(
    {"__init__", "parse_args", "add_argument", "add_argument_group", "add_mutually_exclusive_group", "set_defaults"}
    | {"print_help", "print_usage", "format_help", "format_usage", "_print_message", "convert_arg_line_to_args"}
    | {"parse_args_into_dataclasses"}
)
_TOLD = frozenset({"prog", "usage", "description", "epilog", "formatter_class"})
_SETTINGS = frozenset(
    {"prefix_chars", "fromfile_prefix_chars", "conflict_handler", "allow_abbrev", "argument_default", "add_help"}
)
_MEMBERS = frozenset(name for name in dir(argparse.ArgumentParser) if not name.startswith("__"))
_ENDS = frozenset({"exit", "error", "_exit", "print_usage_and_exit"})


def changed_by_class(m: Machine, cls: ClassAtom) -> str:
    """Return which method of a class of parsers may let other words pass; empty for none."""
    for base in attributes.lineage(m, cls):
        if isinstance(base, str) and m.libraries.class_(base) is None and base != "builtins.object":
            return f"`{base or 'a base class'}` is no plain parser"
        for node in base.node.body if isinstance(base, ClassAtom) else ():
            if not isinstance(node, ast.FunctionDef) or node.name not in _MEMBERS - _HARMLESS:
                continue
            if node.name not in ("error", "exit") or not _leaves(node.body[-1]):
                return f"`{node.name}` of the parser is its own"
    return ""


def _leaves(last: ast.stmt) -> bool:
    """Return whether a method ends the program by its last statement."""
    call = last.value if isinstance(last, ast.Expr) else None
    name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    return isinstance(last, ast.Raise) or name in _ENDS


def changed_by_fields(m: Machine, parser: Instance) -> str:
    """Return which attribute that decides about words a program has set on a parser; empty for none."""
    for name in tuple(m.store.names.get(parser, ())):
        if isinstance(name, str) and name in (_MEMBERS | _SETTINGS) - _TOLD:
            stored = m.store.get((parser, name))
            if stored is not None and stored.atoms:
                return f"`{name}` of the parser is set"
    return ""
