"""The fields of the dataclasses that a parser fills: each is an option (transformers/hf_argparser.py)."""

from __future__ import annotations

import ast

from dslint.python import attributes, containers, optiontable
from dslint.python.enums import is_enum, members_of
from dslint.python.fieldtypes import FieldType, named, type_of
from dslint.python.machine import Machine
from dslint.python.objects import is_dataclass
from dslint.python.plainoptions import Option, constant_of, default_fact
from dslint.python.values import Api, ClassAtom, Instance, Value

# Bases of a dataclass that have no fields.
_EMPTY = frozenset({"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol"})


class Fields:
    """The options of a parser that come from dataclasses; `classes` are those of libraries."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.options: list[Option] = []
        self.classes: list[str] = []
        self.open_because = ""

    def _open(self, reason: str) -> None:
        self.open_because = self.open_because or reason

    def read(self, parser: Instance) -> None:
        """Take in the classes that a parser was made with."""
        m = self.m
        given = m.store.get((parser, ("argument", "dataclass_types")))
        items = containers.exact_items(m, given) if given is not None else []
        if items is None or (given is not None and isinstance(given.single, ClassAtom)):
            items = [given] if given is not None else []
        for item in items:
            atom = item.single
            if isinstance(atom, ClassAtom):
                self._class(atom)
            elif isinstance(atom, Api):
                self._of_library(m.libraries.canonical(atom.path))
            elif item.constants != (None,):
                self._open("the fields of a class are not in view")

    def _of_library(self, path: str) -> None:
        if path in _EMPTY:
            return
        self.classes.append(path)

    def _class(self, cls: ClassAtom) -> None:
        m = self.m
        for base in reversed(attributes.lineage(m, cls)):
            if isinstance(base, str):
                rest = [b for b in attributes.lineage(m, cls) if isinstance(b, str)]
                is_inherited = any(base in [r.path for r in m.libraries.lineage(b)][1:] for b in rest)
                if not base:
                    self._open(f"the fields of a base of `{cls.node.name}` are not in view")
                elif not is_inherited:
                    self._of_library(base)
            elif is_dataclass(m, base):
                self._body(base)
            elif base.node.decorator_list:
                self._open(f"the decorator of `{base.node.name}` may change its fields")

    def _body(self, cls: ClassAtom) -> None:
        for statement in cls.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                self._field(cls, statement.target.id, statement)

    def _field(self, cls: ClassAtom, name: str, statement: ast.AnnAssign) -> None:
        found = self._type(cls, statement.annotation)
        value, keywords = _given(statement)
        init = keywords.get("init")
        if found is None or (isinstance(init, ast.Constant) and init.value is False):
            return
        metadata = keywords.get("metadata")
        if metadata is not None and "aliases" in ast.unparse(metadata):
            self._open(f"the field `{name}` has aliases")
        own = _keys(metadata) if metadata is not None else set()
        is_field = bool(keywords) or _is_field(statement.value)
        is_computed = isinstance(statement.value, ast.Call) and not is_field
        state, default = self._default(cls, name, value, is_field)
        has_default = value is not None or "default_factory" in keywords or is_computed
        nargs = found.nargs
        if nargs == "?" and found.may_be_none and state == "known" and default is None:
            nargs = None  # `Optional[bool] = None` takes exactly one word
        is_switch = found.converter == "bool" and nargs == "?"
        flags = (f"--{name}", f"--{name.replace('_', '-')}") if "_" in name else (f"--{name}",)
        self.options = [option for option in self.options if option.dest != name]
        place = cls.module.location(statement)
        fact = default_fact(cls.module, statement, state, default, value)
        option = Option(
            name, flags, place, fact, found.converter, found.choices, nargs, "store",
            not has_default and not is_switch and None not in keywords,
            not found.is_read or own is None or not own <= {"help", "metavar"},
        )  # fmt: skip
        self.options.append(option)
        if is_switch and (state != "known" or default is True):
            negated = tuple(dict.fromkeys((f"--no_{name}", f"--no-{name.replace('_', '-')}")))
            self.options.append(Option(name, negated, place, fact, action="store_false"))

    def _default(self, cls: ClassAtom, name: str, node: ast.expr | None, is_field: bool) -> tuple[str, object]:
        """Return whether the default of a field is known, and the default."""
        if node is None:
            return "absent", None
        key: object = ("field", name, "default") if is_field else name
        stored = self.m.store.get((cls, key)) or Value(frozenset())
        is_known, found = constant_of(self.m, stored, node)
        return ("known", found) if is_known else ("unknown", None)

    def _type(self, cls: ClassAtom, annotation: ast.expr) -> FieldType | None:
        """Return what the parser makes of a type; of an enumeration of the project the choices are its values."""
        found = type_of(annotation)
        name = named(annotation)
        if found is None or not isinstance(name, ast.Name) or found.converter:
            return found
        stored = self.m.store.get((self.m.program.frame_of(self.m, cls.module), name.id))
        inner = stored.single if stored is not None else None
        members = members_of(self.m, inner) if isinstance(inner, ClassAtom) and is_enum(self.m, inner) else None
        values = [self.m.store.get((member.single, "value")) for member in members or ()]
        known = [optiontable.constant(value) for value in values if value is not None]
        if not known or len(known) < len(values) or None in known:
            return found
        return FieldType(choices=tuple(known), may_be_none=found.may_be_none)


def _given(statement: ast.AnnAssign) -> tuple[ast.expr | None, dict[str | None, ast.expr]]:
    """Return the default of a field and the keywords of `field(...)`."""
    value = statement.value
    if not _is_field(value) or not isinstance(value, ast.Call):
        return value, {}
    keywords = {keyword.arg: keyword.value for keyword in value.keywords}
    return keywords.get("default"), keywords


def _is_field(value: ast.expr | None) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name == "field"


def _keys(node: ast.expr) -> set[object] | None:
    """Return the keys of `metadata={...}`: they are keywords of `add_argument`."""
    if not isinstance(node, ast.Dict):
        return None
    return {key.value if isinstance(key, ast.Constant) else None for key in node.keys}
