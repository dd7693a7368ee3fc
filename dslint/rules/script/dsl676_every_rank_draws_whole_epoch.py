"""The sampler of the training loader draws a whole epoch in every process: it ignores ranks.

**What.** Under `DistributedDataParallel`, FSDP or DeepSpeed a training loader has a `WeightedRandomSampler` that draws
as many items as the data set has, a `SubsetRandomSampler` over a split of it, or an own sampler that draws from all
items and asks for no rank. The sampler may be one of two: `if balanced: WeightedRandomSampler(...)`.

**Why it hurts.** Nothing fails. Each process draws a full epoch for itself: an epoch takes as long on eight GPUs
as on one, and sees eight times the items that the schedule and the log count. Where all ranks have the same seed, they
draw the same items, and averaging the gradients gains nothing.

**Fix.** Draw with one seed on all ranks and distribute: `drawn[rank::world_size]`; or wrap the sampler
(`DistributedSamplerWrapper` of catalyst, Lightning, or accelerate's `prepare`); or give it
`num_samples=len(dataset) // world_size` and each rank a seed of its own.

**When it stays quiet.** The number of processes or the rank takes part in the sampler or in the data set; a number of
items that is not a length; a test about ranks or devices chooses this sampler for one process; loaders that accelerate,
Fabric, a Trainer or Lightning gets hold of; endless samplers; model parallel scripts; evaluation; one process.

**Evidence.** Two gloo ranks, 8 items: each rank draws 8. `WeightedRandomSampler.__iter__` in
torch/utils/data/sampler.py asks for no rank.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event
from dslint.python.queries.asked import behind
from dslint.python.queries.derived import Derived
from dslint.python.queries.reach import reached
from dslint.python.sources import Source
from dslint.python.varies import LOST, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.trainingloaders import trained_loaders
from dslint.rules.data.undivided import asks_for_rank, draws, knows_no_rank
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.schedules import is_length, knows_world

META = RuleMeta(
    code="DSL676",
    name="every-rank-draws-whole-epoch",
    kind="script",
    severity=Severity.WARNING,
    summary="the sampler of the training loader ignores ranks: each process draws a whole epoch",
    markers=(
        r"Sampler\b",
        r"DistributedDataParallel|DDP\b|deepspeed|FullyShardedDataParallel|fully_shard|FSDP",
    ),
    references=(
        "https://github.com/pytorch/pytorch/issues/23430",
        "https://github.com/crosszamirski/WS-DINO/issues/1",
    ),
    depends_on_run=True,
)
_WEIGHTED = "torch.utils.data.WeightedRandomSampler"
_SUBSET = "torch.utils.data.SubsetRandomSampler"
# A test that may ask whether there are several processes.
_RANKS = re.compile(
    r"dist|ddp|rank|world|gpu|launch|parallel|num_?(?:tasks|replicas|proc|devices|nodes)|single|multi|slurm|environ",
    re.I,
)
_SEVERAL = r"optim|model"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each sampler of a divided training that draws from all items in every process."""
    if run.context.is_one_process:
        return
    makers = {id(h.event): h for h in run.occurrences("makes-sampler")}
    derived: Derived | None = None
    for found, adds_sampler in trained_loaders(run):
        event = found.event
        if adds_sampler or event.open or event.lanes != run.machine.worlds.full or _has_own_part(run, event):
            continue
        derived = derived or Derived(run.machine.program.modules(), (tree for _, tree in run.trees()), _SEVERAL)
        for atom in instances(event.arguments.get("sampler")):
            maker = run.makers.get(atom)
            if maker is not None and id(maker) in makers and _draws_all(derived, makers[id(maker)]):
                yield _finding(run, maker, event, str(atom.cls).rpartition(".")[2])
        if event.sources and _is_own(run, event.sources[0]):
            yield _finding(run, event, event, _name(event.sources[0]))


def _has_own_part(run: RunQuery, event: Event) -> bool:
    """Return whether the data set of a loader may be a part of the rank's own."""
    varies, shape, _ = event.snapshot.get("dataset", (0, 0, frozenset()))
    sources = [source for source in event.sources if source.role == "dataset"]
    return bool((varies | shape) & (RANKED | LOST)) or not all(knows_no_rank(run, source) for source in sources)


def _draws_all(derived: Derived, made: Happening) -> bool:
    """Return whether a sampler of torch certainly draws from all items as many as there are."""
    event = made.event
    if event.api not in (_WEIGHTED, _SUBSET) or event.open or event.may or any(map(_is_about_ranks, made.around)):
        return False
    if any((varies | shape) & (RANKED | LOST) for varies, shape, _ in event.snapshot.values()):
        return False
    pieces = derived.of(event.module, list(event.nodes.values()))
    if pieces is None or any(knows_world(node) or asks_for_rank(node) for _, node in pieces):
        return False
    number = event.nodes.get("num_samples")
    counted = derived.of(event.module, [number]) if number is not None else None
    return event.api == _SUBSET or any(is_length(n) for _, piece in counted or () for n in ast.walk(piece))


