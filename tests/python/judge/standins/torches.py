"""The modules of the torch stand-in, put together anew for each rank."""

from __future__ import annotations

import math
import random
import types
from collections.abc import Callable
from typing import Any

from ..api import Constructed, api, api_class
from ..ranks import current
from . import data, distributed, nn, optim
from .mocks import Mock, MockModule
from .tensors import BOOL, FLOAT, INT, Device, Named, Size, Tensor, make, noise, stack

# Elements that a tensor made by size may have.
LARGEST = 4096


def _dims(given: tuple[Any, ...]) -> tuple[int, ...]:
    wanted = given[0] if len(given) == 1 and isinstance(given[0], tuple | list) else given
    dims = tuple(int(d) for d in wanted)
    if math.prod(dims) > LARGEST:  # images of a real program: the batch keeps its size, the rest is cut down
        dims = (min(dims[0], 64), *(min(d, 3) for d in dims[1:]))
    return dims


def _placed(tensor: Tensor, options: dict[str, Any]) -> Tensor:
    if options.get("device") is not None:
        given = options["device"]
        tensor.device = given if isinstance(given, Device) else Device(given)
    tensor.requires_grad = bool(options.get("requires_grad", False))
    return tensor


def _filled(value: float) -> Callable[..., Tensor]:
    def function(*size: Any, dtype: Any = None, **options: Any) -> Tensor:
        dims = _dims(size or (options.pop("size", ()),))
        return _placed(Tensor([float(value)] * math.prod(dims), dims, dtype), options)

    return function


def _random(*size: Any, generator: Any = None, **options: Any) -> Tensor:
    dims = _dims(size)
    count = math.prod(dims)
    flat = noise(count) if generator is None else [round(generator.source.uniform(-1, 1), 4) for _ in range(count)]
    return _placed(Tensor(flat, dims), options)


def _randint(low: int, high: Any = None, size: Any = (1,), **options: Any) -> Tensor:
    if isinstance(high, tuple | list):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    generator = options.pop("generator", None)
    source = current().own["torch random"] if generator is None else generator.source
    size = _dims((size,))
    return _placed(Tensor([source.randrange(low, high) for _ in range(math.prod(size))], tuple(size)), options)


