"""Parts of a model that run only where the batch has something for them: images, or tokens for an expert."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.behind import question, wording
from dslint.model.script.dotted import is_self, last_name
from dslint.model.script.names import Names
from dslint.model.script.ranks.guards import leaves
from dslint.model.script.tree import Tree

_METHODS = re.compile(r"^(?:forward|_forward|prepare_inputs\w*|get_vllm_embedding\w*|get_\w*embeds?\w*|_?merge\w*)$")
_LAYERS = re.compile(r"Module|Model|For[A-Z]|LM$")
_NO_LAYERS = re.compile(r"Process|Token|Collat|Dataset|Template|Trainer|Config|Pipeline")
# What a batch may lack, as the parameters of ``forward`` call it.
_MODALITY = re.compile(r"pixel|image|vision|video|audio|speech|mel_|input_features|multimodal", re.I)
_PARTS = re.compile(r"vision|visual|image|video|audio|speech|vpm|apm|resampl|projector|connector|whisper|vit\b", re.I)
# Generation, and choices that are the same on every rank.
_UNIFORM = re.compile(r"self\.training|past_key_values|use_cache|cache_position|shape\[1\]|size\(1\)|config\.|\.jit")
# What somebody has computed before: then the choice is one of the kind of model.
_COMPUTED = re.compile(r"hidden_states|features_list")
# Functions that tell what a batch holds and not what kind of thing was passed.
_ASKS = frozenset({"len", "any", "all", "sum", "bool", "numel", "nonzero"})
_EXPERTS = re.compile(r"expert", re.I)
_DATA = frozenset({"any", "numel", "sum", "nonzero", "len", "item", "size", "count_nonzero", "all"})


@dataclass(frozen=True, slots=True)
class PartialPart:
    """A call of a part of the model, and the test of the batch that decides whether it runs.

    ``kind``: ``images`` (a modality that a batch may lack) | ``experts``.
    """

    call: cst.Call
    test: cst.BaseExpression
    kind: str


class PartialModels:
    """The parts of the models of one module that a batch may leave out."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def of(self, method: cst.FunctionDef) -> Iterator[PartialPart]:
        """The parts that a method of a model runs for some batches only, the first of each test."""
        if not _METHODS.match(method.name.value) or not _is_method(method) or not self._is_of_model(method):
            return
        parameters = {p.name.value for p in (*method.params.params, *method.params.kwonly_params)}
        offered = {name for name in parameters if _MODALITY.search(name) and not _COMPUTED.search(name)}
        for node in self._tree.own_nodes(method):
            if isinstance(node, cst.If):
                found = self._modality(node, offered) if offered else None
                if found is not None:
                    yield found
            elif isinstance(node, cst.For):
                yield from self._experts(node)

    def _is_of_model(self, method: cst.FunctionDef) -> bool:
        """Its class has layers; a processor of inputs has none. A function may replace the ``forward`` of a class."""
        owner = self._tree.enclosing(method, cst.ClassDef)
        if not isinstance(owner, cst.ClassDef):
            return "forward" in method.name.value
        names = [owner.name.value, *(base.rpartition(".")[2] for base in self._names.class_bases(owner.name.value))]
        if any(_NO_LAYERS.search(name) for name in names):
            return False
        methods = (n.name.value for n in owner.body.body if isinstance(n, cst.FunctionDef))
        return any(_LAYERS.search(name) for name in names) or "forward" in methods

    # -- modalities ---------------------------------------------------------------------------------------------

    def _modality(self, branch: cst.If, offered: set[str]) -> PartialPart | None:
        asked = self._asked(branch.test, offered)
        if not asked or _UNIFORM.search(wording(self._names, branch.test)):
            return None
        arms = self._arms(branch)
        if arms is None:
            return None
        calls = [self._part_calls(arm, asked) for arm in arms]
        if bool(calls[0]) == bool(calls[1]):
            return None
        used, other = (0, 1) if calls[0] else (1, 0)
        if self._mentions_parts(arms[other], {self._root(c) for c in calls[used]}) or self._raises(arms[other]):
            return None
        if self._asks_alike(calls[used][0], branch):
            return None
        return PartialPart(calls[used][0], branch.test, "images")

    def _asks_alike(self, call: cst.Call, branch: cst.If) -> bool:
        """A test between the two is the same on all ranks, and decides as well."""
        for outer in self._tree.parents(call):
            if outer is branch:
                return False
            if isinstance(outer, cst.If) and _UNIFORM.search(wording(self._names, outer.test)):
                return True
        return False

    def _asked(self, test: cst.BaseExpression, offered: set[str]) -> set[str]:
        """The parameters of which a test asks whether the batch has them."""
        test, _ = question(self._names, test)
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self._asked(test.expression, offered)
        if isinstance(test, cst.BooleanOperation):
            return self._asked(test.left, offered) | self._asked(test.right, offered)
        if isinstance(test, cst.Comparison):
            return self._asked(test.left, offered)
        if isinstance(test, cst.Call):
            if self._names.called(test) not in _ASKS:
                return set()
            inner = [a.value for a in test.args]
            inner += [test.func.value] if isinstance(test.func, cst.Attribute) else []
            return set().union(*(self._asked(node, offered) for node in inner))
        return {test.value} & offered if isinstance(test, cst.Name) else set()

    def _arms(self, branch: cst.If) -> tuple[list[cst.CSTNode], list[cst.CSTNode]] | None:
        """What runs when the test holds, and what runs when it does not; after an early exit, the rest of the block."""
        rest = self._after(branch)
        body: list[cst.CSTNode] = [branch.body]
        other: list[cst.CSTNode] = [branch.orelse] if branch.orelse is not None else []
        if branch.orelse is not None and not isinstance(branch.orelse, cst.Else):
            return None  # ``elif``: another question
        if leaves(branch.body):
            other += rest
        if isinstance(branch.orelse, cst.Else) and leaves(branch.orelse.body):
            body += rest
        return body, other

    def _after(self, statement: cst.CSTNode) -> list[cst.CSTNode]:
        block = self._tree.parent(statement)
        found: list[cst.CSTNode] = list(block.body) if isinstance(block, cst.IndentedBlock) else []
        return found[found.index(statement) + 1 :] if statement in found else []

    def _part_calls(self, arm: list[cst.CSTNode], asked: set[str]) -> list[cst.Call]:
        """Calls of ``self.vision_model(pixel_values)`` and the like, with what was asked for."""
        found = []
        for node in (n for part in arm for n in self._tree.descendants(part)):
            if isinstance(node, cst.Call) and _PARTS.search(self._root(node)):
                passed = {n.value for a in node.args for n in self._tree.descendants(a) if isinstance(n, cst.Name)}
                if passed & asked:
                    found.append(node)
        return found

    def _mentions_parts(self, arm: list[cst.CSTNode], roots: set[str]) -> bool:
        """The other arm runs a part as well (a dummy image), or adds something times zero."""
        for node in (n for part in arm for n in self._tree.descendants(part)):
            if isinstance(node, cst.Call):
                root = self._root(node)
                if root in roots or _PARTS.search(root) or "dummy" in self._names.called(node):
                    return True
            if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
                sides = (side for side in (node.left, node.right) if isinstance(side, cst.Integer | cst.Float))
                if any(side.evaluated_value == 0 for side in sides):
                    return True
        return False

    def _raises(self, arm: list[cst.CSTNode]) -> bool:
        return any(isinstance(n, cst.Raise) for part in arm for n in self._tree.descendants(part))

    @staticmethod
    def _root(call: cst.Call) -> str:
        """``vision_tower`` of ``self.vision_tower(...)`` and of ``self.model.vision_tower(...)``; else empty."""
        names: list[str] = []
        node: cst.BaseExpression = call.func
        while isinstance(node, cst.Attribute | cst.Call):
            if isinstance(node, cst.Attribute):
                names.append(node.attr.value)
                node = node.value
            else:
                node = node.func
        return names[0] if names and is_self(node) else ""

    # -- experts ------------------------------------------------------------------------------------------------

    def _experts(self, loop: cst.For) -> Iterator[PartialPart]:
        """Experts that run where the router sent them something: a rank may have nothing for one of them."""
        for call in self._tree.descendants(loop.body):
            if isinstance(call, cst.Call) and self._is_expert(call.func):
                test = self._test_of(call, loop)
                if test is not None:
                    yield PartialPart(call, test, "experts")
                    return

    def _is_expert(self, func: cst.BaseExpression) -> bool:
        """``self.experts[i]``, or a variable that holds one."""
        if isinstance(func, cst.Name):
            found = self._names.bindings(func.value, func)
            source = found[0].value if len(found) == 1 else None
            if isinstance(source, cst.Call) and self._names.called(source) == "enumerate" and source.args:
                source = source.args[0].value
            return source is not None and (self._is_list(source) or self._is_expert(source))
        return isinstance(func, cst.Subscript) and self._is_list(func.value)

    @staticmethod
    def _is_list(node: cst.BaseExpression) -> bool:
        return isinstance(node, cst.Attribute) and is_self(node.value) and bool(_EXPERTS.search(node.attr.value))

    def _test_of(self, call: cst.Call, loop: cst.For) -> cst.BaseExpression | None:
        """The test of the data that lets a rank leave the expert out."""
        inner: cst.CSTNode = call
        for outer in self._tree.parents(call):
            if isinstance(outer, cst.If) and inner is outer.body and self._asks_data(outer.test):
                return outer.test
            if isinstance(outer, cst.IndentedBlock):
                for statement in outer.body:
                    if statement is inner:
                        break
                    if isinstance(statement, cst.If) and leaves(statement.body) and self._asks_data(statement.test):
                        return statement.test
            if outer is loop:
                return None
            inner = outer
        return None

    def _asks_data(self, test: cst.BaseExpression) -> bool:
        nodes = self._tree.descendants(test)
        if _UNIFORM.search(self._tree.text(test)):
            return False
        if any(isinstance(n, cst.Attribute) and n.attr.value == "shape" for n in nodes):
            return True
        return any(isinstance(n, cst.Call) and self._names.called(n) in _DATA for n in nodes)


def _is_method(function: cst.FunctionDef) -> bool:
    """Its first parameter is ``self``, and it does not run without gradients."""
    params = (*function.params.posonly_params, *function.params.params)
    if not params or params[0].name.value != "self":
        return False
    for decorator in function.decorators:
        expression = decorator.decorator
        name = last_name(expression.func if isinstance(expression, cst.Call) else expression)
        if name in ("no_grad", "inference_mode"):
            return False
    return True
