"""Programs in which the ranks go separate ways and meet again: no rule about ranks that part may speak."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201
from dslint.rules.script import dsl204_data_dependent_exit_between_collectives as dsl204
from dslint.rules.script import dsl206_collective_order_mismatch as dsl206

# Rank 0 asks again before it tells the others.
PROMPT = """\
import torch


def serve(generate):
    while True:
        text, stop = "", False
        if torch.distributed.get_rank() == 0:
            text = input("query: ").strip()
            if not text:
                print("empty")
                continue
            if text == "stop":
                stop = True
            torch.distributed.broadcast_object_list([text, stop])
        else:
            told = [text, stop]
            torch.distributed.broadcast_object_list(told)
            text, stop = told
        if stop:
            return
        generate(text)
"""
# Workers that serve until rank 0 sends them home.
WORKERS = """\
import torch
import torch.distributed as dist


def work():
    while True:
        message = torch.empty(1, dtype=torch.long, device="cuda")
        dist.broadcast(message, src=0)
        if message != 0:
            return


def main(server):
    serves = True
    if dist.is_initialized():
        if dist.get_rank() > 0:
            serves = False
    if serves:
        server.serve()
        if dist.get_world_size() > 1:
            dist.broadcast(torch.tensor([1], device="cuda"), src=0)
    elif dist.get_rank() > 0:
        work()
    dist.barrier()
"""
# Where the others leave, rank 0 gives up the exchange.
GIVEN_UP = """\
from accelerate import Accelerator
from accelerate.utils import gather_object


def validate(accelerator, items, workers, use_all):
    if use_all and len(items) < workers:
        use_all = False
        print("too few")
        if not accelerator.is_main_process:
            return
    found = [item.run() for item in items]
    if use_all:
        found = gather_object(found)
    return found


def main(items):
    validate(Accelerator(), items, 4, True)
"""
# What rank 0 set decides over nothing that the others run.
COPIER = """\
import os

import torch.distributed as dist


def train(epochs, grads, start_copy, first_copy):
    copier = None
    if dist.get_rank() == 0:
        if not first_copy():
            return
        copier = start_copy()
    for _ in range(epochs):
        dist.all_reduce(grads)
    if copier is not None:
        copier.terminate()
"""
# Rank 0 alone loads the test set, and says so: no rank waits in the helper.
TOLD_ALONE = """\
from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def main_rank_first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


def load(path, rank=-1):
    with main_rank_first(rank):
        return torch.load(path)


def prepare(rank):
    train = load("train.pt", rank=rank)
    if rank in [-1, 0]:
        return train, load("test.pt", rank=-1), load("val.pt")
    return train, None, None
"""
# The name of a function where a parameter was meant: it is true, and equal to no text.
FUNCTION_NAMED = """\
import torch
import torch.distributed as dist


def evaluate(model):
    return model.eval()


def load(args, path):
    if args.local_rank not in [-1, 0] and evaluate == "train":
        dist.barrier()
    features = torch.load(path)
    if args.local_rank == 0 and not evaluate:
        dist.barrier()
    return features
"""


# Each call passes a constant: on no rank is the parameter the number of the process.
CONSTANTS = """\
import torch.distributed as dist


def load(path, rank, is_main=True):
    if rank == 0:
        dist.barrier()
    if not is_main:
        dist.barrier()
    return path


def convert(path):
    return load(path, rank=0)
"""


@pytest.mark.parametrize("code", [PROMPT, WORKERS, GIVEN_UP, TOLD_ALONE, FUNCTION_NAMED, CONSTANTS])
def test_ranks_that_meet_again(code: str) -> None:
    assert [f.message for rule in (dsl201, dsl204, dsl206) for f in findings(rule, code)] == []


@pytest.mark.parametrize("start", ["mp.spawn(work, nprocs=4)", "work(dist.get_rank())"])
def test_a_function_that_is_handed_over_gets_ranks_that_nobody_sees(start: str) -> None:
    code = f"""\
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank):
    if rank == 0:
        dist.barrier()


def main(args):
    {start}
    if args.debug:
        work(0)
"""
    assert [f.code for f in findings(dsl201, code)] == ["DSL201"]


def test_a_helper_that_asks_for_no_rank_waits_whatever_it_is_told() -> None:
    code = """\
import torch.distributed as dist


def save(path, rank=-1):
    path.touch()
    dist.barrier()


def finish(path):
    if dist.get_rank() == 0:
        save(path)
"""
    assert [f.code for f in findings(dsl201, code)] == ["DSL201"]


def test_a_parameter_hides_the_function_of_the_same_name() -> None:
    code = """\
import torch.distributed as dist


def evaluate():
    return 1


def load(rank, evaluate):
    if rank == 0 and evaluate == "train":
        dist.barrier()
"""
    assert [f.code for f in findings(dsl201, code)] == ["DSL201"]


def test_a_rank_that_leaves_its_endless_loop_alone_is_still_told() -> None:
    """The others wait in the barrier of each turn, and rank 0 has left."""
    code = """\
import torch.distributed as dist


def serve(inbox):
    while True:
        if dist.get_rank() == 0:
            break
        dist.barrier()
        inbox.read()
"""
    assert [f.code for f in findings(dsl201, code)] == ["DSL201"]


def test_what_rank_0_set_is_not_why_it_left() -> None:
    assert findings(dsl204, COPIER) == []
    (found,) = findings(dsl201, COPIER)
    assert "rank 0 may leave before it" in found.message


def test_a_break_passes_over_the_else_of_its_loop() -> None:
    code = """\
import torch.distributed as dist


def rewrite(entries, wanted):
    if dist.get_rank() == 0:
        for token, value in wanted.items():
            for entry in entries:
                if entry["id"] == token:
                    entry["content"] = value
                    break
            else:
                raise ValueError(token)
    dist.barrier()
"""
    assert findings(dsl201, code) == []


def test_equal_numbers_of_places_are_not_told_as_a_difference() -> None:
    code = """\
import torch.distributed as dist


def load(path, cache):
    if dist.get_rank() == 0:
        if not cache.fill(path):
            return
        dist.barrier()
    else:
        dist.barrier()
"""
    (found,) = findings(dsl201, code)
    assert "rank 0 may leave before it" in found.message
