"""Scripts and notebooks: spans, comments, and what happens to text that is not Python."""

from __future__ import annotations

import ast
import json

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.core.source import SourceFile, Span
from dslint.parse.data import ParseProblem
from dslint.parse.notebook import mask_magics, read_notebook
from dslint.parse.python import TOO_DEEP, ScriptDoc, ScriptProblem, comment_spans, parse_script


def parse(text: str) -> ScriptDoc:
    doc = parse_script(SourceFile("a.py", text))
    assert isinstance(doc, ScriptDoc), doc
    return doc


def problem(text: str) -> ScriptProblem:
    found = parse_script(SourceFile("a.py", text))
    assert isinstance(found, ScriptProblem)
    return found


def texts(doc: ScriptDoc, kind: type[cst.CSTNode]) -> list[str]:
    found: list[str] = []

    class Visitor(cst.CSTVisitor):
        def on_visit(self, node: cst.CSTNode) -> bool:
            if isinstance(node, kind):
                span = doc.span(node)
                found.append(doc.source.text[span.start : span.end])
            return True

    doc.module.visit(Visitor())
    return found


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_spans_are_exact_in_code_points(newline: str) -> None:
    text = newline.join(["# 日本語 🙂", 'x = "é🙂"; f(x)', "", "if x:", "    g( y )  # ü", ""])
    assert texts(parse(text), cst.Call) == ["f(x)", "g( y )"]


def test_the_last_statement_without_a_newline_has_a_span() -> None:
    assert texts(parse("é = 1\nf(é)"), cst.Call) == ["f(é)"]


def test_parentheses_around_an_expression_are_not_part_of_it_when_they_are_not_its_own() -> None:
    assert texts(parse("x = f((a))\n"), cst.Arg) == ["(a)"]


def test_deep_chains_still_have_positions() -> None:
    text = "x = " + " + ".join(["1"] * 600) + "\ny = f(x)\n"
    assert texts_of_calls(parse(text)) == ["f(x)"]


def texts_of_calls(doc: ScriptDoc) -> list[str]:
    last = doc.module.body[-1]
    assert isinstance(last, cst.SimpleStatementLine)
    assign = last.body[0]
    assert isinstance(assign, cst.Assign)
    span = doc.span(assign.value)
    return [doc.source.text[span.start : span.end]]


def test_a_syntax_error_has_its_place() -> None:
    found = problem("a = 1\nif a\n    pass\n")
    assert found.invalid
    assert "expected ':'" in found.message
    assert SourceFile("", "a = 1\nif a\n    pass\n").line_column(found.span.start) == (2, 5)


def test_a_nul_byte_is_a_problem_at_its_place() -> None:
    assert problem("a = 1\0\n").invalid


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "-" * 50_000 + "1",
        "x" + ".a" * 50_000,
        "if a: pass\n" + "elif b: pass\n" * 9000,
    ],
    ids=["parentheses", "unary", "attributes", "elif"],
)
def test_nesting_that_would_exhaust_the_stack_is_a_problem_and_no_crash(text: str) -> None:
    assert not problem(text).invalid


LONG_CHAINS = {
    "methods": "x = a" + ".b()" * 300,
    "calls": "x = a" + "()" * 600,
    "subscripts": "x = a" + "[0]" * 600,
    "mixed": "x = a" + ".b()[0]" * 200,
    "sum": "x = " + " + ".join(["1"] * 650),
    "and": "x = " + " and ".join(["a"] * 600),
    "conditionals": "x = " + "a if b else " * 600 + "1",
    "elif": "if a: pass\n" + "elif b: pass\n" * 600,
    "strings": "x = (" + "'a' " * 600 + ")",
    "dictionary": "x = {" + "1: [f(a.b.c, d=(1, 2))],\n" * 300 + "}",
    "docstring": '"""' + 'it\'s a "case".\n' * 2_000 + '"""',
    "prose": '"""\ncase ' + "{" * 30 + '\n"""',
    "patterns": "match x:\n  case " + "{1: [" * 3 + "a" + "]}" * 3 + ": pass",
}


