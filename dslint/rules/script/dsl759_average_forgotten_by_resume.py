"""A checkpoint holds the averaged weights, and the resume that restores the optimizer does not put them back.

**What.** A script keeps an exponential moving average of the weights (`ModelEma(model)`), updates it in each step and
saves its state in the checkpoints. A resume restores the model and the optimizer. No line reads the averaged weights
out of the checkpoint: the average is made anew of the raw weights.

**Why it hurts.** The average begins again at each restart. With a decay of 0.9999 it needs tens of thousands of steps
to hold what it held before, and a job that is preempted more often never gets there. Evaluation and the last
model use the average: their results are worse than those of a run without interruptions, and nothing says so.

**Fix.** Load the state where the optimizer is restored: `ema.load_state_dict(checkpoint["ema"])`.

**When it stays quiet.** Any line that loads a state into something called so, sets a part of it, or hands it to a
function that loads or resumes; the key under which it is saved, or one called so, is read; states that are loaded into
what may be anything (a loop over parts); an Accelerator that saves and loads registered objects; an average that is
never updated or saved; nothing that restores an optimizer.

**Evidence.** A run of 50 steps, saved and resumed without the state: the average after the restart equals the raw
weights, at a distance from the one that was saved; loaded, it equals the one that was saved.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.bound import stores
from dslint.python.queries.reach import Piece
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.averagescripts import TRAIN
from dslint.rules.runs import RunQuery
from dslint.rules.training.resumes import loads_unnamed, may_restore, optimizer_restores
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL759",
    name="average-forgotten-by-resume",
    kind="script",
    severity=Severity.WARNING,
    summary="a resume does not put the averaged weights (EMA) back that the checkpoint holds: the average begins anew",
    markers=(r"torch|deepspeed|accelerat", r"(?i)ema|averag", r"load_(?:state|checkpoint)"),
    references=("https://pytorch.org/tutorials/recipes/recipes/saving_and_loading_a_general_checkpoint.html",),
    depends_on_run=True,
    no_experiment="what a restart begins with needs no run of several ranks",
)
_EMA = re.compile(r"(?i:(?:^|_)ema(?:_|\d|$)|moving_?aver|averaged_?model|polyak)|EMA|Ema(?![a-z])")
_LOADS = re.compile(r"(?i)load|resum|restor")
_REGISTERS = re.compile(r"register_for_checkpointing\(|register_load_state_pre_hook\(")
# Names of what is no average, where a state is loaded into something unknown.
_OTHER = re.compile(
    r"(?i)model|net|optim|^opt$|disc|gen|enc|dec|head|module|teacher|student|crit|loss|proj|embed|backbone|sched|scal|lr"
    r"|vae|unet|ema|^self$|^super$"
)
_UPDATES = re.compile(r"(?i)^(?:update|step)|update|accumulate|moving_average")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the average that a script saves and that its resume does not restore."""
    if not run.has("wraps-model", "makes-engine", "prepares", "starts-group") or not may_restore(run):
        return
    modules = [module for module in run.machine.program.modules() if module.search(_EMA) is not None]
    made = next(filter(None, map(_made, modules)), None)
    saved = next(filter(None, map(_saved, modules)), None) if made is not None else None
    if made is None or saved is None or not any(map(_updates, modules)):
        return
    if any(_may_restore_it(m, _keys(*saved)) for m in run.machine.program.modules()) or loads_unnamed(run, _OTHER):
        return
    load = next(optimizer_restores(run, *made), None)
    if load is not None:
        yield run.finding(
            META,
            *made,
            "A resume does not put the averaged weights back that the checkpoint holds: the average begins anew",
            hint="Load their state where the optimizer is restored",
            related=(
                run.location(*saved, "saves the average"),
                run.location(*load, "restores the optimizer, and not the average"),
            ),
        )


