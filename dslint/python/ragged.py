"""Tensors whose shape follows from the data of each rank, for certain: what makes them, and what keeps them so.

Rows say it of libraries (`ragged`, `shape_like`, `joins`); masks, cuts and arithmetic are known here. Whatever nobody
lists as keeping a shape, as padding or a reduction, makes a tensor of which nothing is known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslint.python.heap import CONTENT, LENGTH, RAGGED
from dslint.python.places import ordered
from dslint.python.values import INPUT, NONE, OPAQUE, Const, Instance, Tuple, Unknown, Value, one
from dslint.python.varies import DATA, DIVERGENT, HOST, LOST, RANKED

if TYPE_CHECKING:
    from dslint.python.binding import Arguments, BoundArguments
    from dslint.python.libraries import Row
    from dslint.python.machine import Machine
    from dslint.python.source import Module

# The first dimension is as long as the data say, or the second; a tuple of such tensors.
FIRST, SECOND, PARTS = "first", "second", "parts"
# A tensor of truth values; a number that the data of the rank make; a slice that ends at one.
MASK, NUMBER, CUT = "mask", "number", "cut"
_SHAPES = (FIRST, SECOND, PARTS)
_TEST, _COUNTED = "a test of each item", "a number that the data make"
# Parts of a result that are as long as all of it, by the names that libraries give them.
_FIELDS = frozenset({"sequences", "input_ids", "attention_mask", "token_type_ids", "labels"})
_SELECTION = "a boolean selection"
_LONGEST = "rows trimmed to this rank's longest"
_KEPT = "the samples that a test keeps"
_SHARE = "as many items as this rank's share has"


@dataclass(frozen=True, slots=True)
class Ragged:
    """What makes a tensor as long as it is, in words, and where; `kind` is what of it."""

    kind: str
    words: str
    place: tuple[Module, ast.AST]


def of(m: Machine, value: Value | None) -> Ragged | None:
    """Return why the shape of a value follows from the data of this rank: for all that it may be."""
    found = _of(m, value)
    return found if found is not None and found.kind in _SHAPES else None


def gathered(m: Machine, row: Row, given: Mapping[str, Value]) -> dict[str, Ragged]:
    """Return why arguments are ragged that must have the same shape on all ranks, or the room that is made for them."""
    names = [row.extra[key] for key in ("equal_shapes", "room") if key in row.extra]
    found = {name: _within(m, given[name]) for name in names if name in given}
    return {name: ragged for name, ragged in found.items() if ragged is not None}


def copied(m: Machine, node: ast.AST, context: tuple[object, ...], why: Ragged) -> Value:
    """Return a new tensor of this rank's own data that is ragged for the same reason."""
    tensor = m.instance(node, m.context(context), "torch.Tensor", 0)
    content = Unknown(OPAQUE, "part of a batch", "torch.Tensor")
    m.store.set((tensor, CONTENT), Value(frozenset((content,)), DATA, DATA))
    m.store.set((tensor, RAGGED), Value(frozenset((Unknown(OPAQUE, why.words, why.kind),)), origin=why.place))
    return one(tensor)


def _within(m: Machine, value: Value) -> Ragged | None:
    """Return the same of a value, or of the first such part of a tuple, list or dictionary."""
    found = of(m, value)
    atom = value.single
    if found is not None or atom is None:
        return found
    parts = atom.items if isinstance(atom, Tuple) else m.elements(atom) if isinstance(atom, Instance) else ()
    return next((inner for inner in (of(m, part) for part in parts) if inner is not None), None)


def _of(m: Machine, value: Value | None) -> Ragged | None:
    first: Ragged | None = None
    if value is None:
        return None
    for atom in ordered(value.atoms):
        if isinstance(atom, Const) and atom.value is None:
            continue
        found = _of_atom(m, atom, value)
        if found is None:
            return None
        first = first or found
    return first


def _of_atom(m: Machine, atom: object, value: Value) -> Ragged | None:
    if isinstance(atom, Unknown):
        place = (m.frame.module, m.frame.module.tree)
        if atom.reason == _COUNTED:
            return Ragged(NUMBER, _COUNTED, place)
        return Ragged(MASK, _TEST, place) if _is_test(value.number) and _is_own(m, value) else None
    held = m.store.get((atom, RAGGED)) if isinstance(atom, Instance) else None
    mark = held.single if held is not None else None
    if not isinstance(mark, Unknown) or held is None or held.origin is None:
        return None
    return Ragged(mark.type, mark.reason, held.origin)


