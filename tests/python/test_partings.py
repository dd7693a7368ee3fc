"""Where two ranks part, and where they meet again, as the queries of the rules see it."""

from __future__ import annotations

import pytest
from script_helpers import queried

from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201
from dslint.rules.script import dsl204_data_dependent_exit_between_collectives as dsl204
from dslint.rules.script import dsl206_collective_order_mismatch as dsl206
from dslint.rules.script import dsl207_uneven_loop_with_collective as dsl207

HEAD = "import os\nimport torch\nimport torch.distributed as dist\n"
RULES = (dsl201, dsl204, dsl206, dsl207)

PARTED = {
    "rank 0 alone leaves before all others wait": """
def main(args, rank, words):
    while True:
        if dist.get_rank() == 0:
            words = input()
            if os.path.exists(words):
                return
        dist.broadcast_object_list([words], src=0)
""",
    "an item of a list that one rank sets": """
def main(args, rank):
    stop = [False]
    if rank == 0:
        stop[0] = os.path.exists(args.path)
    if stop[0]:
        dist.barrier()
""",
    "a tensor that one rank changes": """
def main(rank):
    ready = torch.zeros(1)
    if rank < 1:
        ready += 1
    if ready.item() > 0:
        dist.barrier()
""",
    "a decorator of a library": """
from lightning.pytorch.utilities import rank_zero_only
@rank_zero_only
def write_all(grads):
    dist.all_reduce(grads)
def main(grads):
    write_all(grads)
""",
    "a function that returns early where there is one process": """
def is_main():
    if not dist.is_initialized():
        return True
    return dist.get_rank() == 0
def main():
    if not is_main():
        return
    dist.barrier()
""",
    "the field of an object that nobody knows": """
from common import make_args
args = make_args()
if args.rank == 1:
    dist.barrier()
""",
    "the other half runs under a flag only": """
def main(args, rank):
    if rank == 0:
        dist.barrier()
    if args.debug and rank != 0:
        dist.barrier()
""",
    "two ranks of many": """
rank = int(os.environ["RANK"])
if rank == 0:
    dist.barrier()
if rank == dist.get_world_size() - 1:
    dist.barrier()
""",
    "a rank leaves a loop in its first turn": """
def main(args, grads):
    for step in range(args.steps):
        dist.all_reduce(grads)
        if dist.get_rank() != 0:
            raise SystemExit
""",
    "a test of the host before one of the rank": """
def main(args, rank):
    if os.path.exists(args.path):
        dist.barrier()
    if rank == 0:
        dist.barrier()
""",
    "each rank in its turn": """
def main(items):
    rank = int(os.environ.get("RANK", 0))
    for i, item in enumerate(items):
        if i % dist.get_world_size() != rank:
            continue
        dist.barrier()
""",
    "the local rank as the root": """
def main(args, stats):
    dist.broadcast(stats, src=args.local_rank)
""",
    "a flag that rank 0 alone sets, asked by the generator of a loop": """
class Epochs:
    def __init__(self):
        self.stop = False
    def __iter__(self):
        number = 0
        while number < 9 and not self.stop:
            number += 1
            yield number
def main(loss, rank):
    epochs = Epochs()
    for epoch in epochs:
        dist.all_reduce(loss)
        if rank == 0:
            epochs.stop = bool(loss < 1)
""",
    "a key of a defaultdict that only some ranks have touched": """
from collections import defaultdict
PENDING = defaultdict(list)
def main(model, batch, rank):
    torch.manual_seed(rank)
    for text in torch.rand(4):
        if text > 0.5:
            PENDING["long"].append(text)
    for name in sorted(PENDING):
        dist.barrier()
""",
    "the share of a stream ends by StopIteration": """
def share(path, rank, world):
    for number, line in enumerate(open(path)):
        if number % world == rank:
            yield line
def main(args):
    lines = iter(share(args.path, dist.get_rank(), dist.get_world_size()))
    while True:
        try:
            line = next(lines)
        except StopIteration:
            break
        dist.barrier()
""",
    "a metric of the project that only some ranks compute": """
from torchmetrics import Metric
class Overlap(Metric):
    def __init__(self):
        super().__init__()
        self.add_state("seen", default=[])
    def update(self, value):
        self.seen.append(value)
    def compute(self):
        return torch.cat(self.seen).mean()
def main(rank):
    overlap = Overlap()
    torch.manual_seed(rank)
    value = torch.rand(1)
    if value > 0.5:
        overlap.update(value)
    if len(overlap.seen) > 0:
        overlap.compute()
""",
    "a metric of the library that only rank 0 computes": """
from torchmetrics.classification import MulticlassAccuracy
def main(logits, labels):
    accuracy = MulticlassAccuracy(num_classes=10)
    accuracy.update(logits, labels)
    if dist.get_rank() == 0:
        print(accuracy.compute())
""",
    "the counter of a bar that only rank 0 shows": """
from tqdm import tqdm
def main(loader):
    bar = tqdm(disable=dist.get_rank() != 0)
    for batch in loader:
        bar.update(1)
        if bar.n % 10 == 0:
            dist.barrier()
""",
    "shards that a pipeline gives to each machine": """
import webdataset as wds
def main(args):
    data = wds.DataPipeline(wds.SimpleShardList(args.shards), wds.split_by_node, wds.tarfile_to_samples())
    for batch in wds.WebLoader(data, batch_size=None):
        dist.barrier()
""",
}
TOGETHER = {
    "a metric that is not put together is computed on rank 0": """
from torchmetrics.classification import MulticlassAccuracy
def main(logits, labels):
    accuracy = MulticlassAccuracy(num_classes=10, sync_on_compute=False)
    accuracy.update(logits, labels)
    if dist.get_rank() == 0:
        print(accuracy.compute())
""",
    "rank 0 alone asks until it has a word, and the others wait": """
def main():
    while True:
        if dist.get_rank() == 0:
            words = input()
            if not words:
                continue
        dist.broadcast_object_list([words], src=0)
""",
    "the first rank of each machine and the first rank, on one machine": """
def enter_first():
    if dist.get_rank() != 0:
        dist.barrier()
def main(args):
    local_rank = int(os.environ["LOCAL_RANK"])
    local_rank == 0 and dist.barrier()
    enter_first()
""",
    "the same test by its place": """
class Task:
    def __init__(self):
        if "LOCAL_RANK" in os.environ and os.environ["LOCAL_RANK"] != "0":
            dist.barrier()
        self.build()
        if "LOCAL_RANK" in os.environ and os.environ["LOCAL_RANK"] == "0":
            dist.barrier()
""",
    "a flag that only a run of one process answers otherwise": """
def main(args):
    local_rank = int(os.environ["LOCAL_RANK"])
    first = not dist.is_initialized() or local_rank == 0
    if args.debug and first:
        dist.barrier()
    if args.debug and local_rank != 0:
        dist.barrier()
""",
    "all leave the loop in its first turn": """
def main(args, grads):
    for step in range(args.steps):
        dist.all_reduce(grads)
        break
""",
    "rank 0 tells what it was told": """
def serve(generate):
    while True:
        text, stop = "", False
        if dist.get_rank() == 0:
            text = input("query: ").strip()
            stop = text == "stop"
            dist.broadcast_object_list([text, stop])
        else:
            told = [text, stop]
            dist.broadcast_object_list(told)
            text, stop = told
        if stop:
            return
        generate(text)
""",
    "accelerate saves on each rank for itself": """
from accelerate import Accelerator
accelerator = Accelerator()
if accelerator.is_main_process:
    accelerator.save_state("out")
""",
    "a pipeline of equal epochs": """
import webdataset as wds
def main(args):
    data = wds.DataPipeline(wds.SimpleShardList(args.shards), wds.split_by_node, wds.tarfile_to_samples())
    for batch in wds.WebLoader(data.with_epoch(1000), batch_size=None):
        dist.barrier()
""",
    "a bar that every rank shows, and a defaultdict with the same keys": """
from collections import defaultdict
from tqdm import tqdm
def main(loader, losses):
    bar, found = tqdm(), defaultdict(float)
    for batch in loader:
        bar.update(1)
        found["loss"] += losses[0]
        if bar.n % 10 == 0:
            dist.barrier()
    for name in found:
        dist.barrier()
""",
}


@pytest.mark.parametrize("name", PARTED)
def test_ranks_part(name: str) -> None:
    assert [f for rule in RULES for f in queried(rule, HEAD + PARTED[name])]


@pytest.mark.parametrize("name", TOGETHER)
def test_ranks_meet_again(name: str) -> None:
    assert [f.message for rule in RULES for f in queried(rule, HEAD + TOGETHER[name])] == []
