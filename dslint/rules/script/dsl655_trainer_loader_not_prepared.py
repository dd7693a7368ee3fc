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

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.values import ClassAtom
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.intent import says_several
from dslint.rules.ownorders import entry_modules
from dslint.rules.plateaus import instances
from dslint.rules.runs import RunQuery

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
_BEFORE_SAMPLER = 3  # data set, batch size, shuffle
_STREAM = re.compile(r"IterableDataset|streaming\s*=\s*True|WebDataset")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loader that an override makes and returns as it is."""
    if run.context.is_one_process or any(module.search(_STREAM) for module in run.machine.program.modules()):
        return
    seen: set[int] = set()
    for found in run.happenings("trainer-train"):
        for atom in instances(found.event.receiver):
            owner = _overriding(run, atom.cls) if isinstance(atom.cls, ClassAtom) else None
            loader = _plain_loader(owner) if owner is not None else None
            if owner is None or loader is None or id(loader) in seen:
                continue
            seen.add(id(loader))
            yield run.finding(
                META,
                owner.module,
                loader,
                "The Trainer takes this loader as it is: every rank trains on all items, in the same order",
                hint="Return `self.accelerator.prepare(...)` of the loader",
                related=(run.location(found.event.module, found.event.node, "trains"),),
                severity=None if says_several(run, entry_modules(run)) else Severity.INFO,
            )


def _overriding(run: RunQuery, cls: ClassAtom) -> ClassAtom | None:
    """Return the class of the project whose method a Trainer of transformers runs."""
    lineage = list(attributes.lineage(run.machine, cls))
    known = [base for base in lineage if isinstance(base, str) and base != "builtins.object"]
    if not known or not all(base.startswith(("transformers.", "trl.")) for base in known):
        return None
    return next((base for base in lineage if isinstance(base, ClassAtom) and _method(base) is not None), None)


def _method(cls: ClassAtom) -> ast.FunctionDef | None:
    methods = (node for node in cls.node.body if isinstance(node, ast.FunctionDef))
    return next((node for node in methods if node.name == _METHOD), None)


def _plain_loader(cls: ClassAtom) -> ast.Call | None:
    """Return the loader that the method makes and returns, where nothing in the class divides it."""
    method = _method(cls)
    if method is None or _DIVIDES.search(cls.module.text(method)):
        return None
    returned = [node.value for node in ast.walk(method) if isinstance(node, ast.Return) and node.value is not None]
    if len(returned) != 1:
        return None
    value: ast.expr | None = returned[0]
    if isinstance(value, ast.Name):
        given = [
            node.value
            for node in ast.walk(method)
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in node.targets)
        ]
        value = given[0] if len(given) == 1 else None
    if not isinstance(value, ast.Call) or not cls.module.path_of(value.func).startswith("torch.utils.data."):
        return None
    names = {keyword.arg for keyword in value.keywords}
    return value if not names & {*_SAMPLES, None} and len(value.args) <= _BEFORE_SAMPLER else None


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

EXAMPLES = (
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
