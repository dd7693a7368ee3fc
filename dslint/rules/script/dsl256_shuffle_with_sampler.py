"""`DataLoader` gets `shuffle=True` together with a sampler.

**What.** `DataLoader(dataset, sampler=sampler, shuffle=True)`, or a `batch_sampler` beside `shuffle=True`, a `sampler`,
`drop_last=True` or a `batch_size`.

**Why it hurts.** The constructor raises on every rank: `ValueError: sampler option is mutually exclusive with shuffle`,
`batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last`. Where the sampler is made
only when the run is distributed, the script works on one GPU and dies on eight.

**Fix.** Drop `shuffle`: a `DistributedSampler` shuffles by itself. The fix deletes the argument; it is safe when the
sampler is known to shuffle, else a person should look at the order.

**When it stays quiet.** `shuffle=(sampler is None)` and other values that are not known; `shuffle=False`;
`sampler=None`; a sampler that nobody knows.

**Evidence.** torch 2.13 `DataLoader.__init__`. Two gloo ranks: both raise `ValueError`, with each of the two arguments
alone the loader works.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Span
from dslint.python.attributes import is_instance_of
from dslint.python.events import Event
from dslint.python.places import ordered
from dslint.python.values import Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL256",
    name="shuffle-with-sampler",
    kind="script",
    severity=Severity.ERROR,
    summary="`DataLoader` gets a sampler and an argument that excludes it",
    fix="safe",
    markers=(r"DataLoader\b", r"sampler ?=", r"shuffle ?= ?True|batch_sampler ?="),
    references=("DataLoader.__init__ in torch/utils/data/dataloader.py",),
)

_SAMPLER = "torch.utils.data.Sampler"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where a loader certainly gets arguments that exclude each other."""
    for event in (happening.event for happening in run.happenings("makes-loader")):
        if event.api != "torch.utils.data.DataLoader" or event.open:
            continue
        given = event.arguments
        samplers, batches = _samplers(run, given.get("sampler")), _samplers(run, given.get("batch_sampler"))
        mixed = _is(given.get("shuffle"), True)
        if mixed and samplers:
            yield _finding(run, event, "shuffle", "sampler", samplers)
        elif batches:
            name = _excluded(given, mixed, samplers)
            if name:
                yield _finding(run, event, name, "batch_sampler", batches)


def _samplers(run: RunQuery, value: Value | None) -> list[Instance]:
    """Return the samplers that an argument may be."""
    found = [atom for atom in ordered(value.atoms) if isinstance(atom, Instance)] if value is not None else []
    return [atom for atom in found if atom.cls and is_instance_of(run.machine, atom.cls, _SAMPLER)]


def _is(value: Value | None, wanted: object) -> bool:
    return value is not None and value.constants == (wanted,)


def _excluded(given: dict[str, Value], shuffles: bool, samplers: list[Instance]) -> str:
    """Return the first argument beside a `batch_sampler` that torch refuses."""
    if shuffles:
        return "shuffle"
    if samplers:
        # Where each of the two may be `None`, the arm that makes the one may well leave out the other.
        both = len(given["sampler"].atoms) > len(samplers) and len(given["batch_sampler"].atoms) > 1
        return "" if both else "sampler"
    size = given.get("batch_size")
    if size is not None and size.constants and all(type(n) is int and n != 1 for n in size.constants):
        return "batch_size"
    return "drop_last" if _is(given.get("drop_last"), True) else ""


def _finding(run: RunQuery, event: Event, name: str, sampler: str, atoms: list[Instance]) -> Finding:
    value, given = event.nodes.get(name, event.node), event.nodes.get(sampler, event.node)
    text = run.text(event.module, value) if name in event.nodes else str((event.arguments[name].constants or ("",))[0])
    return run.finding(
        META,
        event.module,
        value,
        f"`DataLoader` gets `{name}={text}` and `{sampler}`, which exclude each other: it raises `ValueError`",
        hint=f"Drop `{name}`" + (": the sampler decides the order" if name == "shuffle" else ""),
        fix=_fix(run, event, name, atoms),
        related=(run.location(event.module, given, f"the `{sampler}`"),),
        facts={"argument": name, "sampler": sampler},
    )


