"""`accelerator.prepare` under DeepSpeed gets two models, a model and no loader, or a loader without a batch size.

**What.** The Accelerator works with DeepSpeed (it has a `deepspeed_plugin`, or its launch commands say so), and one
call of `prepare` gets more than one model; or the first call that gets a model gets no loader, or one with a
`batch_sampler`, and nothing says how large a micro batch is: a config of `accelerate launch` without a DeepSpeed file,
a file with `"auto"`, a plugin of the script.

**Why it hurts.** Every rank stops after the models are loaded: `AssertionError: You can't use same Accelerator()
instance with multiple models when using DeepSpeed`, or `ValueError: When using DeepSpeed, accelerate.prepare()
requires you to pass at least one of training or evaluation dataloaders`, or `At least one of the dataloaders passed to
accelerate.prepare() has None as batch size`. The same script runs with plain DDP.

**Fix.** Put the models into one `torch.nn.Module` with one `forward`, and leave frozen ones (teacher, VAE) out of
`prepare`: move them with `.to(accelerator.device)`. Prepare the loaders in the same call as the model, or set
`train_micro_batch_size_per_gpu` in the DeepSpeed config.

**When it stays quiet.** It is not certain that the Accelerator works with DeepSpeed; an argument may be a loader; the
config is a file or a dictionary that may hold the size, or `batch_sampler` is `None`; the script names
`train_micro_batch_size_per_gpu`; something may have been prepared before.

**Evidence.** Two gloo ranks, accelerate 1.15 and DeepSpeed 0.19.8: both calls raise on every rank; with one model and
its loader the engine is made. `Accelerator.prepare` and `_prepare_deepspeed` in accelerate/accelerator.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.deepspeed.batch import FROM_LOADERS
from dslint.python.events import Event, events
from dslint.python.values import Const
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import (
    ACCELERATOR,
    DEEPSPEED,
    MODEL,
    OPTIMIZER,
    SCHEDULE,
    Prepared,
    earlier_prepares,
    maker_of,
    models_in,
    plugin_of,
    prepared_by,
    uses_deepspeed,
)
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL624",
    name="prepare-refused-under-deepspeed",
    kind="script",
    severity=Severity.ERROR,
    summary="`accelerator.prepare` under DeepSpeed gets two models, or nothing that says how large a batch is",
    markers=(r"accelerat", r"prepare\("),
    references=(
        "https://github.com/huggingface/accelerate/pull/1468",
        "https://github.com/jquesnelle/yarn/issues/35",
    ),
    depends_on_run=True,
)
_SIZE = "train_micro_batch_size_per_gpu"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call that DeepSpeed's side of `prepare` refuses."""
    for found in run.happenings("prepares"):
        event = found.event
        accelerator = maker_of(run, event.receiver) if event.api == f"{ACCELERATOR}.prepare" else None
        given = prepared_by(event) if accelerator is not None and not event.may else None
        if accelerator is None or not given or not uses_deepspeed(run, accelerator):
            continue
        if len(models_in(given)) > 1:
            yield _finding(
                run,
                event,
                accelerator,
                "several models in one `prepare` under DeepSpeed: every rank stops with an AssertionError",
                "Put the trained models into one module, and leave frozen ones out of `prepare`",
                "models",
            )
        elif _lacks_loader(run, found, accelerator, given):
            yield _finding(
                run,
                event,
                accelerator,
                "`prepare` under DeepSpeed takes the micro batch size from a loader, and gets none: every rank stops",
                f"Prepare model and loaders in one call, or set `{_SIZE}`",
                "loader",
            )
        elif (loader := _without_size(run, found, accelerator)) is not None:
            yield _finding(
                run,
                event,
                accelerator,
                "`prepare` under DeepSpeed takes the micro batch size from the loaders; one has none: every rank stops",
                f"Set `{_SIZE}` in the DeepSpeed config, or in `deepspeed_plugin.deepspeed_config`",
                "batch-sampler",
                run.location(loader.module, loader.node, "this loader has no batch size"),
            )


def _without_size(run: RunQuery, found: Happening, accelerator: Event) -> Event | None:
    """Return the call that made a loader without a batch size, where the first `prepare` asks loaders for it."""
    is_told = run.context.micro_batch.reason != FROM_LOADERS and not _asks_loaders(run, accelerator)
    if is_told or found.event.open or any(_SIZE in module.code for module in run.machine.program.modules()):
        return None
    if any(True for _ in earlier_prepares(found)):
        return None
    for value in found.event.arguments.values():
        makers = [run.makers.get(atom) for atom in instances(value)]
        if makers and all(maker is not None and _has_no_size(maker) for maker in makers):
            return makers[0]
    return None


def _has_no_size(maker: Event) -> bool:
    sampler, size = maker.arguments.get("batch_sampler"), maker.arguments.get("batch_size")
    is_sampled = sampler is not None and sampler.atoms and not any(atom == Const(None) for atom in sampler.atoms)
    is_none = size is not None and size.constants == (None,)
    return maker.api == "torch.utils.data.DataLoader" and not maker.open and (bool(is_sampled) or is_none)


def _asks_loaders(run: RunQuery, accelerator: Event) -> bool:
    """Return whether a plugin of the script leaves the size to the loaders."""
    plugin = plugin_of(run, accelerator, "deepspeed_plugin", DEEPSPEED)
    return plugin is not None and not plugin.open and "hf_ds_config" not in plugin.arguments


