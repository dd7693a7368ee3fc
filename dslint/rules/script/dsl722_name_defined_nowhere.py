"""A name is read that no scope of the file defines.

**What.** `model = FSDP(model)` under `if cfg.use_fsdp`, in a file that never imports `FSDP`; a method that reads a name
of its class without `self.`; a function that reads a local variable of another one.

**Why it hurts.** Python looks for a name when it comes to the line: `NameError` on every rank, perhaps after hours, in
the branch for an option, an evaluation or a save that nobody has tried.

**Fix.** Import the name, pass it as an argument, or use the one that is meant.

**When it stays quiet.** Files with a star import of code that nobody knows, `exec`, `globals()`; names that other code
sets on a module; annotations; a handler of the `NameError`; code that no run reaches; names of notebooks. An error
where every run comes to the line, a warning otherwise, a note where a text chooses among several
(`args.dataset == "coco"`).

**Evidence.** Python's rules of names: a name without a binding in the scopes around it raises `NameError`.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.names import Names, names_of
from dslint.python.queries.modulenames import ModuleNames
from dslint.python.scopes import module_scope, scope_of
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import is_caught, near
from dslint.rules.names.refusedlines import severity_at
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL722",
    name="name-defined-nowhere",
    kind="script",
    severity=Severity.ERROR,
    summary="a name is read that no scope of the file defines",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine|transformers", r"import"),
    references=("https://docs.python.org/3/reference/executionmodel.html#resolution-of-names",),
    depends_on_run=True,
)
# Code that defines names which are not in its text.
_OPEN = re.compile(
    r"\bglobals\(\)|\bexec(?:file)?\(|\bsys\.modules\[|\b(?:locals|vars)\(\)(?:\.update|\[)|setattr\(_*builtin|"
    r"\bget_ipython\b|_*builtins?_*\.__dict__"
)
# What a module, a class body, an interactive session or a profiler adds.
_ADDED = frozenset(
    ("__name__", "__doc__", "__package__", "__spec__", "__loader__", "__dict__", "__file__", "__path__",
     "__builtins__", "__class__", "__qualname__", "__module__", "__annotations__", "__all__",
     "display", "get_ipython", "profile", "reveal_type", "_", "dbutils", "spark", "WindowsError")
)  # fmt: skip
_OLD = frozenset(("unicode", "xrange", "raw_input", "basestring", "long", "unichr", "reduce", "file", "cmp", "reload"))
_ASKS_VERSION = re.compile(r"version_info|\bPY[23]\b|\bsix\b|python_version")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MOST_RELATED = 3


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first line of a module that reads such a name, or on one that every run comes to."""
    known = run.module_names
    for module in run.machine.program.ran():
        for name, nodes in _undefined(module, known).items():
            judged = [(node, severity_at(module, node, run.sure_ways)) for node in nodes]
            reached = [(node, how) for node, how in judged if how is not None]
            if reached:
                yield _finding(run, module, name, reached)


def _undefined(module: Module, known: ModuleNames) -> dict[str, list[ast.Name]]:
    """Return the names that nothing defines, with the places that read them."""
    if module.path.endswith(".ipynb") or module.search(_OPEN) is not None:
        return {}
    taken = known.of_stars(module)
    found: dict[str, list[ast.Name]] = {}
    if taken is None:
        return found
    for node in module.once(_unbound):
        if node.id not in taken and not _is_excused(module, known, node):
            found.setdefault(node.id, []).append(node)
    return {name: sorted(nodes, key=lambda node: (node.lineno, node.col_offset)) for name, nodes in found.items()}


def _unbound(module: Module) -> list[ast.Name]:
    """Return the reads of names that no scope around them binds, whatever star imports bring."""
    visible = set(dir(builtins)) | set(module_scope(module.tree).locals) | _ADDED
    if module.search(_ASKS_VERSION) is not None:
        visible |= _OLD
    reads = (n for n in module.nodes_of(ast.Name) if isinstance(n.ctx, ast.Load) and n.id not in visible)
    return [node for node in reads if not _is_bound(module, names_of(module.tree), node)]


def _is_bound(module: Module, names: Names, node: ast.Name) -> bool:
    """Return whether a scope around a name binds it, by an annotation or in a class body, too."""
    if names.bindings(node):
        return True
    around = module.parents.get(node)
    in_function = False
    while around is not None:
        if isinstance(around, _FUNCTIONS):
            in_function = True
            scope = scope_of(around)
            if node.id in scope.locals | scope.globals | scope.nonlocals:
                return True
        if isinstance(around, ast.ClassDef) and not in_function and names.named(node.id, around):
            return True  # a comprehension in the body of the class
        if getattr(around, "type_params", None):
            return True
        around = module.parents.get(around)
    return False


