"""Which release of a library has which names: the history of the surface, from ``schemas/surface``.

``surface("torch").presence("torch._six.inf")`` says in which releases the name is. What the data cannot tell is
unknown there, never absent. docs: schemas/surface/README.md.
"""

from __future__ import annotations

from dslint.model.surface.history import LIBRARIES, Surface, library_of, surface
from dslint.model.surface.needs import Need
from dslint.model.surface.presence import Presence
from dslint.model.surface.signature import Parameter, Signature

__all__ = ["LIBRARIES", "Need", "Parameter", "Presence", "Signature", "Surface", "library_of", "surface"]