def _is_ema(node: ast.AST) -> bool:
    """Return whether an expression is an average by its name, or a part of one: `ema.module`, `self.ema`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and _EMA.search(node.attr):
            return True
        node = node.value
    return isinstance(node, ast.Name) and _EMA.search(node.id) is not None


def _made(module: Module) -> Piece | None:
    """Return the call that makes an average outside of its own class."""
    for node in module.nodes_of(ast.Assign, ast.AnnAssign):
        for target, value in stores(node):
            if isinstance(value, ast.Call) and _is_ema(target) and not _is_own(module, node):
                maker = last_name(value.func)
                if _EMA.search(maker) or maker == "deepcopy":
                    return module, value
    return None


def _is_own(module: Module, node: ast.AST) -> bool:
    """Return whether code is of the class of an average."""
    while node in module.parents:
        node = module.parents[node]
        if isinstance(node, ast.ClassDef) and _EMA.search(node.name):
            return True
    return False


def _saved(module: Module) -> Piece | None:
    """Return where the state of an average is put under a key, or into a file."""
    for call in module.nodes_of(ast.Call):
        function = call.func
        is_state = isinstance(function, ast.Attribute) and function.attr == "state_dict" and _is_ema(function.value)
        is_state = is_state or (last_name(function) == "get_state_dict" and any(map(_is_ema, call.args[:1])))
        around = module.parents.get(call)
        while isinstance(around, ast.IfExp | ast.Starred | ast.keyword):
            around = module.parents.get(around)
        is_kept = isinstance(around, ast.Dict) or (
            isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Subscript)
        )
        is_kept = is_kept or (isinstance(around, ast.Call) and last_name(around.func) in ("save", "dict", "update"))
        if is_state and is_kept and not _is_own(module, call):
            return module, call
    return None


def _updates(module: Module) -> bool:
    """Return whether code moves an average on."""
    for call in module.nodes_of(ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and _UPDATES.search(function.attr) and _is_ema(function.value):
            return True
        name = last_name(function)
        if _UPDATES.search(name) and any(_is_ema(arg) for arg in (*call.args, *(k.value for k in call.keywords))):
            return True
    return False


def _may_restore_it(module: Module, keys: frozenset[str]) -> bool:
    """Return whether code may load an average, or reads a key of a file that is called so."""
    if module.search(_REGISTERS) is not None:
        return True
    for node in module.nodes_of(ast.Call, ast.Constant, ast.Assign):
        is_load = (isinstance(node, ast.Call) and _loads(node)) or _names_key(module, node, keys) or _is_set(node)
        if is_load and not _is_own(module, node):
            return True
    return False


def _is_set(node: ast.AST) -> bool:
    """Return whether code sets a part of an average: `ema.shadow = ...`."""
    parts = [(t.value, v) for t, v in stores(node) if isinstance(t, ast.Attribute | ast.Subscript)]
    return any(_is_ema(owner) and not isinstance(value, ast.Constant) for owner, value in parts)


def _keys(module: Module, call: ast.AST) -> frozenset[str]:
    """Return the keys under which a state is put."""
    found: set[object] = set()
    inner: ast.AST = call
    node = module.parents.get(call)
    while node is not None and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
        if isinstance(node, ast.Dict):
            found |= {getattr(k, "value", "") for k, v in zip(node.keys, node.values, strict=True) if v is inner}
        elif isinstance(node, ast.keyword):
            found.add(node.arg)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            found.add(getattr(node.targets[0].slice, "value", ""))
        inner, node = node, module.parents.get(node)
    return frozenset(key for key in found if isinstance(key, str) and key)


def _loads(call: ast.Call) -> bool:
    """Return whether a call loads an average, hands one to what loads, or makes one of a file."""
    name, owner = last_name(call.func), getattr(call.func, "value", None)
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    given += [owner] if isinstance(owner, ast.expr) and "load" in name else []
    if _LOADS.search(name) and any(map(_is_ema, given)):
        return True
    resumes = [k for k in call.keywords if k.arg is not None and _LOADS.search(k.arg)]
    return _EMA.search(name) is not None and any(ast.unparse(k.value) not in ("''", "None") for k in resumes)


def _names_key(module: Module, node: ast.AST, keys: frozenset[str]) -> bool:
    """Return whether a text may be the key of an average where it is read: not where one is written."""
    text = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(text, str) or not (text in keys or (text.isidentifier() and _EMA.search(text))):
        return False
    around = module.parents.get(node)
    is_written = isinstance(around, ast.Dict) and any(key is node for key in around.keys)
    return not is_written and not (isinstance(around, ast.Subscript) and isinstance(around.ctx, ast.Store))


_SAVES = 'state["ema"] = ema.module.state_dict()'
_UPDATE = "ema.update(model.module)"


def _script(
    loads: str = "print(start)", saves: str = _SAVES, makes: str = "ModelEma(net)", update: str = _UPDATE
) -> dict[str, str]:
    return {"train.py": TRAIN % (saves, makes, loads, update)}


_AVERAGED = "torch.optim.swa_utils.AveragedModel(net)"

EXAMPLES = (
    bad("a class of the project", _script(), at="train.py:30 warning"),
    bad("a copy, and a function that moves it", _script(
        makes="copy.deepcopy(net)", saves='state.update(ema=ema.state_dict())', update="update_ema(ema, model)"),
        at="train.py:30"),
    bad("an average of torch", _script(
        makes=_AVERAGED, saves='state.update({"avg": ema.state_dict()})', update="ema.update_parameters(net)"),
        at="train.py:30"),
    good("it is loaded", _script('ema.module.load_state_dict(state["ema"])')),
    good("a key with a name", _script('key = "ema"\n        average = state[key]')),
    good("another key is read", _script(
        'ema = ModelEma.of(state["average"])', 'state["average"] = ema.module.state_dict()')),
    good("a part of it is set", _script('ema.module = torch.load("ema.pt")')),
    good("a function loads it", _script("load_average(ema, state)")),
    good("the key is read", _script('weights = state.get("model_ema")')),
    good("parts in a loop", _script("for part in (ema, model):\n            part.load_state_dict(state[str(part)])")),
    good("not saved", _script(saves="print(path)")),
    good("never moved", _script(update="print(loader)")),
)  # fmt: skip
