"""A small tensor: flat list, shape, dtype. Enough arithmetic for control flow, and nothing of speed or gradients."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..api import api, api_class
from ..ranks import current


class Named:
    """A dtype, a reduce operation, a memory format: a value that only has a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


FLOAT, INT, BOOL = Named("torch.float32"), Named("torch.int64"), Named("torch.bool")


class Device:
    """`torch.device`: a type and an index, printed as torch does."""

    def __init__(self, kind: Any = "cpu", index: int | None = None) -> None:
        if isinstance(kind, int):
            kind = f"cuda:{kind}"
        text = str(kind)
        self.type, _, number = text.partition(":")
        self.index = int(number) if number else index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (f", index={self.index})" if self.index is not None else ")")

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class Size(tuple):  # type: ignore[type-arg]
    """`torch.Size`."""

    def numel(self) -> int:
        return math.prod(self)


def _flat(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    if isinstance(value, Tensor):
        return list(value.flat), value.dims
    if isinstance(value, list | tuple | range):
        parts = [_flat(v) for v in value]
        inner = parts[0][1] if parts else ()
        return [x for flat, _ in parts for x in flat], (len(parts), *inner)
    return [value], ()


def kind_of(flat: list[Any]) -> Named:
    if flat and all(isinstance(v, bool) for v in flat):
        return BOOL
    return INT if flat and all(isinstance(v, int) for v in flat) else FLOAT


def make(value: Any, dtype: Named | None = None) -> Tensor:
    """A tensor of nested numbers."""
    flat, dims = _flat(value)
    return Tensor(flat, dims, dtype)


def _cast(value: Any, dtype: Named) -> Any:
    if dtype.name.startswith(("torch.float", "torch.bfloat", "torch.double", "torch.half")):
        return float(value)
    if dtype == BOOL:
        return bool(value)
    return int(value) if math.isfinite(value) else 0


def _spread(a: Tensor, b: Tensor) -> tuple[list[Any], list[Any], tuple[int, ...]]:
    """Both as flat lists of one shape (broadcasting of missing or single dimensions)."""
    if a.dims == b.dims:
        return a.flat, b.flat, a.dims
    rank = max(len(a.dims), len(b.dims))
    da, db = (1,) * (rank - len(a.dims)) + a.dims, (1,) * (rank - len(b.dims)) + b.dims
    # Sizes that do not fit raise in torch. Layers here are narrower than in the program: the first tensor decides.
    dims = tuple(y if x == 1 else x for x, y in zip(da, db, strict=True))
    return _expand(a.flat, da, dims), _expand(b.flat, db, dims), dims


def _expand(flat: list[Any], dims: tuple[int, ...], wanted: tuple[int, ...]) -> list[Any]:
    if not wanted:
        return flat
    step = math.prod(dims[1:])
    rows = [_expand(flat[i * step : (i + 1) * step], dims[1:], wanted[1:]) for i in range(dims[0])]
    return [x for i in range(wanted[0] if rows else 0) for x in rows[i % len(rows)]]


def _divide(a: Any, b: Any) -> float:
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)
    return a / b  # type: ignore[no-any-return]


