"""A loop over the items of this rank runs a collective in every iteration, and the ranks may have different counts.

**What.** The work is distributed with `range(rank, n, world_size)`, `data[rank::world_size]`,
`np.array_split(data, world_size)[rank]`, consecutive parts of `ceil(n / world_size)`, `if i % world_size == rank`,
`dataset.shard(world_size, rank)` or `split_between_processes(data)`, also in a sampler, a `Subset` or an
`IterableDataset` of the file, and the body of the loop runs a collective: an explicit one, the forward or `generate` of
a model that ZeRO stage 3 partitions, or the backward of a DDP model.

**Why it hurts.** When the number of items is not a multiple of the world size, some ranks make one iteration more than
the others. That last collective waits for ranks that have already left the loop: the job hangs at the very end
until the process-group timeout, or pairs up with a later collective. It typically shows as "5 of 8 GPUs finish".

**Fix.** Pad the items to a multiple of the world size and drop the surplus results afterwards
(`split_between_processes(data, apply_padding=True)`), or collect results once after the loop; for DDP training wrap
the loop in `with model.join():`.

**When it stays quiet.** Nothing in the loop talks to other ranks (a replicated model doing independent inference,
with one gather after the loop); the function pads, truncates or checks the remainder (`% world_size`, `// world_size`,
`ceil`, `apply_padding=True`, `join()`); the number of items and the world size are known and divide evenly.

**Evidence.** Two ranks, five items, ZeRO stage 3: timeout of 8 s at the last item, padded: passes. DDP with 3 and 4
batches: timeout; with `join()`: passes. An `all_reduce` for each of five items over gloo, timeout 8 s (torch 2.13):
`i = rank; while i < n: ...; i += world_size`, `if i % world_size != rank: continue` and `if i % world_size == rank:`
all end the same way. Both ranks make two calls, rank 0 makes a third: `Timed out waiting 8000ms for recv operation`
when rank 1 stays alive, a lost connection at once when rank 1 has ended. When rank 1 continues to a `barrier()`, the
two calls do not match, and both ranks time out. Four items, or five padded to six: every variant passes. `while True:`
left by `break` or `return` at `i >= n` times out too; dslint leaves these alone: it cannot tell where such a loop ends.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Loop
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data import shares
from dslint.rules.examples.unevenscripts import (
    CUT_TO_SHORTEST,
    DDP_HEAD,
    DRAWN,
    FLOORED,
    JOINED,
    OWN_ROWS,
    READER,
    SAMPLER_THAT_ROUNDS,
    SENT,
    STOPPER,
    STREAM,
    SUMS_WHILE_TRAINED,
)
from dslint.rules.ranks import parted
from dslint.rules.ranks.lonelycalls import family, name

if TYPE_CHECKING:
    from dslint.python.queries.parting import Parting
    from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL207",
    name="uneven-loop-with-collective",
    kind="script",
    severity=Severity.ERROR,
    summary="ranks run a loop with a collective a different number of times",
    markers=(
        r"rank|process_index|split_between_processes",
        r"world_size|WORLD_SIZE|num_processes|split_between_processes|num_replicas|n_?gpu",
        r"range\((?:[^:]{0,200}?,){2}|::|islice|array_split|chunk\(|tensor_split|split_between_processes|\.shard\("
        r"|split_dataset_by_node|%|while|rank\)? \*|\* \(?(?:\w+\.)?\w*rank",
        r"torch|accelerate",
    ),
    alone=parted.ALONE,
    also_told_by=parted.RANKS_PART,
    references=(
        "https://github.com/OpenBMB/MiniCPM-V/issues/769",
        "https://github.com/OpenRLHF/OpenRLHF/issues/427",
        "https://github.com/pytorch/pytorch/issues/38174",
        "https://github.com/deepspeedai/DeepSpeed/issues/7170",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Yield loops over the share of a rank in which something waits for all ranks."""
    for parting in parted.partings(run):
        if not shares.is_uneven(run, parting):
            continue
        module, node = shares.cut(run, parting)
        is_backward = "backward" in parting.event.tags and family(parting.event) in ("torch", "accelerate")
        what = "the backward of a DDP model" if is_backward else f"`{parted.called(run, parting, 40)}`"
        what += f" (`{parted.key(parting.event)}`)" if parting.via is not None else ""
        wait = run.waits.of(parting.event)
        gathers = f", gathers parameters under {wait.needs}" if wait is not None and wait.needs else ""
        asked, turn = parted.test_node(parting), "batch of items" if parting.in_batches else "iteration"
        loop = run.location(module, asked, "the ranks run this loop a different number of times")
        share = run.origin(parting.test.subject if isinstance(parting.test, Loop) else None, "the share of this rank")
        here = run.location(module, node)
        yield run.finding(
            META,
            module,
            node,
            f"`{run.text(module, node, 50)}` gives ranks different numbers of items{_numbers(run, parting)}: those"
            f" with more hang in {what}",
            hint=_hint(node, is_backward=is_backward),
            related=(
                *((loop,) if node is not asked else ()),
                run.location(*parted.place(parting), f"needs every rank in each {turn}{gathers}"),
                *(place for place in share if (place.path, place.span) != (here.path, here.span)),
            ),
            severity=Severity.WARNING if is_backward else Severity.ERROR,
            varies=parting.varies,
            origin=parted.origin(run, parting),
            facts={
                "collective": "ddp" if is_backward else name(parting.event),
                "family": family(parting.event),
                "stage": run.stage,
                "items": shares.known_total(parting),
                "world": run.context.world_size.get_or(None),
            },
        )


