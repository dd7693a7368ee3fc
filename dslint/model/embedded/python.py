"""DeepSpeed configs as dicts of a Python file: which there are, what they hold, and who reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dslint.core.garbage import no_collections
from dslint.core.source import SourceFile
from dslint.model.deepspeed.batch import MICRO, STEPS, TRAIN
from dslint.model.deepspeed.detect import is_deepspeed_config
from dslint.model.embedded.document import DocumentMaker
from dslint.model.embedded.execute import Executor, Reading, TooMuchError
from dslint.model.embedded.names import changed_names, free_names
from dslint.model.embedded.readers import NAMED, reader_of
from dslint.model.embedded.values import Choice, Ref, Value, World
from dslint.model.plan.pyscript import PyScript, read_script
from dslint.parse.data import DataDoc

_BATCH = tuple(f"/{key}" for key in (TRAIN, MICRO, STEPS))
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_configs(source: SourceFile) -> tuple[DataDoc, ...]:
    """The configs of a Python file, each as it is when somebody reads it.

    A dict that nobody in the file reads counts when its keys and its name both say that it is a DeepSpeed config;
    other files may then add to it, so that it is open everywhere.
    """
    return _configs(source.path, source.text, source.cells)


# The run plan and the rules about configs ask for the same files.
@lru_cache(maxsize=256)
def _configs(path: str, text: str, cells: tuple[tuple[int, int], ...]) -> tuple[DataDoc, ...]:
    script = read_script(SourceFile(path, text, cells=cells))
    if script.tree is None:
        return ()
    try:
        with no_collections():
            readings = list(_readings(script, script.tree))
    except (TooMuchError, RecursionError):
        return ()
    return tuple(_documents(script, readings))


def _readings(script: PyScript, tree: ast.Module) -> Iterator[Reading]:
    functions = list(_functions(tree))
    if not _is_interesting(script, tree):
        return
    tables, calls = _tables(tree), _calls(functions)
    free = {name: set().union(*(free_names(f) for f in functions if f.name == name)) for name in calls}
    mentions = {name: frozenset().union(*(free[n] for n in (name, *called))) for name, called in calls.items()}
    executor = Executor(script, _worth(script, functions, tables, calls), mentions)
    end = executor.run_module(tree.body)
    # Before a function runs that somebody else calls, any other one may have run.
    changed = {name for f in functions if changed_names(f) for name in free_names(f)}
    named = _named(end)
    for name in changed:
        if name in end.names:
            end.lose(end.names[name])
    for function in functions:
        if id(function) in executor.ran or not _is_interesting(script, function):
            continue
        for found, world in executor.run_alone(function, end):
            named += _named(world)
            if NAMED.search(function.name):
                named += _read_by_nobody(found, world)
    yield from executor.found
    yield from named


def _functions(tree: ast.Module) -> Iterator[_Function]:
    """Functions of the module and methods of its classes, and the functions inside them."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _Function):
                yield child
            if isinstance(child, ast.stmt | ast.ExceptHandler):
                pending.append(child)


def _is_interesting(script: PyScript, function: ast.AST) -> bool:
    """A config is made or read in a function, or in the whole file."""
    for node in ast.walk(function):
        if isinstance(node, ast.Dict) and any(isinstance(k, ast.Constant) and _speaks(k.value) for k in node.keys):
            return True
        if isinstance(node, ast.Call):
            if any(k.arg in ("zero_optimization", *_KEYS) for k in node.keywords):
                return True
            if reader_of(script, script.qualified(node.func), node) is not None:
                return True
    return False


_KEYS = (TRAIN, MICRO, "fp16", "bf16", "optimizer", "stage")


def _speaks(key: Any) -> bool:
    return key in ("zero_optimization", "steps_per_print", *_KEYS)


def _calls(functions: list[_Function]) -> dict[str, set[str]]:
    """The functions of the file that each one calls, directly or through others."""
    names = {f.name for f in functions}
    calls: dict[str, set[str]] = {name: set() for name in names}
    for function in functions:
        calls[function.name] |= free_names(function) & names
    changed = True
    while changed:
        changed = False
        for called in calls.values():
            more = set().union(*(calls[name] for name in called)) - called
            called |= more
            changed |= bool(more)
    return calls


def _worth(
    script: PyScript, functions: list[_Function], tables: set[str], calls: dict[str, set[str]]
) -> frozenset[str]:
    """Functions whose call makes, reads or may change a config, directly or through others."""
    found = {f.name for f in functions if _is_interesting(script, f) or free_names(f) & tables}
    return frozenset(name for name, called in calls.items() if name in found or called & found)


_MAY_BE_DICT = ast.Dict | ast.Call | ast.BinOp | ast.Name | ast.Subscript


def _tables(tree: ast.Module) -> set[str]:
    """Names of the module that may hold a dict."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, _MAY_BE_DICT):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name) and node.col_offset == 0}
    return found


def _named(world: World) -> list[Reading]:
    """Dicts whose names say that they are DeepSpeed configs."""
    return [r for name, value in world.names.items() if NAMED.search(name) for r in _read_by_nobody(value, world)]


def _read_by_nobody(value: Value, world: World) -> list[Reading]:
    refs = (value,) if isinstance(value, Ref) else value.refs if isinstance(value, Choice) else ()
    return [Reading("", ref, dict(world.heap)) for ref in refs]


def _documents(script: PyScript, readings: list[Reading]) -> list[DataDoc]:
    maker = DocumentMaker(script)
    docs: list[DataDoc] = []
    # A dict with a known reader is judged for that one.
    readings.sort(key=lambda r: (r.consumer == "", r.consumer == "unknown"))
    read: set[int] = set()
    for reading in readings:
        node = reading.heap[reading.ref.number].node
        if reading.consumer in ("", "unknown") and id(node) in read:
            continue
        read.add(id(node))
        doc = None if reading.is_expected_to_fail else maker.document(reading.ref, reading.heap, reading.consumer)
        if doc is None or not doc.keys or any(_same(doc, other) for other in docs):
            continue
        if not reading.consumer:
            if not _looks_like_one(doc):
                continue
            _open(doc)
        elif reading.consumer in ("lightning", "unknown"):
            # Lightning adds what its Trainer knows; `HfDeepSpeedConfig` alone leaves the rest to others.
            doc.open_objects |= {""}
        docs.append(doc)
    return sorted(docs, key=lambda d: d.values[""])


def _same(a: DataDoc, b: DataDoc) -> bool:
    return (a.consumer, a.data, a.values, a.opaque, a.open_objects) == (
        b.consumer,
        b.data,
        b.values,
        b.opaque,
        b.open_objects,
    )


def _looks_like_one(doc: DataDoc) -> bool:
    keys = {p[1:] for p in doc.opaque if p.count("/") == 1}
    return is_deepspeed_config("config.json", {**dict.fromkeys(keys), **doc.data})


def _open(doc: DataDoc) -> None:
    """Whoever gets the dict may add to it, and nearly always sets the batch sizes."""
    doc.consumer = "unknown"
    doc.open_objects = frozenset(p for p in doc.values if isinstance(doc.get(p), dict))
    for pointer in _BATCH:
        if doc.data.pop(pointer[1:], None) is not None:
            doc.opaque = {**doc.opaque, pointer: "its reader, in another file, may set it"}
