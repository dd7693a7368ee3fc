"""The two gates from the wild: code whose meaning is only visible through helpers, registries and other files.

Both are own programs with the shape of public ones: open_clip's `main.py` (a rank test through a helper over
environment names, a returned tuple and attributes of a Namespace) and fairseq's `trainer.py` (a training step behind a
registry, where the wrapped model is an argument of a task).
"""

from __future__ import annotations

from dslint.python.entries import Analysis
from dslint.python.events import Event, walk
from dslint.python.files import Texts
from dslint.python.queries.parting import Parting
from dslint.python.queries.traces import Partings
from dslint.python.queries.waits import Waits
from dslint.python.varies import DIVERGENT, RANKED

RANK_HELPERS = {
    "main.py": """\
import argparse
import sys

import torch
import torch.distributed as dist

from tools.distributed import init_distributed_device, is_master


def parse(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", default="./logs")
    parser.add_argument("--name", default=None)
    parser.add_argument("--local-only", action="store_true")
    return parser.parse_args(argv)


def exists(path):
    return path is not None and len(path) > 3


def main(argv):
    args = parse(argv)
    device = init_distributed_device(args)
    if is_master(args, local=args.local_only) and exists(args.name):
        print("Error: the experiment exists")
        return -1
    started = torch.zeros(1, device=device)
    dist.broadcast(started, src=0)
    print(is_master(args))
    return 0


if __name__ == "__main__":
    main(sys.argv[1:])
""",
    "tools/distributed.py": """\
import os

import torch
import torch.distributed as dist

NAMES = ("RANK", "PMI_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


def is_global_master(args):
    return args.rank == 0


def is_local_master(args):
    return args.local_rank == 0


def is_master(args, local=False):
    return is_local_master(args) if local else is_global_master(args)


def world_info_from_env():
    local_rank = 0
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if name in os.environ:
            local_rank = int(os.environ[name])
            break
    global_rank = 0
    for name in NAMES:
        if name in os.environ:
            global_rank = int(os.environ[name])
            break
    return local_rank, global_rank, int(os.environ.get("WORLD_SIZE", 1))


def init_distributed_device(args):
    args.local_rank, args.rank, args.world_size = world_info_from_env()
    dist.init_process_group("nccl", rank=args.rank, world_size=args.world_size)
    torch.cuda.set_device(args.local_rank)
    return torch.device("cuda", args.local_rank)
""",
}

REGISTRY = {
    "train.py": """\
import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from tasks import build_task


class Trainer:
    def __init__(self, cfg, task, model, criterion):
        self.cfg = cfg
        self.task = task
        self.criterion = criterion
        self._model = model
        self._wrapped_model = None
        self._optimizer = None

    @property
    def model(self):
        if self._wrapped_model is None:
            self._wrapped_model = DistributedDataParallel(self._model)
        return self._wrapped_model

    @property
    def optimizer(self):
        if self._optimizer is None:
            self._optimizer = torch.optim.Adam(self.model.parameters())
        return self._optimizer

    def train_step(self, samples):
        self.model.train()
        for i, sample in enumerate(samples):
            try:
                loss, sample_size = self.task.train_step(
                    sample=sample, model=self.model, criterion=self.criterion, optimizer=self.optimizer
                )
            except RuntimeError as e:
                if "out of memory" in str(e):
                    print("OOM, skipping the batch")
                    continue
                raise
            self.optimizer.step()


def main(cfg):
    torch.distributed.init_process_group("nccl")
    task = build_task(cfg)
    trainer = Trainer(cfg, task, task.build_model(), torch.nn.CrossEntropyLoss())
    loader = torch.utils.data.DataLoader(task.dataset, batch_size=8)
    for epoch in range(cfg.epochs):
        trainer.train_step(loader)


if __name__ == "__main__":
    main(sys.argv[1])
""",
    "tasks/__init__.py": """\
TASKS = {}


def register_task(name):
    def register(cls):
        TASKS[name] = cls
        return cls

    return register


def build_task(cfg):
    return TASKS[cfg.task](cfg)


from . import translation  # noqa: E402
""",
    "tasks/translation.py": """\
import torch

from . import register_task


class Task:
    def __init__(self, cfg):
        self.cfg = cfg
        self.dataset = []

    def build_model(self):
        return torch.nn.Linear(4, 4)

    def train_step(self, sample, model, criterion, optimizer):
        loss = criterion(model(sample), sample)
        optimizer.zero_grad()
        loss.backward()
        return loss, len(sample)


@register_task("translation")
class Translation(Task):
    pass
""",
}


def partings(files: dict[str, str], main: str) -> list[Parting]:
    analysis = Analysis(Texts(files))
    entry = analysis.script(main)
    assert entry is not None
    return Partings(analysis.machine, Waits(analysis.machine)).of(entry.tree)


def test_a_rank_test_is_read_through_helpers_environment_names_and_a_namespace() -> None:
    found = partings(RANK_HELPERS, "main.py")
    assert [(p.test.node.lineno, p.event.api, p.exit) for p in found] == [(25, "torch.distributed.broadcast", "return")]
    assert found[0].varies & RANKED


def test_a_backward_is_found_behind_a_registry_and_a_task() -> None:
    analysis = Analysis(Texts(REGISTRY))
    entry = analysis.script("train.py")
    assert entry is not None
    backward = [n for n in walk(entry.tree) if isinstance(n, Event) and "backward" in n.tags]
    assert [event.module.path for event in backward] == ["tasks/translation.py"]
    varies, _, made_by = backward[0].snapshot["self"]
    assert [wrapper.cls for wrapper in made_by] == ["torch.nn.parallel.DistributedDataParallel"]
    assert varies & DIVERGENT
    assert Waits(analysis.machine).of(backward[0]) is not None
