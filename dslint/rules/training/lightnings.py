"""Trainers of Lightning: how many processes they train in, and whether they divide the data."""

from __future__ import annotations

import re

from dslint.model.versions.resolve import covers
from dslint.python.events import Event
from dslint.python.values import Instance, Value
from dslint.rules.runs import RunQuery

_LIGHTNING = ("lightning", "pytorch_lightning")
_SEVERAL = re.compile(r"ddp|fsdp|deepspeed|fullysharded", re.I)


def trainers(run: RunQuery) -> list[Event]:
    """Return the calls that make a trainer of Lightning."""
    return [h.event for h in run.happenings("trainer") if h.event.api.partition(".")[0] in _LIGHTNING]


def is_one_process(run: RunQuery) -> bool:
    """Return whether a run has one process: a command starts one, and no trainer of Lightning starts the others."""
    if not run.context.is_one_process:
        return False
    return run.context.launcher.get_or("") != "python" or not any(map(has_several, trainers(run)))


def draws_once(run: RunQuery) -> bool:
    """Return whether a trainer starts its processes out of one that has drawn already, by forking or spawning."""
    given = [event.arguments.get("strategy") for event in trainers(run)]
    words = " ".join(str(value.constants) for value in given if value is not None)
    return any(word in words for word in ("notebook", "fork", "spawn"))


def has_several(event: Event) -> bool:
    """Return whether a trainer certainly trains in several processes."""
    devices, nodes = event.arguments.get("devices"), event.arguments.get("num_nodes")
    if event.open or (numbers(devices) == {1} and numbers(nodes) <= {1}):
        return False
    strategy = event.arguments.get("strategy")
    if strategy is None or strategy.constants in (("auto",), (None,)):
        return any(numbers and min(numbers) > 1 for numbers in (numbers(devices), numbers(nodes)))
    return _SEVERAL.search(_words(strategy)) is not None


def is_single(event: Event) -> bool:
    """Return whether a trainer is certainly made for one device."""
    return any(numbers(event.arguments.get(name)) == {1} for name in ("devices", "gpus"))


# Lightning 1.x lets DDP look for unused parameters by itself; these words belong to it.
_OLD = re.compile(
    r"\bgpus\s*=|_epoch_end\(self, (?:\w+_)?out|replace_sampler_ddp|progress_bar_refresh_rate"
    r"|distributed_backend|DDPPlugin|resume_from_checkpoint\s*=|from_argparse_args|accelerator=[\"']ddp|weights_summary|tpu_cores|auto_select_gpus"
)
_DDP = re.compile(r"(?:ddp|ddp_(?:spawn|fork|notebook))")
_SEARCHES = ("find_unused_parameters", "static_graph")


def waits_for_all_gradients(run: RunQuery, fit: Event) -> bool:
    """Return whether a call trains in a DDP of Lightning that waits for a gradient of every parameter."""
    atom = fit.receiver.single if fit.receiver is not None and "trainer-train" in fit.tags and not fit.may else None
    made = run.makers.get(atom) if isinstance(atom, Instance) else None
    if made is None or made.api.partition(".")[0] not in _LIGHTNING or made.open or not has_several(made):
        return False
    if "plugins" in made.arguments or _is_old(run):
        return False
    strategy = made.arguments.get("strategy")
    if strategy is None or strategy.constants in (("auto",), (None,)):
        return True
    if strategy.constants is not None:
        return all(isinstance(word, str) and _DDP.fullmatch(word) for word in strategy.constants)
    told = run.makers.get(strategy.single) if isinstance(strategy.single, Instance) else None
    if told is None or told.open or not told.api.endswith(".DDPStrategy"):
        return False
    return all(told.arguments[n].constants in ((False,), (None,)) for n in _SEARCHES if n in told.arguments)


def _is_old(run: RunQuery) -> bool:
    """Return whether a run may use Lightning 1.x, as far as its files say."""
    stated = [run.context.libraries.get(name) for name in ("lightning", "pytorch-lightning")]
    if any(found is not None and covers(found, ">=2.0", "lightning") == "no" for found in stated):
        return True
    return any(module.search(_OLD) for module in run.machine.program.modules())


def adds_sampler(run: RunQuery) -> bool | None:
    """Return whether Lightning adds samplers itself; `None` where no trainer for several ranks is certain."""
    made = trainers(run)
    if not made or not all(map(has_several, made)):
        return None
    return any(not leaves_samplers(event) for event in made)


def leaves_samplers(event: Event) -> bool:
    """Return whether a trainer is told to add no samplers."""
    off = [event.arguments.get(name) for name in ("use_distributed_sampler", "replace_sampler_ddp")]
    return any(value is not None and value.constants == (False,) for value in off)


def numbers(value: Value | None) -> set[int]:
    """Return the numbers that an argument may be; none where it may be something else."""
    constants = value.constants if value is not None else None
    found = [str(constant) for constant in constants or ()]
    return {int(word) for word in found if word.isdigit()} if all(map(str.isdigit, found)) else set()


def _words(strategy: Value) -> str:
    made = [atom.cls for atom in strategy.atoms if isinstance(atom, Instance) and isinstance(atom.cls, str)]
    return " ".join([*(path.rpartition(".")[2] for path in made), str(strategy.constants or "")])


def strategy_words(event: Event) -> str:
    """Return the name of the strategy that a trainer gets, in small letters; empty where it gets none."""
    strategy = event.arguments.get("strategy")
    return _words(strategy).lower() if strategy is not None else ""
