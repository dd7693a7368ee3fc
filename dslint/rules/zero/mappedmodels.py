"""Models that are loaded with a device map: where their weights go, and who takes them then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslint.python.values import Instance
from dslint.rules.ranks.devices import device_words
from dslint.rules.wrapping.afterwrap import wrapper_of

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.python.values import Value
    from dslint.rules.runs import RunQuery


def is_given_to_ddp(run: RunQuery, wrap: Event, loaded: Event) -> bool:
    """Return whether DDP gets a loaded model, with the one device on which it must be."""
    is_ddp = wrapper_of(run, wrap) is not None
    return is_ddp and "device_ids" in wrap.arguments and bool(wrap.modules & loaded.modules)


def is_on_first(run: RunQuery, event: Event, value: Value) -> bool:
    """Return whether quantised weights certainly go to GPU 0, from where no other process can train them."""
    given = [event.arguments.get(name) for name in ("load_in_4bit", "load_in_8bit")]
    is_quantised = any(flag is not None and flag.constants == (True,) for flag in given)
    settings = event.arguments.get("quantization_config")
    kinds = [atom.cls for atom in settings.atoms if isinstance(atom, Instance)] if settings is not None else []
    is_quantised |= bool(kinds) and all(kind == "transformers.BitsAndBytesConfig" for kind in kinds)
    named = event.items.get("device_map") or [value]
    return is_quantised and all(place.atoms and device_words(run, place) == frozenset({"cuda:0"}) for place in named)
