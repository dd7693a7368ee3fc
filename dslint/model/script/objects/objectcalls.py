"""What calls return: constructors, ``deepspeed.initialize``, ``accelerator.prepare``, functions of the file."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import libcst as cst

from dslint.model.script.objects.objectkinds import (
    FLUENT,
    INITIALIZE,
    INITIALIZED,
    INNER,
    MODELS,
    PREPARE_ONE,
    PREPARED,
    SHARD_IN_PLACE,
    UNKNOWN,
    Thing,
    function_kind,
)

if TYPE_CHECKING:
    from dslint.model.script.objects.objectflow import Flow, Things

_UNKNOWN = frozenset({UNKNOWN})
_OTHER_TRAINERS = ("pytorch_lightning.", "lightning.", "tokenizers.", "mmengine.", "colossalai.", "flax.")
_PARSERS = frozenset({"parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file", "parse_dict", "parse"})


class CallResults:
    """The things that calls return and parameters receive; asks the flow for the expressions inside."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._names = flow.names
        self._tree = flow.tree
        self._returns: dict[int, list[cst.BaseExpression | None]] = {}

    def of(self, call: cst.Call) -> Things:
        """What a call returns as a whole."""
        kind = self._constructed(call)
        if kind:
            return frozenset({Thing(kind, call)})
        if isinstance(call.func, cst.Attribute):
            found = self._method(call, call.func)
            if found is not None:
                return found
        name = self._names.qualified(call.func) or ""
        if name == "torch.compile" and call.args:
            return self._flow.things(call.args[0].value)
        if name in SHARD_IN_PLACE:  # newer releases return the module
            return frozenset({Thing("fsdp", call)})
        if name and function_kind(name):
            return frozenset({Thing(function_kind(name), call)})
        if self._names.local_function(call) is not None:
            return self._returned(call, None)
        # An instance of a class without a kind: its attributes may have one.
        return frozenset({Thing("", call)}) if isinstance(call.func, cst.Name) or name else _UNKNOWN

    def element(self, call: cst.Call, index: int | str) -> Things:
        """What stands at a place of the result of a call."""
        if isinstance(index, str):
            named = (a.value for a in call.args if a.keyword is not None and a.keyword.value == index)
            is_dict = self._names.qualified(call.func) == "dict"
            value = next(named, None)
            return self._flow.things(value) if is_dict and value is not None else self._returned(call, index)
        if self._is_engine_maker(call):
            return frozenset({Thing(INITIALIZED[index], call)}) if index < len(INITIALIZED) else _UNKNOWN
        if isinstance(call.func, cst.Attribute):
            method = call.func.attr.value
            if method == "prepare" and self._is_accelerator(call.func.value):
                plain = not any(a.star or a.keyword is not None for a in call.args)
                return self._prepared(call, call.args[index].value if plain and index < len(call.args) else None)
            if method in _PARSERS:
                return self._parsed(call.func.value, index)
        return self._returned(call, index)

    def parameter(self, node: cst.Param) -> Things:
        """What the calls of a function of the file pass for a parameter; else what its annotation says."""
        if node.annotation is not None:
            name = self._names.qualified(node.annotation.annotation)
            kind = self._flow.class_kind(name) if name else ""
            if kind:
                return frozenset({Thing(kind)})
        passed = self._names.callers.passed(node)
        things = (self._flow.things(value) if value is not None else _UNKNOWN for value in passed)
        return frozenset().union(*things) if passed else _UNKNOWN

    def local_class_kind(self, owner: cst.ClassDef) -> str:
        """The kind of the instances of a class of this file, by its bases."""
        bases = self._names.class_bases(owner.name.value)
        return next(filter(None, (self._flow.class_kind(base) for base in bases)), "")

    def _method(self, call: cst.Call, called: cst.Attribute) -> Things | None:
        method = called.attr.value
        if method in FLUENT:
            owner = self._flow.things(called.value)
            return owner if any(t.kind in MODELS for t in owner) else None
        if method in PREPARE_ONE and self._is_accelerator(called.value):
            return frozenset({Thing(PREPARE_ONE[method], call)})
        if method == "prepare" and len(call.args) == 1 and self._is_accelerator(called.value):
            return self._prepared(call, call.args[0].value if not call.args[0].star else None)
        if method == "unwrap_model" and call.args and self._is_accelerator(called.value):
            return frozenset(Thing(INNER.get(t.kind, t.kind), t.made) for t in self._flow.things(call.args[0].value))
        return None

    def _is_accelerator(self, node: cst.BaseExpression) -> bool:
        return {t.kind for t in self._flow.things(node)} - {"none"} == {"accelerator"}

    def _prepared(self, call: cst.Call, given: cst.BaseExpression | None) -> Things:
        things = self._flow.things(given) if given is not None else _UNKNOWN
        things = frozenset(t for t in things if t.kind != "none") or _UNKNOWN
        return frozenset(Thing(PREPARED.get(t.kind, "prepared"), call) for t in things)

    def _parsed(self, parser: cst.BaseExpression, index: int) -> Things:
        """``HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()``."""
        made = parser if isinstance(parser, cst.Call) else self._names.single_value(parser)
        if (
            not isinstance(made, cst.Call)
            or not made.args
            or self._names.called(made) not in ("HfArgumentParser", "TrlParser")
        ):
            return _UNKNOWN
        classes = made.args[0].value
        if isinstance(classes, cst.Name) and self._names.single_value(classes) is not None:
            classes = self._names.single_value(classes) or classes
        parts = classes.elements if isinstance(classes, cst.Tuple | cst.List) else ()
        chosen = parts[index].value if index < len(parts) else None
        name = self._names.qualified(chosen) if chosen is not None else None
        local = self._names.local_class(chosen.value, chosen) if isinstance(chosen, cst.Name) else None
        kind = self._flow.class_kind(name) if name else (self.local_class_kind(local) if local is not None else "")
        return frozenset({Thing(kind, made)}) if kind else _UNKNOWN

    def _returned(self, call: cst.Call, index: int | str | None) -> Things:
        """What a function of this file returns (or yields, for a context manager)."""
        function = self._names.local_function(call)
        if function is None:
            return _UNKNOWN
        things: set[Thing] = set()
        for value in self._results(function):
            if index is None:
                things |= self._flow.things(value)
            elif value is not None:
                things |= self._flow.element(value, index)
        return frozenset(things) or _UNKNOWN

    def _results(self, function: cst.FunctionDef) -> list[cst.BaseExpression | None]:
        """What a function returns or yields, one value for each such statement."""
        found = self._returns.get(id(function))
        if found is None:
            ends: list[tuple[int, object]] = [
                (self._tree.position(n), n.value) for n in self._tree.own(function, cst.Return)
            ]
            ends += [(self._tree.position(n), n.value) for n in self._tree.own(function, cst.Yield)]
            values = (value for _, value in sorted(ends, key=itemgetter(0)))
            found = [value if isinstance(value, cst.BaseExpression) else None for value in values]
            self._returns[id(function)] = found
        return found

    def _is_engine_maker(self, call: cst.Call) -> bool:
        is_own = self._names.is_own(call.func, self._names.own.engines)
        return is_own or self._names.qualified(call.func) == INITIALIZE

    def _constructed(self, call: cst.Call) -> str:
        if self._names.is_own(call.func, self._names.own.engines):
            return "engine"
        name = self._names.qualified(call.func)
        if name is not None:
            return self._flow.class_kind(name) or self._foreign_trainer(name, call)
        local = self._names.local_class(call.func.value, call) if isinstance(call.func, cst.Name) else None
        known = self.local_class_kind(local) if local is not None else ""
        return known or self._flow.class_kind(self._names.called(call) if isinstance(call.func, cst.Name) else "")

    def _foreign_trainer(self, name: str, call: cst.Call) -> str:
        """``CPMTrainer(model=model, args=args, ...)`` from another file of the project of a transformers user."""
        keywords = {a.keyword.value for a in call.args if a.keyword is not None}
        if not name.endswith("Trainer") or name.startswith(_OTHER_TRAINERS):
            return ""
        return "trainer" if {"model", "args"} <= keywords and self._names.imported("transformers") else ""
