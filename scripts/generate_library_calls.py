"""Generates ``schemas/library_calls.json``: with which arguments a library calls the methods that people override.

    python scripts/generate_library_calls.py FOLDER

``FOLDER`` holds wheels of transformers, trl and pytorch-lightning, one or more of each minor release. They are read
as text: nothing is installed or imported. What the file says of a library without a wheel in the folder stays.

Of each class: method -> ``[[release, calls], ...]``, the releases from which on other calls are written there. A call
is ``[positional, names, callers]``: how many arguments by position, which by name, and the methods that call so.
``null`` in the place of calls: something is handed on that cannot be counted, or the method is called from elsewhere.
An empty list: nothing in the library names it any more.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import Version

OUTPUT = Path(__file__).resolve().parents[1] / "schemas" / "library_calls.json"
WHEEL = re.compile(r"(transformers|trl|pytorch_lightning)-(\d+\.\d+\.\d+)-.*\.whl$")
NAMES = {"pytorch_lightning": "lightning"}
# The modules whose classes call their own methods; the classes of those of trl are its trainers.
MODULES = {
    "transformers": re.compile(r"transformers/(?:trainer|trainer_seq2seq)\.py"),
    "trl": re.compile(r"trl/trainer/\w+_trainer\.py"),
}
CLASS = re.compile(r"\w*Trainer$")
# What is handed on as a function, and how many arguments it gets then: `_get_dataloader(sampler_fn=...)`.
HANDED = {"sampler_fn": 1}
# Functions of Lightning that call a hook by its name -> the class that has it, and how many arguments come before.
HOOKS = {"_call_lightning_module_hook": ("LightningModule", 0), "_call_callback_hooks": ("Callback", 2)}
OWN = frozenset({"pl_module", "monitoring_callbacks"})
# An object of Lightning's own has methods of these names.
_LOGGERS = re.compile(rb"_logger_connector\.\w+")
Call = tuple[int, tuple[str, ...]]
Made = dict[Call, set[str]]
Calls = dict[str, dict[str, Made | None]]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with wheels")
    args = parser.parse_args()
    data = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.exists() else {}
    wheels: dict[str, list[tuple[Version, Path]]] = {}
    for path in args.folder.iterdir():
        if match := WHEEL.match(path.name):
            wheels.setdefault(match[1], []).append((Version(match[2]), path))
    for library, paths in sorted(wheels.items()):
        data[NAMES.get(library, library)] = history(library, sorted(paths))
    OUTPUT.write_text(dumped(data), encoding="utf-8")
    return 0


def history(library: str, wheels: list[tuple[Version, Path]]) -> dict[str, Any]:
    """The calls of all releases, each written where it begins."""
    told = {str(version): read(library, path) for version, path in wheels}
    texts = {str(version): words(path) for version, path in wheels}
    classes: dict[str, dict[str, list[Any]]] = {}
    every = {(name, method) for calls in told.values() for name, methods in calls.items() for method in methods}
    for name, method in sorted(every):
        rows: list[list[Any]] = []
        for version, calls in told.items():
            if name not in calls:
                continue
            found = calls[name].get(method, {})
            if not found and found is not None and method.encode() in texts[version]:
                found = None
            shown = (
                None if found is None else [[n, list(names), sorted(by)] for (n, names), by in sorted(found.items())]
            )
            if (rows and rows[-1][1] != shown) or (not rows and shown != []):
                rows.append([version, shown])
        if len(rows) > 1 or any(row[1] for row in rows):
            classes.setdefault(name, {})[method] = rows
    return {"releases": list(told), "classes": classes}


def read(library: str, path: Path) -> Calls:
    """What one wheel calls."""
    found: Calls = {}
    with zipfile.ZipFile(path) as files:
        for name in files.namelist():
            if library == "pytorch_lightning" and name.endswith(".py"):
                _hooks(ast.parse(files.read(name)), found)
            elif library in MODULES and MODULES[library].fullmatch(name):
                for node in ast.parse(files.read(name)).body:
                    if isinstance(node, ast.ClassDef) and CLASS.match(node.name):
                        found[node.name] = own_calls(node)
    return found


def words(path: Path) -> frozenset[bytes]:
    """All words of a library, but those of its models: what is named there may be called from there."""
    found: set[bytes] = set()
    with zipfile.ZipFile(path) as files:
        for name in files.namelist():
            if name.endswith(".py") and "/models/" not in name and not name.endswith("/logger_connector.py"):
                found.update(re.findall(rb"\w+", _LOGGERS.sub(b"", files.read(name))))
    return frozenset(found)


def own_calls(node: ast.ClassDef) -> dict[str, Made | None]:
    """The calls of methods of `self` in a class; ``None`` for methods that it hands on or names in a text."""
    defined = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    found: dict[str, Made | None] = {}
    called: set[int] = set()
    for caller, body in defined.items():
        for inner in ast.walk(body):
            if isinstance(inner, ast.Call):
                for keyword in inner.keywords:
                    if keyword.arg in HANDED and _is_own(keyword.value):
                        called.add(id(keyword.value))
                        _add(found, keyword.value.attr, (HANDED[keyword.arg], ()), caller)  # type: ignore[attr-defined]
                if _is_own(inner.func):
                    called.add(id(inner.func))
                    _add(found, inner.func.attr, shape(inner), caller)  # type: ignore[attr-defined]
            elif _is_own(inner) and id(inner) not in called and inner.attr in defined:  # type: ignore[attr-defined]
                found[inner.attr] = None  # type: ignore[attr-defined]
            elif isinstance(inner, ast.Constant) and inner.value in defined:
                found[inner.value] = None  # type: ignore[index]
    return found


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _add(found: dict[str, Made | None], name: str, call: Call | None, caller: str) -> None:
    known = found.setdefault(name, {})
    if known is not None and call is not None:
        known.setdefault(call, set()).add(caller)
    else:
        found[name] = None


def shape(call: ast.Call, first: int = 0) -> Call | None:
    """How many arguments a call passes by position, and which by name; ``None`` where that cannot be counted."""
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        return None
    return len(call.args) - first, tuple(sorted(str(k.arg) for k in call.keywords if k.arg not in OWN))


def _hooks(tree: ast.Module, found: Calls) -> None:
    """Calls of hooks by their names: `_call_callback_hooks(trainer, "on_train_start")`."""
    for name, at, call in _named(tree):
        owner, before = HOOKS[name]
        made = shape(call, at + 1)
        hook = str(call.args[at].value)  # type: ignore[attr-defined]
        _add(found.setdefault(owner, {}), hook, (made[0] + before, made[1]) if made is not None else None, "")


def _named(tree: ast.Module) -> Iterator[tuple[str, int, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            at = next((i for i, arg in enumerate(node.args[:2]) if isinstance(arg, ast.Constant)), -1)
            if name in HOOKS and at >= 0:
                yield name, at, node


def dumped(data: dict[str, Any]) -> str:
    """JSON with a line for each method."""
    parts = []
    for library, told in sorted(data.items()):
        classes = []
        for name, methods in sorted(told["classes"].items()):
            lines = [f"    {json.dumps(method)}: {json.dumps(rows)}" for method, rows in sorted(methods.items())]
            classes.append(f"   {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n   }")
        parts.append(
            f' {json.dumps(library)}: {{\n  "releases": {json.dumps(told["releases"])},\n  "classes": {{\n'
            + ",\n".join(classes)
            + "\n  }\n }"
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    raise SystemExit(main())
