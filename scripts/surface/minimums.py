"""Which releases of other libraries the code of a release asks for while it runs, where its metadata need not say so.

``is_accelerate_available`` of transformers is true from a release of accelerate on, and `TrainingArguments` raises
where it is not; `require_version`, `dep_version_check` and tests of a release that end in `raise` ask likewise.
"""

from __future__ import annotations

import ast
import bisect
import re
import zipfile
from collections.abc import Iterator

from surface import guards, runtime

_ASKS = re.compile(
    r"(?:_available\b|_version|__version__|metadata\.version|version\.parse)[^\n]*\n(?:[^\n]*\n){0,3}?[^\n]*\braise\b"
    r"|require_version|dep_version_check"
)
# Modules of single models and tests ask for what one model needs.
_SKIPPED = re.compile(r"\.(models|tests?|testing|testing_utils|commands|benchmark|pipelines|schedulers)(\.|$)")
# Files that define what the others ask with, and lines at which a function may end.
_TOLD = re.compile(r"def _?is_\w+_available|^\w*VERSION\w* = |^deps = |^pkgs_to_check_at_runtime = ", re.M)
_ENDS = re.compile(r"\braise\b|require_version|dep_version_check")
_AVAILABLE = re.compile(r"_?is_([a-z0-9_]+?)_available$")
_RELEASE = re.compile(r"\d+(\.\d+)+(\.?(dev|post|a|b|rc)\d*)?$")
_COMPARED = re.compile(r"(!?)([a-z_0-9]+?)(>=|<=|==|!=|<|>)([\w.]+)$")
_OPPOSITE = {">=": "<", "<": ">=", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_PACKAGES = {"bnb": "bitsandbytes", "hf_hub": "huggingface_hub", "sklearn": "scikit_learn"}

# How a place asks, the library, the range, the function; `available` is the function that tells, `asks` one that
# raises, `asks if x` one that raises where its argument `x` is set, `may ask` one that raises under another condition,
# `imports` a module that does
# while it is imported.
Row = tuple[str, str, str, str]


def minimums(library: str, path: str) -> list[Row]:
    """What the code of a release asks for, from its text."""
    trees: dict[str, ast.Module] = {}
    lines: dict[str, list[int]] = {}
    with zipfile.ZipFile(path) as texts:
        for file in sorted(texts.namelist()):
            name = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            if not file.endswith(".py") or not name.startswith(f"{library}.") or _SKIPPED.search(name):
                continue
            text = texts.read(file).decode("utf-8", "replace")
            if _TOLD.search(text) or _ASKS.search(text):
                try:
                    trees[name] = ast.parse(text)
                except (SyntaxError, ValueError, RecursionError):
                    continue
                lines[name] = [at for at, line in enumerate(text.splitlines(), 1) if _ENDS.search(line)]
    constants = dict(_constants(trees))
    deps = dict(_table(trees.get(f"{library}.dependency_versions_table")))
    available: dict[str, tuple[str, str]] = {}
    for name, tree in trees.items():
        for other, range_ in _availability(tree, constants):
            available.setdefault(other, (range_, name))
    rows = [("available", o, r, f"{name}.is_{o}_available") for o, (r, name) in available.items()]
    known = {other: range_ for other, (range_, _) in available.items()}
    for name, tree in trees.items():
        for kind, other, range_, where in _raised(tree, constants, deps, known, lines[name]):
            rows.append((kind, other, range_, f"{name}.{where}".rstrip(".")))
    for text, name in runtime.checked(trees, deps):
        required = _parted(text)
        if required:
            rows.append(("imports", *required, name))
    return sorted({row for row in rows if row[1] != library})


def _constants(trees: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Names of the whole library that stand for one release."""
    found: dict[str, set[str]] = {}
    for tree in trees.values():
        for node in tree.body:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            text = next((n.value for n in ast.walk(value) if isinstance(n, ast.Constant)), None) if value else None
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if value and isinstance(node, ast.AnnAssign)
                else []
            )
            for target in targets:
                if (
                    isinstance(target, ast.Name)
                    and target.id.isupper()
                    and isinstance(text, str)
                    and _RELEASE.match(text)
                ):
                    found.setdefault(target.id, set()).add(text)
    for name, texts in found.items():
        if len(texts) == 1:
            yield name, next(iter(texts))


def _table(tree: ast.Module | None) -> Iterator[tuple[str, str]]:
    """``deps`` of transformers and diffusers: the distribution and its range."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                    yield str(key.value), str(value.value)


class _Filled(ast.NodeTransformer):
    """Writes constants in the place of their names."""

    def __init__(self, constants: dict[str, str]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """One name."""
        found = self.constants.get(node.id)
        return ast.Constant(found) if found is not None and isinstance(node.ctx, ast.Load) else node


def _availability(tree: ast.Module, constants: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The functions that say whether a library is there, and from which release on they say so."""
    flags: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = re.fullmatch(r"_?([a-z_0-9]+?)_available", node.targets[0].id)
        if name:
            for condition in guards.of_test(_Filled(constants).visit(node.value)):
                compared = _COMPARED.match(condition)
                if compared and compared[3] == ">=" and not compared[1]:
                    flags[name[1]] = compared[4]
    for node in tree.body:
        match = _AVAILABLE.match(node.name) if isinstance(node, ast.FunctionDef) else None
        if match is None or not isinstance(node, ast.FunctionDef):
            continue
        other = _PACKAGES.get(match[1], match[1])
        default = _default(node, constants)
        returned = _returned(node, {**constants, **({"min_version": default} if default else {})}, other)
        least = returned or flags.get(match[1])
        if least and _RELEASE.match(least):
            yield other, f">={least}"


def _default(node: ast.FunctionDef, constants: dict[str, str]) -> str | None:
    """The release that ``min_version`` has where nobody gives one."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    for argument, value in zip(arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True):
        filled = _Filled(constants).visit(value)
        if argument.arg == "min_version" and isinstance(filled, ast.Constant) and isinstance(filled.value, str):
            return filled.value
    return None


def _returned(node: ast.FunctionDef, constants: dict[str, str], other: str) -> str | None:
    """The release that what the function returns compares with."""
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Return) or inner.value is None:
            continue
        # In a function about one library every release is one of it, and a test of a flag says nothing about it.
        for part in inner.value.values if isinstance(inner.value, ast.BoolOp) else [inner.value]:
            if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.GtE) and "ersion" in ast.unparse(part):
                numbers = [
                    n.value
                    for n in ast.walk(_Filled(constants).visit(part.comparators[0]))
                    if isinstance(n, ast.Constant)
                ]
                if len(numbers) == 1 and _about(part.left, other):
                    return str(numbers[0])
    return None


def _about(left: ast.expr, other: str) -> bool:
    """The release that is compared may be that of a library."""
    names = {
        n.value if isinstance(n, ast.Constant) else n.id
        for n in ast.walk(left)
        if isinstance(n, (ast.Name, ast.Constant))
    }
    own = {str(name).strip("_").replace("_version", "") for name in names} - {"version", "parse", "importlib", "parsed"}
    return not own or bool(own & {other, "package", *(k for k, v in _PACKAGES.items() if v == other)})


def _raised(
    tree: ast.Module, constants: dict[str, str], deps: dict[str, str], available: dict[str, str], lines: list[int]
) -> Iterator[Row]:
    """How, the library, the range and the function, for each test of a release that ends in ``raise``."""
    for where, conditions, call in _places(tree.body, "", (), constants, lines):
        if call is not None:
            found = _required(call, deps)
            if found:
                yield ("may ask" if conditions else "asks", *found, where)
            continue
        last = [_failing(condition, available) for condition in conditions]
        plain = [each for each in last if each is not None]
        if len(plain) == 1:
            is_sure = all(
                each is not None or condition.startswith("available:")
                for each, condition in zip(last, conditions, strict=True)
            )
            yield (_kind(is_sure, last, conditions), *plain[0], where)


def _kind(is_sure: bool, last: list[tuple[str, str] | None], conditions: tuple[str, ...]) -> str:
    """How it asks: always, where one argument is set, or where nobody knows."""
    others = [
        condition
        for condition, found in zip(conditions, last, strict=True)
        if found is None and not condition.startswith("available:")
    ]
    argument = re.fullmatch(r"if:(?:self\.)?(?!self$|_)(\w+)", others[0]) if len(others) == 1 else None
    return "asks" if is_sure else f"asks if {argument[1]}" if argument else "may ask"


def _failing(condition: str, available: dict[str, str]) -> tuple[str, str] | None:
    """The library and the range outside of which a condition holds."""
    if condition.startswith("!available:"):
        other = condition.partition(":")[2]
        other = _PACKAGES.get(other, other)
        return (other, available[other]) if other in available else None
    compared = _COMPARED.match(condition)
    if compared is None or not _RELEASE.match(compared[4]):
        return None
    sign = compared[3] if compared[1] else _OPPOSITE[compared[3]]
    return _PACKAGES.get(compared[2], compared[2]), f"{sign}{compared[4]}"


def _required(call: ast.Call, deps: dict[str, str]) -> tuple[str, str] | None:
    argument = call.args[0] if call.args else None
    if isinstance(argument, ast.Subscript):
        argument = argument.slice
    text = argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else ""
    return _parted(deps.get(text, text))


def _parted(text: str) -> tuple[str, str] | None:
    """The library and the range of a requirement with a range."""
    match = re.match(r"([A-Za-z0-9_.-]+?)\s*((?:[<>=!]=?|~=).*)?$", text)
    return (match[1].replace("-", "_"), match[2].replace(" ", "")) if match and match[2] else None


def _places(
    body: list[ast.stmt], where: str, conditions: tuple[str, ...], constants: dict[str, str], lines: list[int]
) -> Iterator[tuple[str, tuple[str, ...], ast.Call | None]]:
    """Each ``raise`` with the conditions under which it is reached, and each call that checks a requirement."""
    for node in body:
        at = bisect.bisect_left(lines, node.lineno)
        if at == len(lines) or lines[at] > (node.end_lineno or node.lineno):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _places(node.body, f"{where}.{node.name}".lstrip("."), (), constants, lines)
        elif isinstance(node, ast.If):
            found = guards.of_test(_Filled(constants).visit(node.test))
            yield from _places(node.body, where, conditions + found, constants, lines)
            yield from _places(node.orelse, where, conditions + guards.negated(found), constants, lines)
        elif isinstance(node, (ast.For, ast.While, ast.With)):
            inside = conditions if isinstance(node, ast.With) else (*conditions, "if:loop")
            yield from _places(node.body, where, inside, constants, lines)
        elif isinstance(node, ast.Raise):
            yield where, conditions, None
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = (
                node.value.func.attr
                if isinstance(node.value.func, ast.Attribute)
                else getattr(node.value.func, "id", "")
            )
            if name in ("require_version", "require_version_core", "dep_version_check"):
                yield where, conditions, node.value
