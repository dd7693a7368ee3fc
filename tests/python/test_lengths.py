"""How long a list is, and how wide a part of a tensor: what ranks share although what is in it is their own."""

from __future__ import annotations

import pytest
from script_helpers import queried

from dslint.rules.script import dsl204_data_dependent_exit_between_collectives as dsl204
from dslint.rules.script import dsl207_uneven_loop_with_collective as dsl207

HEAD = """
import torch
import torch.distributed as dist
import torch.nn.functional as F

def found_in(words):
    found = {}
    for word in words[dist.get_rank()::dist.get_world_size()]:
        if word not in found:
            found[word] = len(word)
    return found

def reduced(names):
    for name in names:
        dist.reduce(torch.ones(1).cuda(), 0)
"""
RULES = (dsl204, dsl207)

SAME = {
    "names that rank 0 has sent": """
def main(data):
    names = sorted(found_in(data))
    dist.broadcast_object_list(names, src=0)
    reduced(names)
""",
    "names that rank 0 has sent, where there are several processes": """
def main(data):
    names = sorted(found_in(data).keys())
    if dist.is_initialized():
        dist.broadcast_object_list(names, src=0)
    reduced(names)
""",
    "names in a list of one": """
def main(data):
    box = [sorted(found_in(data))]
    dist.broadcast_object_list(box, src=0)
    reduced(box[0])
""",
    "a dictionary in a list of one": """
def main(data):
    box = [found_in(data)]
    dist.broadcast_object_list(box, src=0)
    reduced(box[0])
""",
    "names that accelerate has sent": """
from accelerate.utils import broadcast_object_list
def main(data):
    names = list(found_in(data))
    broadcast_object_list(names)
    reduced(names)
""",
}
OWN = {
    "each rank's own names": """
def main(data):
    reduced(sorted(found_in(data)))
""",
    "names that are found after rank 0 has sent its own": """
def main(data):
    names = sorted(found_in(data))
    dist.broadcast_object_list(names, src=0)
    names.extend(found_in(data))
    reduced(names)
""",
}


@pytest.mark.parametrize("name", SAME)
def test_as_many_on_all_ranks(name: str) -> None:
    assert [f.message for rule in RULES for f in queried(rule, HEAD + SAME[name])] == []


@pytest.mark.parametrize("name", OWN)
def test_as_many_as_a_rank_has(name: str) -> None:
    assert [f for rule in RULES for f in queried(rule, HEAD + OWN[name])]


CROPS = """
import random
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler
from torch.nn.parallel import DistributedDataParallel as DDP

def collate(rows):
    longest = max(row.shape[-1] for row in rows)
    mels = torch.zeros(len(rows), 80, longest)
    return mels, torch.tensor([row.shape[-1] for row in rows])

def main(data):
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(torch.distributed.get_rank() %% 8)
    model = DDP(torch.nn.Linear(80, 80).cuda())
    for mels, lengths in DataLoader(data, 4, sampler=DistributedSampler(data), collate_fn=collate):
        width, own = 64, int(lengths.min().item())
        start = random.randint(0, own - width)
%s
        if clip.shape[-1] < 80:
            continue
        model(clip).sum().backward()
"""
CUT_ALIKE = {
    "from a start to the start and a width": "        clip = mels[:, :, start:start + width]",
    "both ends in other units": "        clip = mels[:, :, start * 2:(start + width) * 2]",
    "an end that a variable holds": "        end = start + width\n        clip = mels[0, :, start:end]",
    "the width first": "        clip = mels[..., start:width + start]",
    "a width": "        clip = mels[:, :, :width]",
    "in a list of clips": """\
        clips = []
        for row in mels:
            clips.append(row[:, start:start + width])
        clip = torch.stack(clips)""",
    "a width of two ways": """\
        if len(data) > 100:
            width = int(lengths.shape[0]) * 2
        clip = mels[:, :, start * 2:(start + width) * 2]""",
    "a width at the end": "        clip = mels[:, :, -width:]",
    "by a function": "        clip = torch.narrow(mels, 2, start, width)",
    "by a method": "        clip = torch.cat([mels]).narrow(-1, start, width)",
    "stretched to a width": "        clip = F.interpolate(mels, size=width)",
    "of one dimension": "        clip = mels[0][start:start + width]",
    "by turns": """\
        clips = []
        for at in range(len(lengths)):
            first = random.randint(0, int(lengths[at].item() / 2) - width)
            clips.append(mels[at, :, first * 2:(first + width) * 2])
        clip = torch.stack(clips).detach()""",
}
CUT_BY_THE_DATA = {
    "to an end of the data": "        clip = mels[:, :, :own]",
    "all but the last": "        clip = mels[:, :, :-1]",
    "to an end of the data, by a function": "        clip = torch.narrow(mels, 2, 0, own)",
    "all of it": "        clip = mels[:, :, :]",
    "ends of two draws": "        clip = mels[:, :, start:random.randint(start, own)]",
}


@pytest.mark.parametrize("name", CUT_ALIKE)
def test_as_wide_on_all_ranks(name: str) -> None:
    assert [f.message for f in queried(dsl204, CROPS % CUT_ALIKE[name])] == []


@pytest.mark.parametrize("name", CUT_BY_THE_DATA)
def test_as_wide_as_a_rank_says(name: str) -> None:
    assert queried(dsl204, CROPS % CUT_BY_THE_DATA[name])


LAYOUT = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torch.nn.parallel import DistributedDataParallel as DDP

def collate(rows):
    return torch.zeros(len(rows), len(rows[0]), max(len(row[0]) for row in rows))

def main(data):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() %% 8)
    model = DDP(torch.nn.Linear(80, 80).cuda())
    for ids in DataLoader(data, 4, sampler=DistributedSampler(data), collate_fn=collate):
        parts = ids.size(1)
        features = model(ids.view(-1, ids.size(-1)))
        if %s:
            third = [torch.zeros_like(features) for _ in range(dist.get_world_size())]
            dist.all_gather(third, features)
        features.sum().backward()
"""


@pytest.mark.parametrize(
    "test", ["parts >= 3", "parts > 2", "ids.size(1) == 3", "ids.shape[1] != 1", "ids.shape[-1] == 4"]
)
def test_as_many_parts_on_all_ranks(test: str) -> None:
    assert [f.message for f in queried(dsl204, LAYOUT % test)] == []


@pytest.mark.parametrize(
    "test", ["parts > 1", "parts < 2", "parts > 512", "ids.shape[1] > limit", "(ids == 0).sum() >= 3"]
)
def test_a_length_of_each_rank(test: str) -> None:
    assert queried(dsl204, (LAYOUT % test).replace("parts = ", "limit, parts = 77, "))
