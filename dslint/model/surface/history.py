"""One library through its releases."""

from __future__ import annotations

import functools
from typing import Any

from dslint.core.schemafiles import load_file
from dslint.model.surface.blocks import Blocks
from dslint.model.surface.needs import Need, read_needs
from dslint.model.surface.presence import Presence
from dslint.model.surface.resolve import Resolver
from dslint.model.surface.signature import Signature

LIBRARIES = (
    "accelerate",
    "bitsandbytes",
    "datasets",
    "deepspeed",
    "diffusers",
    "flash_attn",
    "huggingface_hub",
    "lightning",
    "mmengine",
    "numpy",
    "peft",
    "pydantic",
    "pytorch_lightning",
    "sentence_transformers",
    "timm",
    "torch",
    "torchaudio",
    "torchdata",
    "torchmetrics",
    "torchvision",
    "transformers",
    "trl",
    "vllm",
)
# What those import while they are imported: their names are known for that alone.
BESIDE = (
    "fsspec",
    "pyarrow",
    "safetensors",
    "tokenizers",
    "triton",
)


def library_of(dotted: str) -> str | None:
    """The library that a dotted name belongs to, such as ``torch`` for ``torch._six.inf``."""
    first = dotted.partition(".")[0]
    return first if first in LIBRARIES else None


@functools.cache
def surface(library: str) -> Surface | None:
    """The history of a library, by the name that is imported; ``None`` when dslint has none."""
    if library not in LIBRARIES and library not in BESIDE:
        return None
    try:
        return Surface(library)
    except OSError:
        return None


class Surface:
    """What the releases of one library have. Names are dotted, from the library on: ``torch.nn.Linear.forward``."""

    def __init__(self, library: str) -> None:
        self.library = library
        self._blocks = Blocks(library)
        self._resolver = Resolver(library, self._blocks)
        # Ascending; which releases these are: schemas/surface/README.md.
        self.releases: tuple[str, ...] = self._blocks.releases
        self._place = {release: place for place, release in enumerate(self.releases)}

    def presence(self, dotted: str) -> Presence:
        """In which releases a name can be imported or read: a module, a name in it, an attribute of a class."""
        found, unknown = self._resolver.presence(dotted)
        moved = self._resolver.moved(dotted) if not (found | unknown) >> (len(self.releases) - 1) & 1 else None
        return Presence(self._names(found), self._names(unknown), moved)

    def signature(self, dotted: str, release: str) -> Signature | None:
        """What a function, method or class takes in a release; ``None`` where the data does not say."""
        bit, classes = self._bit(release), self._resolver.classes
        end = self._resolver.ends(dotted, bit) if bit else None
        if end is None:
            return None
        kind, module, name, rest = end
        if kind == "f" and not rest:
            return classes.function(module, name, bit)
        if kind == "c" and len(rest) < 2:
            return classes.method(module, name, rest[0], bit) if rest else classes.constructor(module, name, bit)
        return None

    def canonical(self, dotted: str, release: str) -> str | None:
        """Where a release defines what the name means, such as ``transformers.trainer.Trainer``."""
        bit = self._bit(release)
        end = self._resolver.ends(dotted, bit) if bit else None
        return ".".join([part for part in (end[1], end[2], *end[3]) if part]) if end else None

    def entry_points(self, release: str) -> dict[str, str]:
        """The programs that a release installs -> where they begin, such as ``peft.cli:main``."""
        return dict(self._row(release)["programs"])

    def needs_at_import(self, release: str, module: str = "") -> tuple[Need, ...]:
        """Names of other libraries without which the import of the library, or of a module of it, fails."""
        bit = self._bit(release)
        return read_needs(self.library, module or self.library, bit) if bit else ()

    def modules(self, release: str) -> list[str]:
        """All modules of a release; this reads the whole file."""
        return self._resolver.modules(self._bit(release))

    def names(self, module: str, release: str) -> frozenset[str]:
        """The names that a module binds in a release, its modules not counted."""
        return self._resolver.names(module, self._bit(release))

    def members(self, module: str, name: str, release: str) -> frozenset[str]:
        """The attributes that a class itself defines in a release."""
        return self._resolver.classes.members(module, name, self._bit(release))

    @functools.cached_property
    def _rows(self) -> dict[str, Any]:
        return load_file(f"surface/{self.library}.releases.json")

    @functools.cached_property
    def _by_release(self) -> dict[str, dict[str, Any]]:
        return {row["version"]: row for row in self._rows["releases"]}

    def _row(self, release: str) -> dict[str, Any]:
        nothing: dict[str, Any] = {"programs": {}}
        return self._by_release.get(release, nothing)

    def _bit(self, release: str) -> int:
        """The release as a set; empty for one that the data does not have."""
        place = self._place.get(release)
        return 0 if place is None else 1 << place

    def _names(self, bits: int) -> frozenset[str]:
        return frozenset(release for place, release in enumerate(self.releases) if bits >> place & 1)
