"""Rank 0 alone writes its own part of the results, and nothing gathers those of the others.

**What.** The ranks share out the samples of an evaluation, by a `DistributedSampler`, a prepared loader,
`rows[rank::world_size]` or `split_between_processes`. Each collects what it computes in a list or dictionary. Behind a
test of rank 0 this is written to a file, or scored, and no call in the program gathers or reduces anything.

**Why it hurts.** Rank 0 has seen every N-th sample only. The file holds an N-th of the answers, scores are those of a
part, and where the answers are lined up with all rows they belong to other ones. Nothing fails, and with one process
the same script is right.

**Fix.** Gather before the test: `dist.all_gather_object(parts, results)` or `accelerate.utils.gather_object(results)`,
and put the parts in the order of the rows. Or write one file for each rank, and join them.

**When it stays quiet.** Something in the program gathers, reduces or sends; the results are the same on all ranks;
the loop that computes them ends early or writes them itself; the program trains; one process.

**Evidence.** Two gloo ranks, a `DistributedSampler` over 10 items: what rank 0 writes are 5 of them; gathered, all 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop, events, walk
from dslint.python.varies import DATA, HOST, LOST, NAMED_DATA, RANDOM, RANK
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.ownsplits import is_shared_out
from dslint.rules.ranks.someranks import SomeRanks, some_ranks
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL635",
    name="part-reported-as-whole",
    kind="script",
    severity=Severity.WARNING,
    summary="rank 0 writes the results of its own part of the samples, and nothing gathers those of the others",
    markers=(
        r"torch|accelerat|deepspeed",
        r"rank|is_main_process|process_index",
        r"Sampler|prepare|::|split_between_processes",
    ),
    references=("https://github.com/microsoft/LMOps/issues/101",),
    depends_on_run=True,
)
_TRAINS = ("backward", "engine-backward", "trainer-train", "engine-step")
_JOINS = re.compile(r"(?i)gather|reduce\b|reduce_|all_?reduce|allreduce|\bisend\(|\.send\(|all_to_all|merge")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first write of rank 0 after each loop over a part of the samples."""
    if run.context.is_one_process or run.has(*_TRAINS):
        return
    loops = list(_loops(run))
    if not loops or any(module.search(_JOINS) for module in run.machine.program.modules()):
        return
    first = run.machine.worlds.main
    for found in run.occurrences("saves"):
        event = found.event
        part = next((loop for loop in loops if loop not in found.around), None)
        if event.lanes != first or event.may or found.entry.kind != "script" or part is None:
            continue
        some = some_ranks(run, found)
        bits = [varies for name, (varies, _, _) in event.snapshot.items() if name not in ("self", "fp", "f")]
        if some is not None and any(
            each & (DATA | RANK) and not each & (LOST | HOST | RANDOM | NAMED_DATA) for each in bits
        ):
            yield _finding(run, some, part, max(bits))
            return


def _loops(run: RunQuery) -> Iterator[Loop]:
    """Yield the loops in which every rank computes something of its own part of the samples, to the end."""
    loaders = {id(h.event.node) for h in run.happenings("makes-loader") if _is_divided(run, h.event)}
    cuts = {id(h.event.node) for h in run.happenings("shares", "takes-block", "shards-data")}
    for _, tree in run.trees():
        for node in walk(tree):
            if not isinstance(node, Loop) or not any(_computes(event) for event in events(node.body)):
                continue
            is_part = any(id(made) in loaders for made in node.items)
            if is_part or (cuts and node.varies & RANK):
                yield node


def _is_divided(run: RunQuery, loader: Event) -> bool:
    samplers = [atom.cls for atom in instances(loader.arguments.get("sampler")) if isinstance(atom.cls, str)]
    is_divided = any(run.machine.libraries.is_class(cls, "distributed-sampler") for cls in samplers)
    is_all = not loader.open and loader.lanes == run.machine.worlds.full
    return is_all and (is_divided or is_shared_out(run, loader))


def _computes(event: Event) -> bool:
    return bool(event.tags & {"forward", "generate"})