def _fix(run: RunQuery, event: Event, name: str, atoms: list[Instance]) -> Fix | None:
    """Delete the argument with its comma, where it stands in the call."""
    call = event.node
    if not isinstance(call, ast.Call) or event.module.path != run.path:
        return None
    spans = sorted((event.module.span(a) for a in (*call.args, *call.keywords)), key=lambda span: span.start)
    keyword = next((k for k in call.keywords if k.arg == name), None)
    if keyword is None or len(spans) < 2:
        return None
    here = event.module.span(keyword)
    at = spans.index(here)
    cut = Span(spans[at - 1].end, here.end) if at else Span(here.start, spans[1].start)
    if "#" in event.module.code[cut.start : cut.end]:
        return None
    is_safe = name == "shuffle" and all(_shuffles(run, atom) for atom in atoms)
    return Fix(f"Delete `{name}`", (Edit(run.path, cut, ""),), Safety.SAFE if is_safe else Safety.UNSAFE)


def _shuffles(run: RunQuery, atom: Instance) -> bool:
    """Return whether a sampler puts the items in a random order by itself."""
    made = run.makers.get(atom)
    if made is None:
        return False
    shuffle = made.arguments.get("shuffle")
    is_dealer = "makes-distributed-sampler" in made.tags and (shuffle is None or _is(shuffle, True))
    return is_dealer or ("shuffles" in made.tags and "makes-distributed-sampler" not in made.tags)


_HEAD = "from torch.utils.data import DataLoader, DistributedSampler, RandomSampler\n\n\n"

EXAMPLES = (
    bad(
        "a distributed sampler and `shuffle=True`",
        {
            "train.py": _HEAD + "def loaders(dataset, rank):\n"
            "    sampler = DistributedSampler(dataset, rank=rank)\n"
            "    return DataLoader(dataset, batch_size=8, shuffle=True, sampler=sampler)\n"
        },
        at="train.py:6 error",
        fixed={
            "train.py": _HEAD + "def loaders(dataset, rank):\n"
            "    sampler = DistributedSampler(dataset, rank=rank)\n"
            "    return DataLoader(dataset, batch_size=8, sampler=sampler)\n"
        },
    ),
    bad(
        "only the distributed run has a sampler",
        {
            "train.py": _HEAD + "def loaders(args, dataset):\n"
            "    sampler = DistributedSampler(dataset) if args.distributed else None\n"
            "    return DataLoader(\n        dataset,\n        sampler=sampler,\n        shuffle=True,\n    )\n"
        },
        at="train.py:9 error",
    ),
    bad(
        "a batch sampler and a batch size",
        {
            "train.py": _HEAD + "from torch.utils.data import BatchSampler\n\n\n"
            "def loaders(dataset):\n"
            "    batches = BatchSampler(RandomSampler(dataset), 8, drop_last=False)\n"
            "    return DataLoader(dataset, batch_size=8, batch_sampler=batches)\n"
        },
        at="train.py:9 error",
    ),
    bad(
        "options from a helper, and a sampler that a class keeps",
        {
            "train.py": _HEAD + "def options():\n    return {'shuffle': True, 'num_workers': 2}\n\n\n"
            "class Data:\n    def __init__(self, items, rank):\n        self.items = items\n"
            "        self.order = DistributedSampler(items, rank=rank)\n\n"
            "    def loader(self):\n        return DataLoader(self.items, sampler=self.order, **options())\n"
        },
        at="train.py:5 error",
    ),
    good(
        "shuffle depends on the sampler",
        {
            "train.py": _HEAD + "def loaders(args, dataset):\n"
            "    sampler = DistributedSampler(dataset) if args.distributed else None\n"
            "    return DataLoader(dataset, sampler=sampler, shuffle=(sampler is None))\n"
        },
    ),
    good(
        "one of the two in each arm",
        {
            "train.py": _HEAD + "from torch.utils.data import BatchSampler\n\n\n"
            "def loaders(args, dataset):\n    sampler, batches = RandomSampler(dataset), None\n"
            "    if args.grouped:\n        sampler = None\n"
            "        batches = BatchSampler(RandomSampler(dataset), 8, drop_last=False)\n"
            "    return DataLoader(dataset, sampler=sampler, batch_sampler=batches)\n"
        },
    ),
    good(
        "no sampler, no shuffle, or a sampler from somewhere else",
        {
            "train.py": _HEAD + "def loaders(args, dataset, sampler=None):\n"
            "    first = DataLoader(dataset, sampler=None, shuffle=True)\n"
            "    second = DataLoader(dataset, sampler=DistributedSampler(dataset), shuffle=False)\n"
            "    third = DataLoader(dataset, sampler=sampler, shuffle=True)\n"
            "    return first, second, third, DataLoader(dataset, batch_size=1, batch_sampler=args.batches)\n"
        },
    ),
    good(
        "a loader of another library",
        {
            "train.py": "from project.data import DataLoader\nfrom torch.utils.data import RandomSampler\n\n\n"
            "def loaders(dataset):\n"
            "    return DataLoader(dataset, sampler=RandomSampler(dataset), shuffle=True)\n"
        },
    ),
)
