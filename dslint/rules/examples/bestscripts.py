"""Scripts that keep the best checkpoint, and resume."""

TRAIN = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(path, model, optimizer, epoch%s):
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch%s}, path)


def resume(path, model, optimizer):
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1, %s


def main(net, loader, evaluate):
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default="")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start, reached = resume(args.resume, model, optimizer) if args.resume else (0, 0.0)
    best_acc = %s
    for epoch in range(start, 10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        acc = evaluate(model)
%s


main(torch.nn.Linear(2, 2), torch.load("loader.pt", weights_only=False), torch.load("evaluate.pt", weights_only=False))
"""
TEST = """\
        if acc > best_acc:
            best_acc = acc
            save("best.pt", model, optimizer, epoch%s)"""
FLAG = """\
        is_best = best_acc <= acc
        best_acc = max(best_acc, acc)
        if is_best and args.resume != "none":
            save("best.pt", model, optimizer, epoch)"""
PRINTS = """\
        best_acc = max(best_acc, acc)
        if acc >= best_acc and dist.get_rank() == 0:
            print(f"best {best_acc}")
        save("last.pt", model, optimizer, epoch)"""
OBJECT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, path):
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.lowest_loss = float("inf")
        if path:
            self.restore(path)

    def restore(self, path):
        state = torch.load(path, map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        %s

    def keep(self, loss):
        if loss < self.lowest_loss:
            self.lowest_loss = loss
            if dist.get_rank() == 0:
                optimizer = self.optimizer.state_dict()
                state = {"model": self.model.module.state_dict(), "optimizer": optimizer, "loss": loss}
                torch.save(state, "best.pt")

    def fit(self, loader, evaluate):
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for x, y in loader:
                self.optimizer.zero_grad()
                torch.nn.functional.mse_loss(self.model(x), y).backward()
                self.optimizer.step()
            self.keep(evaluate(self.model))


dist.init_process_group("gloo")
Trainer(torch.nn.Linear(2, 2), "last.pt").fit(__import__("parts").loader(), __import__("parts").evaluate)
"""
ENGINE = """\
import deepspeed


def main(net, config, loader, evaluate, last):
    engine, _, _, _ = deepspeed.initialize(model=net, config=config)
    if last:
        engine.load_checkpoint("out/last")
    best_score, loss_of_best = 0.0, None
    for epoch in range(3):
        for x, y in loader:
            engine.backward(engine(x, y))
            engine.step()
        score, loss = evaluate(engine)
        is_best = score > best_score
        best_score = max(score, best_score)
        loss_of_best = loss if is_best else loss_of_best
        if is_best:
            engine.save_checkpoint("out/best")
        engine.save_checkpoint("out/last")


main(*__import__("parts").parts())
"""
NOT_RESUMED = OBJECT.replace('        self.optimizer.load_state_dict(state["optimizer"])\n', "") % "self.began = True"
WRAPPER = """\
class Slow:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state)


"""
TRACKER = """\
class Top:
    def __init__(self, sign=1, start=None):
        self.sign = sign
        self.value = start

    def is_new(self, value):
        if self.value is None or value * self.sign > self.value * self.sign:
            self.value = value
            return True
        return False


class Tops:
    def __init__(self, several):
        self.first = Top()
        self.several = several

    def update(self, value):
        return self.first.is_new(value)
"""
TRACKED = """\
        if tops.update(acc):
            save("best.pt", model, optimizer, epoch)"""
PAIR = """\
class Score:
    def __init__(self, value):
        self.value = value

    def better_than(self, other):
        return self.value > other.value


"""
COMPARED = """\
        reached = Score(acc)
        if reached.better_than(best_acc):
            best_acc = reached
            save("best.pt", model, optimizer, epoch)"""
HANDED = """\
def step(model, optimizer, epoch, value, top):
    if value <= top:
        return top
    save("best.pt", model, optimizer, epoch)
    return value


"""
LATER = """\
        if acc <= best_acc:
            continue
        best_acc = acc
        save("best.pt", model, optimizer, epoch)"""
ITEM = """\
        if acc > best_acc["top"]:
            best_acc["top"] = acc
            save("best.pt", model, optimizer, epoch)"""
BASE = """\
import torch


class Resumable:
    def restore(self, path):
        state = torch.load(path, map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        %s
"""
