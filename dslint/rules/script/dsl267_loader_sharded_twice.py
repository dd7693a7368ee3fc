"""A loader with a `DistributedSampler` is prepared by accelerate, which deals out its batches once more.

**What.** `DataLoader(dataset, sampler=DistributedSampler(dataset))` handed to `accelerator.prepare(...)`, to
`prepare_data_loader`, or to `self.accelerator.prepare` of a Trainer.

**Why it hurts.** The sampler gives each of N ranks 1/N of the items; accelerate takes the batches of that loader for
those of the whole job and gives each rank every N-th. Nothing raises: a rank sees 1/N² of the items, all ranks together
1/N of them, and an epoch has 1/N of its steps. On eight GPUs an epoch leaves out seven eighths of the data.

**Fix.** Leave dealing out to one of them: drop the sampler (with `shuffle=True` in its place where it shuffled, which
is its default), or do not prepare the loader. The fix writes `shuffle=` for a sampler whose order is known.

**When it stays quiet.** A loader that is not prepared; `num_replicas` that is not the number of processes, as
`num_replicas=1`; a sampler that only some arms make; classes derived from `DistributedSampler`; a loader or a sampler
from elsewhere; one process; `prepare_data_loader(..., num_processes=1)`. No setting of `DataLoaderConfiguration` helps.

**Evidence.** Two gloo ranks, accelerate 1.15, 64 items in batches of 4: 4 steps a rank instead of 8, and 32 of the 64
items seen, also with `dispatch_batches`, `even_batches=False` and `use_seedable_sampler`; with `split_batches` 8 steps
of 2. With `num_replicas=1` all items are seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL267",
    name="loader-sharded-twice",
    kind="script",
    severity=Severity.ERROR,
    summary="a loader with a DistributedSampler is prepared by accelerate: most of the data is never seen",
    fix="safe",
    markers=(r"DistributedSampler", r"prepare(?:_data_loader)?\("),
    versions=("accelerate",),
    references=("https://huggingface.co/docs/accelerate/package_reference/torch_wrappers",),
    depends_on_run=True,
)

_HEAD = """\
import torch
from accelerate import Accelerator
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler


"""
_TRAIN = (
    _HEAD
    + """\
def train(model, optimizer, dataset):
    accelerator = Accelerator()
%s
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
"""
)
_LOADER = "    loader = DataLoader(dataset, batch_size=8, sampler=%s)"
_FIXED = "    loader = DataLoader(dataset, batch_size=8, shuffle=%s)"
_TRAINER = """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import Trainer


class OwnTrainer(Trainer):
    def get_train_dataloader(self):
        sampler = DistributedSampler(self.train_dataset, seed=self.args.seed, drop_last=True)
        loader = DataLoader(self.train_dataset, batch_size=self._train_batch_size, %s)
        return %s
