"""Scripts of the examples about paths that every rank touches."""

from __future__ import annotations

HEAD = """\
import os
import shutil

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


"""
MAIN = (
    HEAD
    + """\
def main(args, net, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = DDP(net.cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
%s
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
%s
    dist.destroy_process_group()
"""
)
TESTED = "    if not os.path.exists(args.output):\n        os.makedirs(args.output)\n"
RESULTS = (
    "    with open(os.path.join(args.output, 'results.json'), 'w') as file:\n        file.write(str(len(loader)))\n"
)
SAVE = "    torch.save(model.module.state_dict(), args.output + '/last.pt')\n"
FILES = """\
import os
import shutil


class Folder:
    def __init__(self, path):
        self.path = path

    def fresh(self):
        if os.path.isdir(self.path):
            shutil.rmtree(self.path)
        os.makedirs(self.path)
"""
RUN = """\
import argparse

from accelerate import Accelerator

from files import Folder

parser = argparse.ArgumentParser()
parser.add_argument("--output", default="out")
args = parser.parse_args()
accelerator = Accelerator()
%sFolder(args.output).fresh()
"""
SPAWN = """\
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    with open(f"{folder}/%s", "w") as file:
        file.write("done")


if __name__ == "__main__":
    with open("out/command.txt", "w") as file:
        file.write("start")
    mp.spawn(work, args=(4, "out"), nprocs=4)
"""

WRITER = """\
import lightning as L
import pandas as pd
from lightning.pytorch.callbacks import BasePredictionWriter

from model import Model


class Writer(BasePredictionWriter):
    def __init__(self, path):
        super().__init__(write_interval="epoch")
        self.path = path

%s    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
        pd.DataFrame(predictions).to_csv(self.path)


trainer = L.Trainer(devices=4, strategy="%s", callbacks=[Writer("out.csv")])
trainer.predict(Model(), return_predictions=False)
"""

DATA = """\
from torchvision import datasets


def cifar(root, train%s):
    return datasets.CIFAR10(root, train=train, download=%s)
"""
READS = """\
import os

import torch.distributed as dist

from data import cifar

%sdist.init_process_group("nccl")
%scifar("/tmp/cifar10", True%s)
"""

FETCHED = """\
import json
import os
from urllib.request import urlretrieve

from torchvision.datasets.utils import download_url


class Captions:
    def __init__(self, root):
        url = "https://example.com/captions.json"
        path = os.path.join(root, "captions.json")
        if not os.path.exists(path):
            urlretrieve(url, path)
        self.items = json.load(open(path))
"""
FETCHES = """\
import torch.distributed as dist

from data import Captions

dist.init_process_group("nccl")
%sCaptions("data")
"""

OWN_FETCH = """\
import os
from urllib.request import urlopen

import requests


def weights(url, root):
    path = os.path.join(root, "vgg.pth")
    if not os.path.exists(path):
        with urlopen(url) as source, open(path, "wb") as file:
            file.write(source.read())
    return path


def table(url, root):
    path = os.path.join(root, "table.csv")
    if not os.path.isfile(path):
        answer = requests.get(url, stream=True)
        with open(path, "wb") as file:
            for part in answer.iter_content(1024):
                file.write(part)
    return path
"""
FETCHES_OWN = """\
import torch.distributed as dist

from fetch import table, weights

dist.init_process_group("nccl")
%sweights("https://example.com/vgg.pth", "cache")
table("https://example.com/table.csv", "cache")
"""
NAMED = """\
import os

import pandas as pd
from accelerate import Accelerator
from fvcore.common.file_io import PathManager
from PIL import Image
from torchvision import datasets


def get_dataset(name, **options):
    if name == "cifar10":
        return datasets.CIFAR10(options["path"], download=True)
    elif name == "mnist":
        return datasets.MNIST(options["path"], download=True)
    raise ValueError(name)


def main(config):
    accelerator = Accelerator()
    data = get_dataset(**config.dataset)
    frame = pd.DataFrame({"row": [1]})
    other = pd.read_csv("meta.csv")
    if "id" in other.columns:
        frame = frame.merge(other, on="id")
    %sframe.to_csv(os.path.join(config.out, "rows.csv"))
    %sImage.new("RGB", (8, 8)).resize((4, 4)).save(f"{config.out}/first.png")
    if config.results != "":
        with PathManager.open(os.path.join(config.out, config.results), "wb") as file:
            file.write(b"1")
"""

