"""Random orders of a script: which generator makes them, and whether its seed is the same on every rank."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.model.script.dotted import keyword, last_name
from dslint.model.script.names import Names
from dslint.model.script.ranks.guards import Guards
from dslint.model.script.tree import Tree

# Functions that put what they get in a random order, in place or as their result: by library.
_SHUFFLES = {
    "random.shuffle": "random",
    "random.sample": "random",
    "numpy.random.shuffle": "numpy",
    "numpy.random.permutation": "numpy",
    "torch.randperm": "torch",
}
# Functions that seed the generator of a library.
_SEEDS = {
    "random.seed": "random",
    "numpy.random.seed": "numpy",
    "torch.manual_seed": "torch",
}
_GENERATORS = {
    "random.Random": "random",
    "numpy.random.default_rng": "numpy",
    "numpy.random.RandomState": "numpy",
}
_MAX_STEPS = 4


@dataclass(frozen=True, slots=True)
class Order:
    """A random order that differs between the ranks.

    ``seed``: the expression that holds the rank; ``None`` when there is no seed at all.
    """

    library: str
    call: cst.Call
    seed: cst.BaseExpression | None


class Randomness:
    """Answers why a shuffle of one module gives every rank an order of its own."""

    def __init__(self, tree: Tree, names: Names, guards: Guards) -> None:
        self._tree = tree
        self._names = names
        self._ranks = guards.rank_values

    def shuffled(self, name: cst.Name) -> cst.Call | None:
        """The call that put a variable in a random order just before, on every way to this use."""
        at, found = self._tree.position(name), None
        scope = self._tree.function(name) or self._tree.module
        for node in self._tree.own_nodes(scope):
            if self._tree.position(node) >= at:
                break
            if isinstance(node, cst.Call) and self._library(node) and self._reaches(node, name):
                found = node if self._gets(node, name.value) else found
            elif isinstance(node, cst.AssignTarget) and last_name(node.target) == name.value:
                made = getattr(self._tree.parent(node), "value", None)
                inside = isinstance(made, cst.CSTNode) and found is not None and self._tree.contains(made, found)
                found = self._made(made) or (found if inside else None)
        return found if found is not None and self._reaches(found, name) else None

    def _made(self, value: object) -> cst.Call | None:
        """``np.random.permutation(n)``, ``torch.randperm(n).tolist()``, ``random.sample(x, len(x))``."""
        while isinstance(value, cst.Call):
            if self._library(value) and self._names.called(value) != "shuffle":
                return value
            value = value.func.value if isinstance(value.func, cst.Attribute) else None
        return None

    def _gets(self, call: cst.Call, name: str) -> bool:
        return self._names.called(call) == "shuffle" and bool(call.args) and last_name(call.args[0].value) == name

    def _reaches(self, node: cst.CSTNode, use: cst.CSTNode) -> bool:
        """A statement that runs on every way to the use: its block is the block of the use, or one around it."""
        return self._tree.always_before(node, use)

    def own_order(self, shuffle: cst.Call) -> Order | None:
        """The shuffle gives each rank its own order for certain: the last seed before it holds the rank."""
        library = self._library(shuffle)
        generator = self._generator(shuffle)
        if generator is not None:
            seed = generator.args[0].value if generator.args else None
            if seed is None or self.holds_rank(seed):
                return Order(library, shuffle, seed)
            return None
        if keyword(shuffle, "generator") is not None:
            return None
        seeds = [n for n in self._tree.every(cst.Call) if self._seeds(n, library)]
        if not seeds:
            return Order(library, shuffle, None) if library == "random" and self._is_whole_program() else None
        before = [s for s in seeds if self._tree.position(s) < self._tree.position(shuffle)]
        last = before[-1] if before and self._reaches(before[-1], shuffle) else None
        if last is None or not last.args or not self.holds_rank(last.args[0].value):
            return None
        return Order(library, shuffle, last.args[0].value)

    def holds_rank(self, seed: cst.BaseExpression, steps: int = 0) -> bool:
        """``seed + rank``: the rank takes part in the number."""
        if steps > _MAX_STEPS:
            return False
        for node in self._tree.descendants(seed):
            if isinstance(node, cst.Name) and not self._tree.is_variable(node):
                continue  # ``seed`` of ``args.seed``
            if isinstance(node, cst.Name | cst.Attribute | cst.Call) and self._ranks.is_rank(node):
                return True
            value = self._names.single_value(node) if isinstance(node, cst.Name) else None
            if value is not None and self.holds_rank(value, steps + 1):
                return True
        return False

    def _library(self, call: cst.Call) -> str:
        name = self._names.qualified(call.func)
        if name is not None:
            return _SHUFFLES.get(name, "")
        generator = self._generator(call)
        return _GENERATORS.get(self._names.qualified(generator.func) or "", "") if generator is not None else ""

    def _generator(self, call: cst.Call) -> cst.Call | None:
        """``rng`` of ``rng.shuffle(x)``, when the file makes it once."""
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in ("shuffle", "permutation", "sample"):
            return None
        owner = call.func.value
        made = owner if isinstance(owner, cst.Call) else self._names.single_value(owner)
        known = isinstance(made, cst.Call) and self._names.qualified(made.func) in _GENERATORS
        return made if known and isinstance(made, cst.Call) else None

    def _seeds(self, call: cst.Call, library: str) -> bool:
        """The call may seed the generator of a library: by its own function, or by a helper with such a name."""
        name = self._names.qualified(call.func) or ""
        called = self._names.called(call).lower()  # a Trainer seeds everything when it is made
        if called.startswith("manual_seed"):  # of torch, of its devices, or of one ``torch.Generator``
            return library == "torch"
        return _SEEDS[name] == library if name in _SEEDS else "seed" in called or called.endswith("trainer")

    def _is_whole_program(self) -> bool:
        """The file is the program: nobody else has seeded before."""
        return any(isinstance(n, cst.Comparison) and last_name(n.left) == "__name__" for n in self._tree.order)