def _mark(m: Machine, result: Value, found: Ragged | None, *besides: Value | None) -> Value:
    """Note what the objects that a call has made are; objects that were there before keep what they were."""
    before = {atom for value in besides if value is not None for atom in value.atoms}
    reason = _COUNTED if found is not None and found.kind == NUMBER else ""
    atoms = set()
    for atom in result.atoms:
        if isinstance(atom, Unknown) and reason:
            atom = Unknown(atom.kind, reason, atom.type)
        atoms.add(atom)
        if not isinstance(atom, Instance) or atom in before:
            continue
        if found is not None:
            mark = Unknown(OPAQUE, found.words, found.kind)
            m.store.set((atom, RAGGED), Value(frozenset((mark,)), origin=found.place))
        elif m.store.get((atom, RAGGED)) is not None:
            m.store.set((atom, RAGGED), NONE)
    if not reason or atoms == result.atoms:
        return result
    return Value(frozenset(atoms), result.varies, result.shape, result.made_by, result.number, result.origin)


def made_same(m: Machine, atom: Instance) -> None:
    """Forget that a number is one of the data of this rank: all ranks hold the same now. A shape stays as it was."""
    found = _of_atom(m, atom, NONE)
    if found is not None and found.kind == NUMBER:
        m.store.set((atom, RAGGED), NONE)


# -- calls ------------------------------------------------------------------------------------------------------


def called(m: Machine, row: Row, bound: BoundArguments, base: Value | None, result: Value, node: ast.AST) -> Value:
    """Note whether the result of a library call is as long as the data of the rank say; return the result."""
    extra = row.extra
    found: Ragged | None = None
    if "ragged" in extra:
        kind, _, words = extra["ragged"].partition(": ")
        operands = [v for v in (base, *bound.given.values(), *bound.extra) if v is not None]
        if kind == NUMBER:
            found = _number(m, operands, keeps=words == "kept", place=(m.frame.module, node))
        elif not _is_fixed(m, extra, bound) and (kind != MASK or any(_is_own(m, value) for value in operands)):
            found = Ragged(kind, words or _SELECTION, (m.frame.module, node))
    elif "shape_like" in extra:
        subject = base if extra["shape_like"] == "self" else bound.given.get(extra["shape_like"])
        found = _of(m, subject)
        if found is not None and not _keeps_dimension(extra, bound, found):
            found = None
    elif _is_layer(row, base):
        found = _of(m, next(iter((*bound.given.values(), *bound.extra)), None))
        found = found if found is not None and found.kind == FIRST else None
    elif "joins" in extra:
        found = joined(m, bound.given.get(extra["joins"]), node)
    else:
        return result
    return _mark(m, result, found, base, *bound.given.values())


def _is_layer(row: Row, base: Value | None) -> bool:
    """Return whether a layer of torch runs, which gives as many rows as it gets; a loss gives a number."""
    atom = base.single if base is not None and "forward" in row.tags else None
    cls = atom.cls if isinstance(atom, Instance) else ""
    return isinstance(cls, str) and cls.startswith("torch.nn.") and "Loss" not in cls and "parallel" not in cls


def _is_fixed(m: Machine, extra: Mapping[str, Any], bound: BoundArguments) -> bool:
    """Return whether arguments say how long the result is: `min_new_tokens=8`, `padding="max_length"`."""
    given = {**bound.given, **bound.extra_keywords}
    if any(name in given for name in extra.get("ragged_without", ())):
        return True
    if any(name not in given for name in extra.get("ragged_with", ())):
        return True
    source = given.get(extra.get("ragged_of", ""))
    if "ragged_of" in extra and (source is None or not m.deep_varies(source) & DIVERGENT):
        return True
    for name, constants in extra.get("ragged_if", {}).items():
        value = given.get(name)
        if value is not None and (value.constants is None or any(c not in constants for c in value.constants)):
            return True
    return False


def _keeps_dimension(extra: Mapping[str, Any], bound: BoundArguments, found: Ragged) -> bool:
    """Return whether the dimension that a call reduces is another one than the ragged one."""
    name = extra.get("reduces", "")
    if not name:
        return True
    value = bound.given.get(name)
    atom = value.single if value is not None else None
    return found.kind == FIRST and isinstance(atom, Const) and atom.value not in (0, None)


