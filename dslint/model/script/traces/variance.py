"""Which values differ between ranks because each rank has data of its own: the multi-valued expressions of a module.

A batch of a data loader differs, and what is computed from it: outputs, the loss, a test for NaN. What all ranks agreed
on is the same again: the result of a reduction, a gather, a broadcast; so are counters, settings and arguments. Shapes,
keys and ``None`` tests of a batch are left open: most collators make them the same everywhere. After the
multi-valued-expression analysis of PARCOACH (Huchant et al., Euro-Par 2019).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from dslint.model.script.behind import question
from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import keyword, last_name
from dslint.model.script.objects.objectkinds import MODELS
from dslint.model.script.objects.objects import Objects
from dslint.model.script.ranks.guards import Guards
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.traces.agreement import Agreements, agrees
from dslint.model.script.traces.ground import Ground
from dslint.model.script.traces.lone import LoneValues
from dslint.model.script.traces.passing import Passing

_MAX_STEPS = 14
_MAX_ALIASES = 3
_CLOCKS = frozenset({"time.time", "time.perf_counter", "time.monotonic", "datetime.datetime.now"})
_CLOCK_WORDS = frozenset(name.rpartition(".")[2] for name in _CLOCKS)
# The bindings that say what a variable holds, and the values that say nothing.
_TOLD = frozenset({"loop", "augmented", "assign", "unpack", "param"})
_PLAIN = frozenset(
    {cst.Integer, cst.Float, cst.SimpleString, cst.FormattedString, cst.ConcatenatedString, cst.List, cst.Dict, cst.Set}
)
_LOADER_KINDS = frozenset({"loader", "prepared_loader", "ds_loader"})
# Each rank gets a part of its own from these.
_OWN_PART = frozenset({"prepared_loader", "ds_loader"})
_LOADER_NAME = re.compile(r"(?:^|_)(?:data)?_?loader$|dataloader$|^(?:train|data)_?iter(?:ator)?$", re.I)
_TRAINED = frozenset({"engine", "ddp", "fsdp", "prepared_model"})
_MODEL_NAME = re.compile(
    r"(?:^|_)(?:model|engine|net|criterion|loss_fn|loss_func|compute_loss|forward_step)$|loss$", re.I
)
# Calls whose result says something about the values of their arguments, by their last name.
_PASSING = frozenset(
    {
        *("isnan", "isinf", "isfinite", "any", "all", "sum", "mean", "max", "min", "item", "float", "int", "bool"),
        *("detach", "cpu", "cuda", "to", "clone", "numel", "tolist", "norm", "len", "square", "sqrt", "nansum"),
        *("reshape", "flatten", "squeeze", "unsqueeze", "count_nonzero", "nonzero", "exp", "log", "nanmean", "eq"),
        *("view", "ne", "abs", "tensor", "as_tensor", "items", "values"),
    }
)
_POSITIONS = frozenset({"nonzero", "argwhere"})
_WRAPPERS = frozenset({"enumerate", "tqdm", "iter", "islice", "track", "trange", "next", "cycle", "list"})
_SHAPES = frozenset({"shape", "dtype", "device", "ndim", "size", "dim", "is_cuda", "requires_grad"})
# One of these words is in each file that makes a loader of which each rank certainly gets another part.
_DEALING = frozenset({"prepare", "prepare_data_loader", "initialize", "training_dataloader", "DistributedSampler"})
_NOT_A_NUMBER = frozenset({"isnan", "isinf", "isfinite"})


@dataclass(frozen=True, slots=True)
class Variant:
    """A value that differs between ranks. ``source``: where it comes from, a loop over batches or a call of the model.

    ``is_dealt``: each rank certainly gets another part of the data; else the name of the loader is all there is.
    ``is_lone``: some ranks only set it, at ``source``. ``is_clock``: it is the time.
    """

    source: cst.CSTNode
    is_dealt: bool = False
    is_lone: bool = False
    is_clock: bool = False


class Variances:
    """Answers for one module."""

    def __init__(self, ground: Ground, guards: Guards, objects: Objects) -> None:
        tree, names = ground.tree, ground.names
        self._tree = tree
        self._names = names
        self._helper = ground.helper
        self._objects = objects
        self._passing = Passing(ground.tree, ground.helper)
        self._known: dict[int, Variant | None] = {}
        self._agreements = Agreements(tree, names)
        self._lone = LoneValues(tree, names, guards, objects, self._agreements)

    def test(self, test: cst.BaseExpression) -> Variant | None:
        """Why a test may come out differently on some ranks: it looks at the data of the rank; else ``None``."""
        if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
            return self.test(test.expression)
        lone = self._lone.asked_in(test) if type(test) is not cst.BooleanOperation else None
        if lone is not None:
            return Variant(lone, is_lone=True)
        if type(test) is cst.BooleanOperation:
            return self.test(test.left) or self.test(test.right)
        asked, _ = question(self._names, test)
        if asked is not test and not self._is_agreed(test):
            return self.test(asked)
        if isinstance(test, cst.Comparison):
            return self._comparison(test)
        found = self._clock(test) or (self.value(test) if self._may_tell(test, _counts(test)) else None)
        told = found is not None and (found.is_dealt or _counts(test) or self._asks_for_nan(test))
        return found if told else None

    def _is_agreed(self, test: cst.BaseExpression) -> bool:
        """A variable that something made the same on all ranks before it was tested."""
        found = self._names.bindings(test.value, test) if isinstance(test, cst.Name) else []
        return any(self._agreements.between(binding, test) for binding in found)

    def value(self, node: cst.CSTNode | None, steps: int = 0) -> Variant | None:
        """Why a value differs between ranks; ``None`` when it does not, or nobody knows."""
        if node is None or steps > _MAX_STEPS:
            return None
        if id(node) not in self._known:
            self._known[id(node)] = None  # a loop of assignments adds nothing to itself
            self._known[id(node)] = self._value(node, steps + 1)
        return self._known[id(node)]

    def _comparison(self, test: cst.Comparison) -> Variant | None:
        """``loss.item() > limit``, ``mask.sum() == 0``, ``len(batch) == 0``; not ``is None`` and not ``in``."""
        if len(test.comparisons) != 1:
            return None
        operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
        if isinstance(operator, cst.Is | cst.IsNot | cst.In | cst.NotIn):
            return None
        clock = self._clock(test)
        if clock is not None:
            return clock
        is_empty = number_of(right) in (0, 1) or number_of(test.left) in (0, 1)
        counts = any(_counts(side) for side in (test.left, right))
        if (counts and not is_empty) or not self._may_tell(test, counts):
            return None
        found = self.value(test.left) or self.value(right)
        if found is None:
            return None
        return found if found.is_dealt or (counts and is_empty) or self._asks_for_nan(test) else None

    def _may_tell(self, test: cst.BaseExpression, counts: bool) -> bool:
        """A value that is only perhaps another on each rank says nothing, unless the test asks for the right thing."""
        return counts or self._is_dealing or self._asks_for_nan(test)

    @cached_property
    def _is_dealing(self) -> bool:
        return not self._names.words.isdisjoint(_DEALING) or bool(self._names.own.engines)

    @cached_property
    def _reads_clock(self) -> bool:
        return not self._names.words.isdisjoint(_CLOCK_WORDS)

    @cached_property
    def _speaks_of_nan(self) -> bool:
        return not self._names.words.isdisjoint(_NOT_A_NUMBER)

    def _asks_for_nan(self, node: cst.CSTNode, depth: int = 0) -> bool:
        """What is asked is whether a value is a number at all, or whether anything is left: no rank knows of others."""
        if not self._speaks_of_nan:
            return False
        for inner in self._tree.descendants(node):
            if isinstance(inner, cst.Call) and self._names.called(inner) in _NOT_A_NUMBER:
                return True
            value = self._names.single_value(inner) if type(inner) is cst.Name and depth < _MAX_ALIASES else None
            if value is not None and self._asks_for_nan(value, depth + 1):
                return True
        return False

    def _clock(self, test: cst.CSTNode) -> Variant | None:
        """``time.time() - start > limit``: the clocks of two ranks never pass a limit at the same step."""
        if not self._reads_clock:
            return None
        for inner in self._tree.descendants(test):
            if type(inner) is cst.Call and self._names.qualified(inner.func) in _CLOCKS:
                return Variant(inner, is_dealt=True, is_clock=True)
        return None

    # -- expressions --------------------------------------------------------------------------------------------

    def _value(self, node: cst.CSTNode, steps: int) -> Variant | None:
        if type(node) is cst.Name:
            return self._variable(node, self._names.bindings(node.value, node), steps)
        if type(node) is cst.Attribute:
            return self._attribute(node, steps)
        if type(node) is cst.Call:
            return self._call(node, steps)
        if type(node) is cst.Subscript:
            return self.value(node.value, steps)
        if isinstance(node, cst.BinaryOperation | cst.BooleanOperation):
            return self.value(node.left, steps) or self.value(node.right, steps)
        if type(node) is cst.UnaryOperation:
            return self.value(node.expression, steps)
        if type(node) is cst.Comparison:
            return self._comparison(node)
        if type(node) is cst.IfExp:
            return self.value(node.body, steps) or self.value(node.orelse, steps)
        if isinstance(node, cst.BaseComp):  # ``{name: part.to(device) for name, part in batch.items()}``
            return self.value(node.for_in.iter, steps)
        return self.value(node.value, steps) if type(node) is cst.NamedExpr else None

    def _attribute(self, node: cst.Attribute, steps: int) -> Variant | None:
        if node.attr.value in _SHAPES:
            return None
        found = self._names.attribute_bindings(node)
        return self._variable(node, found, steps) if found else self.value(node.value, steps)

    def _call(self, node: cst.Call, steps: int) -> Variant | None:
        name = self._names.called(node)
        if agrees(name) or name in _SHAPES:
            return None
        if name in _WRAPPERS:
            return self._loaded(node, steps)
        if name in _POSITIONS:  # how many there are is up to the data, wherever that comes from
            return Variant(node)
        qualified = self._names.qualified(node.func) or ""
        if self._passing.agrees(node) or (name in _PASSING and self._helper(node) is not None):
            return self._first(self._passing.returned(node), steps)
        is_model = _MODEL_NAME.search(name) is not None or self._objects.called(node.func) in MODELS
        if not (is_model or name in _PASSING or qualified.startswith("torch.nn.functional.")):
            return self._answered(node, steps)
        given: list[cst.BaseExpression] = [a.value for a in node.args]
        if type(node.func) is cst.Attribute and not qualified and not is_model:
            given.append(node.func.value)
        found = self._first(given, steps)
        # The outputs of a model that ranks train together are their own, whatever it is given.
        return found or (Variant(node) if self._objects.called(node.func) in _TRAINED else None)

    def _answered(self, call: cst.Call, steps: int) -> Variant | None:
        """What a function of the file returns, or the answer of an object to the value it gets: ``stopper(loss)``."""
        values = self._passing.returned(call)
        found = self._first(values, steps)
        if found is not None or len(call.args) != 1 or call.args[0].star or not any(map(_is_answer, values)):
            return found
        found = self.value(call.args[0].value, steps) if self._passing.is_local(call) else None
        return found if found is not None and found.is_dealt else None

    def _first(self, nodes: Iterable[cst.CSTNode], steps: int) -> Variant | None:
        return next((v for v in (self.value(n, steps) for n in nodes) if v is not None), None)

    def _loaded(self, node: cst.Call, steps: int) -> Variant | None:
        """``next(iter(loader))``, ``enumerate(loader)``: the batches."""
        inner = node.args[0].value if node.args else None
        if inner is None:
            return None
        return self._batches(inner, steps) or self.value(inner, steps)

    def _batches(self, iterable: cst.BaseExpression, steps: int) -> Variant | None:
        if isinstance(iterable, cst.Call) and self._names.called(iterable) in _WRAPPERS and iterable.args:
            return self._batches(iterable.args[0].value, steps)
        kind = self._objects.likely(iterable)
        if kind in _OWN_PART or kind == "prepared":  # of what accelerate prepared only a loader is looped over
            return Variant(iterable, is_dealt=True)
        if kind in _LOADER_KINDS or (not kind and _LOADER_NAME.search(last_name(iterable))):
            return Variant(iterable, is_dealt=self._is_dealt(iterable))
        return None

    def _is_dealt(self, loader: cst.BaseExpression) -> bool:
        """The loader has a ``DistributedSampler``."""
        made = self._objects.made(loader)
        sampler = keyword(made, "sampler") if made is not None else None
        return sampler is not None and self._objects.likely(sampler) == "distributed_sampler"

    # -- variables ----------------------------------------------------------------------------------------------

    def _variable(self, node: cst.CSTNode, found: list[Binding], steps: int) -> Variant | None:
        if not any(b.kind in _TOLD and type(b.value) not in _PLAIN for b in found):
            return None  # imports, constants
        for binding in self._objects.reaching.of_bindings(found, node):
            if not self._agreements.between(binding, node):
                variant = self._bound(binding, steps)
                if variant is not None:
                    return variant
        return None

    def _bound(self, binding: Binding, steps: int) -> Variant | None:
        if binding.kind == "loop" and binding.value is not None:
            counted = type(binding.value) is cst.Call and last_name(binding.value.func) == "enumerate"
            return None if counted and binding.position == 0 else self._batches(binding.value, steps)
        if binding.kind == "augmented":
            owner = self._tree.enclosing(binding.node, cst.AugAssign)
            return self.value(owner.value, steps) if type(owner) is cst.AugAssign else None
        if binding.kind == "param":
            given = [self.value(value, steps) for value in self._names.callers.passed(binding.node)]
            return given[0] if given and all(given) else None
        return self.value(binding.value, steps) if binding.kind in ("assign", "unpack") else None


def _counts(node: cst.BaseExpression) -> bool:
    """A number of items or of marked items: ``len(batch)``, ``mask.sum()``."""
    if type(node) is cst.Call and last_name(node.func) == "item" and type(node.func) is cst.Attribute:
        return _counts(node.func.value)
    if type(node) is cst.Call and last_name(node.func) in ("int", "float", "bool") and len(node.args) == 1:
        return _counts(node.args[0].value)
    return type(node) is cst.Call and last_name(node.func) in ("len", "sum", "numel", "count_nonzero", "any")


def _is_answer(value: cst.BaseExpression) -> bool:
    """More than a constant is returned: something that the function was told, or keeps."""
    constant = isinstance(value, cst.Name) and value.value in ("None", "True", "False")
    return not constant and not isinstance(value, cst.Integer | cst.Float | cst.SimpleString)
