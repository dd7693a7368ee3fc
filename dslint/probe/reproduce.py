"""Writes an experiment as one file that needs neither dslint nor a fork server: to attach to an issue."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from dslint.probe.experiment import Case
from dslint.probe.library import Entry

PARTS = "dslint.probe.parts."
# What a reproducer begins with; what an experiment file says about itself is of no use to it.
_ROOTS = ("written", "fixed", "wrong")


def write(entry: Entry, case: Case, folder: Path) -> Path:
    """Write ``<experiment>-<case>/repro.py`` under ``folder``; returns its path."""
    target = folder / f"{entry.experiment.name}-{case.name}" / "repro.py"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(source(entry, case), encoding="utf-8")
    return target


def source(entry: Entry, case: Case) -> str:
    """The text of the reproducer."""
    experiment = entry.experiment
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
    body = "\n\n".join(_texts(entry.module))
    return f"{head}\nfrom __future__ import annotations\n\n{_RUNTIME}\n\n{params}\n\n{body}\n\n\n{_MAIN}"


def _literal(params: dict[str, object]) -> str:
    # JSON in the form of a Python literal; tuples have become lists on the way to a rank anyway.
    return repr(json.loads(json.dumps(params)))


def _texts(module: ModuleType) -> Iterator[str]:
    """The statements that the arms and the oracle need, those of the parts before those of the experiment."""
    kept = list(_statements(module, set()))
    needed = _needed([node for node, _ in kept])
    for node, lines in kept:
        if node in needed:
            yield "\n".join(_without_parts(node, lines))


def _statements(module: ModuleType, seen: set[str]) -> Iterator[tuple[ast.stmt, list[str]]]:
    seen.add(module.__name__)
    text = inspect.getsource(module)
    tree = ast.parse(text)
    for name in _parts(tree):
        if name not in seen:
            yield from _statements(import_module(name), seen)
    lines = text.splitlines()
    yield from ((node, lines) for node in tree.body if _is_kept(node))


def _needed(nodes: list[ast.stmt]) -> set[ast.stmt]:
    """What the arms reach: helpers that only build cases use names that a reproducer does not have."""
    defining: dict[str, list[ast.stmt]] = {}
    for node in nodes:
        for name in _defined(node):
            defining.setdefault(name, []).append(node)
    found = {node for node in nodes if not _defined(node)}
    todo = [node for name in _ROOTS for node in defining.get(name, ())]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += [d for n in ast.walk(node) if isinstance(n, ast.Name) for d in defining.get(n.id, ())]
    return found


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return []


def _parts(tree: ast.AST) -> list[str]:
    return [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith(PARTS)]  # type: ignore[misc]


def _is_kept(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_own = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("dslint", "__future__")
    return not is_text and not is_own


def _without_parts(node: ast.stmt, lines: list[str]) -> Iterator[str]:
    dropped: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith("dslint"):
            dropped |= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
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
