"""Calls that wait for all ranks in some releases of their library only."""

from __future__ import annotations

from collections.abc import Mapping

from dslint.model.context import VersionFact
from dslint.model.script.collective.collectives import Collective
from dslint.model.versions.resolve import covers

# Lightning: ``Trainer.save_checkpoint`` ends in a barrier from 2.1.0 on (pytorch/trainer/trainer.py of the tags).
_SINCE = {("lightning", "save_checkpoint"): ("lightning", "2.1")}


def waits(collective: Collective, libraries: Mapping[str, VersionFact]) -> str:
    """Whether the releases in use wait in the call: ``yes`` | ``maybe`` | ``no``."""
    library, since = _SINCE.get((collective.family, collective.key), ("", ""))
    if not library:
        return "yes"
    stated = libraries.get(library)
    return covers(stated, f">={since}", library) if stated is not None else "maybe"