def _lacks_loader(run: RunQuery, found: Happening, accelerator: Event, given: list[Prepared]) -> bool:
    """Return whether nothing tells the micro batch size to the first call that gets a model."""
    if not all(part.cls in (MODEL, OPTIMIZER, SCHEDULE) for part in given) or not any(p.cls == MODEL for p in given):
        return False
    if not _asks_loaders(run, accelerator):
        return False
    if any(_SIZE in module.code for module in run.machine.program.modules()):
        return False
    is_made_here = any(event is accelerator for event in events(found.entry.tree))
    return is_made_here and not any(True for _ in earlier_prepares(found))


def _finding(
    run: RunQuery, event: Event, accelerator: Event, message: str, hint: str, kind: str, *places: Location
) -> Finding:
    related = (run.location(accelerator.module, accelerator.node, "works with DeepSpeed"), *places)
    return run.finding(META, event.module, event.node, message, hint=hint, related=related, facts={"kind": kind})


_HEAD = """\
import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin
from torch.utils.data import DataLoader


def accelerator_of():
    plugin = DeepSpeedPlugin(zero_stage=2%s)
    return Accelerator(deepspeed_plugin=plugin)


"""
_TRAIN = (
    _HEAD
    + """\
def main(data):
    accelerator = accelerator_of()
    student, teacher = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(student.parameters())
    loader = DataLoader(data, batch_size=8, shuffle=True)
%s
    return student, teacher, optimizer, loader
"""
)
_TOGETHER = "    student, teacher, optimizer, loader = accelerator.prepare(student, teacher, optimizer, loader)"
_APART = "    student, optimizer = accelerator.prepare(student, optimizer)\n    loader = accelerator.prepare(loader)"
_ONE = "    student, optimizer, loader = accelerator.prepare(student, optimizer, loader)"
_CLASS = """\
from accelerate import Accelerator, DeepSpeedPlugin
from nets import Discriminator, Generator


class Gan:
    def __init__(self, loader):
        self.accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=1))
        self.generator, self.discriminator, self.loader = self.accelerator.prepare(
            Generator(), Discriminator(), loader
        )


Gan([])
"""
_NETS = """\
import torch


class Generator(torch.nn.Module):
    pass


class Discriminator(torch.nn.Module):
    pass
"""
_SAMPLED = """\
from accelerate import Accelerator
from batches import loaders


def main(model, data):
    accelerator = Accelerator()
    train, valid = loaders(data), loaders(data)
    return accelerator.prepare(model, train, valid)


main([], [])
"""
_BATCHES = """\
from torch.utils.data import BatchSampler, DataLoader, RandomSampler


def loaders(data):
    return DataLoader(data, %s)
"""
_SAMPLER = "batch_sampler=BatchSampler(RandomSampler(data), 8, False)"
_LAUNCH = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
%s
num_machines: 1
num_processes: 4
"""
_DEEPSPEED = '{\n  "train_micro_batch_size_per_gpu": %s,\n  "zero_optimization": {"stage": 2}\n}\n'


def _launched(
    config: str = "  gradient_accumulation_steps: 2\n  zero_stage: 2", loader: str = _SAMPLER, micro: str = '"auto"'
) -> dict[str, str]:
    return {
        "train.py": _SAMPLED,
        "batches.py": _BATCHES % loader,
        "ds.yaml": _LAUNCH % config,
        "ds.json": _DEEPSPEED % micro,
        "run.sh": "accelerate launch --config_file ds.yaml train.py\n",
    }


_NAMED = "  deepspeed_config_file: ds.json\n  zero3_init_flag: false"

EXAMPLES = (
    bad("Student and teacher", {"train.py": _TRAIN % ("", _TOGETHER)}, "train.py:17 error"),
    bad("The loader in a second call", {"train.py": _TRAIN % ("", _APART)}, "train.py:17 error"),
    bad("Two models of a class, defined in another file", {"train.py": _CLASS, "nets.py": _NETS}, "train.py:8"),
    bad("A loader with a batch sampler, launched", _launched(), "train.py:8 error"),
    bad(
        "A file that says `auto`, and batches that the data set makes",
        _launched(_NAMED, "batch_size=None"),
        "train.py:8",
    ),
    bad(
        "The same by a plugin",
        {"train.py": (_TRAIN % ("", _ONE)).replace("batch_size=8, shuffle=True", "batch_sampler=[[0, 1], [2, 3]]")},
        "train.py:17 error",
    ),
    good("A file that says the size", _launched(_NAMED, micro="4"), select="DSL624"),
    good("A loader with a batch size", _launched(loader="batch_size=8"), select="DSL624"),
    good("One model with its loader", {"train.py": _TRAIN % ("", _ONE)}),
    good("The loader first", {"train.py": _TRAIN % ("", "    loader = accelerator.prepare(loader)\n" + _APART)}),
    good("A config that may hold the size", {"train.py": _TRAIN % (", hf_ds_config='ds.json'", _APART)}),
    good(
        "Without DeepSpeed",
        {"train.py": (_TRAIN % ("", _TOGETHER)).replace("Accelerator(deepspeed_plugin=plugin)", "Accelerator()")},
    ),
    good(
        "The script says the size",
        {
            "train.py": _TRAIN
            % (
                "",
                "    plugin = accelerator.state.deepspeed_plugin\n"
                '    plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 8\n' + _APART,
            )
        },
    ),
)