@pytest.mark.parametrize("text", LONG_CHAINS.values(), ids=LONG_CHAINS)
def test_long_chains_are_read_and_what_follows_has_its_place(text: str) -> None:
    assert texts_of_calls(parse(f"{text}\ny = f(x)\n")) == ["f(x)"]


TOO_LONG = {
    "methods": "x = a" + ".b()" * 500,
    "spread": "x = (a" + "\n.b(c)" * 500 + ")",
    "in a format": "x = f'{a" + ".b()" * 500 + "}'",
    "large terms": "x = " + "+".join(["f(" + "a," * 60 + ")"] * 600),
    "and": "x = " + " and ".join(["a"] * 1_000),
    "loops": "x = [a" + " for a in b" * 1_000 + "]",
    "elif": "if a: pass\n" + "elif b: pass\n" * 1_000,
    "strings": "x = (" + "'a' " * 1_000 + ")",
    "decorator": "@a" + ".b()" * 500 + "\ndef f(): pass",
    "import": "import a" + ".b" * 1_000,
    "import from": "from a" + ".b" * 1_000 + " import c",
    "mapping": "match x:\n  case " + "{1:" * 11 + "a" + "}" * 11 + ": pass",
    "group": "match x:\n  case " + "(" * 60 + "a" + ")" * 60 + ": pass",
}


@pytest.mark.parametrize("text", TOO_LONG.values(), ids=TOO_LONG)
def test_what_would_keep_libcst_busy_is_refused_before_it_is_asked(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_text: str) -> cst.Module:
        raise AssertionError("LibCST was asked")

    monkeypatch.setattr(cst, "parse_module", refuse)
    found = problem(f"import os\n{text}\n")
    assert (found.message, found.invalid) == (TOO_DEEP, False)
    assert found.span.start >= len("import os\n")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "f(" * 150 + "1 2" + ")" * 150,
        "x = 1 2\ny = " + "[" * 150 + "]" * 150,
        "x = 1 2\ny = a" + ".b()" * 500,
        "x = 1 2\ny = f'" + "{a:" * 500 + "}" * 500 + "'",
        "x = 1 2\nif a: pass\n" + "elif b: pass\n" * 1_000,
        "x = 1 2\n" + TOO_LONG["mapping"],
    ],
    ids=["inside", "behind", "chain", "format", "elif", "pattern"],
)
def test_a_syntax_error_in_a_deep_text_stays_as_python_says_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_text: str) -> cst.Module:
        raise AssertionError("LibCST was asked")

    monkeypatch.setattr(cst, "parse_module", refuse)
    found = problem(text + "\n")
    assert found.invalid
    assert "syntax error" in found.message


def test_libcst_is_asked_about_the_syntax_of_a_newer_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_text: str) -> ast.Module:
        raise SyntaxError("invalid syntax", ("", 2, 1, "", 2, 2))

    monkeypatch.setattr("dslint.parse.python.syntax_tree", refuse)
    text = 'x = [f"{{{a}}}", {"k": (1, 2)}]\n' * 500 + "def f():\n    if a: pass\n    elif b: pass\n" * 800
    assert isinstance(parse_script(SourceFile("a.py", text)), ScriptDoc)


def test_what_python_accepts_and_dslint_cannot_read_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_text: str) -> cst.Module:
        raise cst.ParserSyntaxError("no", lines=["x = 1\n"], raw_line=1, raw_column=0)

    monkeypatch.setattr(cst, "parse_module", refuse)
    found = problem("x = 1\n")
    assert not found.invalid
    assert "Python accepts" in found.message


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    found = parse_script(SourceFile("a.py", text))
    if isinstance(found, ParseProblem):
        assert 0 <= found.span.start <= found.span.end <= len(text)
    comment_spans(text)


# -- comments -----------------------------------------------------------------------------------------------------