def _number(m: Machine, operands: Iterable[Value], *, keeps: bool, place: tuple[Module, ast.AST]) -> Ragged | None:
    """Return that a number comes from the data of this rank: a maximum of a sum, as each rank takes it for itself."""
    for value in operands:
        found = _of(m, value)
        if found is not None and found.kind == NUMBER:
            return Ragged(NUMBER, found.words, place)
        if not keeps and _is_own(m, value):
            return Ragged(NUMBER, _COUNTED, place)
    return None


def _is_own(m: Machine, value: Value) -> bool:
    """Return whether a value is data of this rank, or comes from outside so that nothing has made it the same."""
    varies = m.varies(value)
    if varies & LOST:
        return False
    return bool(varies & DIVERGENT) or _is_given(m, value.number) or any(_is_given(m, atom) for atom in value.atoms)


def _is_given(m: Machine, number: object) -> bool:
    """Return whether something from outside is in a number: a parameter of a function that nothing calls."""
    if isinstance(number, tuple):
        return number[:1] == ("parameter",) or any(_is_given(m, inner) for inner in number)
    if isinstance(number, frozenset):
        return any(_is_given(m, inner) for inner in number)
    content = m.store.get((number, CONTENT)) if isinstance(number, Instance) else None
    return content is not None and any(isinstance(a, Unknown) and a.kind == INPUT for a in content.atoms)


def _is_test(number: object) -> bool:
    """Return whether a number is that of a comparison, or of several: `a == b`, `~(a < b)`, `(a < b) & (c < d)`."""
    if not isinstance(number, tuple) or len(number) != 2:
        return False
    head, parts = number
    if head == "not" or head is ast.Invert:
        return _is_test(parts) or (isinstance(parts, tuple) and any(_is_test(inner) for inner in parts))
    if head in (ast.BitAnd, ast.BitOr):
        return isinstance(parts, tuple) and any(_is_test(inner) for inner in parts)
    return isinstance(head, type) and issubclass(head, ast.cmpop) and head not in (ast.Is, ast.In)


def joined(m: Machine, value: Value | None, node: ast.AST) -> Ragged | None:
    """Return why what a list holds is ragged when it is put together: all of it is, or the ranks have more or less."""
    atom = value.single if value is not None else None
    if value is None or atom is None:
        return None
    items = list(atom.items) if isinstance(atom, Tuple) else m.elements(atom) if isinstance(atom, Instance) else []
    found = [_of(m, item) for item in items]
    if found and all(inner is not None and inner.kind in _SHAPES for inner in found):
        return found[0]
    length = m.store.get((atom, LENGTH)) if isinstance(atom, Instance) else None
    bits = m.shape(value) | (length.varies | length.shape if length is not None else 0)
    if bits & LOST:
        return None
    if m.collates and bits & (DATA | HOST):
        return Ragged(FIRST, _KEPT, (m.frame.module, node))
    return Ragged(FIRST, _SHARE, (m.frame.module, node)) if bits & RANKED else None


def by_name(m: Machine, name: str, arguments: Arguments, result: Value, node: ast.AST) -> Value:
    """Note what a call of an object of which nobody knows the class gives: `generate`, or texts as rows of numbers."""
    row = None
    if name == "generate":
        row = m.libraries.method("transformers.generation.GenerationMixin", "generate")
    elif not name and "return_tensors" in arguments.keywords:
        row = m.libraries.method("transformers.PreTrainedTokenizerBase", "__call__")
    if row is None or "ragged" not in row.extra:
        return result
    from dslint.python.binding import BoundArguments

    return called(m, row, BoundArguments(dict(arguments.keywords)), None, result, node)


# -- expressions ------------------------------------------------------------------------------------------------


def computed(m: Machine, operands: tuple[Value, ...], result: Value) -> Value:
    """Note what an operation on items gives: as long as its operands, and a mask where all of them are masks."""
    found = [_of(m, value) for value in operands]
    kept = next((inner for inner in found if inner is not None and inner.kind in (FIRST, SECOND)), None)
    if kept is None and all(inner is not None and inner.kind == MASK for inner in found):
        kept = found[0]
    return _mark(m, result, kept, *operands)


