"""Scripts whose batches have only the samples that a test keeps."""

PAIRS = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate


class Pairs(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if not os.path.exists(self.files[index]):
            return None
        row = torch.load(self.files[index])
        return %s


def collate(samples):
%s


def gather(x):
    parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach())
    return torch.cat(parts)


def main(files):
    dist.init_process_group("gloo")
    rows = Pairs(files)
    loader = DataLoader(rows, 8, sampler=DistributedSampler(rows), collate_fn=collate, drop_last=True)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()))
    for batch in loader:
        %s
        gather(torch.nn.functional.normalize(model(x), dim=-1))


main(["0.pt"] * 64)
"""
KEPT = "    samples = [sample for sample in samples if sample is not None]\n"
STACKED = "    return torch.stack([sample[0] for sample in samples]), torch.tensor([sample[1] for sample in samples])"
APPENDED = """\
    found, labels = [], []
    for sample in samples:
        if sample is None:
            continue
        found.append(sample[0])
        labels.append(sample[1])
    return torch.stack(found), torch.tensor(labels)"""
PAIR = ('row["x"], row["y"]', "x, y = batch")
