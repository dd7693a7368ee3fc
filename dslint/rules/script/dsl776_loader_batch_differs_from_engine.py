"""The loader feeds batches of another size than the micro batch that the DeepSpeed config states.

**What.** `DataLoader(data, batch_size=args.batch_size)` of the script feeds the engine, and
`train_micro_batch_size_per_gpu` of its config is another number, or another one follows from `train_batch_size`.

**Why it hurts.** DeepSpeed does not look at the batches that come. It accumulates as many of them as the numbers of
the config say: with 32 samples in each instead of 8 a step takes four times as many as `train_batch_size`, with the
learning rate and the warmup that were made for the smaller one, and an epoch has a fourth of the steps. What
DeepSpeed says of the batch size and of samples per second is wrong, too. Nothing fails.

**Fix.** Ask the engine, `batch_size=engine.train_micro_batch_size_per_gpu()`, or write one number in both places.

**When it stays quiet.** A number that is not known on one of the sides; a batch size of 1, where items may be
batches already; a loader with a `batch_sampler`; a loop that cuts the batches, or takes several, before the engine gets
them; several engines; `accelerate`, which compares the numbers itself. A note where the batch size is the default of
an option and no command is known.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8: of 64 samples two steps are made where the config promises eight.
`DeepSpeedConfig._set_batch_related_parameters` reads the config alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact, absent, known
from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import ENGINE, constant_of, maker_of, owners_of

META = RuleMeta(
    code="DSL776",
    name="loader-batch-differs-from-engine",
    kind="script",
    severity=Severity.WARNING,
    summary="the loader feeds other batches than the micro batch of the DeepSpeed config: steps take other samples",
    markers=(r"deepspeed", r"DataLoader"),
    versions=("deepspeed",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/62",),
    depends_on_run=True,
)
_LOADER = "torch.utils.data.DataLoader"
_OWN_BATCHES = ("batch_sampler", "*")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loader whose batches an engine gets as they are, with another number of samples."""
    made = {id(h.event.node) for h in run.occurrences("makes-engine")}
    loaders = {id(h.event.node): h.event for h in run.occurrences("makes-loader")} if len(made) == 1 else {}
    seen: set[int] = set()
    for found in run.occurrences("engine-backward") if loaders else ():
        maker = maker_of(run, owners_of(run, found.event.receiver, ENGINE))
        micro = _micro_batch(run, maker) if maker is not None and not found.event.may else absent()
        for loader in _fed_by(run, found, loaders) if micro.is_known else ():
            size, is_default = _batch_size(run, loader)
            if size is None or size in (1, micro.get()) or id(loader.node) in seen:
                continue
            seen.add(id(loader.node))
            yield _finding(run, loader, size, micro, is_default=is_default)


def _micro_batch(run: RunQuery, maker: Event) -> Fact[int]:
    """Return the samples of a micro batch that the engine is told: by the code, or by the file of the run."""
    stated = constant_of(maker.micro_batch)
    if type(stated) is int:
        node = maker.nodes.get("config") or maker.node
        return known(stated, run.location(maker.module, node, f"the engine is told {stated}"))
    if maker.micro_batch is not None or maker.settings is not None:
        return absent()
    fact = run.context.micro_batch
    return (
        known(fact.get(), *(o.labelled(f"the engine is told {fact.get()}") for o in fact.origins))
        if (fact.is_known)
        else absent()
    )


def _fed_by(run: RunQuery, found: Happening, loaders: dict[int, Event]) -> Iterator[Event]:
    """Yield the loaders whose batches the innermost loop around a backward goes through, one each turn."""
    loop = next((node for node in reversed(found.around) if isinstance(node, Loop)), None)
    made = [loaders.get(id(node)) for node in loop.items] if loop is not None else []
    events = [event for event in made if event is not None and event.api == _LOADER]
    if events and len(events) == len(made) and not _is_taken(run, events):
        yield from events


def _is_taken(run: RunQuery, loaders: list[Event]) -> bool:
    """Return whether a library prepares one of the loaders."""
    atoms = {atom for event in loaders for atom in instances(event.result)}
    return any(atoms & set(instances(v)) for h in run.occurrences("prepares") for v in h.event.arguments.values())


