"""Other ways to write the same call."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from random import Random

from metamorphic.imports import single
from metamorphic.subject import (
    Fresh,
    Subject,
    after_imports,
    assign,
    dotted,
    each_statement,
    hoisted,
    load,
    of_project,
    of_tree,
    replaced,
    statements,
    used_names,
)

# Parameters of the real functions, in order, without ``self``: written by ``signatures.py``.
SIGNATURES: dict[str, list[str]] = json.loads((Path(__file__).parent / "signatures.json").read_text())


def whole_name(node: ast.AST, bound_to: dict[str, str]) -> str:
    """What an imported name or attribute is called where it is defined, or nothing."""
    root, _, rest = dotted(node).partition(".")
    return f"{bound_to[root]}.{rest}".rstrip(".") if root in bound_to else ""


def imported(tree: ast.Module) -> dict[str, str]:
    return {bound: whole for _, _, bound, whole in single(tree)}


def _is_function(node: ast.AST, bound_to: dict[str, str]) -> bool:
    """A function of an imported module, called as an attribute or by its name; no class."""
    name = whole_name(node, bound_to)
    return bool(name) and not any(part[:1].isupper() for part in name.split("."))


@of_tree("function-by-local-alias")
def function_by_local_alias(tree: ast.Module) -> bool:
    """``wait = dist.barrier`` before the statement."""
    fresh, bound_to = Fresh(tree), imported(tree)

    def change(node: ast.expr, before: list[ast.stmt]) -> ast.expr | None:
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or not _is_function(node.func, bound_to)
        ):
            return None
        name = fresh("call_it")
        before.append(assign(name, node.func))
        node.func = load(name)
        return node

    return hoisted(tree, change, everywhere=True)


@of_tree("function-by-module-alias")
def function_by_module_alias(tree: ast.Module) -> bool:
    """The same, once after the imports."""
    fresh, bound_to = Fresh(tree), imported(tree)
    known: dict[str, str] = {}

    def change(node: ast.expr) -> ast.expr | None:
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or not _is_function(node.func, bound_to)
        ):
            return None
        text = ast.unparse(node.func)
        known.setdefault(text, "")
        known[text] = known[text] or fresh("call_it")
        node.func = load(known[text])
        return node

    done = replaced(tree, change)
    top = {
        a.asname or a.name.split(".")[0]
        for s in tree.body
        if isinstance(s, (ast.Import, ast.ImportFrom))
        for a in s.names
    }
    if not all(text.split(".")[0] in top for text in known):
        return False
    after_imports(tree, [s for text, name in known.items() for s in statements(f"{name} = {text}")])
    return done


@of_tree("method-by-alias")
def method_by_alias(tree: ast.Module) -> bool:
    """``save = engine.save_checkpoint`` before the statement that is this call."""
    fresh, bound_to = Fresh(tree), imported(tree)

    def change(statement: ast.stmt) -> list[ast.stmt] | None:
        value = statement.value if isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) else None
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return None
        if not dotted(value.func) or whole_name(value.func, bound_to):
            return None
        name = fresh("call_it")
        before, value.func = assign(name, value.func), load(name)
        return [before, statement]

    return each_statement(tree, change)


def _parameters(node: ast.Call, bound_to: dict[str, str]) -> list[str] | None:
    plain = not any(isinstance(a, ast.Starred) for a in node.args) and all(k.arg for k in node.keywords)
    return SIGNATURES.get(whole_name(node.func, bound_to)) if plain else None


@of_tree("arguments-by-name")
def arguments_by_name(tree: ast.Module) -> bool:
    bound_to = imported(tree)

    def change(node: ast.expr) -> ast.expr | None:
        names = _parameters(node, bound_to) if isinstance(node, ast.Call) and node.args else None
        if names is None or not isinstance(node, ast.Call) or len(names) < len(node.args):
            return None
        node.keywords[0:0] = [ast.keyword(n, a) for n, a in zip(names, node.args, strict=False)]
        node.args = []
        return node

    return replaced(tree, change)


@of_tree("arguments-by-position")
def arguments_by_position(tree: ast.Module) -> bool:
    """As many as stand next to each other in the signature."""
    bound_to = imported(tree)

    def change(node: ast.expr) -> ast.expr | None:
        names = _parameters(node, bound_to) if isinstance(node, ast.Call) and node.keywords else None
        if names is None or not isinstance(node, ast.Call):
            return None
        given = {k.arg: k for k in node.keywords}
        moved = False
        for name in names[len(node.args) :]:
            if name not in given:
                break
            node.args.append(given[name].value)
            node.keywords.remove(given[name])
            moved = True
        return node if moved else None

    return replaced(tree, change)


def _named(node: ast.expr) -> ast.Call | None:
    if not isinstance(node, ast.Call) or not node.keywords or not all(k.arg for k in node.keywords):
        return None
    # ``dict`` and ``field`` and what decorates are no calls of a library that takes options.
    return None if dotted(node.func) in ("dict", "field", "dataclass", "print") else node


@of_tree("keywords-as-dict")
def keywords_as_dict(tree: ast.Module) -> bool:
    def change(node: ast.expr) -> ast.expr | None:
        call = _named(node)
        if call is None:
            return None
        options = ast.Dict([ast.Constant(k.arg) for k in call.keywords], [k.value for k in call.keywords])
        call.keywords = [ast.keyword(None, options)]
        return call

    return replaced(tree, change)


def _in_variable(tree: ast.Module, how: str) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.expr, before: list[ast.stmt]) -> ast.expr | None:
        call = _named(node)
        if call is None:
            return None
        name = fresh("options")
        pairs = [(k.arg, ast.unparse(k.value)) for k in call.keywords]
        literal = "{" + ", ".join(f"{k!r}: {v}" for k, v in pairs) + "}"
        if how == "dict":
            before.extend(statements(f"{name} = {literal}"))
        elif how == "call":
            before.extend(statements(f"{name} = dict({', '.join(f'{k}={v}' for k, v in pairs)})"))
        else:
            before.extend(statements(f"{name} = {{}}"))
            before.extend(s for k, v in pairs for s in statements(f"{name}[{k!r}] = {v}"))
        call.keywords = [ast.keyword(None, load(name))]
        return call

    return hoisted(tree, change, everywhere=False)


@of_tree("keywords-in-variable")
def keywords_in_variable(tree: ast.Module) -> bool:
    return _in_variable(tree, "dict")


@of_tree("keywords-in-dict-call")
def keywords_in_dict_call(tree: ast.Module) -> bool:
    return _in_variable(tree, "call")


@of_tree("keywords-one-by-one")
def keywords_one_by_one(tree: ast.Module) -> bool:
    return _in_variable(tree, "items")


@of_tree("arguments-in-tuple")
def arguments_in_tuple(tree: ast.Module) -> bool:
    fresh, bound_to = Fresh(tree), imported(tree)

    def change(node: ast.expr, before: list[ast.stmt]) -> ast.expr | None:
        if not isinstance(node, ast.Call) or not node.args or not whole_name(node.func, bound_to):
            return None
        if any(isinstance(a, (ast.Starred, ast.GeneratorExp)) for a in node.args):
            return None
        name = fresh("values")
        before.append(assign(name, ast.Tuple(node.args, ast.Load())))
        node.args = [ast.Starred(load(name), ast.Load())]
        return node

    return hoisted(tree, change, everywhere=False)


@of_tree("argument-in-variable")
def argument_in_variable(tree: ast.Module) -> bool:
    """Each argument that is a call itself gets a name first."""
    fresh = Fresh(tree)

    def change(node: ast.expr, before: list[ast.stmt]) -> ast.expr | None:
        if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
            return None
        done = False
        for at, value in enumerate(node.args):
            if isinstance(value, ast.Call):
                name = fresh("value")
                before.append(assign(name, value))
                node.args[at] = load(name)
                done = True
        return node if done else None

    return hoisted(tree, change, everywhere=False)


def _wrapped(tree: ast.Module) -> tuple[list[ast.stmt], list[str]]:
    """Functions around the functions of ``torch.distributed`` and its like, which the calls now use."""
    fresh, bound_to = Fresh(tree), imported(tree)
    known: dict[str, str] = {}

    def change(node: ast.expr) -> ast.expr | None:
        if not isinstance(node, ast.Call) or not whole_name(node.func, bound_to).startswith("torch.distributed."):
            return None
        if not _is_function(node.func, bound_to):
            return None
        text = ast.unparse(node.func)
        known.setdefault(text, "")
        known[text] = known[text] or fresh(f"own_{text.rpartition('.')[2]}")
        node.func = load(known[text])
        return node

    replaced(tree, change)
    made = [f"def {n}(*args, **kwargs):\n    return {t}(*args, **kwargs)\n" for t, n in known.items()]
    return statements("\n".join(made)), list(known.values())


@of_tree("function-wrapped")
def function_wrapped(tree: ast.Module) -> bool:
    made, _ = _wrapped(tree)
    after_imports(tree, made)
    return bool(made)


@of_project("function-wrapped-in-other-module")
def function_wrapped_elsewhere(subject: Subject, _: Random) -> Subject | None:
    tree = ast.parse(subject.text)
    made, names = _wrapped(tree)
    if not made or "/" in subject.path:
        return None
    used = {n for s in made for n in used_names(s)}
    lines = [
        ast.unparse(s)
        for s in tree.body
        if isinstance(s, (ast.Import, ast.ImportFrom))
        and any((a.asname or a.name.split(".")[0]) in used for a in s.names)
    ]
    after_imports(tree, statements(f"from waiting import {', '.join(names)}"))
    script = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return subject.with_text(script).beside("waiting.py", "\n".join([*lines, *map(ast.unparse, made)]) + "\n")
