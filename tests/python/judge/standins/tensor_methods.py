"""Methods of the small tensor that have names: reductions, conversions, shapes, backward."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ranks import current

UNCHANGED = ("cpu", "cuda", "detach", "contiguous", "pin_memory", "requires_grad_", "share_memory_", "coalesce")
IN_PLACE = ("add_", "sub_", "mul_", "div_", "fill_", "copy_", "zero_", "clamp_", "clamp_min_")
DTYPES = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32"}
DTYPES.update({"long": "int64", "bool": "bool"})


def _reduce(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def method(self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        if dim is None or isinstance(dim, tuple) or len(self.dims) <= 1:
            return self.like([function(self.flat)], ())
        dim %= len(self.dims)
        inner = math.prod(self.dims[dim + 1 :])
        size, outer = self.dims[dim], math.prod(self.dims[:dim])
        flat = [
            function([self.flat[(o * size + k) * inner + i] for k in range(size)])
            for o in range(outer)
            for i in range(inner)
        ]
        return self.like(flat, self.dims[:dim] + ((1,) if keepdim else ()) + self.dims[dim + 1 :])

    return method


def _mean(flat: list[Any]) -> float:
    return sum(flat) / len(flat) if flat else math.nan


def _spread_of(flat: list[Any]) -> float:
    mean = _mean(flat)
    return math.sqrt(sum((x - mean) ** 2 for x in flat) / max(1, len(flat) - 1))


REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "mean": _mean,
    "std": _spread_of,
    "var": lambda flat: _spread_of(flat) ** 2,
    "prod": math.prod,
    "any": lambda flat: any(bool(x) for x in flat),
    "all": lambda flat: all(bool(x) for x in flat),
    "norm": lambda flat: math.sqrt(sum(float(x) ** 2 for x in flat)),
    "logsumexp": lambda flat: max(flat, default=0.0),
    "argmax": lambda flat: flat.index(max(flat)),
    "argmin": lambda flat: flat.index(min(flat)),
}
MAPS: dict[str, Callable[[Any], Any]] = {
    "isnan": lambda x: isinstance(x, float) and math.isnan(x),
    "isinf": lambda x: isinstance(x, float) and math.isinf(x),
    "isfinite": lambda x: math.isfinite(x),
    "abs": abs,
    "neg": lambda x: -x,
    "relu": lambda x: max(x, 0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-max(-50.0, min(50.0, x)))),
    "tanh": math.tanh,
    "exp": lambda x: math.exp(min(x, 50.0)),
    "log": lambda x: math.log(x) if x > 0 else -math.inf,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "round": round,
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "softmax": lambda x: x,
    "log_softmax": lambda x: x,
    "square": lambda x: x * x,
    "sign": lambda x: (x > 0) - (x < 0),
}


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return self.like([function(self.flat)], ())
        values = _reduce(function)(self, dim, keepdim)
        return values, _reduce(lambda flat: flat.index(function(flat)))(self, dim, keepdim)

    return method


def _size(self: Any, dim: int | None = None) -> Any:
    return self.shape if dim is None else self.dims[dim]


def _view(self: Any, *dims: Any) -> Any:
    wanted = tuple(dims[0]) if len(dims) == 1 and isinstance(dims[0], tuple | list) else tuple(dims)
    if -1 in wanted:
        known = math.prod(d for d in wanted if d != -1)
        wanted = tuple(len(self.flat) // max(1, known) if d == -1 else d for d in wanted)
    return self.like(list(self.flat), tuple(int(d) for d in wanted), self.dtype)


def _to(self: Any, *args: Any, **kwargs: Any) -> Any:
    from .tensors import Device, Named, Tensor

    found = self.like(list(self.flat), self.dims, self.dtype)
    for given in (*args, *kwargs.values()):
        if isinstance(given, Named):
            found = self.like(list(self.flat), self.dims, given)
        elif isinstance(given, Tensor):
            found.device = given.device
        elif isinstance(given, Device | str) or (isinstance(given, int) and not isinstance(given, bool)):
            found.device = given if isinstance(given, Device) else Device(given)
    return found


def _nonzero(self: Any, as_tuple: bool = False) -> Any:
    places = [i for i, x in enumerate(self.flat) if x]
    found = self.like(places, (len(places),) if as_tuple else (len(places), 1))
    return (found,) if as_tuple else found


def _unique(self: Any, **_: Any) -> Any:
    values = sorted(set(self.flat))
    return self.like(values, (len(values),))


def _backward(self: Any, *_: Any, **__: Any) -> None:
    """Gradients of wrapped models are reduced over the ranks: all of them must come here."""
    rank = current()
    for model in dict.fromkeys(self.wraps):
        if getattr(model, "syncs", True):
            rank.world.meet(rank.world.everyone, "backward of a wrapped model")


def transposed(self: Any, *_: Any) -> Any:
    if len(self.dims) != 2:
        return self
    rows, columns = self.dims
    return self.like([self.flat[r * columns + c] for c in range(columns) for r in range(rows)], (columns, rows))


def _clamp(self: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002 - names of torch
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    return self.map(lambda x: low if x < low else high if x > high else x)


def _dtype_method(name: str) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        from .tensors import Named

        return self.like(list(self.flat), self.dims, Named(f"torch.{name}"))

    return method


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: Any, other: Any = 0, *args: Any, **kwargs: Any) -> Any:
        operation = name.rstrip("_")
        if operation in ("fill", "copy", "zero"):
            return self.put(other)
        if operation.startswith("clamp"):
            return self.put(_clamp(self, other, *args))
        found = {"add": self + other, "sub": self - other, "mul": self * other, "div": self / other}[operation]
        return self.put(found)

    return method


def _binary(name: str) -> Callable[..., Any]:
    return lambda self, other, **_: getattr(self, name)(other)


def _matmul(self: Any, other: Any) -> Any:
    total = _mean([float(x) for x in self.flat]) * _mean([float(x) for x in other.flat])
    dims = (*self.dims[:-1], *other.dims[1:])
    return self.like([round(total, 4)] * math.prod(dims), dims)


def _topk(self: Any, k: int, dim: int = -1, **_: Any) -> Any:
    order = sorted(range(len(self.flat)), key=lambda i: -self.flat[i])[:k]
    return self.like([self.flat[i] for i in order], (len(order),)), self.like(order, (len(order),))


def add_to(cls: Any) -> None:
    """Give the tensor class its methods."""
    for name, reduction in REDUCTIONS.items():
        setattr(cls, name, _reduce(reduction))
    for name, function in MAPS.items():
        setattr(cls, name, lambda self, *a, f=function, **k: self.map(f))
    for name in UNCHANGED:
        setattr(cls, name, lambda self, *a, **k: self)
    for name in IN_PLACE:
        setattr(cls, name, _in_place(name))
    for name, dtype in DTYPES.items():
        setattr(cls, name, _dtype_method(dtype))
    for name, dunder in (("add", "__add__"), ("sub", "__sub__"), ("mul", "__mul__"), ("div", "__truediv__")):
        setattr(cls, name, _binary(dunder))
    for name in ("eq", "ne", "gt", "lt", "ge", "le"):
        setattr(cls, name, _binary(f"__{name}__"))
    same: dict[str, Any] = {
        "max": _extreme(max),
        "min": _extreme(min),
        "size": _size,
        "view": _view,
        "reshape": _view,
        "to": _to,
    }
    same |= {"nonzero": _nonzero, "unique": _unique, "backward": _backward, "t": transposed, "clamp": _clamp}
    same |= {"transpose": transposed, "permute": transposed, "matmul": _matmul, "topk": _topk, "__matmul__": _matmul}
    same["item"] = lambda self: self.only()
    same["tolist"] = lambda self: self.nested()
    same["numpy"] = lambda self: self
    same["numel"] = lambda self: len(self.flat)
    same["dim"] = lambda self: len(self.dims)
    same["element_size"] = lambda self: 4
    same["clone"] = lambda self, **k: self.like(list(self.flat), self.dims, self.dtype)
    same["flatten"] = lambda self, *a, **k: _view(self, -1)
    same["squeeze"] = lambda self, *a: self.like(self.flat, tuple(d for d in self.dims if d != 1), self.dtype)
    same["unsqueeze"] = lambda self, d=0: self.like(self.flat, (1, *self.dims) if d == 0 else (*self.dims, 1))
    same["repeat"] = lambda self, n=1, *a: self.like(self.flat * n, (len(self.flat) * n,))
    same["expand"] = lambda self, *a: self
    same["chunk"] = lambda self, n, **k: [self[i::n] for i in range(min(n, len(self)))]
    same["split"] = lambda self, n, **k: [self[i : i + n] for i in range(0, len(self), n)]
    same["equal"] = lambda self, other: self.flat == other.flat
    same["new_zeros"] = lambda self, *d, **k: self.like([0.0] * math.prod(d), tuple(d))
    same["register_hook"] = lambda self, hook: None
    same["cumsum"] = lambda self, dim=0: self.like([sum(self.flat[: i + 1]) for i in range(len(self.flat))])
    same["sort"] = lambda self, **k: (self.like(sorted(self.flat)), self.like(list(range(len(self.flat)))))
    for name, method in same.items():
        setattr(cls, name, method)
