"""A script that keeps an average of the weights, and resumes."""

TRAIN = """\
import copy
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class ModelEma:
    def __init__(self, model, decay=0.999):
        self.module = copy.deepcopy(model)
        self.decay = decay

    def update(self, model):
        for mine, theirs in zip(self.module.parameters(), model.parameters()):
            mine.data.lerp_(theirs.data, 1 - self.decay)


def save(path, model, optimizer, ema, epoch):
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        %s
        torch.save(state, path)


def main(net, loader):
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ema, start = %s, 0
    if os.path.exists("last.pt"):
        state = torch.load("last.pt", map_location="cpu")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1
        %s
    for epoch in range(start, 10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            %s
        save("last.pt", model, optimizer, ema, epoch)


main(torch.nn.Linear(2, 2), torch.load("loader.pt", weights_only=False))
"""
