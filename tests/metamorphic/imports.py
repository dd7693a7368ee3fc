"""Other ways to import the same."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import PurePosixPath
from random import Random

from metamorphic.subject import (
    FUNCTIONS,
    Fresh,
    Subject,
    dotted,
    expression,
    is_future,
    load,
    of_project,
    of_tree,
    replaced,
    statements,
)

# Modules that scripts reach as attributes of a package.
MODULES = frozenset(
    [
        "torch.distributed",
        "torch.cuda",
        "torch.nn",
        "torch.optim",
        "torch.utils",
        "torch.utils.data",
        "torch.utils.data.distributed",
        "torch.nn.utils",
        "torch.nn.functional",
        "torch.nn.init",
        "torch.nn.parallel",
        "torch.optim.lr_scheduler",
        "torch.multiprocessing",
        "torch.distributed.fsdp",
        "torch.distributed.device_mesh",
        "torch.distributed.checkpoint",
        "numpy.random",
        "deepspeed.comm",
        "deepspeed.zero",
        "deepspeed.ops.adam",
        "transformers.integrations",
        "transformers.trainer",
        "lightning.pytorch",
        "lightning.pytorch.strategies",
        "os.path",
    ]
)


def aliases(tree: ast.AST) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias, str, str]]:
    """Each imported name: its statement, the alias, the name it binds, the whole name it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                yield node, alias, bound, alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module and not is_future(node):
            for alias in node.names:
                if alias.name != "*":
                    yield node, alias, alias.asname or alias.name, f"{node.module}.{alias.name}"


def rebound(tree: ast.AST) -> set[str]:
    """Names that something else than an import binds."""
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    defined = {n.name for n in ast.walk(tree) if isinstance(n, (*FUNCTIONS, ast.ClassDef))}
    return stored | defined | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


def single(tree: ast.AST) -> list[tuple[ast.Import | ast.ImportFrom, ast.alias, str, str]]:
    """The imported names that one import alone binds."""
    found = list(aliases(tree))
    names = [bound for _, _, bound, _ in found]
    other = rebound(tree)
    return [entry for entry in found if names.count(entry[2]) == 1 and entry[2] not in other]


def rename(tree: ast.AST, names: dict[str, ast.expr]) -> None:
    def change(node: ast.expr) -> ast.expr | None:
        if isinstance(node, ast.Name) and node.id in names:
            return expression(ast.unparse(names[node.id]))
        return None

    replaced(tree, change)


@of_tree("import-renamed", keeps=False)
def import_renamed(tree: ast.Module) -> bool:
    fresh = Fresh(tree)
    names: dict[str, ast.expr] = {}
    for node, alias, bound, _ in single(tree):
        if isinstance(node, ast.Import) and "." in alias.name and not alias.asname:
            continue
        alias.asname = fresh(f"{bound[:2].lower()}x")
        names[bound] = load(alias.asname)
    rename(tree, names)
    return bool(names)


@of_tree("import-module-from-package")
def module_from_package(tree: ast.Module) -> bool:
    done = False
    for node in list(ast.walk(tree)):
        body = getattr(node, "body", None)
        for at, statement in enumerate(body if isinstance(body, list) else []):
            if not isinstance(statement, ast.Import) or len(statement.names) != 1:
                continue
            alias = statement.names[0]
            package, _, name = alias.name.rpartition(".")
            if package and alias.asname:
                body[at] = ast.ImportFrom(package, [ast.alias(name, alias.asname if alias.asname != name else None)], 0)
                done = True
    return done


@of_tree("import-module-by-whole-name", keeps=False)
def module_by_whole_name(tree: ast.Module) -> bool:
    other = rebound(tree)
    names: dict[str, ast.expr] = {}
    for node, alias, bound, whole in single(tree):
        if isinstance(node, ast.Import) and alias.asname and whole.split(".")[0] not in other:
            alias.asname = None
            names[bound] = expression(whole)
    rename(tree, names)
    return bool(names)