def _like(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda other, *a, **options: function(*other.dims, **{k: v for k, v in options.items() if k != "fill"})


def _cat(tensors: Any, dim: int = 0, **_: Any) -> Tensor:
    parts = [t if isinstance(t, Tensor) else make(t) for t in tensors]
    flat = [x for t in parts for x in t.flat]
    return parts[0].like(flat, (sum(t.dims[0] if t.dims else 1 for t in parts), *parts[0].dims[1:]))


def _where(test: Tensor, yes: Any = None, no: Any = None) -> Any:
    if yes is None:
        return test.nonzero(as_tuple=True)
    return test.like([y if t else n for t, y, n in zip(test.flat, *(_wide(v, test) for v in (yes, no)), strict=True)])


def _wide(value: Any, shape: Tensor) -> list[Any]:
    return value.flat if isinstance(value, Tensor) and len(value.flat) > 1 else [float(value)] * len(shape.flat)


def _seed(value: int) -> Any:
    current().own["torch random"] = random.Random(int(value))
    return Generator()


class Generator(metaclass=Constructed):
    def __init__(self, device: Any = "cpu") -> None:
        self.source = random.Random(0)

    def manual_seed(self, seed: int) -> Any:
        self.source = random.Random(int(seed))
        return self

    def initial_seed(self) -> int:
        return 0


class NoGrad(metaclass=Constructed):
    """`no_grad` and its kin: context manager and decorator."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, function: Any) -> Any:
        return function


class NoGradBare(NoGrad):
    """`@torch.no_grad` without parentheses also decorates."""

    def __new__(cls, function: Any = None, *_: Any, **__: Any) -> Any:
        return function if isinstance(function, types.FunctionType) else super().__new__(cls)


def _context(path: str, base: type = NoGrad) -> type:
    return api_class(path)(Constructed(path.rpartition(".")[2], (base,), {}))


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *a, **k: value


def _cuda() -> dict[str, Any]:
    found: dict[str, Callable[..., Any]] = {
        "is_available": _constant(True),
        "device_count": lambda: current().per_node,
        "current_device": lambda: current().own.get("device", 0),
        "set_device": lambda d: current().own.__setitem__("device", d),
        "manual_seed": _seed,
        "manual_seed_all": _constant(None),
        "empty_cache": _constant(None),
        "synchronize": _constant(None),
        "memory_allocated": lambda *a: 1000 + current().number,
        "max_memory_allocated": lambda *a: 2000 + current().number,
        "reset_peak_memory_stats": _constant(None),
        "get_device_name": _constant("stand-in"),
        "get_device_capability": _constant((9, 0)),
        "is_bf16_supported": _constant(True),
    }
    return {name: api(f"torch.cuda.{name}")(function) for name, function in found.items()}


def _makers() -> dict[str, Callable[..., Any]]:
    """Functions that make tensors."""
    return {
        "tensor": lambda value, dtype=None, **o: _placed(make(value, dtype), o),
        "as_tensor": lambda value, dtype=None, **o: _placed(make(value, dtype), o),
        "from_numpy": make,
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "empty": _filled(0.0),
        "zeros_like": _like(_filled(0.0)),
        "ones_like": _like(_filled(1.0)),
        "empty_like": _like(_filled(0.0)),
        "full": lambda size, value, **o: _placed(Tensor([value] * math.prod(_dims((size,))), _dims((size,))), o),
        "arange": lambda *a, **o: _placed(make(list(range(*(int(x) for x in a)))), o),
        "rand": _random,
        "randn": _random,
        "randn_like": _like(_random),
        "rand_like": _like(_random),
        "randint": _randint,
        "randperm": lambda n, **k: make(current().own["torch random"].sample(range(n), n)),
        "cat": _cat,
        "concat": _cat,
        "stack": lambda tensors, dim=0: stack(tensors),
        "where": _where,
    }


def _others() -> dict[str, Callable[..., Any]]:
    return {
        "manual_seed": _seed,
        "save": lambda value, path, *a, **k: current().own.setdefault("saved", {}).__setitem__(str(path), value),
        "load": lambda path, *a, **k: current().own.setdefault("saved", {}).get(str(path), {}),
        "compile": lambda model=None, *a, **k: model if model is not None else (lambda m: m),
        "is_tensor": lambda value: isinstance(value, Tensor),
        "set_default_dtype": _constant(None),
        "set_float32_matmul_precision": _constant(None),
        "is_grad_enabled": _constant(True),
        "get_rng_state": _constant(None),
        "initial_seed": _constant(0),
    }


# Methods of tensors that are functions, too.
METHODS = [
    "sum",
    "mean",
    "max",
    "min",
    "any",
    "all",
    "isnan",
    "isinf",
    "isfinite",
    "abs",
    "sqrt",
    "exp",
    "log",
    "softmax",
    "sigmoid",
    "tanh",
    "relu",
    "argmax",
    "argmin",
    "nonzero",
    "unique",
    "clamp",
    "matmul",
    "norm",
    "add",
    "mul",
    "eq",
    "numel",
    "squeeze",
    "unsqueeze",
    "flatten",
    "topk",
    "sort",
    "equal",
    "transpose",
    "var",
    "std",
]


def _functions() -> dict[str, Any]:
    found = {**_makers(), **_others()}
    for name in METHODS:
        found[name] = lambda t, *a, n=name, **k: getattr(Tensor, n).__wrapped__(t, *a, **k)
    return {name: api(f"torch.{name}")(function) for name, function in found.items()}


def _functional() -> dict[str, Any]:
    def loss(x: Any, *_: Any, **__: Any) -> Any:
        return x.like([sum(abs(float(v)) for v in x.flat) / max(1, len(x.flat))], ())

    names = [
        "cross_entropy",
        "mse_loss",
        "l1_loss",
        "nll_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
    ]
    found: dict[str, Callable[..., Any]] = dict.fromkeys(names, loss)
    found.update({n: lambda x, *a, **k: x for n in ("relu", "gelu", "softmax", "log_softmax", "dropout", "pad")})
    return {name: api(f"torch.nn.functional.{name}")(function) for name, function in found.items()}


api_class("torch.Generator")(Generator)
_DTYPES = [
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int64",
    "int32",
    "uint8",
    "bool",
    "long",
    "float",
    "half",
    "double",
    "int",
]
_ALIASES = {"long": INT, "float": FLOAT, "int64": INT, "float32": FLOAT, "bool": BOOL}
_TOP: dict[str, Any] = {name: _ALIASES.get(name, Named(f"torch.{name}")) for name in _DTYPES}
_TOP.update(_functions(), Tensor=Tensor, Size=Size, device=Device, Generator=Generator, inf=math.inf, nan=math.nan)
_TOP.update(FloatTensor=_TOP["tensor"], LongTensor=_TOP["tensor"], __version__="2.13.0")
for _name in ("no_grad", "inference_mode"):
    _TOP[_name] = _context(f"torch.{_name}", NoGradBare)
for _name in ("enable_grad", "set_grad_enabled", "autocast"):
    _TOP[_name] = _context(f"torch.{_name}")
_AMP = {"GradScaler": optim.GradScaler, "autocast": _context("torch.amp.autocast")}
MODULES: dict[str, dict[str, Any]] = {
    "torch": _TOP,
    "torch.nn": nn.NN,
    "torch.nn.functional": _functional(),
    "torch.nn.parallel": {"DistributedDataParallel": nn.DistributedDataParallel},
    "torch.nn.parallel.distributed": {"DistributedDataParallel": nn.DistributedDataParallel},
    "torch.distributed.fsdp": {"FullyShardedDataParallel": nn.FullyShardedDataParallel},
    "torch.nn.utils": {"clip_grad_norm_": nn.clip_grad_norm_, "clip_grad_value_": nn.clip_grad_norm_},
    "torch.nn.init": {},
    "torch.optim": optim.OPTIM,
    "torch.optim.lr_scheduler": optim.LR,
    "torch.amp": _AMP,
    "torch.cuda": _cuda(),
    "torch.cuda.amp": _AMP,
    "torch.distributed": distributed.NAMES,
    "torch.distributed.distributed_c10d": distributed.NAMES,
    "torch.utils": {},
    "torch.utils.data": data.NAMES,
    "torch.utils.data.distributed": {"DistributedSampler": data.DistributedSampler},
    "torch.backends": {"cudnn": Mock("torch.backends.cudnn"), "cuda": Mock("torch.backends.cuda")},
    "torch.backends.cudnn": {},
}


def modules(name: str) -> MockModule | None:
    """A fresh module of the stand-in, or None."""
    if name not in MODULES:
        return None
    made = MockModule(name)
    made.__path__ = []
    made.__dict__.update(MODULES[name])
    return made