def _is_about_ranks(node: object) -> bool:
    """Return whether a test on the way may ask for the number of processes, by its words."""
    if not isinstance(node, Alt) or not isinstance(node.asks or getattr(node.node, "test", None), ast.expr):
        return False
    test = node.asks or node.node.test  # type: ignore[attr-defined]
    return any(_RANKS.search(ast.unparse(part)) for part in (test, *behind(node.module, test)))


def _is_own(run: RunQuery, source: Source) -> bool:
    """Return whether an own sampler draws from all items, and no code around it has to do with ranks."""
    if source.role == "dataset" or not source.is_own or not knows_no_rank(run, source):
        return False
    pieces = reached(run.machine.program, source.code)
    if any(isinstance(n, ast.While) for _, node in pieces for n in ast.walk(node)):
        return False
    has_length = any(is_length(n) for _, node in pieces for n in ast.walk(node))
    return has_length and any(draws(*piece) for piece in pieces)


def _name(source: Source) -> str:
    cls = next((node for _, node in source.code if isinstance(node, ast.ClassDef)), None)
    return cls.name if cls is not None else source.path.rpartition(".")[2]


def _finding(run: RunQuery, made: Event, loader: Event, name: str) -> Finding:
    related = run.location(loader.module, loader.node, "the loader that all ranks train on")
    return run.finding(
        META,
        made.module,
        made.node,
        f"`{name}` ignores ranks: each process draws a whole epoch, which takes as long as on one GPU",
        hint="Draw with one seed on all ranks and divide by rank: `drawn[rank::world_size]`",
        related=(related,) if loader is not made else (),
        facts={"draws": "all"},
    )


_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler, SubsetRandomSampler
from torch.utils.data import WeightedRandomSampler


class Items(Dataset):
    def __init__(self, path):
        self.rows, self.labels = torch.load(path)

    def __getitem__(self, index):
        return self.rows[index], self.labels[index]

    def __len__(self):
        return len(self.rows)


%s
def build(path, args):
    data = Items(path)
    %s
    return DataLoader(data, batch_size=args.batch, sampler=sampler, drop_last=True)


def main(net, optimizer, args):
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net)
    for epoch in range(args.epochs):
        for rows, labels in build("rows.pt", args):
            torch.nn.functional.cross_entropy(model(rows), labels).backward()
            optimizer.step()
"""
_WEIGHTS = "weights = 1.0 / torch.bincount(data.labels)[data.labels]"
_PLAIN = "sampler = WeightedRandomSampler(weights, %s)"
_CHOICE = "if args.%s:\n        sampler = WeightedRandomSampler(weights, num_samples=len(data))\n    else:\n        %s"
_SPLIT = (
    "order = torch.randperm(len(data)).tolist()\n    cut = int(0.9 * len(order))\n"
    "    sampler = SubsetRandomSampler(order[:cut])"
)
_OWN = """\
class Balanced(Sampler):
    def __init__(self, data):
        self.count, self.labels = len(data), data.labels

    def __iter__(self):
        weights = 1.0 / torch.bincount(self.labels)[self.labels]
        return iter(torch.multinomial(weights, self.count, replacement=True)%s.tolist())

    def __len__(self):
        return self.count


"""
_SHARE = "[dist.get_rank() :: dist.get_world_size()]"


def _train(*lines: str, own: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % (own, "\n    ".join(lines))}


EXAMPLES = (
    bad("As many as the data set has", _train(_WEIGHTS, _PLAIN % "len(data)"), at="train.py:23"),
    bad(
        "One of two samplers",
        _train(_WEIGHTS, _CHOICE % ("balanced", "sampler = DistributedSampler(data)")),
        at="train.py:24",
    ),
    bad("A split of the data set", _train(_SPLIT), at="train.py:24"),
    bad("An own sampler", _train("sampler = Balanced(data)", own=_OWN % ""), at="train.py:35"),
    good("Its share of the data set", _train(_WEIGHTS, _PLAIN % "len(data) // dist.get_world_size()")),
    good(
        "For one process only",
        _train(
            _WEIGHTS, _CHOICE.replace("args.%s", "not args.%s") % ("distributed", "sampler = DistributedSampler(data)")
        ),
    ),
    good("A number that is no length", _train(_WEIGHTS, _PLAIN % "args.samples")),
    good("The rank's part of a split", _train(_SPLIT.replace("[:cut]", _SHARE))),
    good("An own sampler that distributes", _train("sampler = Balanced(data)", own=_OWN % _SHARE)),
    good("One process", _train(_WEIGHTS, _PLAIN % "len(data)"), world_size=1),
)
