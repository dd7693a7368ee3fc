"""`torch.nn`, `torch.optim`, `torch.amp`: modules that compute something small, optimizers that step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dslint.python.libraries import libraries

from ..api import Constructed, api, api_class, outside
from ..ranks import current
from .tensors import Tensor, make, noise


@api_class("torch.nn.Parameter")
class Parameter(Tensor, metaclass=Constructed):
    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        source = data if isinstance(data, Tensor) else make(data or [0.0])
        super().__init__(list(source.flat), source.dims)
        self.requires_grad = requires_grad


class Module(metaclass=Constructed):
    """A module: fields that are modules or parameters are its parts."""

    training = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.training = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current().inside > 1 and hasattr(self.forward, "__judge_api__"):  # the code of a library calls its layers
            return self.forward(*args, **kwargs)
        return outside(self.forward, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inputs = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        return inputs[0] * 1.0 if inputs else make(0.5)

    def _parts(self) -> Iterator[tuple[str, Any]]:
        for name, value in vars(self).items():
            items = enumerate(value) if isinstance(value, list | tuple) else [("", value)]
            for key, item in items:
                if isinstance(item, Module | Parameter):
                    yield (f"{name}.{key}" if key != "" else name), item

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Any]]:
        for name, part in self._parts():
            if isinstance(part, Parameter):
                yield prefix + name, part
            elif recurse:
                yield from Module.named_parameters.__wrapped__(part, f"{prefix}{name}.")  # type: ignore[attr-defined]

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return (p for _, p in Module.named_parameters.__wrapped__(self))  # type: ignore[attr-defined]

    def named_modules(self, *_: Any, **__: Any) -> Iterator[tuple[str, Any]]:
        return iter([("", self), *((n, m) for n, m in self._parts() if isinstance(m, Module))])

    def modules(self) -> Iterator[Any]:
        return iter([self, *(m for _, m in self._parts() if isinstance(m, Module))])

    def named_children(self) -> Iterator[tuple[str, Any]]:
        return iter([(n, m) for n, m in self._parts() if isinstance(m, Module)])

    def children(self) -> Iterator[Any]:
        return iter([m for _, m in self._parts() if isinstance(m, Module)])

    def buffers(self) -> Iterator[Any]:
        return iter(())

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {n: p.detach() for n, p in self.named_parameters()}

    def load_state_dict(self, state: Any, strict: bool = True, **_: Any) -> Any:
        return None

    def train(self, mode: bool = True) -> Any:
        self.training = mode
        return self

    def eval(self) -> Any:
        self.training = False
        return self

    def to(self, *_: Any, **__: Any) -> Any:
        return self

    def cuda(self, *_: Any) -> Any:
        return self

    def cpu(self) -> Any:
        return self

    def half(self) -> Any:
        return self

    def float(self) -> Any:
        return self

    def bfloat16(self) -> Any:
        return self

    def requires_grad_(self, value: bool = True) -> Any:
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        return None

    def apply(self, function: Any) -> Any:
        for _, module in self._parts():
            outside(function, module)
        outside(function, self)
        return self

    def register_buffer(self, name: str, value: Any, persistent: bool = True) -> None:
        setattr(self, name, value)

    def register_parameter(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def add_module(self, name: str, module: Any) -> None:
        setattr(self, name, module)

    def gradient_checkpointing_enable(self, *_: Any, **__: Any) -> None:
        return None


api_class("torch.nn.Module", call="forward")(Module)
# A `forward` of the program is the program's own code, and no event below the call of the module.
Module.forward = Module.forward.__wrapped__  # type: ignore[method-assign,attr-defined]


def _projected(x: Tensor, width: int, dims: tuple[int, ...]) -> Tensor:
    """Rows of `width` numbers, each half the mean of the row it comes from."""
    width, rows = min(width, 8), max(1, math.prod(dims))
    step = max(1, len(x.flat) // rows)
    means = [sum(float(v) for v in x.flat[r * step : (r + 1) * step]) / step for r in range(rows)]
    return x.like([round(m * 0.5, 6) for m in means for _ in range(width)], (*dims, width))


def layer(name: str, width: int | None = None) -> type:
    """A class of `torch.nn` that has parameters when it gets sizes."""

    def init(self: Any, *sizes: Any, **_: Any) -> None:
        Module.__init__(self)
        self.sizes = sizes
        if sizes and isinstance(sizes[0], int):
            self.weight = Parameter.__new__(Parameter)
            Tensor.__init__(self.weight, noise(2), (2,))
            self.weight.requires_grad = True

    def forward(self: Any, x: Any = None, *others: Any, **_: Any) -> Any:
        if not isinstance(x, Tensor):
            return make(0.5)
        if name.endswith("Loss"):
            return x.like([sum(abs(float(v)) for v in x.flat) / max(1, len(x.flat))], ())
        if name in ("Linear", "Embedding") and len(self.sizes) > 1:
            return _projected(x, int(self.sizes[1]), x.dims[:-1] if name == "Linear" else x.dims)
        return x * 0.5 if hasattr(self, "weight") else x

    cls = Constructed(name, (Module,), {"__init__": init, "forward": forward})
    return api_class(f"torch.nn.{name}")(cls)


LAYERS = [
    "Linear",
    "Embedding",
    "LayerNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "SyncBatchNorm",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "ReLU",
    "LeakyReLU",
    "SiLU",
    "Conv3d",
    "ConvTranspose2d",
    "BatchNorm3d",
    "GroupNorm",
    "Dropout2d",
    "Upsample",
    "Unfold",
    "GELU",
    "Tanh",
    "Sigmoid",
    "Softmax",
    "Flatten",
    "Identity",
    "MaxPool2d",
    "AvgPool2d",
    "AdaptiveAvgPool2d",
    "LSTM",
    "GRU",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "MultiheadAttention",
    "CrossEntropyLoss",
    "MSELoss",
    "L1Loss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "NLLLoss",
    "KLDivLoss",
    "SmoothL1Loss",
]


class Sequential(Module):
    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.layers = list(parts[0] if len(parts) == 1 and not isinstance(parts[0], Module) else parts)

    def forward(self, x: Any) -> Any:
        for part in self.layers:  # the layers of a library are called by its own code
            x = part(x) if "__judge_api__" in vars(type(part)) else outside(part, x)
        return x

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def append(self, part: Any) -> Any:
        self.layers.append(part)
        return self

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, key: Any) -> Any:
        return self.layers[key]


api_class("torch.nn.Sequential")(Sequential)
ModuleList = api_class("torch.nn.ModuleList")(Constructed("ModuleList", (Sequential,), {}))


class ModuleDict(Module):
    def __init__(self, parts: Any = None) -> None:
        super().__init__()
        vars(self).update(parts or {})

    def __getitem__(self, key: str) -> Any:
        return vars(self)[key]

    def __setitem__(self, key: str, value: Any) -> None:
        vars(self)[key] = value


api_class("torch.nn.ModuleDict")(ModuleDict)


def level(module: Any, what: str) -> None:
    """All ranks meet; the parameters are then those of the first."""
    world = current().world
    own = list(Module.parameters.__wrapped__(module)) if isinstance(module, Module) else []  # type: ignore[attr-defined]
    given = world.meet(world.everyone, what, [list(p.flat) for p in own])
    for parameter, flat in zip(own, given[0] or (), strict=False):
        parameter.flat = list(flat)


class DistributedDataParallel(Module):
    """Its constructor broadcasts; the backward of what it computes reduces."""

    def __init__(self, module: Any, *_: Any, **__: Any) -> None:
        super().__init__()
        self.module, self.syncs = module, True
        level(module, "DistributedDataParallel()")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = outside(self.module, *args, **kwargs)
        if isinstance(found, Tensor):
            found.wraps = (*found.wraps, self)
        return found

    def no_sync(self) -> Any:
        return NoSync(self)

    def join(self, *_: Any, **__: Any) -> Any:
        return NoSync(None)


class FullyShardedDataParallel(DistributedDataParallel):
    """The same to those that only look at its calls."""

    def clip_grad_norm_(self, max_norm: float, *_: Any) -> Any:
        return make(1.0)


class NoSync:
    def __init__(self, model: Any) -> None:
        self.model = model

    def __enter__(self) -> None:
        if self.model is not None:
            self.model.syncs = False

    def __exit__(self, *_: object) -> None:
        if self.model is not None:
            self.model.syncs = True


api_class("torch.nn.parallel.DistributedDataParallel", call="forward")(DistributedDataParallel)
DistributedDataParallel.forward = DistributedDataParallel.forward.__wrapped__  # type: ignore[attr-defined,method-assign]

api_class("torch.distributed.fsdp.FullyShardedDataParallel", call="forward")(FullyShardedDataParallel)


@api("torch.nn.utils.clip_grad_norm_")
def clip_grad_norm_(parameters: Any, max_norm: float, *_: Any, **__: Any) -> Any:
    count = len(list(parameters)) if not isinstance(parameters, Tensor) else 1
    return make(math.sqrt(count) if count else 0.0)


def namespace() -> dict[str, Any]:
    """Names of `torch.nn`."""
    found: dict[str, Any] = {name: layer(name) for name in LAYERS}
    found.update(Module=Module, Parameter=Parameter, Sequential=Sequential, ModuleList=ModuleList)
    found["ModuleDict"] = ModuleDict
    found["SyncBatchNorm"].convert_sync_batchnorm = staticmethod(
        api("torch.nn.SyncBatchNorm.convert_sync_batchnorm")(lambda module, *_: module)
    )
    return found


NN = namespace()


_MORE: dict[str, type[Module]] = {}


def of_library(path: str) -> type[Module] | None:
    """The class that stands for a class of modules or for what a function makes, as its row says; None for others."""
    rows = libraries()
    owner, _, name = path.rpartition(".")
    row = rows.function(rows.canonical(path)) or rows.method(owner, name)
    if row is not None:
        made = row.returns.name if row.returns.word == "new" else ""
        from .engines import PretrainedModel

        if not made or not _is_module(made):
            return None
        return PretrainedModel if made.startswith("transformers.") else Module
    if name[:1].isupper() and _is_module(rows.canonical(path)):
        return _MORE.setdefault(name, layer(name))
    return None


def _is_module(path: str) -> bool:
    return any(base.path == "torch.nn.Module" for base in libraries().lineage(path))
