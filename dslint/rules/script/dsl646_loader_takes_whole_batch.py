"""Each rank's loader gives batches of `train_batch_size`, which is meant for all ranks and micro batches together.

**What.** A loader with a `DistributedSampler`, or the pipeline of each rank over a stream of shards, has the batch size
that the config of the DeepSpeed engine gives as `train_batch_size`, or what `engine.train_batch_size()` says.

**Why it hurts.** `train_batch_size` is the product of the micro batch, the accumulation steps and the number of ranks.
The engine does not look at what the loader gives: it counts micro batches. On eight ranks with four micro batches a
step sees 32 times the rows that the config states, the learning rate belongs to another batch, and the schedule is
left after a fraction of its steps.

**Fix.** `batch_size=engine.train_micro_batch_size_per_gpu()`.

**When it stays quiet.** Loaders without a distributed sampler; numbers that cannot be compared; a config whose micro
batch is the same number; one process.

**Evidence.** DeepSpeed 0.19 `_configure_train_batch_size` checks the three numbers against each other only;
`is_gradient_accumulation_boundary` counts micro steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import is_same_number

META = RuleMeta(
    code="DSL646",
    name="loader-takes-whole-batch",
    kind="script",
    severity=Severity.WARNING,
    summary="the loader of each rank gives batches of `train_batch_size`, which is meant for all ranks together",
    markers=(r"deepspeed", r"train_batch_size", r"DataLoader|batched|WebLoader"),
    references=(
        "https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters",
        "https://github.com/deepspeedai/DeepSpeed/issues/152",
    ),
    depends_on_run=True,
    no_experiment="what a loader gives and what a config states can be compared without a run",
)
_ASKED = "train_batch_size"
_SIZES = ("batch_size", "batchsize")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each divided loader whose batch is that of the whole job."""
    engines = [found.event for found in run.happenings("makes-engine") if not found.event.may]
    if run.context.is_one_process or not engines:
        return
    for found in run.happenings("makes-loader", "makes-batches"):
        event = found.event
        size = next((event.arguments[name] for name in _SIZES if name in event.arguments), None)
        if size is None or event.open or not _is_divided(run, event):
            continue
        engine = next((made for made in engines if _is_whole(made, size)), None)
        if engine is not None:
            yield _finding(run, event, engine)


def _is_divided(run: RunQuery, event: Event) -> bool:
    """Return whether a loader certainly gives each rank its own share."""
    libraries = run.machine.libraries
    if "makes-batches" in event.tags or _is_pipeline(run, event.arguments.get("dataset")):
        return True
    found = instances(event.arguments.get("sampler"))
    return bool(found) and all(
        isinstance(atom.cls, str) and libraries.is_class(atom.cls, "distributed-sampler") for atom in found
    )


def _is_pipeline(run: RunQuery, data: Value | None) -> bool:
    """Return whether a data set is a pipeline over shards, which each rank runs for itself."""
    rows = [run.machine.libraries.class_(atom.cls) for atom in instances(data) if isinstance(atom.cls, str)]
    return bool(rows) and all(row is not None and row.kind == "dataset" and _pipes(run, row.path) for row in rows)


def _pipes(run: RunQuery, path: str) -> bool:
    return any("pipes" in row.constructor.tags for row in run.machine.libraries.lineage(path))


def _is_whole(engine: Event, size: Value) -> bool:
    """Return whether a batch size is the `train_batch_size` of an engine, and not its micro batch as well."""
    number = size.number
    path = number[0] if isinstance(number, tuple) and number else None
    if isinstance(path, str) and path.endswith(f".{_ASKED}"):
        return True
    settings = engine.settings
    if settings is None or f"/{_ASKED}" not in settings.items or f"/{_ASKED}" in settings.maybe:
        return False
    micro = settings.items.get("/train_micro_batch_size_per_gpu")
    return is_same_number(size, settings.items[f"/{_ASKED}"]) and not (
        micro is not None and is_same_number(size, micro)
    )


def _finding(run: RunQuery, event: Event, engine: Event) -> Finding:
    node = next((event.nodes[name] for name in _SIZES if name in event.nodes), event.node)
    shown = run.text(event.module, node)
    return run.finding(
        META,
        event.module,
        node,
        f"`{shown}` is the batch size of all ranks (`train_batch_size`), but each rank loads that many per micro batch",
        hint="Pass `engine.train_micro_batch_size_per_gpu()`",
        related=(run.location(engine.module, engine.node, "the engine counts micro batches"),),
    )


_SCRIPT = """\
import argparse

import deepspeed
from torch.utils.data import DataLoader, DistributedSampler


def config(args):
    return {
        "train_batch_size": args.batch_size,
        "gradient_accumulation_steps": 4,
        "train_micro_batch_size_per_gpu": args.batch_size // 32,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
    }


def main(model, dataset):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=512)
    args = parser.parse_args()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(args))
    loader = DataLoader(dataset, batch_size=%s%s)
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()


main(load_model(), load_data())
"""
_SHARDS = """\
import deepspeed
import webdataset as wds


def pipeline(args):
    stream = wds.WebDataset(args.shards, resampled=True, nodesplitter=wds.split_by_node)
    return stream.shuffle(1000).decode("pil").to_tuple("jpg", "cls").batched(%s)


def main(args, model):
    config = {"train_batch_size": args.batch_size, "optimizer": {"type": "Adam", "params": {"lr": 0.001}}}
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for images, labels in wds.WebLoader(pipeline(args), batch_size=None).with_epoch(1000):
        engine.backward(engine(images, labels))
        engine.step()


main(parse(), load_model())
"""
_SHARE = ", sampler=DistributedSampler(dataset)"

EXAMPLES = (
    bad("an option for both", {"train.py": _SCRIPT % ("args.batch_size", _SHARE)}, at="train.py:21 warning"),
    bad(
        "two numbers",
        {
            "train.py": (_SCRIPT % ("64", _SHARE))
            .replace(": args.batch_size,", ": 64,")
            .replace('        "train_micro_batch_size_per_gpu": args.batch_size // 32,\n', "")
        },
        at="train.py:20 warning",
    ),
    bad("asked of the engine", {"train.py": _SCRIPT % ("engine.train_batch_size()", _SHARE)}, at="train.py:21 warning"),
    bad("a pipeline over shards", {"train.py": _SHARDS % "args.batch_size, partial=False"}, at="train.py:7 warning"),
    good("a share of it", {"train.py": _SHARDS % "args.batch_size // engine_count()"}),
    good("the micro batch", {"train.py": _SCRIPT % ("engine.train_micro_batch_size_per_gpu()", _SHARE)}),
    good("computed from it", {"train.py": _SCRIPT % ("args.batch_size // 32", _SHARE)}),
    good(
        "a micro batch of the same size",
        {"train.py": (_SCRIPT % ("args.batch_size", _SHARE)).replace("args.batch_size // 32", "args.batch_size")},
    ),
)
