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
from itertools import takewhile

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.ranks.guards import Guards
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.tree import Tree

_MAX_STEPS = 14
_MAX_ALIASES = 3
_CLOCKS = frozenset({"time.time", "time.perf_counter", "time.monotonic", "datetime.datetime.now"})
_CLOCK_WORDS = frozenset(name.rpartition(".")[2] for name in _CLOCKS)
_TEXT = cst.Module([])
# The bindings that say what a variable holds, and the values that say nothing.
_TOLD = frozenset({"loop", "augmented", "assign", "unpack"})
_PLAIN = frozenset(
    {cst.Integer, cst.Float, cst.SimpleString, cst.FormattedString, cst.ConcatenatedString, cst.List, cst.Dict, cst.Set}
)
# Makes values the same on all ranks: ``dist.all_reduce(flag)`` in place, ``accelerator.gather(x)`` as a result.
_AGREES = re.compile(r"reduce|gather|broadcast|bcast|sync|agree|across|consensus|all_to_all", re.I)
_LOADER_KINDS = frozenset({"loader", "prepared_loader", "ds_loader"})
# Each rank gets a part of its own from these.
_OWN_PART = frozenset({"prepared_loader", "ds_loader"})
_LOADER_NAME = re.compile(r"(?:^|_)(?:data)?_?loader$|dataloader$|^(?:train|data)_?iter(?:ator)?$", re.I)
_MODELS = frozenset({"engine", "ddp", "fsdp", "prepared_model", "prepared", "model", "engine_module", "ddp_module"})
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
        *("view", "ne", "abs", "tensor", "as_tensor"),
    }
)
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

    def __init__(self, tree: Tree, names: Names, guards: Guards, objects: Objects) -> None:
        self._tree = tree
        self._names = names
        self._guards = guards
        self._objects = objects
        self._known: dict[int, Variant | None] = {}
        self._may_differ: dict[int, bool] = {}
        self._guarding: dict[int, bool] = {}
        self._agreed: dict[str, list[int]] | None = None

    def test(self, test: cst.BaseExpression) -> Variant | None:
        """Why a test may come out differently on some ranks: it looks at the data of the rank; else ``None``."""
        if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
            return self.test(test.expression)
        lone = self._set_on_some(test) if type(test) is not cst.BooleanOperation else None
        if lone is not None:
            return Variant(lone, is_lone=True)
        if type(test) is cst.BooleanOperation:
            return self.test(test.left) or self.test(test.right)
        if type(test) is cst.NamedExpr:
            return self.test(test.value)
        if type(test) is cst.Comparison:
            return self._comparison(test)
        found = self._clock(test) or (self.value(test) if self._may_tell(test, _counts(test)) else None)
        told = found is not None and (found.is_dealt or _counts(test) or self._asks_for_nan(test))
        return found if told else None

    def _set_on_some(self, test: cst.BaseExpression) -> cst.CSTNode | None:
        """``stop = False``; ``if rank == 0: stop = read()``; ``if stop:``, and nothing told the other ranks."""
        for node in self._tree.descendants(test):
            found = None
            if type(node) is cst.Subscript:
                found = self._item_set_on_some(node)
            elif type(node) is cst.Name and type(self._tree.parent(node)) is not cst.Attribute:
                found = self._name_set_on_some(node)
            elif type(node) is cst.Attribute and type(node.value) is cst.Name:
                found = self._name_set_on_some(node.value)
            if found is not None:
                return found
        return None

    def _name_set_on_some(self, name: cst.Name) -> cst.CSTNode | None:
        found = self._names.bindings(name.value, name)
        if id(found) not in self._may_differ:
            self._may_differ[id(found)] = any(self._may_be_lone(b, len(found)) for b in found)
        if not self._may_differ[id(found)]:
            return None
        reaching = self._objects.reaching.of_bindings(found, name)
        chosen = [b for b in reaching if type(b.value) is cst.IfExp and self._is_chosen_by_rank(b.value)]
        lone = [b for b in reaching if b.kind in ("assign", "augmented") and self._is_lone(b.node, name)]
        # Two constants are told apart by the guards themselves: ``leads = False`` ... ``leads = True``.
        computed = [b for b in lone if b.kind == "augmented" or isinstance(b.value, cst.Call | cst.Comparison)]
        if not chosen and (len(reaching) < 2 or len(lone) == len(reaching) or not computed):
            return None
        told = [*chosen, *computed]
        if any(self._agreed_between(b, name) or self._told_in_list(b, name, reaching) for b in told):
            return None
        return told[0].node

    def _may_be_lone(self, binding: Binding, count: int) -> bool:
        """A rank alone may compute the value there: a look that spares most names the question what reaches them."""
        if type(binding.value) is cst.IfExp:
            return True
        computed = binding.kind == "augmented" or type(binding.value) in (cst.Call, cst.Comparison)
        return count > 1 and computed and binding.kind in ("assign", "augmented") and self._is_behind_test(binding.node)

    def _is_behind_test(self, node: cst.CSTNode) -> bool:
        """Only some ranks come to a node because of a test around it, and not because the others have left before."""
        key = id(node)
        if key not in self._guarding:
            # Most stand behind no test at all, or behind tests that have nothing to do with ranks.
            outer = takewhile(lambda n: type(n) is not cst.FunctionDef, self._tree.parents(node))
            guard = self._guards.guard(node) if any(map(self._may_choose_ranks, outer)) else None
            self._guarding[key] = guard is not None and guard.kind == "test"
        return self._guarding[key]

    def _may_choose_ranks(self, node: cst.CSTNode) -> bool:
        if type(node) is cst.BooleanOperation:
            test: cst.BaseExpression = node.left
        elif type(node) is cst.If or type(node) is cst.IfExp or type(node) is cst.While:
            test = node.test
        else:
            return type(node) is cst.MatchCase
        yes, no = self._guards.branches(test)
        return yes.is_partial or no.is_partial

    def _is_chosen_by_rank(self, value: cst.IfExp) -> bool:
        """``read() if rank == 0 else False``."""
        yes, no = self._guards.branches(value.test)
        computed = any(type(n) is cst.Call for arm in (value.body, value.orelse) for n in self._tree.descendants(arm))
        return computed and yes.is_partial and no.is_partial

    def _item_set_on_some(self, test: cst.Subscript) -> cst.CSTNode | None:
        """``stop = [False]``; ``if rank == 0: stop[0] = read()``; ``if stop[0]:``."""
        if not self._items:
            return None
        text = _TEXT.code_for_node(test)
        if text not in self._items:
            return None
        scope = self._tree.function(test) or self._tree.module
        for node in self._tree.own_nodes(scope):
            if self._tree.position(node) > self._tree.position(test):
                break
            if type(node) is not cst.Assign or not isinstance(node.value, cst.Call | cst.Comparison):
                continue
            target = node.targets[0].target
            if type(target) is cst.Subscript and _TEXT.code_for_node(target) == text and self._is_lone(node, test):
                told = Binding("assign", node, node.value)
                return None if self._agreed_between(told, test.value) else node
        return None

    @cached_property
    def _items(self) -> set[str]:
        """The items of lists and dicts that the file sets to what it computes."""
        set_to = ((a.targets[0].target, a.value) for a in self._tree.every(cst.Assign))
        return {
            _TEXT.code_for_node(target)
            for target, value in set_to
            if type(target) is cst.Subscript and type(value) in (cst.Call, cst.Comparison)
        }

    def _is_lone(self, node: cst.CSTNode, test: cst.CSTNode) -> bool:
        """Only some ranks come to a node, within the function of the test."""
        if self._tree.function(node) is not self._tree.function(test):
            return False
        return self._is_behind_test(node)

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
            if type(inner) is cst.Call and last_name(inner.func) in _NOT_A_NUMBER:
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
        return self.value(node.value, steps) if type(node) is cst.NamedExpr else None

    def _attribute(self, node: cst.Attribute, steps: int) -> Variant | None:
        if node.attr.value in _SHAPES:
            return None
        found = self._names.attribute_bindings(node)
        return self._variable(node, found, steps) if found else self.value(node.value, steps)

    def _call(self, node: cst.Call, steps: int) -> Variant | None:
        name = last_name(node.func)
        if _AGREES.search(name) or name in _SHAPES:
            return None
        if name in _WRAPPERS:
            return self._loaded(node, steps)
        qualified = self._names.qualified(node.func) or ""
        is_model = _MODEL_NAME.search(name) is not None or self._objects.called(node.func) in _MODELS
        if not (is_model or name in _PASSING or qualified.startswith("torch.nn.functional.")):
            return None
        given: list[cst.BaseExpression] = [a.value for a in node.args]
        if type(node.func) is cst.Attribute and not qualified and not is_model:
            given.append(node.func.value)
        found = self._first(given, steps)
        # What a function is given is not followed, but the outputs of a model that ranks train together are their own.
        return found or (Variant(node) if self._objects.called(node.func) in _TRAINED else None)

    def _first(self, nodes: Iterable[cst.CSTNode], steps: int) -> Variant | None:
        return next((v for v in (self.value(n, steps) for n in nodes) if v is not None), None)

    def _loaded(self, node: cst.Call, steps: int) -> Variant | None:
        """``next(iter(loader))``, ``enumerate(loader)``: the batches."""
        inner = node.args[0].value if node.args else None
        if inner is None:
            return None
        return self._batches(inner, steps) or self.value(inner, steps)

    def _batches(self, iterable: cst.BaseExpression, steps: int) -> Variant | None:
        if type(iterable) is cst.Call and last_name(iterable.func) in _WRAPPERS and iterable.args:
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
        given = (a.value for a in made.args if a.keyword is not None and a.keyword.value == "sampler") if made else ()
        return any(self._objects.likely(sampler) == "distributed_sampler" for sampler in given)

    # -- variables ----------------------------------------------------------------------------------------------

    def _variable(self, node: cst.CSTNode, found: list[Binding], steps: int) -> Variant | None:
        if not any(b.kind in _TOLD and type(b.value) not in _PLAIN for b in found):
            return None  # parameters, imports, constants
        for binding in self._objects.reaching.of_bindings(found, node):
            if not self._agreed_between(binding, node):
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
        return self.value(binding.value, steps) if binding.kind in ("assign", "unpack") else None

    def _agreed_between(self, binding: Binding, node: cst.CSTNode) -> bool:
        """The variable was handed to something that makes it the same on all ranks: ``dist.all_reduce(flag)``."""
        name = last_name(node)
        if self._agreed is None:
            self._agreed = {}
            for call in self._tree.every(cst.Call):
                if _AGREES.search(last_name(call.func)):
                    for arg in call.args:
                        for given in _handed(arg.value):
                            self._agreed.setdefault(given, []).append(self._tree.position(call))
        start, end = self._tree.position(binding.node), self._tree.position(node)
        return any(start < at < end for at in self._agreed.get(name, ()))

    def _told_in_list(self, binding: Binding, name: cst.Name, reaching: list[Binding]) -> bool:
        """``told = [stop]``; ``broadcast_object_list(told)``; ``if rank != 0: stop = told[0]``: the others read it."""
        held = (b.value.value for b in reaching if isinstance(b.value, cst.Subscript))
        for box in (h for h in held if isinstance(h, cst.Name)):
            for made in self._names.bindings(box.value, box):
                if made.value is None or not self._agreed_between(made, box):
                    continue
                inside = self._tree.descendants(made.value)
                after = self._tree.position(made.node) > self._tree.position(binding.node)
                if after and any(isinstance(n, cst.Name) and n.value == name.value for n in inside):
                    return True
        return False


def _handed(node: cst.BaseExpression) -> list[str]:
    """The variables that a call may change: ``x``, ``x.data``, ``[x]``."""
    if isinstance(node, cst.List | cst.Tuple):
        return [name for e in node.elements for name in _handed(e.value)]
    names = [last_name(node)] if isinstance(node, cst.Name | cst.Attribute) else []
    return [*names, last_name(node.value)] if type(node) is cst.Attribute else names


def _counts(node: cst.BaseExpression) -> bool:
    """A number of items or of marked items: ``len(batch)``, ``mask.sum()``."""
    if type(node) is cst.Call and last_name(node.func) == "item" and type(node.func) is cst.Attribute:
        return _counts(node.func.value)
    if type(node) is cst.Call and last_name(node.func) in ("int", "float", "bool") and len(node.args) == 1:
        return _counts(node.args[0].value)
    return type(node) is cst.Call and last_name(node.func) in ("len", "sum", "numel", "count_nonzero", "any")