def _batch_size(run: RunQuery, loader: Event) -> tuple[int | None, bool]:
    """Return how many samples a loader puts together, and whether that is a default which a command may replace."""
    if loader.open or loader.may or any(name in loader.arguments for name in _OWN_BATCHES):
        return None, False
    value = loader.arguments.get("batch_size")
    stated = constant_of(value)
    if type(stated) is int:
        return stated, False
    likely = run.likely(value)
    default = likely[0] if likely is not None and len(likely) == 1 and run.machine.launch is None else None
    return (default if type(default) is int else None), True


def _finding(run: RunQuery, loader: Event, size: int, micro: Fact[int], *, is_default: bool) -> Finding:
    node = loader.nodes.get("batch_size") or loader.node
    words = {part.rpartition(".")[2] for part in [run.text(loader.module, node)]}
    return run.finding(
        META,
        loader.module,
        loader.node,
        f"The loader feeds batches of {size}, but the DeepSpeed config plans micro batches of {micro.get()}:"
        f" a step takes {_times(size, micro.get())} the samples",
        hint="Pass `batch_size=engine.train_micro_batch_size_per_gpu()`, or write the same number in both places",
        related=(*micro.origins, *run.given_at(*words)),
        severity=Severity.INFO if is_default else None,
        facts={"batch_size": size, "micro_batch": micro.get()},
    )


def _times(size: int, micro: int) -> str:
    return f"{size // micro} times" if size % micro == 0 else f"{size}/{micro} of"


_TRAIN = """\
import argparse

import deepspeed
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=%(default)s)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    deepspeed.init_distributed()
    data = TensorDataset(torch.rand(64, 4), torch.rand(64, 1))
    model = torch.nn.Linear(4, 1)
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters()%(config)s)
    loader = DataLoader(data, %(size)s, sampler=DistributedSampler(data))
    for x, y in loader:
        loss = (engine(x) - y).square().mean()
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
"""
_RUN = "deepspeed --num_gpus 4 train.py --deepspeed_config ds.json%s\n"
_FILE = """\
{
  "train_batch_size": 64,
  "gradient_accumulation_steps": 2,%s
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""
_MICRO = '\n  "train_micro_batch_size_per_gpu": 8,'
_DICT = ', config={"train_micro_batch_size_per_gpu": %s, "optimizer": {"type": "AdamW"}}'


def _train(size: str = "batch_size=args.batch_size", config: str = "", default: str = "32") -> str:
    return _TRAIN % {"size": size, "config": config, "default": default}


def _run(train: str, words: str = " --batch_size 32", micro: str = _MICRO) -> dict[str, str]:
    return {"run.sh": _RUN % words, "ds.json": _FILE % micro, "train.py": train}


_AT = "train.py:19 warning"
_HELPED = """\
from torch.utils.data import DataLoader, DistributedSampler


class Data:
    def __init__(self, data, config):
        self.data, self.size = data, config["batch_size"]

    def loader(self):
        return DataLoader(self.data, sampler=DistributedSampler(self.data), batch_size=self.size, drop_last=True)
"""
_USED = (
    _train(config=_DICT % "4")
    .replace(
        "DataLoader(data, batch_size=args.batch_size, sampler=DistributedSampler(data))",
        'Data(data, {"batch_size": 16}).loader()',
    )
    .replace("import torch\n", "import torch\nfrom helped import Data\n")
)
_CUT = _train().replace(
    "    for x, y in loader:\n        loss", "    for xs, y in loader:\n      for x in xs.split(8):\n        loss"
)

EXAMPLES = (
    bad("an option that the command passes", _run(_train()), _AT),
    bad("a default that it leaves alone", _run(_train(), ""), _AT),
    bad("a number, and what follows from the batch of a step", _run(_train("4"), "", ""), _AT),
    bad("a config in the code", {"train.py": _train("batch_size=16", _DICT % "4")}, _AT),
    bad("a helper that makes the loader", {"train.py": _USED, "helped.py": _HELPED}, "helped.py:9 warning"),
    bad("a default, and nobody knows the command", {"train.py": _train(config=_DICT % "4")}, "train.py:19 info"),
    good("the same number", _run(_train(default="8"), " --batch_size 8")),
    good("what the engine says", _run(_train("engine.train_micro_batch_size_per_gpu()"), "")),
    good("the number of the option in the config", {
        "train.py": _train(config=_DICT % "args.batch_size"),
        "run.sh": "deepspeed train.py --batch_size 16\n"}),
    good("items that may be batches", {"train.py": _train("batch_size=1", _DICT % "4")}),
    good("the batch is cut", _run(_CUT), select="DSL776"),
)  # fmt: skip