def compared(m: Machine, operands: tuple[Value, ...], result: Value, node: ast.AST) -> Value:
    """Note that a comparison of tensors is a mask, where nothing says that all ranks have the same one."""
    is_own = any(_is_own(m, value) for value in operands)
    return _mark(m, result, Ragged(MASK, _TEST, (m.frame.module, node)) if is_own else None, *operands)


def collected(m: Machine, value: Value, result: Value, node: ast.AST) -> Value:
    """Note whether a tensor that holds what a list holds is ragged."""
    return _mark(m, result, joined(m, value, node), value)


def counted(m: Machine, value: Value | None, result: Value | None) -> Value | None:
    """Note that `int(x)` is a number of the data where `x` is one."""
    found = _of(m, value)
    return _mark(m, result, found) if result is not None and found is not None and found.kind == NUMBER else result


def bounded(m: Machine, upper: Value | None, result: Value, node: ast.AST) -> Value:
    """Note that a slice ends at a number that the data of the rank make."""
    found = _of(m, upper) if upper is not None else None
    cut = Ragged(CUT, _LONGEST, (m.frame.module, node)) if found is not None and found.kind == NUMBER else None
    return _mark(m, result, cut)


def part(m: Machine, base: Value, key: Value, node: ast.Subscript, result: Value) -> Value:
    """Note whether `base[key]` is as long as the data of the rank say; of `base[a:b]` the key is `b`."""
    if not any(isinstance(atom, Instance) and atom.node is node for atom in result.atoms):
        return result  # what it holds was there before
    return _mark(m, result, _part(m, base, key, node), base, key)


def _part(m: Machine, base: Value, key: Value, node: ast.Subscript) -> Ragged | None:
    place = (m.frame.module, node)
    first, *more = key.single.items if isinstance(key.single, Tuple) and key.single.items else (key,)
    index, *indices = node.slice.elts if isinstance(node.slice, ast.Tuple) and node.slice.elts else (node.slice,)
    if len(indices) != len(more):
        return None
    chosen, last = _of(m, first), _of(m, more[-1]) if more else None
    if chosen is not None and isinstance(index, ast.Slice):
        if chosen.kind in (CUT, NUMBER):
            return Ragged(FIRST, _LONGEST, place)
    elif chosen is not None and chosen.kind in (MASK, *_SHAPES) and _is_tensor(base):
        return Ragged(FIRST, _SELECTION if chosen.kind == MASK else chosen.words, place)
    held = _of(m, base)
    if isinstance(index, ast.Slice) and len(more) == 1 and last is not None and last.kind == CUT and _is_open(index):
        return Ragged(SECOND, last.words, place)
    if held is None or held.kind not in _SHAPES:
        return None
    at = first.single
    if isinstance(at, Const) and not more and not isinstance(index, ast.Slice):
        if isinstance(at.value, str):
            return held if at.value in _FIELDS else None
        return Ragged(FIRST, held.words, held.place) if held.kind in (SECOND, PARTS) else None
    if not isinstance(index, ast.Slice) or index.upper is not None or index.step is not None:
        return None
    if held.kind == FIRST:  # `x[mask][:, 0]`
        return held if _is_open(index) and more else held if not more else None
    # `ids[:, length:]` drops the prompt, the lengths still differ; `ids[:, :5]` is another matter.
    return held if _is_open(index) and all(_is_tail(inner) for inner in indices) else None


def _is_tail(index: ast.expr) -> bool:
    return isinstance(index, ast.Slice) and index.upper is None and index.step is None


def _is_open(index: ast.expr) -> bool:
    """Return whether an index is a bare `:`."""
    return isinstance(index, ast.Slice) and index.lower is None and index.upper is None and index.step is None


def _is_tensor(base: Value) -> bool:
    classes = [atom.cls for atom in base.atoms if isinstance(atom, Instance)]
    return bool(classes) and all(cls in ("", "torch.Tensor") for cls in classes)


def field(m: Machine, owner: Instance, name: str, inner: Instance) -> None:
    """Note that a field of what a call has given is as long as all of it: `output.sequences`."""
    if name in _FIELDS and m.store.get((owner, RAGGED)) is not None:
        held = m.store.get((owner, RAGGED))
        assert held is not None
        m.store.set((inner, RAGGED), held)
