"""Scripts of the examples about orders that each rank has of its own."""

from __future__ import annotations

HEAD = "import random\n\nimport numpy as np\nimport torch\nimport torch.distributed as dist\n\n\n"
SEED = "    rank, world_size = dist.get_rank(), dist.get_world_size()\n    random.seed(args.seed + rank)\n"
CUT = "    return paths[rank::world_size]\n"

SPLIT = """\
from accelerate import Accelerator
from datasets import load_dataset


def main(model, optimizer, make):
    accelerator = Accelerator()
    data = load_dataset("json", data_files="rows.jsonl", split="train").train_test_split(test_size=0.1%s)
    model, optimizer, loader = accelerator.prepare(model, optimizer, make(data["train"]))
    for batch in loader:
        accelerator.backward(model(batch).loss)
        optimizer.step()


if __name__ == "__main__":
    from making import parts

    main(*parts())
"""

SAMPLED = """\
import random

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Scans(Dataset):
    def __init__(self, files, part):
        self.items = []
        files = sorted(files)
        print(len(files))
        %s
        for path in files:
            self.items.append(path)

    def __getitem__(self, index):
        return self.items[index]


def main(args, files):
    data = Scans(files, args.part)
    sampler = DistributedSampler(data%s)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in DataLoader(data, sampler=sampler):
            print(batch)


if __name__ == "__main__":
    main(parse(), ["a", "b"])
"""

SHUFFLED = """\
import transformers
from datasets import load_dataset

%s

def main():
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (args,) = parser.parse_args_into_dataclasses()
    model = transformers.AutoModelForCausalLM.from_pretrained("facebook/opt-125m")
    data = load_dataset("json", data_files="data.json")
    trainer = transformers.Trainer(model=model, args=args, train_dataset=prepared(data, args))
    trainer.train()


if __name__ == "__main__":
    main()
"""
PREPARED = """\

def prepared(data, args):
    return data["train"].shuffle(%s).map(lambda row: {"n": len(row["text"])})
"""
RUN = "torchrun --nproc_per_node %d train.py --output_dir out\n"

OWN_SEED = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, random_split


def seed_all(seed, accelerator):
    seed += accelerator.process_index
    torch.manual_seed(seed)


def parts(data, seed):
    kept = len(data) // 10
    return random_split(data, [len(data) - kept, kept]%s)


def main(model, optimizer, data):
    accelerator = Accelerator()
    seed_all(42, accelerator)
    train, held = parts(data, 42)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(train, 8, shuffle=True))
    for batch in loader:
        accelerator.backward(model(batch))
        optimizer.step()
"""
# What the data set reads, the seed, the options of the split, and what is made of the parts.
OWN_PARTS = """\
import argparse
import glob
import os

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split


class Frames(Dataset):
    def __init__(self, folder):
        self.rows = [np.load(path) for path in sorted(glob.glob(os.path.join(folder, "*.npy")))]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.from_numpy(self.rows[i])


class Noisy(Dataset):
    def __init__(self, frames, noise=0.1):
        self.frames, self.noise = frames, noise

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return self.frames[i] + self.noise * torch.randn(4)


def parts(args):
    frames = Frames(%s)
    if args.held <= 0:
        return Noisy(frames), None
    train, held = random_split(frames, [1 - args.held, args.held]%s)
    return %s, held


def main(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(%s)
    train, held = parts(args)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=8, sampler=sampler)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="rows")
    parser.add_argument("--held", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    main(parser.parse_args())
"""
TRAINER = """\
import random

from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, set_seed

from rows import Rows


def main():
    args = TrainingArguments("out", ddp_timeout=3600)
%s
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    trainer = Trainer(model=model, args=args, train_dataset=Rows("rows.json"))
    trainer.train()
    if trainer.is_world_process_zero():
        print(len(trainer.train_dataset))


main()
"""
ROWS = """\
import json
import random


class Rows:
    def __init__(self, path):
        rows = json.load(open(path))
        random.shuffle(rows)
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]
"""

PARTS = """\
import json

import numpy as np
import torch
from sklearn.model_selection import train_test_split


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return self.rows[index]


def parts(path, share=0.98):
    with open(path) as file:
        rows = json.load(file)
    order = %s
    cut = int(len(rows) * share)
    return {
        "train_dataset": Rows([rows[place] for place in order[:cut]]),
        "eval_dataset": Rows([rows[place] for place in order[cut:]]),
    }
"""
PARTS_TRAIN = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

from data import parts


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    module = parts("rows.json")
    model = AutoModelForCausalLM.from_pretrained("facebook/opt-125m")
    trainer = Trainer(model=model, args=args, **module)
    trainer.train()
    if trainer.is_world_process_zero():
        print("done")


if __name__ == "__main__":
    main()
"""
PREPARED_PARTS = """\
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

from data import parts

accelerator = Accelerator()
%s
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(parts("rows.json")["train_dataset"], batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(batch).mean())
    optimizer.step()
    optimizer.zero_grad()
"""
SHARDS = """\
import webdataset as wds


def stream(urls, rank):
    pipeline = wds.DataPipeline(
        wds.SimpleShardList(urls),
        %s,
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        %s,
    )
    return wds.WebLoader(pipeline, batch_size=None, num_workers=4)
"""


def parted(order: str, train: str = PARTS_TRAIN) -> dict[str, str]:
    """Return the files of a script whose training and evaluation part come from an order."""
    return {"train.py": train, "data.py": PARTS % order}


ENDLESS = """\
def endless(loader):
    epoch = 0
    while True:
        %sfor batch in loader:
            yield batch
        epoch += 1


"""
AGAIN = """\
class endless:
    def __init__(self, loader):
        self.loader = loader
        self.iterator = iter(loader)

    def __next__(self):
        try:
            return next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            return next(self.iterator)


"""
ENDLESS_STEPS = """\
def train(args, model, optimizer, dataset):
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
    batches = endless(%s)
    for step in range(args.steps):
        loss = model(next(batches))
        loss.backward()
        optimizer.step()
"""