class Tensor:
    """What programs hold. `wraps` are the wrapped models that its value came through."""

    def __init__(self, flat: Any = (), dims: tuple[int, ...] | None = None, dtype: Named | None = None) -> None:
        if dims is None:
            flat, dims = _flat(flat)
        self.dtype = dtype or kind_of(flat)
        self.flat = [_cast(v, self.dtype) for v in flat] if dtype else list(flat)
        self.dims = tuple(dims)
        self.device = Device("cpu")
        self.requires_grad = False
        self.grad: Tensor | None = None
        self.wraps: tuple[Any, ...] = ()

    # -- shape
    @property
    def shape(self) -> Size:
        return Size(self.dims)

    @property
    def ndim(self) -> int:
        return len(self.dims)

    @property
    def data(self) -> Tensor:
        return self

    @property
    def T(self) -> Tensor:
        return tensor_methods.transposed(self)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def __getattr__(self, name: str) -> Any:
        """A method of torch that the stand-in lacks gives the tensor as it is."""
        if name.startswith("_") or name in ("flat", "dims"):
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        return api(f"torch.Tensor.{name}")(lambda *a, **k: self)

    def like(self, flat: list[Any], dims: tuple[int, ...] | None = None, dtype: Named | None = None) -> Tensor:
        found = Tensor(flat, self.dims if dims is None else dims, dtype)
        found.device, found.wraps = self.device, self.wraps
        found.requires_grad = self.requires_grad
        return found

    # -- arithmetic
    def apply(self, other: Any, function: Callable[[Any, Any], Any], *, swap: bool = False) -> Tensor:
        right = other if isinstance(other, Tensor) else make(other)
        a, b, dims = _spread(self, right)
        found = self.like([function(y, x) if swap else function(x, y) for x, y in zip(a, b, strict=True)], dims)
        if right.wraps:
            found.wraps = (*self.wraps, *right.wraps)
        return found

    def map(self, function: Callable[[Any], Any]) -> Tensor:
        return self.like([function(x) for x in self.flat])

    def put(self, other: Any) -> Tensor:
        """Take the contents of `other`, as an operation in place does."""
        source = other if isinstance(other, Tensor) else make(other)
        self.flat = list(source.flat) if len(source.flat) == len(self.flat) else source.flat * len(self.flat)
        return self

    def __neg__(self) -> Tensor:
        return self.map(operator.neg)

    def __abs__(self) -> Tensor:
        return self.map(abs)

    def __invert__(self) -> Tensor:
        return self.map(lambda x: not x if isinstance(x, bool) else ~x)

    def __bool__(self) -> bool:
        if len(self.flat) != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.flat[0])

    def __int__(self) -> int:
        return int(self.only())

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.only())

    def only(self) -> Any:
        if len(self.flat) != 1:
            raise RuntimeError("a Tensor with more than one element cannot be converted to Scalar")
        return self.flat[0]

    def __len__(self) -> int:
        if not self.dims:
            raise TypeError("len() of a 0-d tensor")
        return self.dims[0]

    def __iter__(self) -> Iterator[Tensor]:
        return iter([self[i] for i in range(len(self))])

    def __contains__(self, value: Any) -> bool:
        return value in self.flat

    def __repr__(self) -> str:
        return f"tensor({self.nested()})"

    def __format__(self, spec: str) -> str:
        return format(self.flat[0], spec) if not self.dims else repr(self)

    __hash__ = object.__hash__

    def nested(self, flat: list[Any] | None = None, dims: tuple[int, ...] | None = None) -> Any:
        flat, dims = (self.flat, self.dims) if flat is None or dims is None else (flat, dims)
        if not dims:
            return flat[0]
        step = math.prod(dims[1:])
        return [self.nested(flat[i * step : (i + 1) * step], dims[1:]) for i in range(dims[0])]

    # -- indexing
    def __getitem__(self, key: Any) -> Tensor:
        keys = key if isinstance(key, tuple) else (key,)
        first, rest = keys[0], keys[1:]
        if first is None or first is Ellipsis:
            return self
        step = math.prod(self.dims[1:])
        rows = [self.flat[i * step : (i + 1) * step] for i in range(self.dims[0])]
        if isinstance(first, Tensor) and first.dtype == BOOL:
            chosen: Any = [r for r, keep in zip(rows, first.flat, strict=False) if keep]
        elif isinstance(first, Tensor | list) and not (isinstance(first, Tensor) and not first.dims):
            chosen = [rows[int(i)] for i in (first.flat if isinstance(first, Tensor) else first)]
        elif isinstance(first, slice):
            chosen = rows[first]
        else:
            found = self.like(rows[int(first)], self.dims[1:], self.dtype)
            return found[rest] if rest else found
        found = self.like([x for r in chosen for x in r], (len(chosen), *self.dims[1:]), self.dtype)
        return stack([row[rest] for row in found]) if rest and chosen else found

    def __setitem__(self, key: Any, value: Any) -> None:
        marks = self.like(list(range(len(self.flat))))[key]
        new = _flat(value)[0]
        for nth, place in enumerate(marks.flat):
            self.flat[place] = new[nth % len(new)]


def stack(parts: Iterable[Tensor]) -> Tensor:
    """Tensors of one shape as the rows of another."""
    items = [p if isinstance(p, Tensor) else make(p) for p in parts]
    if not items:
        return Tensor([], (0,))
    return items[0].like([x for t in items for x in t.flat], (len(items), *items[0].dims))


def noise(count: int) -> list[float]:
    """Random numbers of the generator of the rank."""
    source = current().own["torch random"]
    return [round(source.uniform(-1, 1), 4) for _ in range(count)]


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow", "and_", "or_", "xor"):
    _operator = getattr(operator, _name)
    _word = _name.strip("_")
    setattr(Tensor, f"__{_word}__", lambda self, other, f=_operator: self.apply(other, f))
    setattr(Tensor, f"__r{_word}__", lambda self, other, f=_operator: self.apply(other, f, swap=True))
    setattr(Tensor, f"__i{_word}__", lambda self, other, f=_operator: self.put(self.apply(other, f)))
Tensor.__truediv__ = lambda self, other: self.apply(other, _divide)  # type: ignore[attr-defined]
Tensor.__rtruediv__ = lambda self, other: self.apply(other, _divide, swap=True)  # type: ignore[attr-defined]
Tensor.__itruediv__ = lambda self, other: self.put(self.apply(other, _divide))  # type: ignore[attr-defined]
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _operator = getattr(operator, _name)
    setattr(
        Tensor,
        f"__{_name}__",
        lambda self, other, f=_operator: NotImplemented if other is None else self.apply(other, f),
    )

from . import tensor_methods  # noqa: E402 - it adds the methods with names to the class above

tensor_methods.add_to(Tensor)
api_class("torch.Tensor", constructor=False)(Tensor)
for _name in ("like", "apply", "map", "put", "only", "nested"):  # ours, no part of torch
    setattr(Tensor, _name, getattr(Tensor, _name).__wrapped__)
