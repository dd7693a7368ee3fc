"""Batch sizes that a script states for the whole job: by their name, the help of the option, or a test of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.source import Location
from dslint.python.events import Event
from dslint.python.queries.factors import Factors
from dslint.python.source import Module
from dslint.python.values import ClassAtom
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

_NAME = re.compile(r"(?:global|total|effective)_?(?:train(?:ing)?_)?(?:batch_?size|bs)")
_HELP = re.compile(
    r"(?i)(?:total|global|effective|overall) batch|batch size of (?:the (?:whole|entire) job|all)"
    r"|(?:per|in|of) (?:one|each|an?|every)? ?(?:optimi[sz]er|optimi[sz]ation|training|gradient) (?:step|update)"
    r"|(?:across|over|sum of|summed over|for|of) all (?:gpus|devices|ranks|processes|cards|workers)"
)
_EACH = re.compile(
    r"(?i)per[ _-]?(?:gpu|device|rank|process|card|worker|node)"
    r"|(?:each|every|single|one) (?:gpu|device|rank|process|card)|micro|local"
)
_COUNT = r"(?i)world_?size|gpus|devices|num_processes|n_gpu"
_DIVIDED = r"\b{0}\s*(?:/|//)=|\b{0}\s*=(?!=)[^\n]*(?:/|\bdiv|\bper_|local|micro)"


class WholeBatches:
    """The batch sizes of one run, and what says that one is that of the whole job."""

    def __init__(self, run: RunQuery) -> None:
        """Look in the modules of a run."""
        self._modules = run.machine.program.modules()
        self._factors = Factors(self._modules, (tree for _, tree in run.trees()))

    def stated(self, module: Module, node: ast.AST) -> tuple[str, Location] | None:
        """Return the name of the size that an expression is, and what says that it is that of the whole job."""
        if isinstance(node, ast.Constant):
            return None
        factors = self._factors.of(module, node)
        if len(factors) != 1 or "/" in factors[0]:
            return None
        for name in dict.fromkeys(name for name in (_last(node), factors[0]) if name.isidentifier()):
            if any(found.search(re.compile(_DIVIDED.format(re.escape(name)))) for found in self._modules):
                return None
            if _NAME.fullmatch(name.lower()):
                return name, module.location(node, f"`{name}` by its name")
        name = factors[0]
        told = next(self._told(name), None) if name.isidentifier() and "batch" in name.lower() else None
        return (name, told) if told is not None else None

    def _told(self, name: str) -> Iterator[Location]:
        """Yield the help of the option of that name, and tests that it is a multiple of the number of processes."""
        options = [(m, call) for m in self._modules for call in m.nodes_of(ast.Call) if _declares(call, name)]
        for module, call in options if len(options) == 1 else ():
            text = next((k.value for k in call.keywords if k.arg == "help"), None)
            words = module.text(text) if text is not None else ""
            if _EACH.search(words):
                return
            if _HELP.search(words):
                yield module.location(call, "the size of the whole job")
        count = re.compile(_COUNT)
        for module in self._modules:
            for node in module.nodes_of(ast.BinOp):
                if isinstance(node.op, ast.Mod) and _last(node.left) == name and count.search(module.text(node.right)):
                    yield module.location(node, "is divided among the processes")


def _declares(call: ast.Call, name: str) -> bool:
    """Return whether a call adds the option whose value has this name: `add_argument("--batch-size", ...)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
        return False
    given: list[object] = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    given += [k.value.value for k in call.keywords if k.arg == "dest" and isinstance(k.value, ast.Constant)]
    return any(str(text).lstrip("-").replace("-", "_") == name for text in given)


def size_of(event: Event) -> tuple[Module, ast.AST] | None:
    """Return the batch size that a loader is given, or the data set of the project that makes its batches itself."""
    size = event.arguments.get("batch_size")
    if size is not None and "batch_size" in event.nodes and size.constants != (None,):
        return event.module, event.nodes["batch_size"]
    made = instances(event.arguments.get("dataset"))
    if (
        size is None
        or len(made) != 1
        or not isinstance(made[0].cls, ClassAtom)
        or not isinstance(made[0].node, ast.Call)
    ):
        return None
    call, cls = made[0].node, made[0].cls
    init = next((n for n in cls.node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    names = [arg.arg for arg in init.args.args[1:]] if init is not None else []
    given = next((k.value for k in call.keywords if k.arg == "batch_size"), None)
    if given is None and "batch_size" in names and names.index("batch_size") < len(call.args):
        given = call.args[names.index("batch_size")]
    return (event.module, given) if given is not None and event.module.holds(given) else None


def _last(node: ast.AST) -> str:
    """Return the last name of a variable or field."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
