"""Every rank evaluates the whole set, and the ranks then put together numbers that are equal anyway.

**What.** A loop without a backward runs the model over a `DataLoader` whose data set no sampler divides, in every
process; afterwards `all_reduce`, `reduce` or a gather joins what the ranks have counted.

**Why it hurts.** The reduction shows that each rank was meant to take a share. As written all ranks do the same work:
an evaluation on eight GPUs takes eight times as long as it must. An average comes out right; a sum, a count or a
gathered list of predictions holds every sample once for each rank.

**Fix.** `sampler=DistributedSampler(dataset, shuffle=False)`, or let accelerate prepare the loader. Where each rank is
meant to evaluate all, leave the reduction out.

**When it stays quiet.** A sampler or a data set that knows the rank; a loop that leaves out the items of other ranks;
nothing is reduced (DSL755); a shuffled loader; iterable data sets; a loader that accelerate or other code gets hold of;
model, tensor, pipeline or sequence parallel scripts; some ranks only; one process.

**Evidence.** Two gloo ranks, torch 2.13: both ranks go through all items, and the sum over the ranks counts each item
twice; with a `DistributedSampler` once.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.evaluations import whole_evaluations
from dslint.rules.examples.snippets import EVALUATION, EVALUATION_DATA
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL603",
    name="evaluation-not-divided",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank evaluates the whole set, and the ranks reduce equal numbers",
    markers=(r"DistributedDataParallel|DDP|deepspeed|accelerat|FullyShardedDataParallel|fully_shard|FSDP",),
    references=(
        "https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        "https://github.com/deepspeedai/DeepSpeedExamples/pull/804",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loader that every rank evaluates as a whole before the ranks join their numbers."""
    if run.context.is_one_process or not run.has("wraps-model", "prepares", "makes-engine"):
        return
    for found in whole_evaluations(run):
        event, joined = found.loader.event, found.joined
        call = joined.api.rpartition(".")[2]
        yield run.finding(
            META,
            event.module,
            event.node,
            f"No sampler divides this loader: every rank evaluates all of it, and `{call}` joins equal numbers",
            hint="Pass `sampler=DistributedSampler(dataset, shuffle=False)`, or leave the reduction out",
            related=(
                run.location(found.loop.module, found.loop.node, "every rank runs over all items"),
                run.location(joined.module, joined.node, "the ranks join equal values"),
            ),
            varies=event.snapshot["dataset"][0],
            facts={"call": call},
        )


_WHOLE = "DataLoader(test, 64)"
_DIVIDED = "DataLoader(test, 64, sampler=DistributedSampler(test, shuffle=False))"
_JOIN = "    dist.all_reduce(counts)\n"


def _files(loader: str = _WHOLE, join: str = _JOIN, skip: str = "") -> dict[str, str]:
    return {"data.py": EVALUATION_DATA % loader, "train.py": EVALUATION % (skip, join)}


EXAMPLES = (
    bad("the counts of the whole set are added up", _files(), "data.py:9 warning"),
    bad("a sampler that gives each rank all items", _files("DataLoader(test, 64, sampler=SequentialSampler(test))"),
        "data.py:9 warning"),
    bad("a helper reduces", _files(join="    counts = mean(counts)\n"), "data.py:9 warning"),
    good("each rank has a share", _files(_DIVIDED)),
    good("the loop leaves out what other ranks take", _files(
        skip="            if index % dist.get_world_size() != dist.get_rank():\n                continue\n")),
    good("the data set is a share", _files(
        "DataLoader(Subset(test, range(dist.get_rank(), len(test), dist.get_world_size())), 64)")),
)  # fmt: skip
