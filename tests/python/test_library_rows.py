"""The rows of `schemas/libraries`: only known words, names that exist, signatures like the installed libraries."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.metadata
import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parents[2] / "schemas" / "libraries"
FILES = sorted(FOLDER.glob("*.toml"))
WORDS = json.loads((FOLDER / "words.json").read_text(encoding="utf-8"))
TOP = {"library", "sources", "aliases", "function", "class", "value", "environment", "patterns"}
PLAIN = {form for form in WORDS["returns"] if re.fullmatch(r"[a-z-]+", form)}
NAMED = {form.split()[0] for form in WORDS["returns"] if re.fullmatch(r"[a-z-]+ \*?(NAME|N)", form)}
NESTED = {"tuple", "list", "iterator"}
TAGS = {tag.split()[0] for tag in WORDS["tags"]}
TAKES_PARAMETER = {
    "parameter",
    "parameters",
    "wrapped",
    "unwrapped",
    "copy",
    "number",
    "if",
    "group-rank",
    "group-size",
    "environment",
}
CONDITIONAL = {tag.split()[0] for tag in WORDS["tags"] if " " in tag}

# Distributions whose files are read to check signatures, by the first part of a path.
DISTRIBUTIONS = {"yaml": "PyYAML"}
# Rows that say something else than `inspect`, and why.
EXCEPTIONS: dict[str, str] = {
    r"accelerate\.logging\.MultiProcessAdapter\.\w+": "`log` takes the two names out of the keywords",
    r"torch\.distributed\.fsdp\.FSDPModule\.forward": "a mixin: the forward is that of the model, with hooks",
    r"torch\.nn\.Module\.forward": "a stub that raises: each class takes what it likes",
    r"io\.IOBase\.(read|readall|readinto|write)": "the row stands for every open file",
    r"transformers\.AutoModel\w*\.from_config": "copied from a bound method: inspect drops a parameter too many",
    r"transformers\.ProcessorMixin\.(pad|preprocess)": "found in the classes of a pattern",
    r"transformers\.PreTrainedTokenizerBase\.train_new_from_iterator": "found in the classes of a pattern",
    r"transformers\.generation\.GenerationMixin\.chat": "of models whose code comes with the weights",
}
# Other spellings that are objects of their own, and why they may share a row.
EQUIVALENT: dict[str, str] = {
    r"torch\.(cuda\.)?\w+Tensor": "a tensor of one type",
    r"torch\.random\.manual_seed": "wraps it",
    r"torch\.distributed\._(all_gather|reduce_scatter)_base": "calls it",
    r"torch\.distributed\.reduce_op": "gives the same members",
    r"torch\.optim\.lr_scheduler\._LRScheduler": "a subclass without members of its own",
    r"pathlib\.(Pure)?PosixPath": "what the class makes",
    r"queue\.\w+": "the same methods",
    r"tqdm\.\w+\.\w+": "the same bar in another place",
    r"transformers\..*PreTrainedTokenizer(Fast)?": "a subclass",
}

Row = tuple[str, str, dict[str, Any]]


@cache
def table(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    found.setdefault("class", {})
    return found


def rows(file: Path) -> Iterator[Row]:
    """Yield (kind, path, row) of everything in a file; a class without its members."""
    found = table(file)
    for kind in ("function", "value"):
        for path, row in found.get(kind, {}).items():
            yield kind, path, row
    for path, row in found.get("class", {}).items():
        yield "class", path, {k: v for k, v in row.items() if k not in ("method", "property")}
        for kind in ("method", "property"):
            for name, member in row.get(kind, {}).items():
                yield kind, f"{path}.{name}", member


@cache
def everything(kind: str) -> dict[str, Path]:
    return {path: file for file in FILES for found, path, _ in rows(file) if found == kind}


def parameters(signature: str) -> ast.arguments:
    tree = ast.parse(f"def f({signature}): pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree.args


def names(arguments: ast.arguments) -> list[str]:
    star = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *star)]


def split(text: str, separator: str) -> list[str]:
    """Split where no bracket is open."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth and text.startswith(separator, at):
            parts.append(text[start:at].strip())
            start = at + len(separator)
    return [*parts, text[start:].strip()]


