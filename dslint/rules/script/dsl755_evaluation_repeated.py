"""Every rank evaluates the whole set by itself, while the training set is divided among the ranks.

**What.** The loader of the training set has a `DistributedSampler`; that of the evaluation has none, and the loop over
it runs on every rank.

**Why it hurts.** All ranks compute the same numbers from the same samples: an evaluation on eight GPUs takes as long as
on one, eight times as long as it must, after every epoch.

**Fix.** `sampler=DistributedSampler(dataset, shuffle=False)` for the evaluation, and add up counts and sums over the
ranks; a rank-0 evaluation saves no time, and the others wait for it.

**When it stays quiet.** The ranks reduce or gather what came out (DSL603); a sampler or a data set that knows the rank;
a loop that leaves out the items of other ranks; a shuffled loader; iterable data sets; a loader that accelerate or
other code gets hold of; a loader that is trained on, too; model, tensor, pipeline or sequence parallel scripts; some
ranks only; one process; a training set that is not divided either.

**Evidence.** Two gloo ranks: both go through all items of the evaluation, and through half of those of the training.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.evaluations import repeated_evaluations, whole_evaluations
from dslint.rules.data.trainingloaders import trained_loaders
from dslint.rules.examples.snippets import EVALUATION, EVALUATION_DATA
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL755",
    name="evaluation-repeated",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank evaluates the whole set by itself, while the training set is divided",
    markers=(r"DistributedSampler", r"DistributedDataParallel|DDP|deepspeed|FullyShardedDataParallel|fully_shard|FSDP"),
    references=(
        "https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        "https://github.com/pytorch/examples/pull/980",
    ),
    depends_on_run=True,
)
_SAMPLER = "torch.utils.data.DistributedSampler"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loader of an evaluation that every rank goes through as a whole, beside a divided training."""
    if run.context.is_one_process or not run.has("wraps-model", "makes-engine"):
        return
    trained = {found.event.node: found.event for found, _ in trained_loaders(run)}
    divided = next((event for event in trained.values() if _is_divided(event)), None)
    if divided is None:
        return
    joined = {found.loader.event.node for found in whole_evaluations(run)}
    for found, loop in repeated_evaluations(run):
        event = found.event
        if event.node in joined or event.node in trained:
            continue
        yield run.finding(
            META,
            event.module,
            event.node,
            "No sampler divides this loader: every rank evaluates all of it, and the work is done once for each rank",
            hint="Pass `sampler=DistributedSampler(dataset, shuffle=False)`, and add up the counts over the ranks",
            related=(
                run.location(loop.module, loop.node, "every rank runs over all items"),
                run.location(divided.module, divided.node, "the training set is divided"),
            ),
            varies=event.snapshot["dataset"][0],
        )


def _is_divided(event: Event) -> bool:
    """Return whether a loader may have a sampler that divides its set."""
    return any(atom.cls == _SAMPLER for atom in instances(event.arguments.get("sampler")))


_WHOLE = "DataLoader(test, 64)"
_DIVIDED = "DataLoader(test, 64, sampler=DistributedSampler(test, shuffle=False))"


_PRINTS = "        print(evaluate"
_ON_ZERO = "        if dist.get_rank() == 0:\n            print(evaluate"


def _files(loader: str = _WHOLE, join: str = "", skip: str = "", shown: str = _PRINTS) -> dict[str, str]:
    return {"data.py": EVALUATION_DATA % loader, "train.py": (EVALUATION % (skip, join)).replace(_PRINTS, shown)}


EXAMPLES = (
    bad("the whole set on every rank", _files(), "data.py:9 warning"),
    bad("something else is reduced", _files(join="    dist.all_reduce(torch.ones(1).cuda())\n"), "data.py:9 warning"),
    good("each rank has a share", _files(_DIVIDED)),
    good("on rank 0 only", _files(shown=_ON_ZERO)),
    good("the loop leaves out what other ranks take", _files(
        skip="            if index % dist.get_world_size() != dist.get_rank():\n                continue\n")),
    good("the data set is a share", _files(
        "DataLoader(Subset(test, range(dist.get_rank(), len(test), dist.get_world_size())), 64)")),
)  # fmt: skip
