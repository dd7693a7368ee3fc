"""A resume reads a key that no save of the project writes into its checkpoints.

**What.** A script saves a dictionary with `torch.save`, and takes `checkpoint["scheduler"]` out of the file that it
loads at a resume. The dictionary that is saved has other keys: `"lr_scheduler"`, or none for it at all.

**Why it hurts.** The script trains and saves as if all were well. `KeyError` comes when somebody resumes: after the
time limit of the job, or after a crash, and what the file lacks is lost.

**Fix.** Write the state under the key that is read, or read the key that is written. For files that are there already,
`checkpoint.get("scheduler")`, and go on without it.

**When it stays quiet.** A key for which the code looks first (`in`, `.get`), or whose `KeyError` is caught; a file of
which nothing says that the script has saved it: another name, and fewer than two keys in common; a dictionary that gets
keys that nobody can read, or that comes from elsewhere; a key that only some saves lack.

**Evidence.** Python 3.11, torch 2.13: `torch.load("last.pt")["scheduler"]` of a file with `model` and `lr_scheduler`
raises `KeyError: 'scheduler'`; with the key that was written it gives the state.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.checkpointkeys import keys_written, reads
from dslint.rules.ranks.ownfiles import own_saves
from dslint.rules.ranks.savedweights import Files
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL726",
    name="key-of-no-checkpoint",
    kind="script",
    severity=Severity.WARNING,
    summary="a resume reads a key that no save of the project writes: `KeyError`, hours after the save",
    markers=(r"torch", r"\bsave\(", r"\bload\("),
    references=("https://pytorch.org/tutorials/beginner/saving_loading_models.html",),
    depends_on_run=True,
    no_experiment="what a dictionary lacks needs no run of several ranks",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each key that is read of an own checkpoint and that no save writes."""
    saves = [found.event for found in run.happenings("saves") if found.event.api == "torch.save"]
    loads = [found.event for found in run.happenings("loads") if found.event.api == "torch.load"] if saves else []
    files = Files(run) if loads else None
    written = {save: keys_written(run, save) for save in saves} if loads else {}
    for load in loads:
        wanted = list(reads(load))
        own = own_saves(files, load, written, {key for key, _ in wanted}) if files is not None and wanted else []
        if not own or any(written[save] is None for save in own):
            continue
        known = frozenset(key for save in own for key in written[save] or ())
        told: set[str] = set()
        for key, node in wanted:
            if key not in known and key not in told:
                told.add(key)
                yield run.finding(
                    META,
                    load.module,
                    node,
                    f'No save writes "{key}" into this checkpoint: `KeyError` when a run resumes',
                    hint=f"Save it under this key, or ask with `.get({key!r})`",
                    related=(
                        run.location(load.module, load.node, "loaded here"),
                        run.location(own[0].module, own[0].node, f"saved with {_listed(known)}"),
                    ),
                )


def _listed(keys: frozenset[str]) -> str:
    return ", ".join(f"`{key}`" for key in sorted(keys)[:6]) + (", ..." if len(keys) > 6 else "")


_TRAIN = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(path, model, optimizer, scheduler, epoch):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    %s
    torch.save(state, path)


def resume(path, model, optimizer, scheduler):
    checkpoint = torch.load(path, map_location="cpu")
    model.module.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    %s
    return checkpoint["epoch"] + 1


def main(args, net, loader):
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    start = resume(args.resume, model, optimizer, scheduler) if args.resume else 0
    for epoch in range(start, 10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        if dist.get_rank() == 0:
            save(os.path.join(args.output, "last.pt"), model, optimizer, scheduler, epoch)
"""
_LOADS = 'scheduler.load_state_dict(checkpoint["scheduler"])'
_HELPER = """\
import torch
import torch.distributed as dist


def save_checkpoint(state, is_best):
    if dist.get_rank() == 0:
        torch.save(state, "checkpoint.pth.tar")


def main(model, optimizer, args):
    best = 0.0
    if args.resume:
        state = torch.load("checkpoint.pth.tar")
        model.load_state_dict(state["state_dict"])
        best = state["%s"]
    for epoch in range(3):
        save_checkpoint(dict(epoch=epoch, state_dict=model.state_dict(), best_acc1=best), True)


def parse():
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    net = torch.nn.Linear(2, 2)
    main(net, torch.optim.SGD(net.parameters(), lr=0.1), parse())
"""

_DATA = '    rows = torch.load("data/checkpoint.pth.tar")\n    print(rows["ids"])\n'
EXAMPLES = (
    good("the data come from a file of the same name", {
        "train.py": _HELPER.replace("    best = 0.0\n", _DATA + "    best = 0.0\n") % "best_acc1"}),
    bad("a schedule that is saved under another key", {"train.py": _TRAIN % (
        'state["lr_scheduler"] = scheduler.state_dict()', _LOADS)}, "train.py:18"),
    bad("one that is not saved", {"train.py": _TRAIN % ("", _LOADS)}, "train.py:18"),
    bad("a helper that saves, and a file of one name", {"main.py": _HELPER % "best_acc"}, "main.py:15"),
    good("the key that is written", {"main.py": _HELPER % "best_acc1"}),
    good("the same key", {"train.py": _TRAIN % ('state["scheduler"] = scheduler.state_dict()', _LOADS)}),
    good("written in some runs", {"train.py": _TRAIN % (
        'if scheduler is not None:\n        state["scheduler"] = scheduler.state_dict()', _LOADS)}),
    good("asked for first", {"train.py": _TRAIN % ("", f'if "scheduler" in checkpoint:\n        {_LOADS}')}),
    good("keys that nobody can read", {"train.py": _TRAIN % ("state.update(scheduler.extra)", _LOADS)}),
    good("a file of somebody else", {"train.py": (_TRAIN % (
        'state["scheduler"] = scheduler.state_dict()', _LOADS)).replace(
        "    dist.init_process_group", "    net.load_state_dict(torch.load(args.weights)['teacher'])\n"
        "    dist.init_process_group")}),
)  # fmt: skip
