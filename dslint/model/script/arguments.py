"""Command-line arguments as the script's own expressions use them: ``args.batch_size`` and its default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.dotted import keyword, last_name, literal_text
from dslint.model.script.names import Names

_PARSE_CALLS = frozenset({"parse_args", "parse_known_args", "parse_intermixed_args"})
_DATACLASS_CALLS = frozenset({"parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file", "parse_dict"})
# A parameter of this name holds parsed arguments when the file builds a parser.
_USUAL_NAMES = frozenset({"args", "opt", "opts", "cli_args", "hparams", "flags"})


@dataclass(frozen=True, slots=True)
class Argument:
    """A declared argument: ``default`` is its expression (``None``: required or unknown)."""

    name: str
    default: cst.BaseExpression | None
    converter: str
    node: cst.CSTNode


class Arguments:
    """The arguments that a file declares with argparse or as fields of its dataclasses."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._argparse: dict[str, Argument | None] = {}
        self.rewritten: set[str] = set()
        # Variables any of whose attributes may be set: ``setattr(args, key, value)``, ``vars(args).update(config)``.
        self._open: set[str] = set()
        for call in names.tree.every(cst.Call):
            called = self._names.called(call)
            if called == "add_argument":
                self._declare(call)
            elif called == "set_defaults":
                self.rewritten.update(a.keyword.value for a in call.args if a.keyword is not None)
            elif called == "setattr" and len(call.args) == 3:
                self.rewritten.add(literal_text(call.args[1].value))
                if not isinstance(call.args[1].value, cst.SimpleString):
                    self._open.add(last_name(call.args[0].value))
            elif called == "update":
                self._open.add(self._namespace_of(call.func))
        targets = [n.target for n in names.tree.every(cst.AssignTarget)]
        targets += [n.target for n in names.tree.every(cst.AugAssign)]
        for target in targets:
            self.rewritten.update(_attributes(target))

    def at(self, node: cst.Attribute) -> Argument | None:
        """The argument that ``args.x`` reads, unless the file also assigns to ``.x``."""
        return self.named(node.value, node.attr.value) if isinstance(node.value, cst.Name) else None

    def is_parsed(self, space: cst.Name) -> bool:
        """The variable holds the arguments of a command line, read by argparse in this file or before."""
        found = self._names.bindings(space.value, space)
        if len(found) != 1:
            return False
        value = found[0].value
        if isinstance(value, cst.Call):
            return self._names.called(value) in _PARSE_CALLS
        return found[0].kind == "param" and space.value in _USUAL_NAMES

    def is_open(self, space: cst.BaseExpression) -> bool:
        """Some code of the file sets attributes whose names are computed in what this expression holds."""
        return last_name(space) in self._open

    def _namespace_of(self, update: cst.BaseExpression) -> str:
        """``args`` of ``vars(args).update`` and ``args.__dict__.update``; else nothing."""
        held = update.value if isinstance(update, cst.Attribute) else None
        if isinstance(held, cst.Attribute) and held.attr.value == "__dict__":
            return last_name(held.value)
        is_vars = isinstance(held, cst.Call) and self._names.called(held) == "vars" and len(held.args) == 1
        return last_name(held.args[0].value) if is_vars and isinstance(held, cst.Call) else ""

    def named(self, space: cst.Name, name: str) -> Argument | None:
        """The argument of that name in the namespace that a variable holds, unless the file also assigns to it."""
        if name in self.rewritten or self.is_open(space):
            return None
        found = self._names.bindings(space.value, space)
        if len(found) != 1:
            return None
        only = found[0]
        if isinstance(only.value, cst.Call):
            called = last_name(only.value.func)
            if called in _PARSE_CALLS:
                return self._argparse.get(name)
            if called in _DATACLASS_CALLS:
                return self._field(name, only.value, only.position)
        if only.kind == "param" and space.value in _USUAL_NAMES:
            return self._argparse.get(name)
        return None

    def _declare(self, call: cst.Call) -> None:
        keywords = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
        flags = [literal_text(a.value) for a in call.args if a.keyword is None]
        long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
        name = literal_text(keywords["dest"]) if "dest" in keywords else long.lstrip("-").replace("-", "_")
        default = keywords.get("default")
        if default is None and literal_text(keywords.get("action")) in ("store_true", "store_false"):
            default = cst.Name("False" if literal_text(keywords.get("action")) == "store_true" else "True")
        converter = last_name(keywords.get("type")) if "type" in keywords else ""
        argument = Argument(name, default, converter, call)
        # Two parsers in one file that disagree: neither is known to be the one.
        self._argparse[name] = argument if name not in self._argparse else None

    def _field(self, name: str, call: cst.Call, position: int | None) -> Argument | None:
        """``model_args, data_args = parser.parse_args_into_dataclasses()`` with a local dataclass."""
        parser = self._names.single_value(call.func.value) if isinstance(call.func, cst.Attribute) else None
        if position is None or not isinstance(parser, cst.Call) or not parser.args:
            return None
        classes = parser.args[0].value
        parts = classes.elements if isinstance(classes, cst.Tuple | cst.List) else ()
        chosen = parts[position].value if position < len(parts) else None
        owner = self._names.local_class(chosen.value) if isinstance(chosen, cst.Name) else None
        for node in self._names.tree.descendants(owner) if owner else ():
            if isinstance(node, cst.AnnAssign) and last_name(node.target) == name:
                return Argument(name, self._field_default(node.value), last_name(node.annotation.annotation), node)
        return None

    def _field_default(self, value: cst.BaseExpression | None) -> cst.BaseExpression | None:
        if isinstance(value, cst.Call) and self._names.called(value) == "field":
            return keyword(value, "default")
        return value


def _attributes(target: cst.BaseExpression) -> Iterator[str]:
    """The attributes that an assignment sets: ``args.x = ...``, ``a.x, b.y = ...``."""
    if isinstance(target, cst.Attribute):
        yield target.attr.value
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _attributes(element.value)
