"""Where the statements of a module begin and end, whatever its layout."""

from __future__ import annotations

import ast

import pytest

from dslint.core.source import SourceFile
from dslint.python.source import Module, read

PLAIN = """\
def work(path):
    \"\"\"Say what it does.\"\"\"
    first(path)  # a remark
    wait_for(path)
    second(path)
    return path
"""
LAYOUTS = {
    "plain": PLAIN,
    "form feeds": PLAIN.replace("    second", "\f    second").replace("    wait", "\f    wait"),
    "semicolons": PLAIN.replace("(path)  # a remark\n    ", "(path); ").replace("\n    second", "; second"),
    "parentheses": PLAIN.replace("first(path)", "(first(path))").replace("wait_for(path)", "(wait_for(path))"),
}


def module(text: str) -> Module:
    found = read(SourceFile("work.py", text))
    assert isinstance(found, Module)
    return found


def call(module: Module, name: str) -> ast.Call:
    calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    return next(node for node in calls if isinstance(node.func, ast.Name) and node.func.id == name)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_code_between_two_statements(layout: str) -> None:
    source = module(LAYOUTS[layout])
    first, second = call(source, "first"), call(source, "second")
    assert "wait_for" in source.code_between(first, second)
    assert "return" not in source.code_between(first, second)
    function = source.function(first)
    assert isinstance(function, ast.FunctionDef)
    assert "first" not in source.code_after(first, function)
    assert "return" in source.code_after(first, source.tree)
    before = source.code_before(second, function)
    assert "wait_for" in before
    assert "second" not in before
    assert "remark" not in before


def test_the_statement_of_a_test_is_the_test_alone() -> None:
    source = module("if ask(1):\n    work()\n")
    assert source.text(source.statement(call(source, "ask"))) == "ask(1)"
    assert source.text(source.statement(call(source, "work"))) == "work()"


def test_a_form_feed_ends_no_line() -> None:
    assert module("a = 1\n\fb = 2\nc = 3\n").lines(2, 3) == "\fb = 2\nc = 3"
