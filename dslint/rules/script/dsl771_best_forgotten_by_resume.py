"""A resumed run begins with no best metric, and its first evaluation overwrites the best checkpoint.

**What.** A script saves its best checkpoint under a test such as `if max_accuracy < accuracy`, where `max_accuracy`
begins at a number (`0.0`, `-inf`, `None`). A resume restores the optimizer, and nothing gives `max_accuracy` the number
that the run had reached.

**Why it hurts.** Any metric is better than the first value. The first evaluation after a restart overwrites the best
checkpoint of all the hours before, even where the model is worse. A job that is preempted each night keeps
the best of its last night only, and nothing says so.

**Fix.** Save the number in the checkpoint (`"best": max_accuracy`), and read it where the optimizer is restored.

**When it stays quiet.** The number gets a value that is no constant anywhere outside of the loop: from the checkpoint,
from a file, from an evaluation before the loop; it is a parameter; the module sets names that it does not spell
(`setattr`, `__dict__`); the test decides over no save; no code that the script leads to restores an optimizer, or the
state of an engine.

**Evidence.** A run that reaches 0.9, is stopped and restored, and reaches 0.5 then: the file of the best checkpoint
holds the weights of 0.5; with the number in the checkpoint those of 0.9.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.resumes import optimizer_restores
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL771",
    name="best-forgotten-by-resume",
    kind="script",
    severity=Severity.WARNING,
    summary="a resume begins with no best metric: the first evaluation after it overwrites the best checkpoint",
    markers=(r"torch|deepspeed|accelerat", r"(?i)best|max_|min_|lowest|highest", r"load_(?:state|checkpoint)"),
    references=("https://github.com/pytorch/examples/blob/main/imagenet/main.py",),
    depends_on_run=True,
    no_experiment="which number a restart begins with needs no run of several ranks",
)
_NAMED = re.compile(
    r"(?i)best|^max_(?:acc|score|metric|map|f1|iou|bleu|cider|auc|r1)|^min_(?:loss|val|err|ppl|fid)|lowest|highest"
)
_SAVES = re.compile(r"(?i)(?:^|_)(?:save|dump|copyfile|copy2?)(?:_|d?$|[A-Z])|save_?(?:model|check|ckpt)|^checkpoint$")
_FIRST = re.compile(
    r"-?[\d.]+(?:e[+-]?\d+)?|None|-?float\('[+-]?inf(?:inity)?'\)|-?(?:np|numpy|math|torch)\.(?:inf|Inf|infty)"
    r"|-?sys\.(?:maxsize|float_info\.max)"
)
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


# Names that a text does not spell: any of them may be restored so.
_ANY_NAME = re.compile(r"\bsetattr\(|__dict__|\bvars\([^)]*\)\.update")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each best metric that decides over a save and that a resumed run begins without."""
    if not run.has("wraps-model", "makes-engine", "prepares", "starts-group"):
        return
    for module in run.machine.program.modules():
        told: set[str] = set()
        if module.search(_ANY_NAME) is not None:
            continue
        for compare in module.nodes_of(ast.Compare):
            name = _best(compare)
            saves = _decided(module, compare) if name and name not in told else None
            first = _begins_with(module, compare, name) if saves is not None else None
            load = _resume(run, module, compare) if first is not None else None
            if saves is not None and first is not None and load is not None:
                told.add(name)
                yield run.finding(
                    META,
                    module,
                    first,
                    f"A resumed run begins with no `{name}`: its first evaluation overwrites the best checkpoint",
                    hint="Save the number in the checkpoint, and read it where the optimizer is restored",
                    related=(
                        run.location(load[0], load[1], "restores the optimizer, and not the number"),
                        run.location(module, compare, "asks what is the best"),
                        run.location(module, saves, "overwrites it"),
                    ),
                )


