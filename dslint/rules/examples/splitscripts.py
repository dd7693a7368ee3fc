"""Scripts for examples: lists that are split by a drawn order, under Lightning."""

# A module that splits, and the script that reads a configuration; the seed that it passes.
SETTINGS = (
    """\
import numpy as np


def split(rows, part, seed=None):
    order = np.random.default_rng(seed).permutation(len(rows))
    held = int(part * len(rows))
    return [rows[i] for i in order[held:]], [rows[i] for i in order[:held]]
""",
    """\
import lightning as L
import yaml
from torch.utils.data import DataLoader

from data import split


def main(rows, net, path="conf.yaml"):
    cfg = yaml.safe_load(open(path))
    seed = %s
    if seed is not None:
        L.seed_everything(seed)
    train, held_out = split(rows, 0.1, seed)
    trainer = L.Trainer(devices=cfg["train"]["devices"], strategy="ddp")
    trainer.fit(net, DataLoader(train, 8, shuffle=True), DataLoader(held_out, 8))


if __name__ == "__main__":
    main(list(range(100)), L.LightningModule())
""",
)
# The order of the items, what becomes of it, the default of the option, and what a guard of the seed does.
LISTS = """\
import argparse
import random

import lightning as L
import numpy as np
from torch.utils.data import DataLoader

def split(items, seed):
    order = %s
    %s
    cut = len(items) // 10
    return [items[i] for i in order[cut:]], [items[i] for i in order[:cut]]

def main(items, net):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=%s)
    seed = parser.parse_args().seed
    if seed is not None:
        %s
    train, held_out = split(items, seed)
    trainer = L.Trainer(devices=4, strategy="ddp")
    trainer.fit(net, DataLoader(train, 8, shuffle=True), DataLoader(held_out, 8))

if __name__ == "__main__":
    main(list(range(100)), L.LightningModule())
"""
