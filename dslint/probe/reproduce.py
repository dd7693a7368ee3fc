"""Writes an experiment as one file that needs neither dslint nor a fork server: to attach to an issue."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from dslint.probe.experiment import Case
from dslint.probe.registry import Entry

PARTS = "dslint.probe.parts."


def write(entry: Entry, case: Case, folder: Path) -> Path:
    """Write ``<experiment>-<case>/repro.py`` under ``folder``; returns its path."""
    target = folder / f"{entry.experiment.name}-{case.name}" / "repro.py"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(source(entry, case), encoding="utf-8")
    return target


def source(entry: Entry, case: Case) -> str:
    """The text of the reproducer."""
    experiment = entry.sized(case).experiment
    expect = experiment.expectation(case)
    kinds = " or ".join(kind.value for kind in expect.kinds)
    run = f"torchrun --standalone --nproc-per-node {experiment.ranks}"
    head = f'''"""{experiment.name}/{case.name}: {experiment.summary}.

    {run} repro.py            # as written: ends in {kinds}
    {run} repro.py --fixed    # as fixed: passes

{inspect.cleandoc(entry.module.__doc__ or "")}
"""
'''
    params = f"PARAMS = {_literal(dict(case.params))}\n"
    body = _body(entry.module)
    return f"{head}\nfrom __future__ import annotations\n\n{_RUNTIME}\n\n{params}\n\n{body}\n\n\n{_MAIN}"


@cache
def _body(module: ModuleType) -> str:
    return "\n\n\n".join(_texts(module, {"written", "fixed", "wrong"}, {}))


def _literal(params: dict[str, object]) -> str:
    # JSON in the form of a Python literal; tuples have become lists on the way to a rank anyway.
    return repr(json.loads(json.dumps(params)))


def _texts(module: ModuleType, wanted: set[str], seen: dict[str, set[str]]) -> Iterator[str]:
    """The statements of a module that ``wanted`` names need, and before them those of the parts that they import."""
    text = inspect.getsource(module)
    tree = ast.parse(text)
    kept = _needed(tree, wanted - seen.setdefault(module.__name__, set()))
    for node in kept:
        for name, imported in _parts(node):
            yield from _texts(import_module(name), imported, seen)
    lines = text.splitlines()
    for node in kept:
        if _names(node) <= seen[module.__name__] and _names(node):
            continue  # printed for another part
        seen[module.__name__] |= _names(node)
        shown = "\n".join(_without_dslint(node, lines))
        if shown.strip():
            yield shown


def _needed(tree: ast.Module, wanted: set[str]) -> list[ast.stmt]:
    """The statements at module level that define ``wanted``, and all that these use, in the order of the file."""
    defined: dict[str, ast.stmt] = {name: node for node in tree.body for name in _names(node)}
    queue, kept = list(wanted), set()
    while queue:
        node = defined.get(queue.pop())
        if node is not None and id(node) not in kept:
            kept.add(id(node))
            queue += _used(node)
    return [node for node in tree.body if id(node) in kept]


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return set()


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# What these bind is not seen around them. A loop variable of a comprehension may have the name of a function outside.
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _used(node: ast.AST) -> set[str]:
    """The names that a node takes from around it: not those that a function in it binds for itself."""
    if isinstance(node, ast.Name):
        return {node.id}
    children = list(ast.iter_child_nodes(node))
    if not isinstance(node, _FUNCTIONS):
        return set().union(*map(_used, children))
    body = node.body if isinstance(node.body, list) else [node.body]
    own = {inner.arg for inner in ast.walk(node.args) if isinstance(inner, ast.arg)} | _bound(body)
    inside = set().union(*map(_used, body)) - own
    # Decorators, defaults and annotations belong to the scope around.
    return inside.union(*(_used(child) for child in children if child not in body))


def _bound(body: Sequence[ast.AST]) -> set[str]:
    """The names that the statements of a function bind, without what the scopes in it bind."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.stmt):
            found |= _names(node) if not isinstance(node, ast.Assign | ast.AnnAssign) else set()
        if not isinstance(node, _SCOPES):
            found |= _bound(list(ast.iter_child_nodes(node)))
    return found


def _parts(node: ast.stmt) -> Iterator[tuple[str, set[str]]]:
    """(module, names) of what a statement imports from the shared parts."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith(PARTS):
            yield str(inner.module), {alias.name for alias in inner.names}


def _without_dslint(node: ast.stmt, lines: list[str]) -> Iterator[str]:
    dropped: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith("dslint"):
            dropped |= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    for number in range(first, (node.end_lineno or node.lineno) + 1):
        if number not in dropped:
            yield lines[number - 1]


_RUNTIME = '''\
import faulthandler
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from typing import Any

Json = RankApi = Any
os.environ.setdefault("OMP_NUM_THREADS", "1")
if "--cuda" not in sys.argv:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")


class Rank:
    """One process of the run, as torchrun started it."""

    def __init__(self) -> None:
        self.index = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.fixed = "--fixed" in sys.argv
        self.params = PARAMS
        cuda = "--cuda" in sys.argv
        self.backend = "nccl" if cuda else "gloo"
        self.device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else "cpu"
        name = f"repro-{os.environ.get('TORCHELASTIC_RUN_ID', os.getpid())}"
        self.folder = os.path.join(tempfile.gettempdir(), name)
        os.makedirs(os.path.join(self.folder, str(self.index)), exist_ok=True)

    def mark(self, what: str) -> None:
        print(f"[rank {self.index}] {what}", flush=True)

    def init(self, timeout: float = 30.0) -> None:
        import torch
        import torch.distributed as dist

        if self.device != "cpu":
            torch.cuda.set_device(self.device)
        # 30 s: a hang ends with an error that says where.
        dist.init_process_group(self.backend, timeout=timedelta(seconds=min(timeout, 30.0)))

    def store(self):
        import torch.distributed as dist

        return dist.FileStore(os.path.join(self.folder, "store"), self.world)

    def command(self, argv, env=None, patience=60.0, quiet=6.0):
        merged = {**os.environ, **(env or {})}
        for name in [name for name, value in (env or {}).items() if value == ""]:
            merged.pop(name)
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            if name not in (env or {}):
                merged.pop(name, None)
        own = os.path.join(self.folder, str(self.index))
        try:
            done = subprocess.run(argv, cwd=own, env=merged, capture_output=True, text=True, timeout=patience / 2)
        except subprocess.TimeoutExpired as late:
            texts = [(text or b"").decode("utf-8", "replace") for text in (late.stdout, late.stderr)]
            return {"ended": "stall", "rc": None, "out": texts[0], "err": texts[1]}
        ended = "signal" if done.returncode < 0 else "exit"
        return {"ended": ended, "rc": done.returncode, "out": done.stdout, "err": done.stderr}'''

_MAIN = """\
if __name__ == "__main__":
    faulthandler.dump_traceback_later(20, exit=False)
    RANK = Rank()
    os.chdir(os.path.join(RANK.folder, str(RANK.index)))
    try:
        import torch

        torch.manual_seed(0)
    except ImportError:
        pass
    print(f"[rank {RANK.index}] value: {(fixed if RANK.fixed else written)(RANK)!r}", flush=True)
    # A rank that exits would turn the hang of its peers into "connection closed": wait for them.
    open(os.path.join(RANK.folder, f"done-{RANK.index}"), "w").close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if all(os.path.exists(os.path.join(RANK.folder, f"done-{n}")) for n in range(RANK.world)):
            break
        time.sleep(0.1)
    os._exit(0)
"""