def _best(compare: ast.Compare) -> str:
    """Return the name of the best number so far that a comparison asks for."""
    if len(compare.ops) != 1 or not isinstance(compare.ops[0], _ORDERS):
        return ""
    left, right = compare.left, compare.comparators[0]
    for side, other in ((left, right), (right, left)):
        is_name = isinstance(side, ast.Name | ast.Attribute) and _NAMED.search(last_name(side))
        if is_name and not isinstance(other, ast.Constant):
            return ast.unparse(side)
    return ""


def _decided(module: Module, compare: ast.Compare) -> ast.AST | None:
    """Return the save over which a comparison decides: under its test, or under one of a name that it is given."""
    scope = module.function(compare) or module.tree
    for node in _parents(module, compare):
        if isinstance(node, ast.If):
            return _saved(node.body) if _has(node.test, compare) else None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            tests = [n for n in ast.walk(scope) if isinstance(n, ast.If) and _mentions(n.test, name)]
            return next(filter(None, (_saved(test.body) for test in tests)), None)
        if isinstance(node, ast.stmt):
            return None
    return None


def _saved(body: list[ast.stmt]) -> ast.AST | None:
    calls = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return next((call for call in calls if _SAVES.search(last_name(call.func))), None)


def _has(node: ast.AST, inner: ast.AST) -> bool:
    return any(part is inner for part in ast.walk(node))


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _begins_with(module: Module, compare: ast.Compare, name: str) -> ast.AST | None:
    """Return where the best number gets its first value, where all but the code that compares gives it a constant."""
    scope = _scope(module, compare, name)
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)
        if name in {argument.arg for argument in arguments}:
            return None
    first: ast.AST | None = None
    is_kept = False
    for node in ast.walk(scope):
        for target, value in _stores(node):
            if ast.unparse(target) != name:
                continue
            is_inside = _is_around(module, node, compare)
            if value is not None and _FIRST.fullmatch(ast.unparse(value)):
                if is_inside:
                    return None  # begins anew in every turn
                first = first or node
            elif is_inside:
                is_kept = True
            else:
                return None
    return first if is_kept else None


def _scope(module: Module, compare: ast.Compare, name: str) -> ast.AST:
    function = module.function(compare) if "." not in name else None
    if function is None or any(
        isinstance(node, ast.Global | ast.Nonlocal) and name in node.names for node in ast.walk(function)
    ):
        return module.tree
    return function