def _is_excused(module: Module, known: ModuleNames, node: ast.Name) -> bool:
    return (
        (node.id.startswith("__") and not node.id.endswith("__"))  # mangled in a class
        or known.is_set(node.id)
        or is_caught(module, node, "NameError")
        or _is_annotation(module, node)
    )


def _is_annotation(module: Module, node: ast.AST) -> bool:
    inner, around = node, module.parents.get(node)
    while around is not None and not isinstance(inner, ast.stmt):
        if inner in (getattr(around, "annotation", None), getattr(around, "returns", None)):
            return True
        inner, around = around, module.parents.get(around)
    return False


def _finding(run: RunQuery, module: Module, name: str, reached: list[tuple[ast.Name, Severity]]) -> Finding:
    worst = max((how for _, how in reached), key=lambda how: how.rank)
    node = next(node for node, how in reached if how == worst)
    others = {other.lineno: other for other, _ in reached if other.lineno != node.lineno}
    elsewhere = any(n.id == name and not isinstance(n.ctx, ast.Load) for n in module.nodes_of(ast.Name))
    where = "is defined in other scopes only" if elsewhere else "is defined nowhere"
    meant = near(name, (other for other in module_scope(module.tree).locals if other[:1] == name[:1]))
    return run.finding(
        META,
        module,
        node,
        f"`{name}` {where}: `NameError` when a run reaches this line{meant}",
        hint="Import the name, pass it as an argument, or use the one that is meant",
        related=tuple(run.location(module, other, "read here, too") for other in [*others.values()][:_MOST_RELATED]),
        severity=worst,
    )


_TRAIN = """\
import argparse
import torch
import torch.distributed as dist
%s

class Saver:
    folder = "out"

    def path(self):
        return %s


def main(args):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 8)
    rate = 0.1
    if args.fsdp:
        model = %s
    for x in torch.load("data.pt"):
        model(x).mean().backward()
    print(%s, Saver().path(), [y for y in range(3)])


parser = argparse.ArgumentParser()
parser.add_argument("--fsdp", action="store_true")
main(parser.parse_args())
"""
_DDP = "torch.nn.parallel.DistributedDataParallel(model)"


def _files(top: str = "", path: str = "self.folder", wrap: str = _DDP, last: str = "rate") -> dict[str, str]:
    return {"train.py": _TRAIN % (top, path, wrap, last)}


_TRIED = "try:\n    text = unicode\nexcept NameError:\n    text = str\n"
_TYPES = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from torch import FSDP\n"

EXAMPLES = (
    bad("never imported, for an option", _files(wrap="FSDP(model)"), "train.py:18 warning"),
    bad("a letter is missing", _files(last="ragparse"), "train.py:21 error"),
    bad("a name of the class, without self", _files(path="folder"), "train.py:10 warning"),
    bad("the variable of a comprehension", _files(last="y"), "train.py:21 error"),
    bad("a local variable of another function", _files(
        "\ndef size():\n    world = dist.get_world_size()\n    return world\n", last="world"), "train.py:25 error"),
    bad("by a star import that lacks it", {
        **_files("from kit import *", wrap="FSDP(model)"), "kit.py": "def DDP(x):\n    return x\n"},
        "train.py:18 warning"),
    bad("in the second operand", _files(last="args.fsdp and steps"), "train.py:21 warning"),
    bad("a text chooses", _files(wrap=f'FSDP(model) if args.fsdp == "full" else {_DDP}'), "train.py:18 info"),
    good("imported", _files("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP", wrap="FSDP(model)")),
    good("by a star import of the project", {
        **_files("from kit import *", wrap="FSDP(model)"), "kit.py": "def FSDP(x):\n    return x\n"}),
    good("by a star import of a library", _files("from fsdpkit import *", wrap="FSDP(model)")),
    good("by exec", _files('exec(open("names.txt").read())', wrap="FSDP(model)")),
    good("by globals", _files('globals()["FSDP"] = torch.nn.Sequential', wrap="FSDP(model)")),
    good("guarded by globals", _files(last='rate if "steps" not in globals() else steps')),
    good("the exception is taken", _files(_TRIED)),
    good("for type checkers", _files(_TYPES + "\n\ndef wrap(x: FSDP) -> Gone:\n    return x\n")),
    good("a global that a function sets", _files("\ndef start():\n    global steps\n    steps = 3\n", last="steps")),
    good("a name that other code sets on the module", {
        **_files("import kit\n\nkit.steps = 3\n"), "kit.py": "def now():\n    return steps\n"}),
    good("after a return", _files("\ndef old():\n    return 1\n    print(steps)\n")),
)  # fmt: skip
