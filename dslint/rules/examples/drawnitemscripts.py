"""Scripts for examples: data sets that draw their items."""

# What begins a worker, what `__getitem__` draws from, the index, and the arguments of the loader.
LIGHTNING = """\
import lightning as L
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

_RNG = None


def begin(worker):
    global _RNG
    _RNG = np.random.default_rng(%s)


class Clouds(Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, index):
        return torch.from_numpy(_RNG.normal(size=(64, 3))%s)


class Data(L.LightningDataModule):
    def __init__(self, seed, workers=4):
        super().__init__()
        self.seed, self.workers = seed, workers

    def setup(self, stage):
        self.generator = torch.Generator().manual_seed(%s)

    def train_dataloader(self):
        return DataLoader(Clouds(), 64, num_workers=self.workers, generator=self.generator, worker_init_fn=begin)


class Net(L.LightningModule):
    def training_step(self, batch, index):
        return self.layer(batch).mean()


if __name__ == "__main__":
    L.seed_everything(7, workers=True)
    L.Trainer(devices=4, strategy="ddp").fit(Net(), datamodule=Data(1234))
"""
# What a sample is, the seed of torch, and the arguments of the loader.
PLAIN = """\
import random

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Waves(Dataset):
    def __init__(self, files):
        self.files = files
        self.rng = random.Random(5)

    def __len__(self):
        return 1000

    def __getitem__(self, i):
        return %s


def main(net, files):
    dist.init_process_group("nccl")
    torch.manual_seed(%s)
    model = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = Waves(files)
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), %s)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main(torch.nn.Linear(4, 1), ["a.pt", "b.pt"])
"""
# The seed of the workers.
STREAM = """\
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Mix(IterableDataset):
    def __init__(self, texts):
        self.texts = texts

    def __iter__(self):
        while True:
            yield self.texts[random.randrange(len(self.texts))]


def main(net, texts):
    dist.init_process_group("nccl")
    model = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator()
    generator.manual_seed(%s)
    for batch in DataLoader(Mix(texts), batch_size=8, num_workers=2, generator=generator):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main(torch.nn.Linear(4, 1), torch.load("texts.pt"))
"""
# How accelerate seeds, and what a sample is.
ACCELERATE = """\
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.randn(3, 64, 64)%s


def main(net):
    accelerator = Accelerator()
    set_seed(%s)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Noise(), batch_size=8, num_workers=4)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(net(batch).mean())
        optimizer.step()


if __name__ == "__main__":
    main(torch.nn.Linear(4, 1))
"""