def comments(text: str) -> list[str]:
    return [text[s.start : s.end] for s in comment_spans(text)]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_comments_are_tokens_not_hashes_in_strings(newline: str) -> None:
    text = newline.join(['x = "# no"  # yes é', '"""', "# no", '"""', "# also"])
    assert comments(text) == ["# yes é", "# also"]


def test_comments_before_a_mistake_are_kept() -> None:
    assert comments("# one\nx = (1,\n# two\n")[0] == "# one"


def test_comments_of_a_document_are_the_same() -> None:
    assert parse("x = 1  # é\n").comments == (Span(7, 10),)


# -- notebooks ----------------------------------------------------------------------------------------------------


def notebook(*cells: tuple[str, str | list[str]]) -> str:
    return json.dumps({"cells": [{"cell_type": kind, "source": source} for kind, source in cells]})


def test_code_cells_are_joined_and_positions_count_from_their_cell() -> None:
    found = read_notebook("a.ipynb", notebook(("markdown", "# hi"), ("code", ["a = 1\n", "b = 2"]), ("code", "f(a)")))
    assert isinstance(found, SourceFile)
    assert found.text == "a = 1\nb = 2\nf(a)\n"
    at = found.text.index("f(a)")
    region = found.region(Span(at, at + 4))
    assert (region.cell, region.line, region.column) == (3, 1, 1)
    region = found.region(Span(6, 7))
    assert (region.cell, region.line) == (2, 2)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"cells": 3}', "[" * 100_000, ""])
def test_a_broken_notebook_is_a_problem(text: str) -> None:
    found = read_notebook("a.ipynb", text)
    assert isinstance(found, ParseProblem)
    assert found.message.startswith("not a readable notebook")


def test_odd_cells_are_left_out() -> None:
    text = json.dumps(
        {
            "cells": [
                1,
                {"cell_type": "code"},
                {"cell_type": "code", "source": [1]},
                {"cell_type": "code", "source": "x"},
            ]
        }
    )
    found = read_notebook("a.ipynb", text)
    assert isinstance(found, SourceFile)
    assert found.text == "x\n"


@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        ("%matplotlib inline\nx = 1\n", "x = 1"),
        ("!pip install a \\\n   b\nx = 1\n", "x = 1"),
        ("files = !ls\nx = 1\n", "x = 1"),
        ("if a:\n    !ls\nx = 1\n", "x = 1"),
        ("%%time\nx = 1\n", "x = 1"),
        ("f?\nx = 1\n", "x = 1"),
        ("cd ..\nx = 1\n", "x = 1"),
        ("pip install -q a\nx = 1\n", "x = 1"),
        ("ls = [1]\ncat in ls\n", "ls = [1]\ncat in ls"),
        ("y = (a\n  % b)\nx = 1\n", "% b)"),
        ('s = """\n%d items\n"""\nx = 1', "%d items"),
    ],
)
def test_magics_are_masked_and_python_is_kept(cell: str, kept: str) -> None:
    masked = mask_magics(cell)
    assert kept in masked
    assert masked.count("\n") == cell.count("\n")
    compile(masked, "cell", "exec")


def test_a_cell_in_another_language_is_masked_whole() -> None:
    compile(mask_magics("%%bash\nfor f in *; do echo $f; done\n"), "cell", "exec")


@pytest.mark.parametrize(
    "cell",
    [
        " with open('x') as file:\n    text = file.read()\n    print(text)\n      ",
        "\n    import torch\n    !nvidia-smi\n    for x in y:\n        print(x)\n",
        "\tx = 1\n\ty = 2\n",
    ],
)
def test_a_cell_that_is_indented_as_a_whole_is_python_as_in_ipython(cell: str) -> None:
    compile(mask_magics(cell), "cell", "exec")


def test_a_line_that_is_indented_deeper_than_the_first_stays_an_error() -> None:
    with pytest.raises(IndentationError):
        compile(mask_magics("x = 1\n    y = 2\n"), "cell", "exec")
