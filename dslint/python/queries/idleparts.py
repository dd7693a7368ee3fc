"""Parts of pretrained models that take no part in a loss: a pooler, one of two towers, the last layers.

Asked by words, since no row says what the layers of such a model give to each other: where a field that holds the model
stands in the text, and what is done with its result. Any use that is not known ends the question.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from dslint.python.events import Event
from dslint.python.libraries import ClassRow, Row
from dslint.python.machine import Machine
from dslint.python.queries.leftout import is_excused
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Instance

# What may be asked of a pretrained model without running it.
_NEUTRAL = frozenset(
    (
        *("config", "device", "dtype", "train", "eval", "to", "cuda", "parameters", "named_parameters", "state_dict"),
        *("load_state_dict", "save_pretrained", "gradient_checkpointing_enable", "enable_input_require_grads"),
        *("resize_token_embeddings", "get_input_embeddings"),
        *("num_features", "embed_dim", "feature_info", "default_cfg", "pretrained_cfg", "set_grad_checkpointing"),
    )
)
# Functions that read the settings of a model.
_READERS = re.compile(r"^resolve_(?:model_)?data_config$")
# Names of weights that come without a head.
_BARE = re.compile(r"dino|mae|sam|clip|siglip|pool")
# What a forward pass gives that comes from all layers but the pooler; and from some of the layers.
_LAST, _LAYERS = "last_hidden_state", "hidden_states"
_WITHOUT_GRADIENT = ("no_grad", "inference_mode", "detach")


@dataclass(frozen=True, slots=True)
class IdlePart:
    """A part of the pretrained model in a field without a loss: `what` it is in words, and the `use` that shows it."""

    field: str
    what: str
    made: Event
    module: Module
    use: ast.AST
    told_by: str = ""  # the argument that leaves the part out, as it is written


class IdleParts:
    """The idle parts of the modules of one wrapped model."""

    def __init__(self, m: Machine, modules: frozenset[Instance], makers: dict[Instance, Event]) -> None:
        self._m = m
        self._modules = modules
        self._makers = makers

    def find(self) -> Iterator[IdlePart]:
        """Yield what is idle; nothing where the project freezes layers."""
        if is_excused(self._m):
            return
        for owner in {a.cls.node: a.cls for a in self._modules if isinstance(a.cls, ClassAtom)}.values():
            for field, value in _fields(owner.node):
                made = self._made_by(value)
                if made is not None:
                    yield from self._of_field(field, made)

    def _made_by(self, value: ast.AST) -> Event | None:
        """Return the call that loads the model which the field certainly holds."""
        atoms = [atom for atom in self._modules if atom.node is value]
        made = self._makers.get(atoms[0]) if len(atoms) == 1 else None
        if made is None or made.open or made.may:
            return None
        return made if "loads" in made.tags or self._head(made) else None

    def _of_field(self, field: str, made: Event) -> Iterator[IdlePart]:
        uses = [(module, use) for module in self._m.program.modules() for use in module.attributes.get(field, ())]
        uses = [(module, use) for module, use in uses if not self._is_neutral(module, use)]
        if not uses or any(self._is_without_gradient(module, use) for module, use in uses):
            return
        yield from self._headless(field, made, uses)
        row = self._row(made)
        if row is not None:
            yield from self._towers(row, field, made, uses)
            yield from self._pooler(row, field, made, uses)

    def _head(self, made: Event) -> Row | None:
        """Return the row of a function that makes a model with a head, which the call does not leave out."""
        row = self._m.libraries.function(made.api)
        if row is None or "head" not in row.extra or "features_only" in made.arguments:
            return None
        told = made.arguments.get(str(row.extra["head"]).partition(": ")[2])
        is_there = told is None or (told.constants is not None and all(told.constants))
        return row if is_there and self._is_named(made, "model_name", row.extra.get("headed_names")) else None

    def _headless(self, field: str, made: Event, uses: list[tuple[Module, ast.Attribute]]) -> Iterator[IdlePart]:
        """Yield the head of a model that only runs without it."""
        row = self._head(made)
        asked = {getattr(self._parents[module].get(use), "attr", "") for module, use in uses}
        if row is not None and asked <= set(row.extra["headless"]):
            what, _, told_by = str(row.extra["head"]).partition(": ")
            yield IdlePart(field, f"the {what}", made, *uses[0], f"{told_by}=0" if told_by else "")

    def _row(self, made: Event) -> ClassRow | None:
        """Return the row of the class that is loaded."""
        atom = made.result.single if made.result is not None else None
        path = made.api.rpartition(".")[0]
        if isinstance(atom, Instance) and isinstance(atom.cls, str) and not path.endswith(".AutoModel"):
            path = atom.cls
        return self._m.libraries.class_(path)

    def _towers(
        self, row: ClassRow, field: str, made: Event, uses: list[tuple[Module, ast.Attribute]]
    ) -> Iterator[IdlePart]:
        """Yield the towers that lead to no member that is used."""
        towers = dict(text.split(": ") for text in row.constructor.extra.get("towers", ()))
        asked = [getattr(self._parents[module].get(use), "attr", "") for module, use in uses]
        used = {name for name, members in towers.items() if not set(members.split()).isdisjoint(asked)}
        known = {member for members in towers.values() for member in members.split()}
        if towers and set(asked) <= known and len(used) == 1:
            for name in towers.keys() - used:
                yield IdlePart(field, f"the {name} tower", made, *uses[0])

    def _pooler(
        self, row: ClassRow, field: str, made: Event, uses: list[tuple[Module, ast.Attribute]]
    ) -> Iterator[IdlePart]:
        """Yield the layer over the first token where nobody asks for what it gives."""
        what, _, told_by = str(row.constructor.extra.get("pooler", "")).partition(": ")
        if (
            not what
            or told_by in made.arguments
            or not self._is_named(made, "pretrained_model_name_or_path", row.constructor.extra.get("pooled_names"))
        ):
            return
        if all(set(self._asked_of(module, use)) == {_LAST} for module, use in uses):
            yield IdlePart(field, f"the {what}", made, *uses[0], f"{told_by}=False")

    def _is_named(self, made: Event, parameter: str, wanted: Sequence[str] | None) -> bool:
        """Return whether the name of the model certainly is one of the wanted ones; any will do where none are."""
        names = made.arguments.get(parameter)
        known = names.constants if names is not None else None
        return wanted is None or bool(
            known
            and all(
                isinstance(n, str) and any(fnmatchcase(n, p) for p in wanted) and not _BARE.search(n) for n in known
            )
        )

    # -- what is done with a result -----------------------------------------------------------------------------

    def _asked_of(self, module: Module, use: ast.Attribute) -> Iterator[str]:
        """Yield what is taken of the result of a forward pass, by the name of the output; empty where it is unknown."""
        parents = self._parents[module]
        call = parents.get(use)
        if not isinstance(call, ast.Call) or call.func is not use:
            yield ""
            return
        outer = parents.get(call)
        if not isinstance(outer, ast.Assign):
            yield _output(outer, call)
            return
        target = outer.targets[0]
        if len(outer.targets) != 1 or not isinstance(target, ast.Name):
            yield ""
            return
        function = self._function(module, outer)
        read = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == target.id and n is not target]
        yield from (_output(parents.get(name), name) if isinstance(name.ctx, ast.Load) else "" for name in read)
        if not read:
            yield ""

    def _function(self, module: Module, node: ast.AST) -> ast.AST:
        parents = self._parents[module]
        while node in parents and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node = parents[node]
        return node

    def _is_neutral(self, module: Module, use: ast.Attribute) -> bool:
        outer = self._parents[module].get(use)
        func = outer.func if isinstance(outer, ast.Call) else None
        name = getattr(func, "attr", getattr(func, "id", ""))
        return (isinstance(outer, ast.Attribute) and outer.attr in _NEUTRAL) or _READERS.match(name) is not None

    def _is_without_gradient(self, module: Module, use: ast.Attribute) -> bool:
        function = self._function(module, use)
        return any(getattr(n, "attr", getattr(n, "id", "")) in _WITHOUT_GRADIENT for n in ast.walk(function))

    @cached_property
    def _parents(self) -> dict[Module, dict[ast.AST, ast.AST]]:
        return {module: module.parents for module in self._m.program.modules()}


def _output(outer: ast.AST | None, result: ast.AST) -> str:
    """Return the name of the output that an expression takes of a result."""
    if isinstance(outer, ast.Attribute) and outer.value is result:
        return outer.attr if outer.attr in (_LAST, _LAYERS) else ""
    if isinstance(outer, ast.Subscript) and outer.value is result and isinstance(outer.slice, ast.Constant):
        return _LAST if outer.slice.value in (0, _LAST) else ""
    return ""


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the fields that the constructor sets, each with what it gets where that is set once."""
    init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    found: dict[str, list[ast.expr]] = {}
    for inner in ast.walk(init) if init is not None else ():
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Attribute):
            target = inner.targets[0]
            if isinstance(target.value, ast.Name) and target.value.id == "self":
                found.setdefault(target.attr, []).append(inner.value)
    yield from ((field, values[0]) for field, values in found.items() if len(values) == 1)