def returned(text: str) -> Iterator[tuple[str, str]]:
    """Yield the (form, name) pairs of a `returns` expression; a text that has no form is a mistake."""
    alternatives = split(text, " or ")
    if len(alternatives) > 1:
        for part in alternatives:
            yield from returned(part)
        return
    conditional = re.fullmatch(r"(.+) if (\w+)", text)
    if conditional:
        yield "if", conditional[2]
        if conditional[1] != "Work":
            yield from returned(conditional[1])
        return
    if text in PLAIN or re.fullmatch("`[^`]+`", text):
        yield "plain", text
        return
    nested = re.fullmatch(r"(\w+)\((.*)\)", text)
    if nested and nested[1] in NESTED:
        for part in split(nested[2], ","):
            yield from returned(part)
        return
    new = re.fullmatch(r"new ([\w.]+)(?:\((.*)\))?", text)
    if new:
        yield "new", new[1]
        for part in split(new[2], ",") if new[2] else []:
            name, equals, value = part.partition("=")
            assert name.isidentifier(), f"no field: {part!r}"
            assert equals, f"no field: {part!r}"
            yield from returned(value.strip())
        return
    word, _, name = text.partition(" ")
    assert word in NAMED, f"no form of `returns`: {text!r}"
    assert re.fullmatch(r"\*?\w+", name), f"no form of `returns`: {text!r}"
    yield word, name.lstrip("*")


def test_there_are_files() -> None:
    assert {file.stem for file in FILES} >= {"torch", "deepspeed", "accelerate", "transformers", "lightning", "python"}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_rows_use_only_known_words(file: Path) -> None:
    found = table(file)
    assert found.keys() <= TOP
    assert found["library"] == file.stem
    assert found["sources"]
    for kind, path, row in rows(file):
        for key, value in row.items():
            assert key in WORDS["keys"], f"{path}: unknown key {key}"
            assert kind in WORDS["keys"][key]["of"], f"{path}: {key} is no key of a {kind}"
            check_value(path, WORDS["keys"][key]["value"], value)


def check_value(path: str, form: str, value: Any) -> None:
    check = CHECKS.get(form)
    assert check(value) if check is not None else isinstance(value, str | dict), f"{path}: {value!r}"


def is_tag(text: str) -> bool:
    word, _, condition = text.partition(" ")
    if bool(condition) != (word in CONDITIONAL):
        return False
    return word in TAGS and (not condition or re.fullmatch(r"[\w.]+=[\w*]+", condition) is not None)


def is_items(text: str) -> bool:
    return text in WORDS["varies"] or re.fullmatch(r"from \w+(, \w+)*", text) is not None or bool(list(returned(text)))


def is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


# What the value of a key must look like, by the word for it in `words.json`; the others are texts or tables.
CHECKS: dict[str, Callable[[Any], bool]] = {
    "tags": lambda value: all(map(is_tag, value)),
    "varies": lambda value: value in WORDS["varies"],
    "returns": lambda value: bool(list(returned(value))),
    "items": is_items,
    "ranks": lambda value: re.fullmatch(r"is(-local)?-rank \d+|last-rank|(local-)?rank \w+", value) is not None,
    "true": lambda value: value is True,
    "callbacks": lambda value: set(value.values()) <= {"once", "many"},
    "parameters": is_texts,
    "pointers": lambda value: all(pointer.startswith("/") for pointer in value.values()),
    "classes": is_texts,
    "names": is_texts,
    "arguments": is_texts,
}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_rows_name_parameters_that_exist(file: Path) -> None:
    wrong = []
    for _, path, row in rows(file):
        if "signature" not in row:
            continue
        own = {*names(parameters(row["signature"])), "self"}
        if parameters(row["signature"]).kwarg is None:
            wrong += [f"{path}: {key} names `{name}`" for key, name in named(row) if name not in own]
    assert wrong == []


