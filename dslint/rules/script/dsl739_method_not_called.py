"""A method of a dictionary is listed, counted or iterated without being called.

**What.** `list(losses.keys)`, `sorted(state.items)`, `for name in state_dict.values:`, `name in losses.keys`.

**Why it hurts.** The method itself is no list: `TypeError` when a run comes to the line, which may be the branch for
several processes, an evaluation or the load of a checkpoint.

**Fix.** Add the parentheses: `list(losses.keys())`.

**When it stays quiet.** Nothing says that the object is a dictionary (a literal, `dict(...)`, `state_dict()`, an
annotation, `isinstance`, or the same method called beside it); a class of the project has a field of that name, and
nothing but the call beside it speaks for a dictionary; a handler of the `TypeError`; code that no run reaches.

**Evidence.** CPython: `'builtin_function_or_method' object is not iterable`, or has no `len()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.binding import annotation_of
from dslint.python.names import Names, names_of
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import is_caught
from dslint.rules.names.refusedlines import severity_at
from dslint.rules.names.sureways import SureWays
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL739",
    name="method-not-called",
    kind="script",
    severity=Severity.ERROR,
    summary="a method of a dictionary is listed or iterated without being called",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine|transformers", r"\.(?:keys|values|items)\b(?!\()"),
    references=("https://docs.python.org/3/library/stdtypes.html#dict.items",),
    depends_on_run=True,
)
_METHODS = ("keys", "values", "items")
_TAKERS = frozenset(
    ("list", "sorted", "set", "frozenset", "tuple", "len", "enumerate", "zip", "sum", "iter", "min", "max", "any",
     "all", "tqdm.tqdm", "tqdm.auto.tqdm")
)  # fmt: skip
_DICTIONARIES = frozenset(("dict", "OrderedDict", "defaultdict", "Counter", "Dict", "Mapping", "MutableMapping",
                           "DefaultDict"))  # fmt: skip
# Calls that give dictionaries, by their last part.
_GIVE = _DICTIONARIES - {"Dict", "Mapping", "MutableMapping"} | {"state_dict", "vars"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each method of a dictionary that is taken for what it gives."""
    ways: SureWays | None = None
    fields: frozenset[str] | None = None
    for module in run.machine.program.ran():
        for node in (node for name in _METHODS for node in module.attributes.get(name, ())):
            taken = _taken(module, node)
            if not taken or is_caught(module, node, "TypeError"):
                continue
            names = names_of(module.tree)
            if not _is_dictionary(module, names, node):
                fields = _own_fields(run) if fields is None else fields
                if node.attr in fields or not _is_called_beside(module, names, node):
                    continue
            ways = ways or SureWays(run)
            severity = severity_at(module, node, ways)
            if severity is not None:
                yield run.finding(
                    META,
                    module,
                    node,
                    f"`{ast.unparse(node)}` is a method that is not called: {taken} raises TypeError here",
                    hint=f"Add the parentheses: `{ast.unparse(node)}()`",
                    severity=severity,
                )


def _taken(module: Module, node: ast.Attribute) -> str:
    """Return what takes a method for what it gives, in words; else an empty text."""
    around = module.parents.get(node)
    if isinstance(around, ast.For | ast.AsyncFor | ast.comprehension) and around.iter is node:
        return "the loop"
    if isinstance(around, ast.Starred):
        return "the star"
    if isinstance(around, ast.Compare):
        ops = zip(around.ops, around.comparators, strict=True)
        return "`in`" if any(isinstance(op, ast.In | ast.NotIn) and side is node for op, side in ops) else ""
    if isinstance(around, ast.Call) and node in around.args:
        name = names_of(module.tree).qualified(around.func)
        if name in _TAKERS and (name not in ("min", "max") or len(around.args) == 1):
            return f"`{ast.unparse(around.func)}`"
    return ""


def _is_dictionary(module: Module, names: Names, node: ast.Attribute) -> bool:
    """Return whether an object is a dictionary by what it is given, its annotation, or a test around."""
    owner = node.value
    if _gives(names, owner) or _is_tested(module, node):
        return True
    if not isinstance(owner, ast.Name):
        value = names.single(owner)
        return value is not None and _gives(names, value)
    found = names.bindings(owner)
    return bool(found) and all(
        (b.value is not None and _gives(names, b.value))
        or (isinstance(b.node, _FUNCTIONS) and b.kind == "parameter" and _is_annotated(b.node, owner.id))
        for b in found
    )


def _gives(names: Names, value: ast.expr) -> bool:
    if isinstance(value, ast.Dict | ast.DictComp):
        return True
    if isinstance(value, ast.Call):
        return names.definition(value.func) is None and names.called(value) in _GIVE
    return names.qualified(value) == "os.environ"


