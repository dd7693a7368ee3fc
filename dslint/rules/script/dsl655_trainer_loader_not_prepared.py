"""A Trainer's `get_train_dataloader` is overridden, and returns a loader that nothing divides among the ranks.

**What.** A class derived from the Trainer of transformers (or of trl) makes a `DataLoader` in `get_train_dataloader`
and returns it as it is. The method of the Trainer returns what `self.accelerator.prepare` gives.

**Why it hurts.** The Trainer takes what the method returns. Every rank goes through the whole data set, and since the
Trainer seeds all ranks alike, in the same order: all GPUs compute the same gradients, and more GPUs do not make an
epoch faster. Nothing fails.

**Fix.** `return self.accelerator.prepare(DataLoader(...))`.

**When it stays quiet.** The loader is prepared, or gets a sampler of its own; the class speaks of ranks, of shards or
of `super().get_train_dataloader()`; a stream, which may be divided where it is made; one process. Where nothing says
that the script runs in several processes it is an information.

**Evidence.** Two gloo ranks, transformers 5.24: with the override each rank gets all eight items; prepared, each gets
four of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Call, Event, events
from dslint.python.values import Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.ownorders import entry_modules
from dslint.rules.ranks.intent import says_several
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL655",
    name="trainer-loader-not-prepared",
    kind="script",
    severity=Severity.WARNING,
    summary="`get_train_dataloader` of a Trainer returns a loader that nothing divides: every rank trains on all items",
    markers=(r"def get_train_dataloader", r"DataLoader\("),
    references=(
        "https://huggingface.co/docs/transformers/main_classes/trainer",
        "Trainer.get_train_dataloader in transformers/trainer.py",
    ),
    depends_on_run=True,
)
_METHOD = "get_train_dataloader"
_DIVIDES = re.compile(
    r"prepare|super\(|Distributed|rank|world_size|process_index|num_processes|shard|split_dataset|dispatch|mpu|parallel",
    re.I,
)
_SAMPLES = ("sampler", "batch_sampler")
_STREAM = re.compile(r"IterableDataset|streaming\s*=\s*True|WebDataset")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loader that an override makes and returns as it is."""
    if run.context.is_one_process or any(module.search(_STREAM) for module in run.machine.program.modules()):
        return
    prepared = {a for h in run.occurrences("prepares") for v in h.event.arguments.values() for a in instances(v)}
    seen: set[int] = set()
    for found in run.occurrences("makes-loader"):
        event = found.event
        hook = _hook(run, found)
        if (
            hook is None
            or id(event.node) in seen
            or not _is_plain(event)
            or prepared.intersection(instances(event.result))
        ):
            continue
        seen.add(id(event.node))
        yield run.finding(
            META,
            event.module,
            event.node,
            "The Trainer takes this loader as it is: every rank trains on all items, in the same order",
            hint="Return `self.accelerator.prepare(...)` of the loader",
            related=(run.location(hook.module, hook.node, "trains"),),
            severity=None if says_several(run, entry_modules(run)) else Severity.INFO,
        )


def _hook(run: RunQuery, found: Happening) -> Call | None:
    """Return the call by which a Trainer asks for its loader, where nothing on the way to this one divides it."""
    at = next((n for n, call in enumerate(found.calls) if getattr(call.function, "name", "") == _METHOD), None)
    inner = [call.function for call in found.calls[at:]] if at is not None else []
    functions = [function for function in inner if isinstance(function, Function)]
    if at is None or not functions or not _is_of_trainer(run, functions[0]):
        return None
    others = [event for event in events(found.calls[at].body) if "makes-loader" in event.tags]
    is_divided = any(_DIVIDES.search(function.module.text(function.node)) for function in functions)
    return found.calls[at] if len(others) == 1 and not is_divided else None


def _is_of_trainer(run: RunQuery, method: Function) -> bool:
    """Return whether a method overrides that of a Trainer of transformers, and of nothing else."""
    classes = attributes.descendants(run.machine, method.owner) if method.owner is not None else []
    orders = [attributes.lineage(run.machine, cls) for cls in classes]
    known = [[base for base in order if isinstance(base, str) and base != "builtins.object"] for order in orders]
    return any(bases and all(base.startswith(("transformers.", "trl.")) for base in bases) for bases in known)


def _is_plain(event: Event) -> bool:
    """Return whether a loader of torch certainly gets no sampler."""
    is_read = event.api.startswith("torch.utils.data.") and not event.open and not event.may
    given = (event.arguments.get(name) for name in _SAMPLES)
    return is_read and all(value is None or value.constants == (None,) for value in given)


_TRAIN = """\
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Mixed(Trainer):
    def get_train_dataloader(self):
        batch = self.args.per_device_train_batch_size
        %s


def main():
    args = TrainingArguments("out", per_device_train_batch_size=4)
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    rows = load_dataset("json", data_files="rows.json", split="train")
    Mixed(model=model, args=args, train_dataset=rows).train()


main()
"""
_PLAIN = "DataLoader(self.train_dataset, batch_size=batch, shuffle=True, collate_fn=self.data_collator)"
_RUN = "torchrun --nproc_per_node 8 train.py\n"

_SHARED = _TRAIN.replace(
    "        batch = self.args.per_device_train_batch_size\n        %s\n",
    """\
        return self.loader(self.train_dataset)

    def loader(self, rows):
        options = {"shuffle": True, "num_workers": 4}
        return %s
""",
)
_MADE = "DataLoader(rows, batch_size=self.args.per_device_train_batch_size, **options)"

EXAMPLES = (
    bad("a helper makes it", {"train.py": _SHARED % _MADE, "run.sh": _RUN}, at="train.py:12 warning"),
    good("a helper prepares it", {"train.py": _SHARED % f"self.accelerator.prepare({_MADE})", "run.sh": _RUN}),
    bad("returned as it is", {"train.py": _TRAIN % f"return {_PLAIN}", "run.sh": _RUN}, at="train.py:9 warning"),
    bad(
        "by a variable",
        {"train.py": _TRAIN % f"loader = {_PLAIN}\n        return loader", "run.sh": _RUN},
        at="train.py:9 warning",
    ),
    bad("nobody says how many", {"train.py": _TRAIN % f"return {_PLAIN}"}, at="train.py:9 info"),
    good("prepared", {"train.py": _TRAIN % f"return self.accelerator.prepare({_PLAIN})", "run.sh": _RUN}),
    good(
        "a sampler",
        {"train.py": _TRAIN % f"return {_PLAIN.replace('shuffle=True', 'sampler=own(self)')}", "run.sh": _RUN},
    ),
    good(
        "one process",
        {"train.py": _TRAIN % f"return {_PLAIN}", "run.sh": "torchrun --nproc_per_node 1 train.py\n"},
    ),
)