NAMED_BY_STAGE = """\
import torch
import torch.distributed as dist
from megatron.core import mpu

dist.init_process_group("gloo")
if mpu.is_pipeline_last_stage():
    torch.save({}, "out.pt")
is_last = mpu.is_last()
if is_last:
    with open("out.txt", "w") as file:
        file.write("last")
"""

DECORATED = """\
import functools

import torch
import torch.distributed as dist


def main_process(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)

    return wrapper


class Runner:
    def __init__(self, model, folder):
        dist.init_process_group("gloo")
        self.model, self.folder = torch.nn.parallel.DistributedDataParallel(model), folder

    @main_process
    def save(self, epoch):
        torch.save(self.model.module.state_dict(), f"{self.folder}/checkpoint_{epoch}.pt")
"""

PRUNED = """\
import os
import shutil
from pathlib import Path


class Keeper:
    def __init__(self, folder, keep):
        self.folder, self.keep = folder, keep

    def saved(self):
        names = [name for name in os.listdir(self.folder) if name.startswith("step")]
        return sorted(names, key=lambda name: int(name[4:]))

    def prune(self):
        for name in self.saved()[: -self.keep]:
            shutil.rmtree(os.path.join(self.folder, name)%s)


def drop_oldest(folder, keep):
    files = sorted(Path(folder).glob("step_*.pt"))
    while len(files) > keep:
        files.pop(0).unlink(%s)
"""
KEPT = """\
from accelerate import Accelerator

from keeper import Keeper, drop_oldest


def main(model, loader, folder):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(model, loader)
    keeper = Keeper(folder, 3)
    for step, batch in enumerate(loader):
        accelerator.backward(model(batch).mean())
        if step %% 1000 == 0:
            accelerator.save_state(f"{folder}/step{step}")
            %s
"""
BOTH = "keeper.prune()\n            drop_oldest(folder, 3)"
MAIN_ONLY = "if accelerator.is_main_process:\n                keeper.prune()"

PPO = """\
from trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer


def train(dataset, tokenizer, reward):
    model = AutoModelForCausalLMWithValueHead.from_pretrained("gpt2")
    trainer = PPOTrainer(PPOConfig(), model, None, tokenizer, dataset)
    for step, batch in enumerate(trainer.dataloader):
        answers = trainer.generate(batch["query"])
        trainer.step(batch["query"], answers, reward(answers))
        %strainer.save_pretrained(f"out/step_{step}")
"""
RESUMED = """\
import os

import torch
from accelerate import Accelerator


def train(model, optimizer, loader, folder):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = int(sorted(os.listdir(folder))[-1].split("-")[1])
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        %storch.save(accelerator.unwrap_model(model).state_dict(), f"{folder}/checkpoint-{step}/model.bin")
"""
PREPARED = """\
import os
import zipfile
from pathlib import Path

import torch.distributed as dist


def prepare(root):
    root = Path(root)
    %sarchive = root / "rows.zip"
    with open(root / "rows.txt", "w") as file:
        file.write("ready")
    archive.unlink()


def main():
    dist.init_process_group("gloo")
    if int(os.environ["RANK"]) == 0:
        prepare("/data/rows")
    dist.barrier()
    prepare("/data/rows")


main()
"""
PATHED = """\
from pathlib import Path

import torch.distributed as dist


def save(path):
    Path(path).write_text("ready")


dist.init_process_group("gloo")
name = "state.txt" if dist.get_rank() == 0 else f"state-{dist.get_rank()}.txt"
save(Path("/data") / name)
target = Path("/data", name)
target.write_text("ready")
"""

FABRIC = """\
import sys

import torch
from lightning.fabric import Fabric
from torchvision.datasets import MNIST


def rows(folder):
    return MNIST(folder, train=True, download=True)


def run(fabric):
    model = fabric.setup(torch.nn.Linear(784, 10))
    for x, y in fabric.setup_dataloaders(torch.utils.data.DataLoader(rows("data"), 8)):
        fabric.backward(torch.nn.functional.cross_entropy(model(x), y))


def main():
%s    fabric = Fabric(devices=8, strategy="ddp")
    fabric.launch()
    run(fabric)


main()
"""
FIRST = "    rows('data')\n"