def _finding(run: RunQuery, some: SomeRanks, loop: Loop, bits: int) -> Finding:
    event, (module, node) = some.found.event, some.place
    written = (run.location(event.module, event.node, "written here"),) if node is not event.node else ()
    return run.finding(
        META,
        module,
        node,
        "Rank 0 writes the results of its own part only, and nothing gathers those of the other ranks",
        hint="Gather the results before the test of the rank",
        related=(
            run.location(loop.module, loop.node, "each rank iterates over its own part here"),
            *written,
            run.location(some.test.module, some.asked, "only rank 0 gets past this test"),
        ),
        varies=bits,
        facts={"kind": "results"},
    )


_ANSWER = """\
import json

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def answers(model, tokenizer, rows):
    sampler = DistributedSampler(rows, shuffle=False)
    found = {}
    for places, batch in DataLoader(rows, batch_size=8, sampler=sampler):
        texts = tokenizer.batch_decode(model.generate(**batch))
        found.update(zip(places, texts))
    dist.barrier()
    return found


def report(rows, found):
    with open("answers.jsonl", "w") as file:
        for place in sorted(found):
            file.write(json.dumps({"text": found[place]}))
"""
_MAIN = """\
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoTokenizer

from answer import answers, report


def main(rows):
    dist.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    found = answers(model, AutoTokenizer.from_pretrained("gpt2"), rows)
    %s
    if dist.get_rank() == 0:
        report(rows, found)


if __name__ == "__main__":
    main(list(range(10)))
"""
_ACCELERATE = """\
import json

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("gpt2")
loader = DataLoader(list(range(10)), batch_size=2)
model, loader = accelerator.prepare(model, loader)
scores = []
for batch in loader:
    scores.append(model(batch).loss.item())
%s
if accelerator.is_main_process:
    with open("scores.json", "w") as file:
        json.dump(scores, file)
"""
_CUT = """\
import json
import os

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

dist.init_process_group("nccl")
rank, world_size = dist.get_rank(), dist.get_world_size()
model = AutoModelForCausalLM.from_pretrained("gpt2")
with open("rows.json") as file:
    rows = json.load(file)
results = []
for row in rows[rank::world_size]:
    results.append(model.generate(row).tolist())
%s
"""
_ACCURACY = """\
import json

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForSequenceClassification


def accuracy(model, loader):
    right = total = 0
    for words, labels in loader:
        right += (model(words).logits.argmax(-1) == labels).sum().item()
        total += len(labels)
    %s
    return right / total


dist.init_process_group("gloo")
data = torch.load("test.pt")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased")
share = accuracy(model, DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)))
if dist.get_rank() == 0:
    with open("accuracy.json", "w") as file:
        json.dump({"accuracy": share}, file)
"""
_SUMS = "sums = torch.tensor([right, total])\n    dist.all_reduce(sums)\n    right, total = sums.tolist()"
_FIRST = "if rank == 0:\n    torch.save(results, 'results.pt')"
_EACH = "torch.save(results, f'results-{rank}.pt')"
_COLLECT = (
    "parts = [None] * dist.get_world_size()\n    dist.all_gather_object(parts, found)\n    found = dict(parts[0])"
)
_NO_GATHER = ("from accelerate.utils import gather_object\n", "")

EXAMPLES = (
    bad(
        "answers that two helpers collect and write",
        {"answer.py": _ANSWER, "train.py": _MAIN % "dist.barrier()"},
        "train.py:13 warning",
    ),
    bad("a prepared loader", {"score.py": (_ACCELERATE % "").replace(*_NO_GATHER)}, "score.py:17 warning"),
    bad("a part that is cut by the rank", {"run.py": _CUT % _FIRST}, "run.py:17 warning"),
    bad("a share of right answers", {"score.py": _ACCURACY % "dist.barrier()"}, "score.py:24 warning"),
    good("the sums of all ranks", {"score.py": _ACCURACY % _SUMS}),
    good("gathered before", {"answer.py": _ANSWER, "train.py": _MAIN % _COLLECT}),
    good("gathered by accelerate", {"score.py": _ACCELERATE % "scores = gather_object(scores)"}),
    good("a file for each rank", {"run.py": _CUT % _EACH}),
)
