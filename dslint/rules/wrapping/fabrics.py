"""What rules ask about `Fabric` of Lightning: how it wraps a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.python.values import Instance

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.rules.runs import RunQuery

_MARKS = re.compile(r"mark_forward_method|_forward_methods|_redirection_through_forward")
# Strategies whose wrapper must run for gradients to be averaged; DeepSpeed's hooks sit in the parameters.
_IN_WRAPPER = re.compile(r"(?i)auto$|ddp|fsdp")
_SINGLE = ((1,), ("1",))


def averages_in_wrapper(run: RunQuery, setup: Event) -> bool:
    """Return whether `fabric.setup` certainly wraps for several devices, and nothing is run through it by name."""
    fabric = setup.receiver.single if setup.receiver is not None else None
    made = run.makers.get(fabric) if isinstance(fabric, Instance) else None
    if made is None or made.open or any(module.search(_MARKS) for module in run.machine.program.modules()):
        return False
    devices, strategy = made.arguments.get("devices"), made.arguments.get("strategy")
    if devices is not None and run.likely(devices) in _SINGLE and "num_nodes" not in made.arguments:
        return False
    if strategy is None:
        return devices is not None
    words = run.likely(strategy)
    if words is not None:
        return bool(words) and all(isinstance(word, str) and _IN_WRAPPER.match(word) for word in words)
    classes = [atom.cls for atom in strategy.atoms if isinstance(atom, Instance)]
    return bool(classes) and all(
        isinstance(cls, str) and _IN_WRAPPER.match(cls.rpartition(".")[2]) is not None for cls in classes
    )
