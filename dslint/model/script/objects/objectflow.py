"""How objects travel: the things that an expression may hold, followed backwards through the file."""

from __future__ import annotations

import libcst as cst

from dslint.model.context import is_named
from dslint.model.script.bindings import Binding
from dslint.model.script.collective import frameworks
from dslint.model.script.dotted import dotted, is_self, is_super, literal_text
from dslint.model.script.names import Names
from dslint.model.script.objects.callees import ENGINE_NAMES
from dslint.model.script.objects.conditions import Conditions
from dslint.model.script.objects.handovers import HandOvers
from dslint.model.script.objects.objectcalls import CallResults
from dslint.model.script.objects.objectkinds import ATTRIBUTES, INNER, NOTHING, UNKNOWN, Thing, class_kind
from dslint.model.script.objects.reaching import Reaching
from dslint.model.script.tree import Tree

Things = frozenset[Thing]
_UNKNOWN = frozenset({UNKNOWN})
_MAX_STEPS = 14
_ENGINE_METHODS = frozenset(
    {"save_checkpoint", "load_checkpoint", "save_16bit_model", "is_gradient_accumulation_boundary"}
)


class Flow:
    """Evaluates expressions to things; an expression that is being evaluated adds nothing to itself (loops)."""

    def __init__(self, tree: Tree, names: Names, conditions: Conditions, reaching: Reaching, handed: HandOvers) -> None:
        self.tree = tree
        self.names = names
        self.reaching = reaching
        self._conditions = conditions
        self._handed = handed
        self._calls = CallResults(self)
        self._imports_deepspeed = names.imported("deepspeed")
        self._active: set[int] = set()
        self._reached: dict[cst.CSTNode, list[Binding]] = {}

    def class_kind(self, qualified: str) -> str:
        """The kind of the instances of a class, of a library or of the project's own vocabulary."""
        return class_kind(qualified) or ("trainer" if is_named(qualified, self.names.own.trainers) else "")

    def things(self, node: cst.CSTNode | None) -> Things:
        """What an expression may hold."""
        if node is None:
            return frozenset({NOTHING})
        if id(node) in self._active:
            return frozenset()
        if len(self._active) >= _MAX_STEPS:
            return _UNKNOWN
        self._active.add(id(node))
        try:
            return self._things(node)
        finally:
            self._active.discard(id(node))

    def _things(self, node: cst.CSTNode) -> Things:
        if isinstance(node, cst.Name):
            return self._name(node)
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, cst.Call):
            return self._itself(node) if is_super(node) else self._calls.of(node)
        if isinstance(node, cst.Subscript):
            return self.element(node.value, _constant_index(node)) if len(node.slice) == 1 else _UNKNOWN
        if isinstance(node, cst.NamedExpr):
            return self.things(node.value)
        if isinstance(node, cst.Await):
            return self.things(node.expression)
        if isinstance(node, cst.IfExp):
            return self.things(node.body) | self.things(node.orelse)
        if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
            return (self.things(node.left) - {NOTHING}) | self.things(node.right)
        return _UNKNOWN

    def element(self, value: cst.CSTNode | None, index: int | str | None) -> Things:
        """What stands at a place of a tuple, list or dict: ``deepspeed.initialize(...)[0]``, ``parts["engine"]``."""
        if index is None or value is None or len(self._active) >= _MAX_STEPS:
            return _UNKNOWN
        if isinstance(value, cst.Tuple | cst.List) and isinstance(index, int):
            parts = value.elements
            starred = any(isinstance(e, cst.StarredElement) for e in parts)
            return self.things(parts[index].value) if not starred and -1 < index < len(parts) else _UNKNOWN
        if isinstance(value, cst.Dict):
            found = [e.value for e in value.elements if isinstance(e, cst.DictElement) and literal_text(e.key) == index]
            return self.things(found[-1]) if found else _UNKNOWN
        if isinstance(value, cst.Call):
            return self._calls.element(value, index)
        if isinstance(value, cst.Name | cst.Attribute):
            bound = self.reached(value)
            if bound and all(b.kind == "assign" and b.value is not value for b in bound):
                return frozenset().union(*(self.element(b.value, index) for b in bound))
        return _UNKNOWN

    def reached(self, node: cst.Name | cst.Attribute) -> list[Binding]:
        """The bindings that a variable may have at a node."""
        # The same on every way that leads to the node, and asked for again on each of them.
        found = self._reached.get(node)
        if found is None:
            found = self._reached[node] = self._bindings(node)
        return found

    def _bindings(self, node: cst.Name | cst.Attribute) -> list[Binding]:
        if isinstance(node, cst.Name):
            return self.reaching.of_bindings(self.names.bindings(node.value, node), node)
        if not is_self(node.value):
            return self.reaching.of_bindings(self.names.member_bindings(node), node)
        owner = self.tree.enclosing(node, cst.ClassDef)
        return self._of_self(node, owner) if isinstance(owner, cst.ClassDef) else []

    def _of_self(self, node: cst.CSTNode, owner: cst.ClassDef, name: str = "") -> list[Binding]:
        """``self.x``: what this method has bound before, else what the other methods leave, ``__init__`` first."""
        found = self.names.class_attribute(owner, name or _attr(node))
        if len(found) < 2:
            return found
        function = self.tree.function(node)
        here = [b for b in found if self.tree.function(b.node) is function]
        reached, certain = self.reaching.before(here, node) if here else ([], False)
        if certain:
            return reached
        left: list[Binding] = []
        for method in dict.fromkeys(self.tree.function(b.node) for b in found):
            own = [b for b in found if self.tree.function(b.node) is method]
            left += self.reaching.at_end(method, own, node) if method is not None else own
        return list(dict.fromkeys([*reached, *left])) or found

    def _name(self, node: cst.Name) -> Things:
        if node.value == "None":
            return frozenset({NOTHING})
        return self._itself(node) if is_self(node) else self._variable(node, node.value, self.reached(node))

    def _itself(self, node: cst.CSTNode) -> Things:
        """``self``, and ``super()``, of which nothing but the methods is asked."""
        owner = self.tree.enclosing(node, cst.ClassDef)
        return frozenset({Thing(self._calls.local_class_kind(owner) if isinstance(owner, cst.ClassDef) else "")})

    def _attribute(self, node: cst.Attribute) -> Things:
        name = node.attr.value
        if name == "module" or any(name == attribute for _, attribute in ATTRIBUTES):
            owners = self.things(node.value)
            found = {INNER.get(t.kind, "") if name == "module" else ATTRIBUTES.get((t.kind, name), "") for t in owners}
            if "" not in found and found:
                return frozenset(Thing(k, t.made) for k in found for t in owners)
        if name == "trainer" and self._is_in_callback(node):
            return frozenset({Thing("trainer")})
        reached = self.reached(node)
        if not reached and not is_self(node.value):
            inside = self._member(node)
            if inside is not None:
                return inside
        return self._variable(node, name, reached)

    def _member(self, node: cst.Attribute) -> Things | None:
        """``x.engine`` of an instance of a class of this file, or of ``SimpleNamespace(engine=...)``."""
        made = [t.made for t in self.things(node.value) if t.kind != "none"]
        call = made[0] if len(made) == 1 else None
        if call is None:
            return None
        if self.names.qualified(call.func) in ("types.SimpleNamespace", "argparse.Namespace"):
            given = (a.value for a in call.args if a.keyword is not None and a.keyword.value == node.attr.value)
            return self.things(next(given, None))
        owner = self.names.local_class(call.func.value, call) if isinstance(call.func, cst.Name) else None
        found = self._of_self(node, owner, node.attr.value) if owner is not None else []
        return frozenset().union(*map(self._bound, found)) if found else None

    def _variable(self, node: cst.Name | cst.Attribute, name: str, reached: list[Binding]) -> Things:
        things = frozenset[Thing]().union(*map(self._bound, reached)) if reached else _UNKNOWN
        things = self._narrowed(node, self._handed.after(node, things, reached))
        if things == _UNKNOWN and _is_open(reached):
            if name == "accelerator":
                return frozenset({Thing("accelerator")})
            family = frameworks.called(name)
            if family is not None and self.names.imported(*family.packages):
                return frozenset({Thing(family.kind)})
            if self._imports_deepspeed and self._looks_like_engine(node, name):
                return frozenset({Thing("engine")})
        return things

    def _narrowed(self, node: cst.CSTNode, things: Things) -> Things:
        """What is left by ``isinstance(x, DeepSpeedEngine)`` or ``hasattr(x, "module")`` around a use of ``x``."""
        for condition in self._conditions.of(node):
            test = condition.test
            if condition.text.startswith("hasattr") and self._asks_for_inner(test, node):
                left = frozenset(t for t in things if (t.kind in INNER) == condition.holds)
                things = left or things
            if not (isinstance(test, cst.Call) and len(test.args) == 2 and condition.text.startswith("isinstance")):
                continue
            kind = self.class_kind(self.names.qualified(test.args[1].value) or "")
            if kind and dotted(test.args[0].value) == dotted(node) and not self._tests_itself(test, node):
                of_kind = frozenset(t for t in things if t.kind == kind)
                things = (of_kind or frozenset({Thing(kind)})) if condition.holds else (things - of_kind or _UNKNOWN)
        return things

    def _asks_for_inner(self, test: cst.BaseExpression, node: cst.CSTNode) -> bool:
        """``hasattr(x, "module")``: a wrapper has it, and a model does not."""
        if not isinstance(test, cst.Call) or len(test.args) != 2 or self._tests_itself(test, node):
            return False
        return literal_text(test.args[1].value) == "module" and dotted(test.args[0].value) == dotted(node)

    def _tests_itself(self, test: cst.Call, node: cst.CSTNode) -> bool:
        return self.tree.contains(test, node)

    def _looks_like_engine(self, node: cst.CSTNode, name: str) -> bool:
        if name in ENGINE_NAMES:
            return True
        # ``engine`` alone may be anything, unless it does what only a DeepSpeed engine does.
        user = self.tree.parent(node)
        return name == "engine" and isinstance(user, cst.Attribute) and user.attr.value in _ENGINE_METHODS

    def _bound(self, binding: Binding) -> Things:
        if binding.kind == "unpack":
            return self.element(binding.value, binding.position)
        if binding.kind == "param" and isinstance(binding.node, cst.Param):
            return self._calls.parameter(binding.node)
        return self.things(binding.value) if binding.kind in ("assign", "with") else _UNKNOWN

    def _is_in_callback(self, node: cst.CSTNode) -> bool:
        """``self.trainer`` of a callback is the Hugging Face trainer that was handed to it."""
        owner = self.tree.enclosing(node, cst.ClassDef)
        bases = self.names.class_bases(owner.name.value) if isinstance(owner, cst.ClassDef) else []
        return any(b.startswith("transformers.") and b.endswith("TrainerCallback") for b in bases)


def _is_open(found: list[Binding]) -> bool:
    """Nothing in the file says what the name holds."""
    return all(b.kind == "param" or b.value is None or isinstance(b.value, cst.Attribute) for b in found)


def _attr(node: cst.CSTNode) -> str:
    return node.attr.value if isinstance(node, cst.Attribute) else ""


def _constant_index(node: cst.Subscript) -> int | str | None:
    index = node.slice[0].slice
    if not isinstance(index, cst.Index):
        return None
    if isinstance(index.value, cst.Integer) and index.value.value.isdigit():
        return int(index.value.value)
    return literal_text(index.value) or None
