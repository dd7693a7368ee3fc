"""Other ways to the rank of the process."""

from __future__ import annotations

import ast
from collections.abc import Callable

from metamorphic.subject import (
    Fresh,
    after_imports,
    assign,
    dotted,
    expression,
    hoisted,
    is_future,
    load,
    of_tree,
    replaced,
    statements,
)
from metamorphic.tests_of_ranks import each_test, is_rank_call


@of_tree("rank-in-variable")
def rank_in_variable(tree: ast.Module) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.expr, before: list[ast.stmt]) -> ast.expr | None:
        if not is_rank_call(node):
            return None
        name = fresh("number")
        before.append(assign(name, node))
        return load(name)

    return hoisted(tree, change, everywhere=True)


def _ranks_by(tree: ast.Module, make: Callable[[str, str], str], use: Callable[[str, str], str]) -> bool:
    """Each kind of rank call comes from something defined once, after the imports."""
    fresh = Fresh(tree)
    known: dict[str, str] = {}

    def change(node: ast.expr) -> ast.expr | None:
        if not is_rank_call(node):
            return None
        text = ast.unparse(node)
        name = known.setdefault(text, "") or fresh("which")
        known[text] = name
        return expression(use(name, text))

    done = replaced(tree, change)
    after_imports(tree, [s for text, name in known.items() for s in statements(make(name, text))])
    return done


@of_tree("rank-from-function")
def rank_from_function(tree: ast.Module) -> bool:
    return _ranks_by(tree, lambda n, t: f"def {n}():\n    return {t}\n", lambda n, _: f"{n}()")


@of_tree("rank-from-guarded-function")
def rank_from_guarded_function(tree: ast.Module) -> bool:
    """As in most projects: 0 where nothing is distributed."""

    def make(name: str, text: str) -> str:
        module, _, asked = text[:-2].rpartition(".")
        other = 0 if "rank" in asked else 1
        if not module:
            return f"def {name}():\n    return {text}\n"
        return f"def {name}():\n    if not {module}.is_initialized():\n        return {other}\n    return {text}\n"

    return _ranks_by(tree, make, lambda n, _: f"{n}()")


@of_tree("rank-from-attribute")
def rank_from_attribute(tree: ast.Module) -> bool:
    def make(name: str, text: str) -> str:
        return f"class {name.title()}:\n    def __init__(self):\n        self.number = {text}\n"

    return _ranks_by(tree, make, lambda n, _: f"{n.title()}().number")


@of_tree("rank-from-property")
def rank_from_property(tree: ast.Module) -> bool:
    def make(name: str, text: str) -> str:
        return f"class {name.title()}:\n    @property\n    def number(self):\n        return {text}\n"

    return _ranks_by(tree, make, lambda n, _: f"{n.title()}().number")


@of_tree("rank-from-environment")
def rank_from_environment(tree: ast.Module) -> bool:
    """As torchrun and the deepspeed launcher set it."""
    keys = {"get_rank": "RANK", "get_world_size": "WORLD_SIZE", "get_local_rank": "LOCAL_RANK"}

    def change(node: ast.expr) -> ast.expr | None:
        if not is_rank_call(node):
            return None
        assert isinstance(node, ast.Call)
        return expression(f'int(os.environ["{keys[dotted(node.func).rpartition(".")[2]]}"])')

    if not replaced(tree, change):
        return False
    tree.body.insert(sum(1 for s in tree.body[:1] if is_future(s)), statements("import os")[0])
    return True


def _is_zero(test: ast.Compare) -> bool:
    other = test.comparators[0]
    is_rank = is_rank_call(test.left) or dotted(test.left).rpartition(".")[2] in ("rank", "process_index")
    return is_rank and isinstance(other, ast.Constant) and other.value == 0


@of_tree("rank-as-truth")
def rank_as_truth(tree: ast.Module) -> bool:
    """``not rank`` for ``rank == 0``, in tests that only ask for truth."""
    done = False
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp)) and isinstance(node.test, ast.Compare) and _is_zero(node.test):
            asked = type(node.test.ops[0])
            if asked in (ast.Eq, ast.NotEq):
                node.test = ast.UnaryOp(ast.Not(), node.test.left) if asked is ast.Eq else node.test.left
                done = True
    return done


@of_tree("rank-in-list")
def rank_in_list(tree: ast.Module) -> bool:
    def change(test: ast.expr) -> ast.expr | None:
        assert isinstance(test, ast.Compare)
        asked = type(test.ops[0])
        if not _is_zero(test) or asked not in (ast.Eq, ast.NotEq):
            return None
        return ast.Compare(test.left, [ast.In() if asked is ast.Eq else ast.NotIn()], [expression("[0]")])

    return each_test(tree, change)


@of_tree("rank-below-one")
def rank_below_one(tree: ast.Module) -> bool:
    def change(test: ast.expr) -> ast.expr | None:
        assert isinstance(test, ast.Compare)
        asked = type(test.ops[0])
        if not _is_zero(test) or asked not in (ast.Eq, ast.NotEq):
            return None
        return ast.Compare(
            test.left, [ast.Lt() if asked is ast.Eq else ast.Gt()], [ast.Constant(1 if asked is ast.Eq else 0)]
        )

    return each_test(tree, change)
