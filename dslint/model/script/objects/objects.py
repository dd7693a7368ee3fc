"""What a name holds: a DeepSpeed engine, an optimizer, a Hugging Face trainer, an accelerator, a DDP model."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.names import Names
from dslint.model.script.objects.callees import Callees
from dslint.model.script.objects.conditions import Conditions
from dslint.model.script.objects.handovers import HandOvers
from dslint.model.script.objects.objectflow import Flow
from dslint.model.script.objects.objectkinds import UNKNOWN, Thing
from dslint.model.script.objects.reaching import Reaching
from dslint.model.script.tree import Tree

# What a variable holds where nothing was made of it: another arm of the file then says more.
_PLAIN = frozenset({"", "none", "model", "optimizer", "scheduler", "loader"})


class Objects:
    """Object kinds of one module.

    The kinds: of DeepSpeed ``engine``, ``ds_optimizer``, ``ds_scheduler``, ``ds_loader`` (results of
    ``deepspeed.initialize``), ``client_optimizer``, ``client_scheduler`` (handed to it), ``engine_module`` (the model
    inside: ``engine.module``, or the variable that was handed to it); of DDP and FSDP in the same way ``ddp``,
    ``ddp_module``, ``fsdp``, ``fsdp_module``; of accelerate ``accelerator`` and ``prepared_model``,
    ``prepared_optimizer``, ``prepared_loader``, ``prepared_scheduler``, ``prepared_module``, or ``prepared`` where the
    argument is not known; of transformers and trl ``trainer`` (subclasses too), ``training_arguments``; of other
    frameworks what ``frameworks.py`` lists; plain ``model``, ``optimizer``, ``scheduler``, ``loader``, ``sampler``,
    ``distributed_sampler``.

    Kinds flow through assignment, unpacking, walrus, ``with``, ``self.x``, literals of containers, and calls of
    functions of the file. Where arms join, every kind that may arrive counts; what depends on a test is decided by the
    same test around the node.
    """

    def __init__(self, tree: Tree, names: Names) -> None:
        self.conditions = Conditions(tree, names)
        self.reaching = Reaching(tree, names, self.conditions)
        handed = HandOvers(tree, names, self.conditions, self.reaching)
        self._flow = Flow(tree, names, self.conditions, self.reaching, handed)
        self._callees = Callees(tree, names)
        self._known: dict[int, frozenset[Thing]] = {}

    def kind(self, node: cst.CSTNode) -> str:
        """The kind that an expression certainly has, else empty: unknown, or one of several.

        ``None`` in another arm does not count: the use would fail on it.
        """
        kinds = {t.kind for t in self.things(node)} - {"none"}
        return kinds.pop() if len(kinds) == 1 else ""

    def likely(self, node: cst.CSTNode) -> str:
        """The one library object that an expression holds in some arm, where the others hold nothing special.

        ``if distributed: model = DDP(model)`` makes a likely ``ddp``: in the other arm there is one process.
        """
        things = self.things(node)
        kinds = {t.kind for t in things} - _PLAIN
        return (kinds.pop() if len(kinds) == 1 else "") if kinds else self.kind(node)

    def called(self, called: cst.BaseExpression) -> str:
        """:meth:`likely` for what a call runs: most are methods and functions, of which nothing is followed."""
        return "" if self._callees.is_open(called) else self.likely(called)

    def things(self, node: cst.CSTNode) -> frozenset[Thing]:
        """All that an expression may hold; with :data:`UNKNOWN` where something else may arrive."""
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = self._flow.things(node) or frozenset({UNKNOWN})
        return found

    def made(self, node: cst.CSTNode) -> cst.Call | None:
        """The one call that made the object; for an engine and what comes with it ``deepspeed.initialize``."""
        found = {t.made for t in self.things(node) if t.kind != "none"}
        return found.pop() if len(found) == 1 else None

    def taken(self, node: cst.CSTNode) -> cst.Call | None:
        """The one call that the object was handed to before: ``deepspeed.initialize(optimizer=...)``."""
        found = {t.taken for t in self.things(node) if t.kind != "none"}
        return found.pop() if len(found) == 1 else None

    def reached(self, node: cst.Name | cst.Attribute) -> list[Binding]:
        """The assignments of a variable that may be the last before a node."""
        return self._flow.reached(node)

    def reached_before(self, node: cst.Name | cst.Attribute, place: cst.CSTNode) -> list[Binding]:
        """The same for another place of the variable's function."""
        if not isinstance(node, cst.Name):
            return []
        return self._flow.reaching.of_bindings(self._flow.names.bindings(node.value, node), place)

    def class_kind(self, qualified: str) -> str:
        """The kind of the instances of a class."""
        return self._flow.class_kind(qualified)