"""

EXAMPLES = (
    bad(
        "the sampler in the call",
        {"train.py": _TRAIN % _LOADER % "DistributedSampler(dataset)"},
        "train.py:8",
        fixed={"train.py": _TRAIN % _FIXED % "True"},
    ),
    bad(
        "a sampler that does not shuffle, under a name",
        {
            "train.py": _TRAIN
            % (
                "    sampler = DistributedSampler(\n        dataset, num_replicas=accelerator.num_processes,"
                " rank=accelerator.process_index, shuffle=False\n    )\n" + _LOADER % "sampler"
            )
        },
        "train.py:11",
        fixed={
            "train.py": _TRAIN
            % (
                "    sampler = DistributedSampler(\n        dataset, num_replicas=accelerator.num_processes,"
                " rank=accelerator.process_index, shuffle=False\n    )\n" + _FIXED % "False"
            )
        },
    ),
    bad(
        "a batch sampler around it",
        {
            "train.py": _TRAIN
            % (
                "    sampler = DistributedSampler(dataset, shuffle=False)\n"
                "    loader = DataLoader(dataset, batch_sampler=BatchSampler(sampler, 8, False))"
            )
        },
        "train.py:9",
    ),
    bad(
        "a helper makes the loader, and accelerate dispatches its batches",
        {
            "train.py": _HEAD.replace("import Accelerator", "import Accelerator, DataLoaderConfiguration")
            + "def loader_of(dataset):\n    sampler = DistributedSampler(dataset, shuffle=True)\n"
            "    return DataLoader(dataset, batch_size=8, sampler=sampler)\n\n\n"
            "def main(dataset):\n"
            "    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))\n"
            "    loader = accelerator.prepare_data_loader(loader_of(dataset))\n    return loader\n"
        },
        "train.py:8",
    ),
    bad(
        "the loader of a Trainer",
        {"train.py": _TRAINER % ("sampler=sampler", "self.accelerator.prepare(loader)")},
        "train.py:9",
    ),
    good("no sampler", {"train.py": _TRAIN % _FIXED % "True"}),
    good(
        "the loader is not prepared",
        {
            "train.py": (_TRAIN % _LOADER % "DistributedSampler(dataset, shuffle=False)")
            .replace("optimizer, loader = acc", "optimizer = acc")
            .replace("optimizer, loader)", "optimizer)"),
            "trainer.py": _TRAINER % ("sampler=sampler", "loader"),
        },
    ),
    good(
        "every rank has all items, or a number of parts that the file does not tell",
        {
            "train.py": _TRAIN % _LOADER % "DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=False)",
            "parts.py": _TRAIN % _LOADER % "DistributedSampler(dataset, *model.part, shuffle=False)",
            "groups.py": _TRAIN % _LOADER % "DistributedSampler(dataset, num_replicas=model.groups, shuffle=False)",
        },
    ),
    good(
        "another sampler, and one from elsewhere",
        {
            "train.py": _TRAIN % _LOADER % "RandomSampler(dataset)",
            "model.py": _TRAIN % _LOADER % "model.sampler(dataset)",
            "own.py": _TRAIN.replace("def train", "class Whole(DistributedSampler):\n    def __iter__(self):\n"
            "        return iter(range(len(self.dataset)))\n\n\ndef train") % _LOADER % "Whole(dataset, shuffle=False)",
        },
    ),
    good(
        "only where accelerate does not prepare",
        {
            "train.py": _HEAD + "def train(model, dataset, accelerated):\n"
            "    sampler = None if accelerated else DistributedSampler(dataset, shuffle=False)\n"
            "    loader = DataLoader(dataset, batch_size=8, sampler=sampler)\n"
            "    if accelerated:\n        loader = Accelerator().prepare(loader)\n    return loader\n",
            "arms.py": _HEAD + "def train(model, dataset, accelerated):\n    if accelerated:\n"
            "        loader = Accelerator().prepare(DataLoader(dataset, batch_size=8))\n    else:\n"
            "        loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))\n"
            "    return loader\n",
        },
    ),
    good(
        "accelerate is told of one process",
        {
            "train.py": _HEAD + "from accelerate.data_loader import prepare_data_loader\n\n\n"
            "def loader_of(dataset, device):\n"
            "    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))\n"
            "    return prepare_data_loader(loader, device, num_processes=1, process_index=0)\n"
        },
    ),
    good("one process", {"train.py": _TRAIN % _LOADER % "DistributedSampler(dataset, shuffle=False)"}, world_size=1),
    good(
        "another library prepares",
        {
            "train.py": (_TRAIN % _LOADER % "DistributedSampler(dataset, shuffle=False)").replace(
                "from accelerate import", "from project import"
            )
        },
    ),
)  # fmt: skip

_PREPARES = frozenset({"prepare", "prepare_data_loader"})
_FUNCTION = "accelerate.data_loader.prepare_data_loader"
_BATCHES = frozenset({"torch.utils.data.BatchSampler", "torch.utils.data.sampler.BatchSampler"})
# ``DistributedSampler(dataset, num_replicas, rank, shuffle, ...)``.
_REPLICAS, _SHUFFLE = 1, 3


def precheck(tree: ast.Module) -> bool:
    """Something that prepares."""
    return any(call_name(call) in _PREPARES for call in flat(tree).nodes(ast.Call))


class Check(ScriptCheck):
    """Looks at every loader that accelerate prepares."""

    def finish(self) -> None:
        """Report each loader once."""
        if self.ctx.run.world_size.get_or(0) == 1:
            return
        seen: set[int] = set()
        for call in self.ctx.tree.every(cst.Call):
            for given in self._prepared(call):
                loader = self._loader(given)
                if loader is None or id(loader) in seen:
                    continue
                for name in ("sampler", "batch_sampler"):
                    value = self.ctx.loaders.argument(loader, name)
                    sampler = self._sampler(value) if value is not None else None
                    if value is not None and sampler is not None:
                        seen.add(id(loader))
                        self._report(loader, name, value, sampler, call)

    def _prepared(self, call: cst.Call) -> Iterator[cst.BaseExpression]:
        """What a call of accelerate may deal out."""
        if self.ctx.qualified_name(call.func) == _FUNCTION:
            given = self.ctx.argument(call, "dataloader", 0)
            if (
                given is not None
                and not self.ctx.has_unpacked_arguments(call)
                and self._counts_all(call, "num_processes", 2)
            ):
                yield given
            return
        owner = call.func.value if isinstance(call.func, cst.Attribute) and call.func.attr.value in _PREPARES else None
        if owner is not None and self.ctx.kind(owner) == "accelerator":
            plain = (a for a in call.args if not a.star)
            yield from (a.value for a in plain if a.keyword is None or a.keyword.value == "data_loader")

    def _counts_all(self, call: cst.Call, name: str, position: int) -> bool:
        """An argument is left out, or the number of all processes."""
        given = self.ctx.argument(call, name, position)
        return given is None or self.ctx.guards.rank_values.is_world_size(given)

    def _loader(self, given: cst.BaseExpression) -> cst.Call | None:
        """The one `DataLoader(...)` that a value certainly is."""
        made = self.ctx.objects.made(given) if self.ctx.kind(given) == "loader" else None
        return made if self.ctx.loaders.is_loader(made) else None

    def _sampler(self, value: cst.BaseExpression) -> cst.Call | None:
        """The `DistributedSampler(...)` over all processes that a value certainly is, or draws its items from."""
        things = self.ctx.objects.things(value)
        made = {t.made for t in things}
        sampler = next(iter(made)) if len(made) == 1 else None
        if sampler is not None and self.ctx.qualified_name(sampler.func) in _BATCHES:
            inner = self.ctx.argument(sampler, "sampler", 0)
            return self._sampler(inner) if inner is not None else None
        if sampler is None or not self.ctx.loaders.is_distributed_sampler(sampler):
            return None
        is_open = self.ctx.has_unpacked_arguments(sampler)
        return sampler if not is_open and self._counts_all(sampler, "num_replicas", _REPLICAS) else None

    def _report(
        self, loader: cst.Call, name: str, value: cst.BaseExpression, sampler: cst.Call, call: cst.Call
    ) -> None:
        self.report(
            value,
            "the `DistributedSampler` deals the items out to the ranks and accelerate deals the batches of this loader "
            "out once more: of N ranks each sees 1/N² of the items, and all together 1/N",
            hint=f"Drop `{name}`, or do not prepare the loader",
            related=(self.ctx.location(call, "prepared here"), self.ctx.location(sampler, "the sampler")),
            fix=self._fix(loader, name, value, sampler),
            facts={"argument": name},
        )

    def _fix(self, loader: cst.Call, name: str, value: cst.BaseExpression, sampler: cst.Call) -> Fix | None:
        """`shuffle=True` in place of `sampler=...`, where the order of the sampler is known."""
        arg = next((a for a in loader.args if a.keyword is not None and a.keyword.value == name), None)
        others = {a.keyword.value for a in loader.args if a.keyword is not None}
        plain = name == "sampler" and arg is not None and arg.value is value and "shuffle" not in others
        if not plain or any(a.star for a in loader.args) or sum(a.keyword is None for a in loader.args) > 2:
            return None
        shuffle = self.ctx.argument(sampler, "shuffle", _SHUFFLE)
        shuffles = self.ctx.constant(shuffle).get_or(None) if shuffle is not None else True
        if arg is None or not isinstance(shuffles, bool):
            return None
        edit = Edit(self.ctx.doc.path, self.ctx.span(arg), f"shuffle={shuffles}")
        return Fix("Leave dealing out to accelerate", (edit,))
