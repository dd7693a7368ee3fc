"""Calls that only some ranks make, each on its own: the first one behind a test, and those that follow it there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dslint.core.fix import Fix, Safety
from dslint.model.versions.resolve import covers
from dslint.python.events import Alt
from dslint.python.queries.waits import kind
from dslint.rules.dedented import only_statement
from dslint.rules.ranks import parted
from dslint.rules.training.lightnings import is_single
from dslint.rules.training.plateaus import instances

if TYPE_CHECKING:
    from dslint.core.source import Location
    from dslint.python.events import Event
    from dslint.python.queries.parting import Parting
    from dslint.rules.runs import RunQuery

# The whole state of a model, gathered from the ranks where it is sharded.
_STATE = "torch.distributed.checkpoint.state_dict."
# Where the first word of a path does not say to which library a call belongs, the longest of these does.
_FAMILIES = {
    "torch.distributed.fsdp": "fsdp",
    "torch.distributed.checkpoint.state_dict": "fsdp",
    "torch.distributed.tensor": "fsdp",
    "torch": "torch",
    "deepspeed": "engine",
    "deepspeed.comm": "torch",
    "accelerate": "accelerate",
    "accelerate.Prepared": "engine",
    "transformers": "trainer",
    "transformers.PreTrainedModel": "engine",
    "transformers.generation": "engine",
    "torch.nn.Module": "engine",
    "trl": "trainer",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "lightning.fabric": "fabric",
    "lightning_fabric": "fabric",
}


def lonely(run: RunQuery, *, is_supposed: bool = False) -> Iterator[Parting]:
    """Yield the calls that ranks make alone which their number tells apart, in the order of the source.

    `is_supposed`: those that wait under ZeRO stage 3, where nothing rules that out.
    """
    for first in parted.partings(run, is_supposed=is_supposed, of_releases=True):
        # As many processes meet in a new group as the script says: those that come to it.
        if not parted.is_about_ranks(run, first) or first.order or "default-group" in first.event.tags:
            continue
        steps = [step for step in first.behind if step.event is not None and not step.event.may]
        each = [first, *(replace(first, event=step.event, via=step.via, behind=()) for step in steps if step.event)]
        for parting in each:
            if not _is_alone(run, parting.event) and since(run, parting.event) is not None:
                yield parting


def since(run: RunQuery, event: Event) -> str | None:
    """Return from which release on a call waits, where that of the run is not known; `None` where it does not wait.

    The text is empty where the call certainly waits.
    """
    library, release = parted.WAITS_SINCE.get(event.api, ("", ""))
    stated = run.context.libraries.get(library.lower()) if library else None
    told = covers(stated, f">={release}", library.lower()) if stated is not None else "maybe" if library else "yes"
    return {"yes": "", "maybe": f"{library} {release}"}.get(told)


def _is_alone(run: RunQuery, event: Event) -> bool:
    """Return whether a call certainly waits for nobody: of a trainer in one process, of a model not sharded yet."""
    for atom in instances(event.receiver):
        maker = run.makers.get(atom)
        if maker is not None and "trainer" in maker.tags and is_single(maker):
            return True
    models = set(instances(event.arguments.get("model"))) if event.api.startswith(_STATE) else set()
    sharding = (found.event for found in run.happenings("wraps-model"))
    return any(models & set(instances(wrap.arguments.get("module"))) for wrap in sharding if _is_later(wrap, event))


def _is_later(one: Event, other: Event) -> bool:
    return one.module is other.module and getattr(one.node, "lineno", 0) > getattr(other.node, "lineno", 0)


def family(event: Event) -> str:
    """Return the library to which a call belongs, as the experiments name it."""
    words = event.api.split(".")
    for end in range(len(words), 0, -1):
        found = _FAMILIES.get(".".join(words[:end]))
        if found is not None:
            return found
    return next((name for path, name in _FAMILIES.items() if event.api.startswith(path)), words[0])


def name(event: Event) -> str:
    """Return what is called, as the experiments name it."""
    if "wraps-model" in event.tags:
        return "DistributedDataParallel"
    if event.api.startswith("torch.distributed.checkpoint.") and family(event) == "torch":
        return f"checkpoint.{kind(event)}"
    return kind(event)


def missed(run: RunQuery, parting: Parting) -> tuple[Location, ...]:
    """Return the next calls that ranks miss which have left."""
    nodes = {step.event.node: step.event for step in parting.behind if step.event is not None and not step.event.may}
    return tuple(
        run.location(event.module, node, "another collective that they miss") for node, event in nodes.items()
    )[:3]


def dedented(run: RunQuery, parting: Parting) -> Fix | None:
    """Take the call out of a test that asks for the rank alone, when nothing else stands behind it."""
    test = parting.test
    module, node = parted.place(parting)
    if not isinstance(test, Alt) or parting.exit or module.path != run.path or test.then_lanes & test.else_lanes:
        return None
    edit = only_statement(module, test.node, node)
    if edit is None:
        return None
    is_known = family(parting.event) in ("engine", "trainer") or kind(parting.event) == "barrier"
    return Fix("Call it on every rank", (edit,), Safety.SAFE if is_known and parting.via is None else Safety.UNSAFE)
