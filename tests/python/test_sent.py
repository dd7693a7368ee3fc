"""What a list holds after one rank has sent it to the others, and what code that nobody reads makes of an object."""

from __future__ import annotations

import pytest
from script_helpers import queried

from dslint.rules.script import dsl204_data_dependent_exit_between_collectives as dsl204
from dslint.rules.script import dsl207_uneven_loop_with_collective as dsl207

STOPS = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def score(model):
    return {"exact": sum(1 for row in open("questions") if model(row))}


def main(net, data):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % 8)
    model = DDP(net)
    for epoch in range(10):
        model(data).sum().backward()
        metrics = {"epoch": epoch}
        if dist.get_rank() == 0:
            metrics.update(score(net))
        SENDS
        value = metrics.get("exact")
        if value is not None and value > 3:
            break
"""
SENT = {
    "a list of one dictionary": "box = [metrics]; dist.broadcast_object_list(box, src=0); metrics = box[0]",
    "the second of two": "box = [epoch, metrics]; dist.broadcast_object_list(box, 0); _, metrics = box",
    "a list that only the sender fills": (
        "box = [metrics if dist.get_rank() == 0 else None]; dist.broadcast_object_list(box, 0); metrics = box[0]"
    ),
}
KEPT = {
    "nothing is sent": "pass",
    "what was sent is not taken": "box = [metrics]; dist.broadcast_object_list(box, src=0)",
    "another object is sent": "box = [dict(epoch=1)]; dist.broadcast_object_list(box, src=0)",
}


@pytest.mark.parametrize("name", SENT)
def test_ranks_that_take_what_was_sent_decide_alike(name: str) -> None:
    assert [f.message for f in queried(dsl204, STOPS.replace("SENDS", SENT[name]))] == []


@pytest.mark.parametrize("name", KEPT)
def test_ranks_that_keep_their_own_decide_alone(name: str) -> None:
    assert queried(dsl204, STOPS.replace("SENDS", KEPT[name]))


ASKS = """
import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from toolbox import is_over


def main(net, data):
    args = argparse.ArgumentParser().parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % 8)
    args.rank = dist.get_rank()
    model = DDP(net)
    for part in data[args.rank :: 8]:
        model(part).sum().backward()
        if is_over(GIVEN):
            break
"""


def test_an_object_with_the_rank_inside_does_not_make_the_result_differ() -> None:
    assert [f.message for f in queried(dsl204, ASKS.replace("GIVEN", "args, model"))] == []


def test_a_value_of_this_rank_makes_the_result_differ() -> None:
    assert queried(dsl204, ASKS.replace("GIVEN", "part, model"))


WALKS = """
import torch
import torch.distributed as dist
from pathlib import Path

def parts(start):
    for at in range(start * 4, 1000):
        yield at

def main(folder):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % 8)
    state = torch.load(Path(folder) / f"state_{dist.get_rank()}.pt", weights_only=True)
    for at in parts(START):
        dist.all_reduce(torch.ones(1).cuda())
"""


def test_ranks_have_come_as_far_whatever_file_says_so() -> None:
    assert [f.message for f in queried(dsl207, WALKS.replace("START", 'state["global_step"]'))] == []


def test_ranks_begin_where_their_number_says() -> None:
    assert queried(dsl207, WALKS.replace("START", "dist.get_rank()"))
