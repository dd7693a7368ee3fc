"""Each rank looks for a file by itself, and what it finds decides whether it waits for rank 0, which makes the file.

**What.** `if not os.path.exists(cache):` encloses the work of one rank, which makes the file, and the barrier in which
the others wait for it. Or the function returns what it finds, and comes to the work and the barrier where it finds
nothing.

**Why it hurts.** Ranks do not come at the same moment. One that looks when rank 0 has made the file, or has begun to,
does not come to the barrier: rank 0 waits there for it until the process-group timeout, while it waits in its next
collective for rank 0. It also reads a file that is not complete. With disks of their own the machines always part.

**Fix.** Put the barrier after the test, so that every rank comes to it: `if rank == 0 and not os.path.exists(cache):`,
then `dist.barrier()`. Or let one rank look, and broadcast what it found.

**When it stays quiet.** Both arms wait; the test also asks for the rank; one rank looks and tells the others; the file
is not known to be the one that is made; one process.

**Evidence.** A barrier that one rank leaves out is that of DSL201. That a rank comes late is usual: imports and CUDA
take seconds more on one of them, and a small file is made in less.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.filetests import file_tests
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL705",
    name="file-test-decides-who-waits",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank looks for a file by itself, and comes to the barrier only if rank 0 has not made it yet",
    markers=(r"exists\(|is_?file\(|is_?dir\(", r"barrier\(|wait_for_everyone\(|broadcast|gather\(|reduce\("),
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.barrier",),
    depends_on_run=True,
    no_experiment="DSL201 shows on two ranks what a barrier does that one of them leaves out",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each test of a file that decides who waits until one rank has made it."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        for found in file_tests(run.machine, tree):
            if id(found.asked.node) in seen:
                continue
            seen.add(id(found.asked.node))
            yield run.finding(
                META,
                found.asked.module,
                found.asked.node,
                "Each rank looks for this file by itself: who comes when rank 0 has made it skips the call that waits",
                hint="Let every rank come to the barrier, and test for the file inside the rank guard only",
                related=(
                    run.location(found.made.module, found.made.node, "some ranks make it here"),
                    run.location(found.waits.module, found.waits.node, "the others wait here, if they found nothing"),
                ),
            )


_HEAD = """\
import os
import pickle
from pathlib import Path

import huggingface_hub
import torch
import torch.distributed as dist

NAME, URL = "org/rows", "https://example.org/rows.pt"

"""
_MAIN = """\


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rows = load("/data/index.pkl")
    total = torch.tensor(len(rows), device="cuda")
    dist.all_reduce(total)


if __name__ == "__main__":
    main()
"""
_INSIDE = """\
def load(path):
    if not os.path.exists(path):
        if dist.get_rank() == 0:
            with open(path, "wb") as file:
                pickle.dump(list(range(1000)), file)
        dist.barrier()
    with open(path, "rb") as file:
        return pickle.load(file)
"""
_RETURNS = """\
def load(name):
    path = Path(name)
    if path.is_file():
        return torch.load(path)
    if dist.get_rank() == 0:
        torch.save(list(range(1000)), path)
    dist.barrier()
    return torch.load(path)
"""
_CLASS = """\
class Cache:
    def __init__(self, path):
        self.path = path
        self.rank = dist.get_rank()

    def build(self):
        if self.rank == 0:
            torch.save(list(range(1000)), self.path)
        self.wait()

    def wait(self):
        dist.barrier()

    def get(self):
        found = os.path.isfile(self.path)
        if found:
            print("found", self.path)
        else:
            self.build()
        return torch.load(self.path)


def load(path):
    return Cache(path).get()
"""
_FOLDER = """\
def load(path):
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        if int(os.environ["RANK"]) == 0:
            os.makedirs(folder)
            torch.save(list(range(1000)), os.path.join(folder, "rows.pt"))
        dist.barrier()
    return torch.load(os.path.join(folder, "rows.pt"))
"""
_FETCHED = """\
def load(path):
    if os.path.exists(path):
        return torch.load(path)
    if dist.get_rank() == 0:
        %s
    dist.barrier()
    return torch.load(path)
"""
_OUTSIDE = """\
def load(path):
    if dist.get_rank() == 0 and not os.path.exists(path):
        with open(path, "wb") as file:
            pickle.dump(list(range(1000)), file)
    dist.barrier()
    with open(path, "rb") as file:
        return pickle.load(file)
"""
_TOLD = """\
def load(path):
    found = [os.path.exists(path)]
    dist.broadcast_object_list(found, src=0)
    if not found[0]:
        if dist.get_rank() == 0:
            torch.save(list(range(1000)), path)
        dist.barrier()
    return torch.load(path)
"""
_BOTH = """\
def load(path):
    if os.path.exists(path):
        dist.barrier()
        return torch.load(path)
    if dist.get_rank() == 0:
        torch.save(list(range(1000)), path)
    dist.barrier()
    return torch.load(path)
"""


def _script(body: str) -> dict[str, str]:
    return {"train.py": _HEAD + body + _MAIN}


EXAMPLES = (
    bad("the barrier stands inside of the test", _script(_INSIDE), "train.py:12"),
    bad("who finds the file returns", _script(_RETURNS), "train.py:13"),
    bad("in the methods of a class", _script(_CLASS), "train.py:25"),
    bad("a folder", _script(_FOLDER), "train.py:13"),
    bad(
        "rank 0 downloads into the folder of the file",
        _script(_FETCHED % "torch.hub.load_state_dict_from_url(URL, model_dir=os.path.dirname(path))"),
        "train.py:12",
    ),
    bad(
        "rank 0 downloads the file",
        _script(_FETCHED % "torch.hub.download_url_to_file(URL, path)"),
        "train.py:12",
    ),
    bad(
        "rank 0 downloads the snapshot that was looked for",
        _script(_FETCHED % "huggingface_hub.snapshot_download(NAME, local_dir=path)"),
        "train.py:12",
    ),
    good(
        "rank 0 downloads something else",
        _script(_FETCHED % 'torch.hub.load_state_dict_from_url(URL, model_dir="/cache/other")'),
    ),
    good("every rank comes to the barrier", _script(_OUTSIDE)),
    good("one rank looks and tells the others", _script(_TOLD)),
    good("both ways wait", _script(_BOTH)),
)
