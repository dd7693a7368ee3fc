"""One release as it is kept between the steps: plain data, with all names resolved."""

from __future__ import annotations

import re
from typing import Any

from surface.classes import Class
from surface.modules import CLOSED, STUB, Entry
from surface.release import Release

# Modules of single models: many, and alike. What they define is kept, what they import is not.
_MODELS = re.compile(r"^transformers\.models\.(?!auto\.)\w+\.\w+$|^diffusers\.(pipelines|models)\.\w+\.\w+$")
# Models whose layers people replace and inherit from: their classes are kept in full.
_REPLACED = re.compile(
    r"\.modeling_(llama|mistral|mixtral|qwen2|qwen2_vl|qwen2_5_vl|qwen3|gemma|gemma2|bert|roberta|gpt2|gpt_neox|opt|bloom"
    r"|t5|whisper|clip|llava|phi3)$"
)
# Classes of which people derive, call and replace methods with an underscore, too: `super()._save_checkpoint(...)`.
_DERIVED_FROM = re.compile(
    r"(Trainer|LightningModule|LightningDataModule|Callback|PreTrainedModel|GenerationMixin|Accelerator)$"
)
# Classes of other libraries that are no dataclasses.
_NO_FIELDS = re.compile(r"^\^(?:(typing|abc|enum|collections)\.|torch\.nn\.|.*Mixin$)")


def linked(release: Release) -> dict[str, Any]:
    """The modules with their names."""
    kept = _kept(release)
    # Lazy modules of transformers 5 answer to old names of tokenizers with what they find.
    utils = release.modules.get("transformers.utils.import_utils")
    fallback = utils is not None and utils.fallback
    modules: dict[str, Any] = {}
    for name, module in release.modules.items():
        models = _MODELS.search(name) is not None and not module.package
        names = {}
        imported = []
        for each, entry in module.names.items():
            if models and entry.kind == "i" and each not in (module.listed or ()):
                imported.append(each)
                continue
            names[each] = row(entry, release, (name, each), f"{name}:{each}" in kept)
        modules[name] = {"o": max(module.opened, STUB if models else CLOSED), "n": names}
        if imported:
            modules[name]["i"] = imported
        if module.lazy is not None and fallback:
            modules[name]["f"] = "Fast"
    for name, target in release.aliases.items():
        modules[name] = {"o": 0, "n": {}, "is": target, "f": "Fast" if name.endswith("_fast") else ""}
    return modules


def _private(dotted: str) -> bool:
    return any(part.startswith("_") for part in dotted.split("."))


def _kept(release: Release) -> set[str]:
    """What is kept in full: what is public, what public packages export, and the bases of all that."""
    found = set()
    for name, module in release.modules.items():
        if _private(name):
            continue
        models = _MODELS.search(name) is not None
        for each, entry in module.names.items():
            if each.startswith("_"):
                continue
            if entry.kind == "i":
                source, own, _ = release.resolve(entry.target)
                if source in release.modules:
                    found.add(f"{source}:{own}")
            elif not models or _REPLACED.search(name):
                found.add(f"{name}:{each}")
    todo = list(found)
    while todo:
        source, _, name = todo.pop().partition(":")
        module = release.modules.get(source)
        entry = module.names.get(name) if module else None
        for base in entry.cls.bases if entry and entry.cls else ():
            where = release.dotted(source, base)
            if where not in found and where.partition(":")[0] in release.modules:
                found.add(where)
                todo.append(where)
    return found


def row(entry: Entry, release: Release, place: tuple[str, str], kept: bool) -> list[Any]:
    """A name at a place (module, name): its kind first, then what is known of it."""
    module, each = place
    models = _MODELS.search(module) is not None and not _REPLACED.search(module)
    if entry.kind == "v":
        return ["v"]
    if entry.kind == "f":
        return ["f", entry.sig.row()] if entry.sig and kept and not models else ["f", None]
    if entry.kind == "i":
        source, name, found = release.resolve(entry.target)
        if name is None:
            return ["m", source] if source in release.modules else ["x"]
        if found is not None or (source in release.modules and release.modules[source].opened):
            return ["a", source, name]
        return ["x"]
    assert entry.cls is not None
    cls = entry.cls
    if not kept:
        return ["v"]
    bases = [release.dotted(module, base) for base in cls.bases]
    if models:
        return ["c", bases, None]
    fields = {name for name, kind in cls.members.items() if kind == "a"}
    pydantic = bool(fields) and _pydantic(entry, release, module, 0)
    members = {name: "v" if kind == "a" else kind for name, kind in cls.members.items() if not pydantic or kind != "a"}
    data = {
        "m": {name: kind for name, kind in members.items() if not name.startswith("__") or name in _DUNDERS},
        "i": sorted((cls.instance | fields) - set(members)),
        "d": int(cls.dynamic),
        "o": int(cls.opened),
        "u": int(cls.unlisted),
        "s": {name: sig.row() for name, sig in cls.sigs.items() if _is_signed(name, each)},
        "k": _fields(cls, release, module),
    }
    return ["c", bases, data]


def _is_signed(method: str, owner: str) -> bool:
    """Whether the signature of a method is kept."""
    if not method.startswith("_") or method in _DUNDERS:
        return True
    return _DERIVED_FROM.search(owner) is not None and not method.startswith("__")


_DUNDERS = {
    "__init__",
    "__new__",
    "__call__",
    "__post_init__",
    "__getitem__",
    "__len__",
    "__iter__",
    "__enter__",
    "__exit__",
}


def _pydantic(entry: Entry, release: Release, module: str, depth: int) -> bool:
    """The class is a model of pydantic."""
    for base in entry.cls.bases if entry.cls and depth < 9 else ():
        where = release.dotted(module, base)
        if where.startswith("^pydantic"):
            return True
        source, _, name = where.partition(":")
        found = release.modules[source].names.get(name) if source in release.modules else None
        if found is not None and _pydantic(found, release, source, depth + 1):
            return True
    return False


def _fields(cls: Class, release: Release, module: str) -> str | None:
    """The parameters of the constructor that a dataclass gets, with the fields of its bases; ``?`` where not known."""
    if cls.fields is None or "__init__" in cls.members:
        return None
    fields = _all_fields(cls, release, module, 0)
    if fields is None:
        return "?"
    positional = [f"{name}={text}" if text is not None else name for name, text, only in fields if not only]
    keywords = [f"{name}={text}" if text is not None else name for name, text, only in fields if only]
    return ", ".join([*positional, *(["*", *keywords] if keywords else [])])


def _all_fields(cls: Class, release: Release, module: str, depth: int) -> list[tuple[str, str | None, bool]] | None:
    fields: dict[str, tuple[str, str | None, bool]] = {}
    for base in reversed(cls.bases):
        where = release.dotted(module, base)
        if where.startswith("builtins:") or _NO_FIELDS.search(where):
            continue
        source, _, name = where.partition(":")
        entry = release.modules[source].names.get(name) if source in release.modules else None
        if entry is None or entry.cls is None or depth > 9:
            return None
        inherited = _all_fields(entry.cls, release, source, depth + 1)
        if inherited is None:
            return None
        for each in inherited:
            fields[each[0]] = each
    for each in cls.fields or ():
        text = each[1]
        fields[each[0]] = (each[0], "..." if text == "<factory>" else text, each[2])
    return list(fields.values())
