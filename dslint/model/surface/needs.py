"""What a library asks of another one while it is imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """``dotted`` must exist for the import of ``module`` to end well, where all ``conditions`` hold.

    A condition: ``transformers>=4.38`` (with ``!`` before it: must not hold), ``available:peft``, or ``if:...``, a
    test that is not understood.
    """

    library: str
    dotted: str
    module: str
    conditions: tuple[str, ...] = ()
