"""`torch.optim` and the scaler of `torch.amp`: objects that step and have a state."""

from __future__ import annotations

from typing import Any

from ..api import Constructed, api_class, outside


class Optimizer(metaclass=Constructed):
    def __init__(self, params: Any = (), lr: float = 0.001, **others: Any) -> None:
        params = list(params)
        groups = params if params and isinstance(params[0], dict) else [{"params": params}]
        self.param_groups = [{"lr": lr, **others, **g} for g in groups]
        self.state: dict[Any, Any] = {}

    def step(self, closure: Any = None) -> Any:
        return outside(closure) if closure is not None else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"state": {}, "param_groups": [{"lr": g["lr"]} for g in self.param_groups]}

    def load_state_dict(self, state: Any) -> None:
        return None

    def add_param_group(self, group: dict[str, Any]) -> None:
        self.param_groups.append({**self.param_groups[0], **group})


api_class("torch.optim.Optimizer")(Optimizer)
OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS", "Adadelta", "NAdam", "RAdam", "Adamax")


class Scheduler(metaclass=Constructed):
    def __init__(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self.optimizer, self.last_epoch = optimizer, 0

    def step(self, *_: Any) -> None:
        self.last_epoch += 1

    def get_last_lr(self) -> list[float]:
        return [round(0.1 / (1 + self.last_epoch), 6)]

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state: Any) -> None:
        return None


api_class("torch.optim.lr_scheduler.LRScheduler")(Scheduler)
SCHEDULERS = [
    "StepLR",
    "LambdaLR",
    "CosineAnnealingLR",
    "OneCycleLR",
    "LinearLR",
    "ReduceLROnPlateau",
    "ExponentialLR",
    "MultiStepLR",
    "SequentialLR",
    "CosineAnnealingWarmRestarts",
]


class GradScaler(metaclass=Constructed):
    def __init__(self, *_: Any, **__: Any) -> None:
        self.value = 65536.0

    def scale(self, loss: Any) -> Any:
        return loss

    def unscale_(self, optimizer: Any) -> None:
        return None

    def step(self, optimizer: Any, *_: Any) -> Any:
        return None

    def update(self, *_: Any) -> None:
        return None

    def get_scale(self) -> float:
        return self.value

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        return None


api_class("torch.amp.GradScaler")(GradScaler)


def named(base: type, names: Any, path: str) -> dict[str, type]:
    """Classes that only have another name than `base`."""
    return {n: api_class(f"{path}.{n}")(type(base)(n, (base,), {})) for n in names}


OPTIM = {"Optimizer": Optimizer, **named(Optimizer, OPTIMIZERS, "torch.optim")}
LR = named(Scheduler, SCHEDULERS, "torch.optim.lr_scheduler")
LR["LRScheduler"] = LR["_LRScheduler"] = Scheduler
