"""deepspeed, accelerate and transformers: the objects that training scripts hold of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..api import Constructed, api, api_class, outside
from ..ranks import current
from . import data, nn, optim
from .mocks import Mock, MockModule
from .tensors import Device, Tensor, make


def _meet(what: str, payload: Any = None) -> list[Any]:
    world = current().world
    return world.meet(world.everyone, what, payload)


class DeepSpeedEngine(nn.Module):
    """Forward, backward and step of a model that deepspeed holds."""

    def __init__(self, module: Any = None, optimizer: Any = None, scheduler: Any = None, config: Any = None) -> None:
        super().__init__()
        self.module, self.optimizer, self.lr_scheduler = module, optimizer, scheduler
        self.config = config if isinstance(config, dict) else {}
        self.global_rank, self.local_rank, self.world_size = current().number, current().local, current().size
        self.device, self.global_steps, self.micro_steps = Device(f"cuda:{current().local}"), 0, 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return outside(self.module, *args, **kwargs) if self.module is not None else make(0.5)

    def backward(self, loss: Any, *_: Any, **__: Any) -> Any:
        _meet("DeepSpeedEngine.backward")
        return loss

    def step(self, *_: Any, **__: Any) -> None:
        self.micro_steps += 1
        self.global_steps += self.is_gradient_accumulation_boundary()
        _meet("DeepSpeedEngine.step")

    def gradient_accumulation_steps(self) -> int:
        return int(self.config.get("gradient_accumulation_steps", 1))

    def train_micro_batch_size_per_gpu(self) -> int:
        return int(self.config.get("train_micro_batch_size_per_gpu", 1))

    def train_batch_size(self) -> int:
        return self.train_micro_batch_size_per_gpu() * self.gradient_accumulation_steps() * current().size

    def is_gradient_accumulation_boundary(self) -> bool:
        return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0

    def save_checkpoint(self, save_dir: Any, tag: Any = None, client_state: Any = None, **_: Any) -> bool:
        _meet("save_checkpoint")
        return True

    def load_checkpoint(self, load_dir: Any, tag: Any = None, **_: Any) -> Any:
        _meet("load_checkpoint")
        return None, {}

    def save_16bit_model(self, *_: Any, **__: Any) -> bool:
        _meet("save_16bit_model")
        return True

    def get_lr(self) -> list[float]:
        return [0.001]

    def get_global_grad_norm(self) -> float:
        return 1.0


api_class("deepspeed.DeepSpeedEngine", call="forward")(DeepSpeedEngine)


@api("deepspeed.initialize")
def initialize(
    args: Any = None, model: Any = None, optimizer: Any = None, model_parameters: Any = None, **options: Any
) -> Any:
    current().own["started"] = True
    nn.level(model, "deepspeed.initialize")
    optimizer = optimizer or optim.OPTIM["AdamW"](list(model_parameters or ()))
    config = options.get("config") or options.get("config_params")
    engine = DeepSpeedEngine(model, optimizer, options.get("lr_scheduler"), config)
    dataset = options.get("training_data")
    loader = None if dataset is None else data.DataLoader(dataset, sampler=data.DistributedSampler(dataset))
    return engine, optimizer, loader, engine.lr_scheduler


@api("deepspeed.init_distributed")
def init_distributed(*_: Any, **__: Any) -> None:
    current().own["started"] = True
    _meet("init_process_group")


@api("deepspeed.add_config_arguments")
def add_config_arguments(parser: Any) -> Any:
    parser.add_argument("--deepspeed", action="store_true")
    parser.add_argument("--deepspeed_config", type=str, default=None)
    return parser


class Accelerator(metaclass=Constructed):
    """What `accelerate` scripts hold."""

    def __init__(self, gradient_accumulation_steps: int = 1, **options: Any) -> None:
        me = current()
        me.own["started"] = True
        self.process_index, self.local_process_index, self.num_processes = me.number, me.local, me.size
        self.is_main_process, self.is_local_main_process = me.number == 0, me.local == 0
        self.is_last_process = me.number == me.size - 1
        self.device = Device(f"cuda:{me.local}")
        self.gradient_accumulation_steps, self.mixed_precision = gradient_accumulation_steps, "no"
        self.sync_gradients, self.optimizer_step_was_skipped = True, False
        self._steps = 0
        self.state, self.distributed_type = Mock("accelerate.state"), "MULTI_GPU"

    def prepare(self, *parts: Any, **_: Any) -> Any:
        for part in parts:
            nn.level(part, "accelerator.prepare")
        found = [self._prepared(part) for part in parts]
        return found[0] if len(found) == 1 else tuple(found)

    def _prepared(self, part: Any) -> Any:
        if isinstance(part, data.DataLoader) and not isinstance(
            getattr(part, "sampler", None), data.DistributedSampler
        ):
            part.sampler = data.DistributedSampler(part.dataset, shuffle=False)
        return nn.DistributedDataParallel(part) if isinstance(part, nn.Module) else part

    def prepare_data_loader(self, loader: Any, *_: Any) -> Any:
        return self._prepared(loader)

    def prepare_model(self, model: Any, *_: Any) -> Any:
        return self._prepared(model)

    def backward(self, loss: Any, **_: Any) -> None:
        Tensor.backward(loss)

    def wait_for_everyone(self) -> None:
        _meet("wait_for_everyone")

    def gather(self, tensor: Any) -> Any:
        brought = _meet("gather", list(tensor.flat) if isinstance(tensor, Tensor) else [tensor])
        return make([x for part in brought for x in part])

    def gather_for_metrics(self, tensor: Any, *_: Any) -> Any:
        brought = _meet("gather_for_metrics", list(tensor.flat) if isinstance(tensor, Tensor) else [tensor])
        return make([x for part in brought for x in part])

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        brought = _meet("reduce", list(tensor.flat))
        count = len(brought) if reduction == "mean" else 1
        return tensor.like([sum(column) / count for column in zip(*brought, strict=True)])

    def accumulate(self, *_: Any) -> Any:
        self._steps += 1
        self.sync_gradients = self._steps % self.gradient_accumulation_steps == 0
        return contextlib.nullcontext()

    def no_sync(self, model: Any) -> Any:
        return nn.NoSync(model if isinstance(model, nn.DistributedDataParallel) else None)

    def autocast(self, *_: Any) -> Any:
        return contextlib.nullcontext()

    def clip_grad_norm_(self, parameters: Any, *_: Any) -> Any:
        return make(1.0)

    def unwrap_model(self, model: Any, *_: Any) -> Any:
        return getattr(model, "module", model)

    def print(self, *words: Any, **_: Any) -> None:
        if self.is_main_process:
            print(*words)

    @contextlib.contextmanager
    def main_process_first(self) -> Iterator[None]:
        if current().number != 0:
            _meet("main process first")
        yield
        if current().number == 0:
            _meet("main process first")

    def on_main_process(self, function: Any) -> Any:
        return lambda *a, **k: outside(function, *a, **k) if self.is_main_process else None

    def save(self, *_: Any, **__: Any) -> None:
        return None

    def save_state(self, *_: Any, **__: Any) -> None:
        _meet("save_state")

    def load_state(self, *_: Any, **__: Any) -> None:
        return None

    def log(self, values: Any, step: Any = None, **_: Any) -> None:
        return None

    def init_trackers(self, *_: Any, **__: Any) -> None:
        return None

    def end_training(self) -> None:
        return None

    def free_memory(self, *objects: Any) -> Any:
        return objects

    def get_state_dict(self, model: Any, *_: Any) -> Any:
        _meet("get_state_dict")
        return {}


api_class("accelerate.Accelerator")(Accelerator)


@api("accelerate.utils.set_seed")
def set_seed(seed: int, *_: Any, **__: Any) -> None:
    import random

    random.seed(seed)
    current().own["torch random"] = random.Random(seed)


class PretrainedModel(nn.Module):
    """A model of transformers: its output has a loss. Methods that the stand-in lacks do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("module", "weight"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
        return api(f"transformers.PreTrainedModel.{name}")(lambda *a, **k: None)

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.config, self.head = Mock("transformers.config"), nn.NN["Linear"](4, 2)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        return cls()

    from_config = from_pretrained

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        output = Mock("output")
        output.__dict__["loss"] = (given[0] * 0.5).mean() if given else make(0.5)
        output.__dict__["logits"] = given[0] if given else make([0.1, 0.9])
        return output


MODELS = ["AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification", "BertModel", "GPT2LMHeadModel"]
_TRANSFORMERS = {"set_seed": set_seed, "PreTrainedModel": PretrainedModel, "AdamW": optim.OPTIM["AdamW"]}
for _name in MODELS:
    _class = Constructed(_name, (PretrainedModel,), {})
    _class.from_pretrained = classmethod(  # type: ignore[attr-defined]
        api("transformers.PreTrainedModel.from_pretrained")(PretrainedModel.from_pretrained.__func__)  # type: ignore[attr-defined]
    )
    _TRANSFORMERS[_name] = api_class(f"transformers.{_name}", call="forward")(_class)
PretrainedModel.from_pretrained = classmethod(  # type: ignore[assignment]
    api("transformers.PreTrainedModel.from_pretrained")(PretrainedModel.from_pretrained.__func__)  # type: ignore[attr-defined]
)
for _name in ("get_scheduler", "get_linear_schedule_with_warmup", "get_cosine_schedule_with_warmup"):
    _TRANSFORMERS[_name] = api(f"transformers.{_name}")(lambda *a, **k: optim.Scheduler(None))
MODULES: dict[str, dict[str, Any]] = {
    "deepspeed": {
        "initialize": initialize,
        "init_distributed": init_distributed,
        "add_config_arguments": add_config_arguments,
        "DeepSpeedEngine": DeepSpeedEngine,
        "__version__": "0.19.8",
    },
    "accelerate": {"Accelerator": Accelerator, "__version__": "1.0.0"},
    "accelerate.utils": {"set_seed": set_seed},
    "transformers": _TRANSFORMERS,
}


def modules(name: str) -> MockModule | None:
    """A fresh module of these stand-ins, or None."""
    if name not in MODULES:
        return None
    made = MockModule(name)
    made.__path__ = []
    made.__dict__.update(MODULES[name])
    return made
