"""Parts of models that a rank leaves out for its batch: images that it lacks, experts that got no tokens."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.python.events import Alt, Call, Event, Loop, Seq, walk
from dslint.python.namedlayers import NAMED, is_optional, runs_model, speaks_of_experts
from dslint.python.queries.asked import in_words
from dslint.python.queries.skipped import Skipped, differs, skipped_in, skipped_parts
from dslint.python.varies import CHOSEN, DATA, MISSING
from dslint.rules.runs import Happening, RunQuery

# Generation, and choices that are the same on every rank.
_UNIFORM = re.compile(r"self\.training|past_key_values|use_cache|cache_position|shape\[1\]|size\(1\)|config\.|\.jit")
# What a test asks of the tokens that a router sent; the number of layers is no such thing.
_ASKS_TOKENS = re.compile(
    r"\b(?:any|numel|sum|nonzero|item|size|count_nonzero|all)\(|\.shape\b|\blen\((?!self\.|\w*(?:expert|layer|block))"
)
# What makes ZeRO stage 3 gather a block with all its layers at once.
_LEAVES = re.compile(r"z3_leaf_module|moe_cls_names|[\"']leaf_module[\"']")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is skipped, and with what around it.

    `kind`: `images` (what a batch may lack) | `experts`. `via` is the call, in the function of the test, of what runs
    the part.
    """

    found: Skipped
    kind: str
    happening: Happening
    via: Call | Event


def gathers_blocks(run: RunQuery) -> bool:
    """Return whether the code lets ZeRO stage 3 gather blocks as a whole."""
    return any(module.search(_LEAVES) for module in run.machine.program.modules())


@dataclass
class LeftParts:
    """The parts that a batch may leave out, in one run."""

    run: RunQuery
    places: dict[int, Happening] = field(default_factory=dict)

    def images(self) -> Iterator[LeftOut]:
        """Yield what runs for batches with images only, in models that are trained or that nobody makes."""
        for _, tree in self.run.trees():
            for _, found in skipped_parts(tree):
                if found.test.varies & (MISSING | CHOSEN) and (found.frozen is not None or not self._is_made_up(found)):
                    yield self._left_out(found, "images")
        for tree in self._open():
            for found in skipped_in(tree, _asks_images):
                if isinstance(found.test, Alt) and not found.is_without_gradient and not self._is_made_up(found):
                    yield self._left_out(found, "images")

    def experts(self) -> Iterator[LeftOut]:
        """Yield the experts that run where the router sent them tokens, in models that nobody makes."""
        for tree in self._open():
            for node in walk(tree):
                if isinstance(node, Loop) and speaks_of_experts(node.module.text(node.node)):
                    found = next(skipped_in(node.body, _asks_tokens), None)
                    if found is not None and isinstance(found.test, Alt):
                        yield self._left_out(found, "experts")

    def _open(self) -> Iterator[Seq]:
        """Yield what methods do that run models and that nobody calls."""
        for entry in self.run.entries:
            if isinstance(entry.node, ast.FunctionDef | ast.AsyncFunctionDef) and runs_model(entry.node):
                yield entry.tree

    def _left_out(self, found: Skipped, kind: str) -> LeftOut:
        if not self.places:
            self.places = {id(known.event): known for known in self.run.occurrences("forward", NAMED)}
        happening = self.places[id(found.frozen or found.part)]
        asking = found.test.module.function(found.test.node)
        within = [at for at, call in enumerate(happening.calls) if getattr(call.function, "node", None) is asking]
        inner = happening.calls[within[-1] + 1 :] if within else ()
        return LeftOut(found, kind, happening, inner[0] if inner else happening.event)

    def _is_made_up(self, found: Skipped) -> bool:
        """Return whether the test asks what all ranks agree on, or the others add a part times zero."""
        test = found.test
        if not isinstance(test, Alt) or _UNIFORM.search(in_words(test)) or _adds_zero(test):
            return True
        around = self._left_out(found, "images").happening.around
        at = next((at for at, node in enumerate(around) if node is test), -1)
        return any(isinstance(node, Alt) and _UNIFORM.search(in_words(node)) for node in around[at + 1 :])


def _asks_images(alt: Alt) -> bool:
    return bool(alt.varies & (MISSING | DATA)) and differs(alt) and is_optional(in_words(alt))


def _asks_tokens(alt: Alt) -> bool:
    words = in_words(alt)
    return _ASKS_TOKENS.search(words) is not None and not _UNIFORM.search(words)


def _adds_zero(alt: Alt) -> bool:
    """Return whether the function of a test adds something times zero, or runs a dummy."""
    function = alt.module.function(alt.node)
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = (side.value for side in (node.left, node.right) if isinstance(side, ast.Constant))
            if any(side == 0 and not isinstance(side, bool) for side in sides):
                return True
        elif isinstance(node, ast.Call) and "dummy" in ast.unparse(node.func):
            return True
    return False