def _stores(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield what a statement binds, each with its value where that is written out."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if not isinstance(target, ast.Tuple | ast.List):
                yield target, node.value
                continue
            parts = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else []
            fits = len(parts) == len(target.elts)
            yield from zip(target.elts, parts if fits else [None] * len(target.elts), strict=True)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        yield from ((node.target, node.value),) if node.value is not None else ()
    elif isinstance(node, ast.AugAssign):
        yield node.target, None
    elif isinstance(node, ast.For | ast.AsyncFor):
        yield from ((part, None) for part in ast.walk(node.target) if isinstance(part, ast.expr))


def _is_around(module: Module, node: ast.AST, compare: ast.Compare) -> bool:
    """Return whether something is in the loop of a comparison; where it has none, in its function."""
    around = [p for p in _parents(module, compare) if isinstance(p, _LOOPS)]
    if around:
        return any(part is around[-1] for part in _parents(module, node))
    function = module.function(compare)
    return function is not None and module.function(node) is function


def _parents(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is around a node in its function, innermost first."""
    while node in module.parents and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        node = module.parents[node]
        yield node


def _resume(run: RunQuery, module: Module, compare: ast.Compare) -> tuple[Module, ast.AST] | None:
    """Return what restores the optimizer, outside of the loop of the comparison."""
    function = module.function(compare)
    around = function
    while around is not None and not isinstance(around, ast.ClassDef):
        around = module.parents.get(around)
    for home, call in optimizer_restores(run, module, around or function or module.tree):
        if home is not module or not _is_around(module, call, compare):
            return home, call
    return None


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(path, model, optimizer, epoch%s):
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch%s}, path)


def resume(path, model, optimizer):
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1, %s


def main(net, loader, evaluate):
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default="")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start, reached = resume(args.resume, model, optimizer) if args.resume else (0, 0.0)
    best_acc = %s
    for epoch in range(start, 10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        acc = evaluate(model)
%s


main(torch.nn.Linear(2, 2), torch.load("loader.pt", weights_only=False), torch.load("evaluate.pt", weights_only=False))
"""
_TEST = """\
        if acc > best_acc:
            best_acc = acc
            save("best.pt", model, optimizer, epoch%s)"""
_FLAG = """\
        is_best = best_acc <= acc
        best_acc = max(best_acc, acc)
        if is_best and args.resume != "none":
            save("best.pt", model, optimizer, epoch)"""
_PRINTS = """\
        best_acc = max(best_acc, acc)
        if acc >= best_acc and dist.get_rank() == 0:
            print(f"best {best_acc}")
        save("last.pt", model, optimizer, epoch)"""
_OBJECT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, path):
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.lowest_loss = float("inf")
        if path:
            self.restore(path)

    def restore(self, path):
        state = torch.load(path, map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        %s

    def keep(self, loss):
        if loss < self.lowest_loss:
            self.lowest_loss = loss
            if dist.get_rank() == 0:
                optimizer = self.optimizer.state_dict()
                state = {"model": self.model.module.state_dict(), "optimizer": optimizer, "loss": loss}
                torch.save(state, "best.pt")

    def fit(self, loader, evaluate):
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for x, y in loader:
                self.optimizer.zero_grad()
                torch.nn.functional.mse_loss(self.model(x), y).backward()
                self.optimizer.step()
            self.keep(evaluate(self.model))


dist.init_process_group("gloo")
Trainer(torch.nn.Linear(2, 2), "last.pt").fit(__import__("parts").loader(), __import__("parts").evaluate)
"""
_ENGINE = """\
import deepspeed


def main(net, config, loader, evaluate, last):
    engine, _, _, _ = deepspeed.initialize(model=net, config=config)
    if last:
        engine.load_checkpoint("out/last")
    best_score, loss_of_best = 0.0, None
    for epoch in range(3):
        for x, y in loader:
            engine.backward(engine(x, y))
            engine.step()
        score, loss = evaluate(engine)
        is_best = score > best_score
        best_score = max(score, best_score)
        loss_of_best = loss if is_best else loss_of_best
        if is_best:
            engine.save_checkpoint("out/best")
        engine.save_checkpoint("out/last")


main(*__import__("parts").parts())
"""
_NOT_RESUMED = _OBJECT.replace('        self.optimizer.load_state_dict(state["optimizer"])\n', "") % "self.began = True"
_WRAPPER = """\
class Slow:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state)


"""


def _script(first: str, test: str, saved: str = "", parameter: str = "", read: str = "0.0") -> dict[str, str]:
    return {"train.py": _TRAIN % (parameter, saved, read, first, test)}


EXAMPLES = (
    bad("it begins at zero", _script("0.0", _TEST % ""), at="train.py:28 warning"),
    bad("a flag says what is best", _script("-float('inf')", _FLAG), at="train.py:28"),
    bad("a field of a trainer", {"train.py": _OBJECT % "self.began = True"}, at="train.py:10"),
    bad("an engine", {"train.py": _ENGINE}, at="train.py:8"),
    good("the checkpoint has it", _script(
        "reached", _TEST % ", best_acc", ', "best": best', ", best=0.0", 'state["best"]')),
    good("a field that is restored", {"train.py": _OBJECT % 'self.lowest_loss = state["loss"]'}),
    good("evaluated before the loop", _script("evaluate(model) if start else 0.0", _TEST % "")),
    good("it is only printed", _script("0.0", _PRINTS)),
    good("a checkpoint of each epoch, no best one", _script("0.0", _PRINTS.replace("acc >= best_acc and ", ""))),
    good("nothing is resumed", {"train.py": _NOT_RESUMED}),
    good("a wrapper of an optimizer", {"train.py": _NOT_RESUMED.replace("dist.init_p", _WRAPPER + "dist.init_p")}),
)  # fmt: skip
