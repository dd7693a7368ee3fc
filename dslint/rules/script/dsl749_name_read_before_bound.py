"""A function reads a local variable before the line that gives it its first value.

**What.** `optimizer.load_state_dict(checkpoint["optimizer"])` under `if args.resume:`, and `optimizer = AdamW(...)`
twenty lines below it: what a resume, a pretrained file or another option needs was put before the code that makes it.

**Why it hurts.** A name that a function assigns anywhere is local in all of it. The line raises `UnboundLocalError` on
every rank, and as a rule an option leads to it: the first run is well, and the resume after hours is not.

**Fix.** Move the line below the one that makes the variable.

**When it stays quiet.** Any line above gives the name a value, on any way; both are in one loop; the exception is
caught; code that no run reaches.

**Evidence.** CPython 3.11: `cannot access local variable 'optimizer' where it is not associated with a value`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import cast

from dslint.core.finding import Finding, Severity
from dslint.python.bindings import UNBOUND
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import is_caught_on_way
from dslint.rules.names.reached import severity
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL749",
    name="name-read-before-bound",
    kind="script",
    severity=Severity.WARNING,
    summary="a function reads a local variable above the line that gives it its first value",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine|transformers", r"def "),
    references=("https://docs.python.org/3/faq/programming.html#why-am-i-getting-an-unboundlocalerror",),
    depends_on_run=True,
    no_experiment="one process shows what Python raises",
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first line that reads such a variable."""
    told: set[tuple[int, object]] = set()
    for found in run.happenings(UNBOUND):
        event = found.event
        (name,) = event.arguments["name"].constants or ("",)
        scope = event.module.function(event.node)
        if event.receiver is not None or event.may or scope is None or (id(scope), name) in told:
            continue
        first = _first_below(event.module, scope, event.node, str(name))
        if first is None or is_caught_on_way(found, "NameError", "UnboundLocalError"):
            continue
        told.add((id(scope), name))
        sure = severity(found)
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{name}` has no value yet: the first one is in line {first.lineno}, and Python raises "
            "`UnboundLocalError` here",
            hint=f"Move this below line {first.lineno}",
            severity=sure if sure is Severity.INFO else None,
            related=(run.location(event.module, first, "the first value"),),
        )


def _first_below(module: Module, scope: ast.AST, read: ast.AST, name: str) -> ast.stmt | ast.expr | None:
    """Return what gives a name its first value, where it stands below a line and in no loop around that line."""
    binds = sorted(_bindings(scope, name), key=lambda node: (node.lineno, node.col_offset))
    if not binds or not isinstance(read, ast.expr) or binds[0].lineno <= (read.end_lineno or read.lineno):
        return None
    around = module.parents.get(read)
    while around is not None and around is not scope:
        if isinstance(around, _LOOPS) and any(node is binds[0] for node in ast.walk(around)):
            return None
        around = module.parents.get(around)
    return binds[0]


def _bindings(scope: ast.AST, name: str) -> Iterator[ast.stmt | ast.expr]:
    """Yield what may give a name of a function a value, in any form; its parameters would have done so before."""
    pending: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        if _is_store(node, name) or (isinstance(node, ast.stmt) and name in _named_by(node)):
            yield cast("ast.stmt | ast.expr", node)
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)


def _is_store(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)


def _named_by(node: ast.stmt) -> set[str]:
    """Return the names that a statement gives a value without a `Name`: imports, definitions, handlers."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Global | ast.Nonlocal):
        return set(node.names)
    if isinstance(node, ast.Try):
        return {handler.name for handler in node.handlers if handler.name}
    if isinstance(node, ast.Match):
        return {n.name for n in ast.walk(node) if isinstance(n, ast.MatchAs | ast.MatchStar) and n.name}
    return set()


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist


def main(args):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 4)
%s
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(10):
%s
        optimizer.zero_grad()
        loss = model(torch.rand(4, 4)).mean()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    main(parser.parse_args())
"""
_EARLY = (
    "    if args.resume:\n        state = torch.load(args.resume, weights_only=True)\n"
    '        model.load_state_dict(state["model"])\n        %s.load_state_dict(state["optimizer"])'
)

EXAMPLES = (
    bad("the optimizer of a resume", {"train.py": _TRAIN % (_EARLY % "optimizer", "        pass")}, "train.py:13"),
    bad("asked for its groups", {"train.py": _TRAIN % (
        '    for group in optimizer.param_groups:\n        group["lr"] = 0.1', "        pass")}, "train.py:10"),
    bad("in a module of its own name", {"train.py": (_TRAIN % (
        "    print(optimizer)", "        pass")).replace(
        "\n\ndef main", "\n\noptimizer = None\n\n\ndef main")}, "train.py:13"),
    bad("by an import below", {"train.py": _TRAIN % (
        "    print(os.getcwd())\n    import os", "        pass")}, "train.py:10"),
    good("made before", {"train.py": _TRAIN % (
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n" + _EARLY % "optimizer", "        pass")}),
    good("of the turn before", {"train.py": _TRAIN % ("", "        if step > 0:\n            print(loss.item())")}),
    good("above, on some way", {"train.py": _TRAIN % (
        '    if args.resume == "x":\n        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n'
        + _EARLY % "optimizer", "        pass")}),
    good("the exception is caught", {"train.py": _TRAIN % (
        "    try:\n        print(optimizer)\n    except UnboundLocalError:\n        pass", "        pass")}),
    good("a function that is called later", {"train.py": _TRAIN % (
        "    def show():\n        print(optimizer)\n", "        show()")}),
)  # fmt: skip