def _is_annotated(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> bool:
    annotation, rest = annotation_of(function.args, name), function.args.kwarg
    return (annotation is not None and _is_kind(annotation)) or (rest is not None and rest.arg == name)


def _is_kind(node: ast.expr) -> bool:
    """Return whether an expression names dictionaries only: `dict`, `Dict[str, int]`, `(dict, OrderedDict)`."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(_is_kind, node.elts))
    if isinstance(node, ast.Subscript):
        return _is_kind(node.value)
    return getattr(node, "attr", getattr(node, "id", "")) in _DICTIONARIES


def _is_tested(module: Module, node: ast.Attribute) -> bool:
    """Return whether a test around says that the object is a dictionary: `if isinstance(x, dict):`."""
    owner = ast.unparse(node.value)
    inner, around = module.parents.get(node), module.parents.get(module.parents[node])
    while around is not None and not isinstance(around, _FUNCTIONS):
        if isinstance(around, ast.If) and inner in around.body and isinstance(around.test, ast.Call):
            test = around.test
            is_test = isinstance(test.func, ast.Name) and test.func.id == "isinstance" and len(test.args) == 2
            if is_test and ast.unparse(test.args[0]) == owner and _is_kind(test.args[1]):
                return True
        inner, around = around, module.parents.get(around)
    return False


def _is_called_beside(module: Module, names: Names, node: ast.Attribute) -> bool:
    """Return whether the function around calls the same method of the same object, which it is given once."""
    if not isinstance(node.value, ast.Name) or len(names.bindings(node.value)) != 1:
        return False
    scope = module.function(node)
    if "callable(" in module.text(scope or module.tree):
        return False
    return any(
        ast.unparse(other.value) == node.value.id
        and module.function(other) is scope
        and isinstance(call := module.parents.get(other), ast.Call)
        and call.func is other
        for other in module.attributes.get(node.attr, ())
    )


def _own_fields(run: RunQuery) -> frozenset[str]:
    """Return which of these names the classes of the project have as fields or properties."""
    return frozenset().union(*(module.once(_fields_of) for module in run.machine.program.modules()))


def _fields_of(module: Module) -> frozenset[str]:
    found = {n.attr for n in module.nodes_of(ast.Attribute) if isinstance(n.ctx, ast.Store)}
    for cls in module.nodes_of(ast.ClassDef):
        found |= {n.name for n in cls.body if isinstance(n, ast.FunctionDef) and n.decorator_list}
        found |= {n.target.id for n in cls.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    return frozenset(found & set(_METHODS))


_TRAIN = """\
import argparse
import os
from collections import OrderedDict

import torch
import torch.distributed as dist


def reduce(losses, world_size):
    if world_size == 1:
        return losses
    if isinstance(losses, OrderedDict):
        names = %s
    else:
        names = sorted(losses.keys())
    return torch.stack([losses[name] for name in names])

%s
def main(args):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 8)
    losses = {}
    for x in torch.load("data.pt"):
        model(x).mean().backward()
    print(%s, reduce(losses, dist.get_world_size()))


main(argparse.ArgumentParser().parse_args())
"""
_CLASS = "\nclass Box:\n    def __init__(self, keys):\n        self.keys = keys\n\n\n"
_LOOP = "\ndef show(state: dict[str, int]):\n    for k, v in state.items:\n        print(k, v)\n\n"
_BESIDE = "\ndef show(state):\n    print(len(state.keys))\n    return list(state.keys())\n\n"
_EITHER = "\ndef show(data):\n    return list(data.keys()) if callable(data.keys) else list(data.keys)\n\n"


def _files(ordered: str = "list(losses.keys())", last: str = "losses", more: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % (ordered, more, last)}


EXAMPLES = (
    bad("after a test of the kind", _files("list(losses.keys)"), "train.py:13 warning"),
    bad("of a literal, in every run", _files(last="sorted(losses.items)"), "train.py:25 error"),
    bad("of the model's state", _files(last="len(model.state_dict().values)"), "train.py:25 error"),
    bad("a loop of a comprehension", _files(last="[k for k in losses.keys]"), "train.py:25 warning"),
    bad("a loop", _files(more=_LOOP), "train.py:20 warning"),
    bad("a test of a member", _files(last='"HOME" in os.environ.keys'), "train.py:25 error"),
    bad("called beside it", _files(more=_BESIDE), "train.py:20 warning"),
    good("called", _files(last="sorted(losses.items())")),
    good("a field of an own class", _files(last="list(Box([1]).keys)", more=_CLASS)),
    good("nobody knows what it is", _files(more="\ndef show(batch):\n    return [batch[k] for k in batch.keys]\n\n")),
    good("one or the other", _files(more=_EITHER)),
    good("the method is handed on", _files(last="print(losses.keys)")),
    good("another thing may be meant", _files(
        more="\ndef show(data):\n    data = dict(data)\n    data = data.get('x')\n    return list(data.keys)\n\n")),
    good("the exception is taken", _files(
        more="\ndef show():\n    try:\n        return len({}.keys)\n    except TypeError:\n        return 0\n\n")),
)  # fmt: skip