def named(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parameters that a row names, with the key that does."""
    for key, value in row.items():
        form = WORDS["keys"][key]["value"]
        if form == "parameter":
            yield key, value.lstrip("*")
        elif form in ("parameters", "pointers") or key == "callbacks":
            yield from ((key, name) for name in value)
        elif form == "returns":
            yield from ((key, name) for word, name in returned(value) if word in TAKES_PARAMETER)
        elif form == "items" and value.startswith("from "):
            yield from ((key, name) for name in value[5:].split(", "))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_rows_name_classes_that_have_rows(file: Path) -> None:
    classes = everything("class")
    for _, path, row in rows(file):
        wanted = [*row.get("bases", []), *row.get("stands_for", []), *(row.get("taken_as") or {}).values()]
        wanted += [row[k] for k in ("becomes", "unknown_becomes") if k in row]
        for key in ("returns", "gives"):
            if key in row:
                wanted += [name for word, name in returned(row[key]) if word == "new"]
        for text in row.get("wraps_as", {}).values():
            wanted += text.split(" or ")
        for text in (row.get("fields") or {}).values():
            if " " in text or "(" in text:
                wanted += [name for word, name in returned(text) if word == "new"]
        for name in wanted:
            assert name in classes, f"{path}: no row for class {name}"


def test_each_path_has_one_row() -> None:
    seen: dict[str, str] = {}
    for file in FILES:
        for kind, path, _ in rows(file):
            if kind in ("function", "class", "value"):
                assert path not in seen, f"{path}: in {seen[path]} and {file.stem}"
                seen[path] = file.stem


def test_aliases_lead_to_rows() -> None:
    paths = {*everything("function"), *everything("class"), *everything("value")}
    for file in FILES:
        for other, canonical in table(file).get("aliases", {}).items():
            assert canonical in paths, f"{file.stem}: {other} = {canonical}, which has no row"
            assert other not in paths, f"{file.stem}: {other} is an alias and a row"


def test_patterns_lead_to_classes() -> None:
    for file in FILES:
        for pattern, path in table(file).get("patterns", {}).items():
            assert path in everything("class"), pattern


def test_the_readme_lists_all_words() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for group in ("keys", "varies", "returns", "tags", "runs_on"):
        for word in WORDS[group]:
            assert f"| `{word}` |" in text or f"| `` {word} `` |" in text, f"{group}: {word}"


# The installed libraries


def installed(path: str, file: Path) -> bool:
    """Return whether the library of a path is installed in a release that the rows were read in."""
    sources = table(file)["sources"]
    if file.stem == "python":
        return f"CPython {sys.version_info.major}.{sys.version_info.minor}." in sources[0]
    root = path.partition(".")[0]
    name = DISTRIBUTIONS.get(root, root)
    try:
        return f"{name} {importlib.metadata.version(name).partition('+')[0]}" in sources
    except importlib.metadata.PackageNotFoundError:
        return False


def resolve(path: str) -> tuple[Any, Any]:
    """Return the object at a path and the raw one in its class or module."""
    head, *parts = path.split(".")
    found: Any = importlib.import_module(head)
    raw: Any = found
    for part in parts:
        head = f"{head}.{part}"
        raw = inspect.getattr_static(found, part, None)
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(head)
            except ModuleNotFoundError as error:
                if not head.startswith(error.name or "?"):
                    raise ImportError(f"{head} needs {error.name}") from error
                raise AttributeError(head) from error
    return found, raw


def described(text: str) -> dict[str, tuple[inspect._ParameterKind, ast.expr | None]]:
    """Return kind and default of each parameter of a signature text, in order."""
    found = parameters(text)
    positional = [*found.posonlyargs, *found.args]
    defaults = [*[None] * (len(positional) - len(found.defaults)), *found.defaults]
    result: dict[str, tuple[inspect._ParameterKind, ast.expr | None]] = {}
    for at, (parameter, default) in enumerate(zip(positional, defaults, strict=True)):
        only = at < len(found.posonlyargs)
        kind = inspect.Parameter.POSITIONAL_ONLY if only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        result[parameter.arg] = kind, default
    if found.vararg:
        result[found.vararg.arg] = inspect.Parameter.VAR_POSITIONAL, None
    for parameter, default in zip(found.kwonlyargs, found.kw_defaults, strict=True):
        result[parameter.arg] = inspect.Parameter.KEYWORD_ONLY, default
    if found.kwarg:
        result[found.kwarg.arg] = inspect.Parameter.VAR_KEYWORD, None
    return result


def disagreement(text: str, real: inspect.Signature, *, drop_first: bool) -> str:
    """Return how a signature of a row differs from the real one, or nothing."""
    said = described(text)
    wanted = list(real.parameters.values())
    if drop_first and wanted and wanted[0].name in ("self", "cls"):
        wanted = wanted[1:]
    if list(said) != [p.name for p in wanted]:
        return f"({', '.join(said)}) is ({', '.join(p.name for p in wanted)})"
    for p in wanted:
        kind, default = said[p.name]
        if kind != p.kind:
            return f"{p.name} is {p.kind.description}"
        if (default is None) != (p.default is p.empty):
            return f"{p.name}: one has a default, the other has none"
        if default is not None and other_constant(default, p.default):
            return f"{p.name}={ast.unparse(default)} is {p.default!r}"
    return ""


def other_constant(said: ast.expr, real: object) -> bool:
    """Return whether both are constants, and not the same one."""
    if type(real) not in (bool, int, float, str, bytes, tuple, type(None)) or real != real:
        return False
    try:
        value = ast.literal_eval(said)
    except ValueError:
        return False
    return value is not ... and (value != real or type(value) is not type(real))


def excused(path: str, reasons: dict[str, str]) -> bool:
    return any(re.fullmatch(pattern, path) for pattern in reasons)


def comparable(file: Path) -> Iterator[Row]:
    """Yield the rows of functions, classes and methods that the installed library should have."""
    for kind, path, row in rows(file):
        owner = table(file)["class"].get(path.rpartition(".")[0], {}) if kind == "method" else {}
        gone = any("last_seen" in r or "stands_for" in r for r in (row, owner))
        if kind not in ("property", "value") and not gone and not excused(path, EXCEPTIONS) and installed(path, file):
            yield kind, path, row


def real_signature(kind: str, real: Any) -> inspect.Signature | None:
    """Return the signature that `inspect` knows; None for builtins and where a decorator has hidden the parameters."""
    if kind == "class" and inspect.isfunction(inspect.unwrap(inspect.getattr_static(real, "__init__"))):
        real = inspect.getattr_static(real, "__init__")
    try:
        found = inspect.signature(real)
    except (ValueError, TypeError):
        return None
    return None if is_open(found) else found


def checked(file: Path) -> list[str]:
    found = []
    for kind, path, row in comparable(file):
        try:
            real, raw = resolve(path)
        except ImportError:
            continue  # an optional dependency is missing
        except AttributeError:
            found.append(f"{path}: does not exist")
            continue
        signature = real_signature(kind, real) if "signature" in row else None
        if signature is not None:
            drop = kind == "class" or (kind == "method" and not isinstance(raw, staticmethod))
            text = disagreement(row["signature"], signature, drop_first=drop)
            found += [f"{path}: {text}"] if text else []
    return found


def is_open(signature: inspect.Signature) -> bool:
    """Return whether a decorator has hidden the parameters."""
    kinds = [p.kind for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_signatures_agree_with_the_installed_library(file: Path) -> None:
    if not any(installed(path, file) for kind, path, _ in rows(file) if kind in ("function", "class")):
        pytest.skip(f"none of {', '.join(table(file)['sources'])} is installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert checked(file) == []


def objects(path: str) -> Iterator[Any]:
    """Yield what `import a.b; a.b.c` and `from a.b import c` give."""
    with contextlib.suppress(ImportError, AttributeError):
        yield resolve(path)[0]
    module, _, name = path.rpartition(".")
    with contextlib.suppress(ImportError, AttributeError):
        yield getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_aliases_are_the_same_objects(file: Path) -> None:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for other, canonical in table(file).get("aliases", {}).items():
            if excused(other, EQUIVALENT) or not (installed(other, file) and installed(canonical, file)):
                continue
            these, those = list(objects(other)), list(objects(canonical))
            # A spelling of another release gives no objects here.
            if these and not any(one is two for one in these for two in those):
                found.append(f"{other} is not {canonical}")
    assert found == []
