"""The same node in both trees of a script."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest

from dslint.parse.tree import Tree
from dslint.parse.twins import Twins

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "dslint" / "python").glob("*.py"))[1::6]
ODD = """\
@d(1)
def f(a, /, b: int = 1, *c, k=g(2), **e) -> list[int]:
    return [x(y) for x in z(w) if v(x)] or [*p(), q] or {**r(), "a": s(), t(): 1}

class A(B, C[int], *n(), metaclass=m()):
    x: int = o()

async def main():
    async with a() as b, c() as (d, e):
        await f()
    x = yield g()
    match h():
        case 1 if i(): j()
    try: k()
    except L() as l: m()
    else: n()
    finally: o()

print(f"{a()!r:>{b()}} {c()=}", "x" f"{d()}", *e, k=f(), *g(), **h())
del a[b(), c()], (d)(1)[2]
a[(b(), c())], a[b():c():d(), e()], (p() and q() and r()) or (s() or t())
x = y = lambda u=v(): w(u)
assert a() < b() < c(), d()
if a(): pass
elif b(): pass
else: c(); d()
"""


def pairs(code: str) -> list[tuple[cst.Call, ast.AST | None]]:
    module, tree = cst.parse_module(code), ast.parse(code)
    twins = Twins(module, tree)
    found = [(node, twins.plain(node)) for node in Tree(module).every(cst.Call)]
    assert len({id(other) for _, other in found}) == sum(isinstance(n, ast.Call) for n in ast.walk(tree))
    for node, other in found:
        assert isinstance(other, ast.Call), module.code_for_node(node)
        assert ast.unparse(other.func) == ast.unparse(ast.parse(f"({module.code_for_node(node.func).strip()})").body[0])
        assert twins.concrete(other) is node
    return found


def test_every_call_has_its_twin_in_odd_code() -> None:
    assert len(pairs(ODD)) > 50


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_call_has_its_twin(file: Path) -> None:
    assert pairs(file.read_text(encoding="utf-8"))
