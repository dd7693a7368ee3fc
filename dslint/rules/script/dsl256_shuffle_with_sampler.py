"""`DataLoader` gets `shuffle=True` together with a sampler.

**What.** `DataLoader(dataset, sampler=sampler, shuffle=True)`, or a `batch_sampler` beside `shuffle=True`, a `sampler`,
`drop_last=True` or a `batch_size`.

**Why it hurts.** The constructor raises on every rank: `ValueError: sampler option is mutually exclusive with shuffle`,
`batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last`. Where the sampler is made
only when the run is distributed, the script works on one GPU and dies on eight.

**Fix.** Drop `shuffle`: a `DistributedSampler` shuffles by itself. The fix deletes the argument; it is safe when the
sampler is known to shuffle, else a person should look at the order.

**When it stays quiet.** `shuffle=(sampler is None)` and other values that cannot be read; `shuffle=False`;
`sampler=None`; a sampler that the file does not make.

**Evidence.** torch 2.13 `DataLoader.__init__`. Two gloo ranks: both raise `ValueError`, with each of the two arguments
alone the loader works.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Span
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

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


def precheck(tree: ast.Module) -> bool:
    """A `DataLoader` with a sampler and another of the arguments that exclude it."""
    for call in flat(tree).nodes(ast.Call):
        if call_name(call).endswith("DataLoader"):
            given = {k.arg for k in call.keywords}
            if "batch_sampler" in given or ("sampler" in given and ("shuffle" in given or len(call.args) > 2)):
                return True
    return False


class Check(ScriptCheck):
    """Looks at every `DataLoader(...)`."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire where both are certain."""
        loaders = self.ctx.loaders
        if not loaders.is_loader(node):
            return
        sampler, batches = loaders.argument(node, "sampler"), loaders.argument(node, "batch_sampler")
        shuffle = loaders.argument(node, "shuffle")
        mixed = self.ctx.constant(shuffle).get_or(None) is True if shuffle is not None else False
        if mixed and sampler is not None and self._makes_sampler(sampler):
            self._report(node, shuffle or node, "shuffle", "sampler", sampler)
        elif batches is not None and self._makes_sampler(batches):
            name = self._excluded(node, mixed)
            if name:
                self._report(node, loaders.argument(node, name) or node, name, "batch_sampler", batches)

    def _excluded(self, node: cst.Call, shuffles: bool) -> str:
        """The first argument beside a `batch_sampler` that torch refuses."""
        if shuffles:
            return "shuffle"
        sampler, batches = (self.ctx.loaders.argument(node, name) for name in ("sampler", "batch_sampler"))
        if sampler is not None and self._makes_sampler(sampler):
            # Where each of the two may be ``None``, the arm that makes the one may well leave out the other.
            return "sampler" if not (self._may_be_none(sampler) and self._may_be_none(batches)) else ""
        for name, harmless in (("batch_size", 1), ("drop_last", False)):
            value = self.ctx.loaders.argument(node, name)
            known = self.ctx.constant(value).get_or(harmless) if value is not None else harmless
            if known != harmless and isinstance(known, int):
                return name
        return ""

    def _makes_sampler(self, value: cst.BaseExpression) -> bool:
        """Some value of the argument is a sampler that this file makes."""
        return any(
            isinstance(s.node, cst.Call) and last_name(s.node.func).endswith("Sampler")
            for s in self.ctx.loaders.sources.of(value)
        )

    def _may_be_none(self, value: cst.BaseExpression | None) -> bool:
        return any(last_name(s.node) == "None" for s in self.ctx.loaders.sources.of(value))

    def _report(
        self, node: cst.Call, value: cst.BaseExpression, name: str, sampler: str, given: cst.BaseExpression
    ) -> None:
        text = self.ctx.text(value)
        self.report(
            value,
            f"`DataLoader` gets `{name}={text}` and a `{sampler}`, which exclude each other: it raises `ValueError`",
            hint=f"Drop `{name}`" + (": the sampler decides the order" if name == "shuffle" else ""),
            fix=self._fix(node, name, given),
            related=(self.ctx.location(given, f"the `{sampler}`"),),
            facts={"argument": name, "sampler": sampler},
        )

    def _fix(self, node: cst.Call, name: str, sampler: cst.BaseExpression) -> Fix | None:
        index = next((i for i, a in enumerate(node.args) if a.keyword is not None and a.keyword.value == name), None)
        if index is None or len(node.args) < 2:
            return None
        # From the end of the argument before, or to the beginning of the next one: the comma goes with it.
        spans = [self.ctx.span(a) for a in node.args]
        before = self.ctx.span(node.args[index - 1].value).end if index else 0
        here = self.ctx.span(node.args[index].value)
        cut = Span(before, here.end) if index else Span(spans[0].start, spans[1].start)
        between = self.ctx.doc.source.text[cut.start : cut.end]
        if "#" in between:
            return None
        safe = name == "shuffle" and self._shuffles(sampler)
        edit = Edit(self.ctx.doc.path, cut, "")
        return Fix(f"Delete `{name}`", (edit,), Safety.SAFE if safe else Safety.UNSAFE)

    def _shuffles(self, sampler: cst.BaseExpression) -> bool:
        """Every sampler that it may be shuffles by itself."""
        made = [s.node for s in self.ctx.loaders.sources.of(sampler)]
        return all(isinstance(m, cst.Call) and self._shuffles_itself(m) for m in made) and bool(made)

    def _shuffles_itself(self, made: cst.Call) -> bool:
        if self.ctx.loaders.is_distributed_sampler(made):
            return self.ctx.loaders.shuffles(made)
        return self.ctx.called(made) in ("RandomSampler", "WeightedRandomSampler", "SubsetRandomSampler")