def _members(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Attributes of imported modules as they are written: ``torch.cuda.set_device`` -> its module, its name."""
    bound_to = {bound: whole for _, _, bound, whole in single(tree)}
    modules = {whole for _, alias, _, whole in aliases(tree)} | MODULES
    found: dict[str, tuple[str, str]] = {}
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or id(node) in inner:
            continue
        root, *parts = dotted(node).split(".")
        if root not in bound_to or (bound_to[root][:1].isupper() or bound_to[root].rpartition(".")[2][:1].isupper()):
            continue
        for count in range(len(parts) - 1, -1, -1):
            module = ".".join([bound_to[root], *parts[:count]])
            if module in modules:
                written = ".".join([root, *parts[: count + 1]])
                found[written] = (module, parts[count])
                break
    return found


@of_tree("import-names", keeps=False)
def names_imported(tree: ast.Module) -> bool:
    return _import_members(tree, star=False)


@of_tree("import-star", keeps=False)
def star_imported(tree: ast.Module) -> bool:
    return _import_members(tree, star=True)


# What a star of these brings is not what the module holds, or hides names of Python.
_NO_STAR = frozenset({"os", "os.path", "numpy", "torch", "sys", "argparse", "random", "math"})


def _import_members(tree: ast.Module, star: bool) -> bool:
    found = _members(tree)
    fresh = Fresh(tree)
    taken: dict[str, str] = {}
    new: dict[str, str] = {}
    free = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | rebound(tree)
    for written, (module, name) in found.items():
        if module + "." + name in MODULES or (star and (module in _NO_STAR or name in free)):
            continue
        local = taken.get(f"{module}.{name}")
        if local is None:
            local = name if name not in free and not hasattr(builtins, name) else fresh(f"{name}_")
            taken[f"{module}.{name}"] = local
            star_line = f"from {module} import *"
            plain = f"from {module} import {name}" + ("" if local == name else f" as {local}")
            new[star_line if star else plain] = local
        _replace_dotted(tree, written, local)
    _insert(tree, list(new))
    _drop_unused(tree, {written.split(".")[0] for written in found})
    return bool(new)


def _replace_dotted(tree: ast.Module, written: str, by: str) -> None:
    replaced(
        tree,
        lambda n: (
            expression(by)
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and dotted(n) == written
            else None
        ),
    )


def _insert(tree: ast.Module, lines: list[str]) -> None:
    first = next(
        (n for n, s in enumerate(tree.body) if isinstance(s, (ast.Import, ast.ImportFrom)) and not is_future(s)), 0
    )
    tree.body[first:first] = statements("\n".join(lines))


def _drop_unused(tree: ast.Module, replaced_roots: set[str]) -> None:
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    kept: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)) and not is_future(statement):
            statement.names = [
                a
                for a in statement.names
                if a.name == "*"
                or (a.asname or a.name.split(".")[0]) in used
                or (a.asname not in replaced_roots and a.name not in replaced_roots)
            ]
            if not statement.names:
                continue
        kept.append(statement)
    tree.body[:] = kept


@of_tree("import-module-of-names", keeps=False)
def module_of_names(tree: ast.Module) -> bool:
    """``from a import B`` as ``import a`` and ``a.B``."""
    other, names, lines = rebound(tree), {}, []
    for node, alias, bound, whole in single(tree):
        if isinstance(node, ast.ImportFrom) and node in tree.body and whole.split(".")[0] not in other:
            names[bound] = expression(whole)
            lines.append(f"import {node.module}" if whole not in MODULES else f"import {whole}")
            node.names = [a for a in node.names if a is not alias]
    tree.body[:] = [s for s in tree.body if not isinstance(s, ast.ImportFrom) or s.names]
    rename(tree, names)
    _insert(tree, list(dict.fromkeys(lines)))
    return bool(names)


@of_tree("import-in-functions", keeps=False)
def imports_in_functions(tree: ast.Module) -> bool:
    """Each top-level function imports what it uses; the module imports what is used outside of functions."""
    entries = [
        e
        for e in single(tree)
        if e[0] in tree.body and not (isinstance(e[0], ast.Import) and "." in e[1].name and not e[1].asname)
    ]
    done, moved = False, set[str]()
    for statement in tree.body:
        if not isinstance(statement, FUNCTIONS):
            continue
        head = {
            n.id
            for n in ast.walk(ast.Module([*statement.decorator_list, statement.args], []))
            if isinstance(n, ast.Name)
        }
        used = {n.id for s in statement.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        mine = [e for e in entries if e[2] in used - head]
        moved |= {e[2] for e in mine}
        lines = [
            ast.unparse(
                type(n)(**({"module": n.module, "level": 0} if isinstance(n, ast.ImportFrom) else {}), names=[a])
            )
            for n, a, _, _ in mine
        ]
        statement.body[0:0] = statements("\n".join(lines))
        done = done or bool(lines)
    if done:
        outside = {
            n.id for s in tree.body if not isinstance(s, FUNCTIONS) for n in ast.walk(s) if isinstance(n, ast.Name)
        }
        outside |= {
            n.id
            for s in tree.body
            if isinstance(s, FUNCTIONS)
            for d in (*s.decorator_list, s.args)
            for n in ast.walk(d)
            if isinstance(n, ast.Name)
        }
        for node, alias, bound, _ in entries:
            if bound not in outside and bound in moved:
                node.names = [a for a in node.names if a is not alias]
        tree.body[:] = [s for s in tree.body if not isinstance(s, (ast.Import, ast.ImportFrom)) or s.names]
    return done


@of_tree("import-tried")
def import_tried(tree: ast.Module) -> bool:
    """Each import in a ``try``, with ``None`` where the module is missing."""
    new: list[ast.stmt] = []
    done = False
    for statement in tree.body:
        plain = isinstance(statement, (ast.Import, ast.ImportFrom)) and not is_future(statement)
        if not plain or any(a.name == "*" for a in statement.names):
            new.append(statement)
            continue
        names = [(a.asname or a.name.split(".")[0]) for a in statement.names]
        (guarded,) = statements("try:\n    pass\nexcept ImportError:\n" + "".join(f"    {n} = None\n" for n in names))
        assert isinstance(guarded, ast.Try)
        guarded.body = [statement]
        new.append(guarded)
        done = True
    tree.body[:] = new
    return done


@of_tree("import-by-name")
def import_by_name(tree: ast.Module) -> bool:
    """``dist = importlib.import_module("torch.distributed")``."""
    done = False
    for at, statement in enumerate(tree.body):
        if isinstance(statement, ast.Import) and len(statement.names) == 1:
            alias = statement.names[0]
            if alias.asname or "." not in alias.name:
                line = f"{alias.asname or alias.name} = importlib.import_module({alias.name!r})"
                tree.body[at] = statements(line)[0]
                done = True
    if done:
        _insert(tree, ["import importlib"])
        first = next(n for n, s in enumerate(tree.body) if isinstance(s, ast.Import) and s.names[0].name == "importlib")
        tree.body.insert(0 if not (tree.body and is_future(tree.body[0])) else 1, tree.body.pop(first))
    return done


def _module_beside(subject: Subject, how: str) -> Subject | None:
    tree = ast.parse(subject.text)
    moved = [s for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom)) and not is_future(s)]
    known = {PurePosixPath(p).stem for p in subject.files} | {PurePosixPath(p).parent.name for p in subject.files}
    moved = [s for s in moved if isinstance(s, ast.Import) or (not s.level and s.module.split(".")[0] not in known)]  # type: ignore[union-attr]
    moved = [s for s in moved if not any(a.name == "*" for a in s.names)]
    if not moved or "/" in subject.path or subject.is_imported:
        return None
    names = {(a.asname or a.name.split(".")[0]) for s in moved for a in s.names}
    text = "\n".join(map(ast.unparse, moved)) + "\n"
    tree.body[:] = [s for s in tree.body if s not in moved]
    if how == "module":
        if names & rebound(tree):
            return None
        rename(tree, {n: expression(f"compat.{n}") for n in names})
        line = "import compat"
    else:
        line = "from compat import " + ("*" if how == "star" else ", ".join(sorted(names)))
    first = sum(1 for s in tree.body[:1] if is_future(s))
    tree.body[first:first] = statements(line)
    script = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return subject.with_text(script).beside("compat.py", text)


@of_project("import-from-own-module")
def import_from_own_module(subject: Subject, _: Random) -> Subject | None:
    return _module_beside(subject, "names")


@of_project("import-star-of-own-module")
def import_star_of_own_module(subject: Subject, _: Random) -> Subject | None:
    return _module_beside(subject, "star")


@of_project("import-own-module")
def import_own_module(subject: Subject, _: Random) -> Subject | None:
    return _module_beside(subject, "module")
