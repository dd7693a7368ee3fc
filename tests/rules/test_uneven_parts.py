"""Ways in which the items of a loop are cut into one part a rank, and what evens them out."""

from __future__ import annotations

from textwrap import indent

import pytest
from script_helpers import findings

from dslint.rules.script import dsl207_uneven_loop_with_collective as rule

HEAD = """\
import math
import numpy as np
import torch
import torch.distributed as dist
from itertools import islice
from torch.utils.data import DataLoader, IterableDataset, Sampler, Subset
def main(data, n, model):
    rank, world_size = dist.get_rank(), dist.get_world_size()
"""
BODY = "    dist.all_reduce(model(item))\n"
UNEVEN = {
    "Subset": "for item in DataLoader(Subset(data, range(rank, len(data), world_size))):\n",
    "parts by name": "parts = torch.chunk(data, world_size)\nfor item in parts[rank]:\n",
    "ceil": "share = math.ceil(n / world_size)\nfor item in data[rank * share : (rank + 1) * share]:\n",
    "int of ceil": "share = int(np.ceil(n / world_size))\nfor item in data[share * rank : share * (rank + 1)]:\n",
    "negated floor": "share = -(-n // world_size)\nfor item in data[rank * share : rank * share + share]:\n",
    "one more": "share = n // world_size + 1\nstart = rank * share\nfor item in data[start : start + share]:\n",
    "filled": "share = (n + world_size - 1) // world_size\nfor item in data[rank * share : (rank + 1) * share]:\n",
    "a sampler": "class S(Sampler):\n    def __init__(self, data):\n        self.rank = rank\n"
    "    def __iter__(self):\n        return iter(range(self.rank, 9, world_size))\n"
    "for item in DataLoader(data, sampler=S(data)):\n",
    "an iterable data set": "class D(IterableDataset):\n    def __init__(self, rows):\n"
    "        self.rows, self.rank, self.world_size = rows, rank, world_size\n    def __iter__(self):\n"
    "        for i, x in enumerate(self.rows):\n"
    "            if i % self.world_size == self.rank:\n                yield x\n"
    "for item in DataLoader(D(data)):\n",
}
EVEN = {
    "floor": "share = n // world_size\nfor item in data[rank * share : (rank + 1) * share]:\n",
    "padded": "data = pad_to(data)\nshare = math.ceil(n / world_size)\n"
    "for item in data[rank * share : (rank + 1) * share]:\n",
    "checked": "assert n % world_size == 0\nparts = torch.chunk(data, world_size)\nfor item in parts[rank]:\n",
    "another index": "parts = torch.chunk(data, world_size)\nfor item in parts[0]:\n",
    "another slice": "for item in data[rank * 4 : (rank + 1) * 4]:\n",
    "a sampler that rounds": "class S(Sampler):\n    def __init__(self, data):\n"
    "        self.n = math.ceil(len(data) / 2) * 2\n"
    "    def __iter__(self):\n        return iter(range(self.rank, self.n, self.world_size))\n"
    "for item in DataLoader(data, sampler=S(data)):\n",
}


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_parts_are_found(name: str) -> None:
    """One finding, whatever the way to cut."""
    assert len(findings(rule, HEAD + indent(UNEVEN[name] + BODY, "    "))) == 1


@pytest.mark.parametrize("name", EVEN)
def test_even_parts_are_left_alone(name: str) -> None:
    """The same number of items on every rank, or nobody knows."""
    assert findings(rule, HEAD + indent(EVEN[name] + BODY, "    ")) == []


def test_backward_of_a_prepared_model() -> None:
    """accelerate wraps the model in DDP: its backward waits like any other."""
    code = """
    from accelerate import Accelerator

    def train(net, optimizer, items):
        accelerator = Accelerator()
        model, optimizer = accelerator.prepare(net, optimizer)
        for item in items[accelerator.process_index :: accelerator.num_processes]:
            accelerator.backward(model(item).mean())
    """
    (finding,) = findings(rule, code)
    assert finding.severity.value == "warning"