def _numbers(run: RunQuery, parting: Parting) -> str:
    """Return the sum that does not come out even, or when it would."""
    total, ranks = shares.known_total(parting), run.context.world_size.get_or(0)
    if total is not None and ranks:
        return f" ({total} over {ranks} ranks)"
    return ""


def _hint(cut: ast.AST, *, is_backward: bool) -> str:
    if isinstance(cut, ast.Call) and ast.unparse(cut.func).endswith("split_between_processes"):
        return "Pass `apply_padding=True` and drop the surplus results, or collect once after the loop"
    if is_backward:
        return "Give every rank the same number of batches, or wrap the loop in `with model.join():`"
    return "Pad the items to a multiple of the world size and drop the surplus results, or collect once after the loop"


EXAMPLES = (
    bad(
        "Each item is gathered at once",
        {
            "infer.py": """\
import torch.distributed as dist


def infer(model, samples):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    answers = []
    for index in range(rank, len(samples), world_size):
        answer = model(samples[index])
        gathered = [None] * world_size
        dist.all_gather_object(gathered, answer)
        answers += gathered
    return answers
"""
        },
        "infer.py:7",
    ),
    bad(
        "Generation with a model that stage 3 partitions",
        {
            "generate.py": """\
import deepspeed
import torch.distributed as dist

DS_CONFIG = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}


def run(model, prompts):
    engine = deepspeed.initialize(model=model, config=DS_CONFIG)[0]
    mine = prompts[dist.get_rank() :: dist.get_world_size()]
    outputs = []
    for prompt in mine:
        outputs.append(engine.module.generate(prompt, synced_gpus=True))
    return outputs
"""
        },
        "generate.py:9",
    ),
    bad(
        "Batches of an iterable data set that distributes its items, with DDP",
        {
            "train.py": DDP_HEAD
            + """\
class Lines(IterableDataset):
    def __init__(self, path, rank, world_size):
        self.path, self.rank, self.world_size = path, rank, world_size

    def __iter__(self):
        with open(self.path) as lines:
            yield from islice(lines, self.rank, None, self.world_size)


def train(net, optimizer, path):
    model = DistributedDataParallel(net)
    loader = DataLoader(Lines(path, dist.get_rank(), dist.get_world_size()), batch_size=8)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
"""
        },
        "train.py:16 warning",
    ),
    bad(
        "Consecutive parts, the last of which is shorter",
        {
            "infer.py": """\
import math
import torch.distributed as dist


def infer(model, samples):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    share = math.ceil(len(samples) / world_size)
    mine = samples[rank * share : (rank + 1) * share]
    for sample in mine:
        score = model(sample)
        dist.all_reduce(score)
"""
        },
        "infer.py:8 error",
    ),
    bad(
        "One of the parts of a list of parts",
        {
            "infer.py": """\
import numpy as np
import torch.distributed as dist


def infer(model, samples):
    parts = np.array_split(samples, dist.get_world_size())
    for sample in parts[dist.get_rank()]:
        dist.all_reduce(model(sample))
"""
        },
        "infer.py:7 error",
    ),
    bad(
        "Each rank asks the data set for its rows, and a helper reads whatever loader it gets",
        {"evaluate.py": OWN_ROWS},
        "evaluate.py:15 error",
    ),
    bad(
        "A reader of the files of this rank",
        {"read.py": READER % "len(files)"},
        "read.py:19 error",
    ),
    good(
        "A number of steps ends the loops",
        {
            "read.py": (READER % "len(files)").replace("in reader:", "in islice(reader, 100):"),
            "zip.py": (READER % "len(files)").replace("batch in reader:", "_, batch in zip(range(100), reader):"),
        },
    ),
    good("A reader of as many files as each rank has", {"read.py": READER % "len(files) // size * size"}),
    bad(
        "A stream that each rank reads for itself; the helper trains on whatever loader it gets",
        {"train.py": STREAM % "train(model, loader)"},
        "train.py:13 warning",
    ),
    good(
        "The ranks that have read their stream take part in what the others do",
        {"train.py": STREAM % "with model.join():\n    train(model, loader)"},
    ),
    good(
        "The number of steps ends the loop, not the stream",
        {
            "train.py": (STREAM % "train(model, loader)").replace(
                "mean().backward()", "mean().backward()\n        break"
            )
        },
    ),
    bad("Batches that each rank packs", {"pack.py": CUT_TO_SHORTEST % "return packed"}, "pack.py:26 warning"),
    good(
        "All ranks cut their batches to the number of the shortest list",
        {
            "pack.py": CUT_TO_SHORTEST % "return packed[: fewest(len(packed))]",
            "gathered.py": CUT_TO_SHORTEST % "counts = [None] * dist.get_world_size()\n"
            "    dist.all_gather_object(counts, len(packed))\n    return packed[: min(counts)]",
        },
    ),
    bad("The model sums in each step", {"net.py": SUMS_WHILE_TRAINED % "train()"}, "net.py:26 error"),
    good("It sums only while it is trained", {"net.py": SUMS_WHILE_TRAINED % "eval()"}),
    good(
        "Consecutive parts of one length; a sampler that pads; `Join` around the loop",
        {"infer.py": FLOORED, "train.py": DDP_HEAD + SAMPLER_THAT_ROUNDS, "join.py": DDP_HEAD + JOINED},
    ),
    good(
        "A replicated model works alone, and one gather follows the loop",
        {
            "infer.py": """\
import torch.distributed as dist


def infer(model, samples):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    answers = []
    for index in range(rank, len(samples), world_size):
        answers.append(model(samples[index]))
    gathered = [None] * world_size
    dist.all_gather_object(gathered, answers)
    return gathered
"""
        },
    ),
    good(
        "The items are padded first",
        {
            "infer.py": """\
import torch.distributed as dist


def infer(model, samples):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    count = len(samples)
    samples = samples + samples[: -count % world_size]
    answers = []
    for sample in samples[rank::world_size]:
        gathered = [None] * world_size
        dist.all_gather_object(gathered, model(sample))
        answers += gathered
    return answers[:count]
"""
        },
    ),
    good(
        "As many batches as some multiple of the world size, the last ones perhaps empty",
        {
            "generate.py": """\
import torch
import torch.distributed as dist


def generate(model, seeds, size):
    rounds = (len(seeds) - 1) // (size * dist.get_world_size()) + 1
    count = rounds * dist.get_world_size()
    batches = torch.as_tensor(seeds).tensor_split(count)
    for batch in batches[dist.get_rank() :: dist.get_world_size()]:
        dist.barrier()
        if len(batch):
            model(batch)
"""
        },
    ),
    good(
        "A known number of items that the world size divides",
        {
            "infer.py": """\
import torch.distributed as dist


def infer(model):
    for seed in range(dist.get_rank(), 64, dist.get_world_size()):
        image = model(seed)
        dist.all_reduce(image)
"""
        },
        world_size=8,
    ),
    bad("a counter of epochs that hears of the scores on rank 0 only",
        {"train.py": STOPPER % "if dist.get_rank() == 0:\n            "}, "train.py:26"),
    good("the same on all ranks", {"train.py": STOPPER % ""}),
    good("so many draws for each rank", {"visits.py": DRAWN % "size=self.rounds * self.world"}),
    bad("a number of draws", {"visits.py": DRAWN % "size=self.rounds"}, "visits.py:23"),
    good("one rank sends the list and the others receive it", {"send.py": SENT}),
)  # fmt: skip
