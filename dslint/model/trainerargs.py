"""Which keyword arguments the classes around the Hugging Face Trainer take, by release of transformers and trl.

``schemas/trainer_arguments.json`` is generated from the released sources (``scripts/generate_trainer_arguments.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dslint.core.finding import Severity
from dslint.core.schemafiles import load_file
from dslint.model.context import Context, VersionFact
from dslint.model.firstlook import may_name
from dslint.model.versions.resolve import covers, holds_between, is_pin

FILE = "trainer_arguments.json"
_NOBODY = VersionFact()
# Old name -> new name of the same values, by class of transformers; from the help texts and warnings of the releases.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "TrainingArguments": {
        "evaluation_strategy": "eval_strategy",
        "per_gpu_train_batch_size": "per_device_train_batch_size",
        "per_gpu_eval_batch_size": "per_device_eval_batch_size",
        "no_cuda": "use_cpu",
        "push_to_hub_token": "hub_token",
        "xpu_backend": "ddp_backend",
        "warmup_ratio": "warmup_steps",
        "max_seq_length": "max_length",
        "use_liger": "use_liger_kernel",
    },
    "Trainer": {"tokenizer": "processing_class"},
}
# What takes the place of an argument that has no successor of the same values.
INSTEAD: Mapping[str, str] = {
    "adafactor": '`optim="adafactor"`',
    "group_by_length": '`train_sampling_strategy="group_by_length"`',
    "logging_dir": "the environment variable `TENSORBOARD_LOGGING_DIR`",
    "fp16_backend": "nothing: PyTorch's own mixed precision is the only one left",
    "half_precision_backend": "nothing: PyTorch's own mixed precision is the only one left",
    "sharded_ddp": "`fsdp` or `deepspeed`",
    "fsdp_min_num_params": "`fsdp_config`",
    "fsdp_transformer_layer_cls_to_wrap": "`fsdp_config`",
    "dispatch_batches": "`accelerator_config`",
    "split_batches": "`accelerator_config`",
    "push_to_hub_model_id": "`hub_model_id`",
    "push_to_hub_organization": "`hub_model_id`",
    "include_inputs_for_metrics": '`include_for_metrics=["inputs"]`',
    "torchdynamo": "`torch_compile_backend`",
    "save_safetensors": "nothing: weights are always saved as safetensors",
    "use_mps_device": "nothing: the device is found",
    "overwrite_output_dir": "nothing: the Trainer never read it",
    "use_ipex": "nothing: PyTorch has taken these optimizations over",
    "dataset_text_field": "the `SFTConfig`",
    "max_seq_length": "the `SFTConfig`",
}


@dataclass(frozen=True, slots=True)
class Releases:
    """What the project states about the two libraries."""

    transformers: VersionFact = _NOBODY
    trl: VersionFact = _NOBODY

    def of(self, library: str) -> VersionFact:
        """What is stated about one of them."""
        return self.trl if library == "trl" else self.transformers


@dataclass(frozen=True, slots=True)
class Standing:
    """How bad it is to give an argument to a class.

    ``reach``: the releases in ``use`` refuse it, ``later`` ones that the project allows do, or it is ``deprecated``.
    ``release`` is where that changes; ``is_removed``: it took the argument away, and did not bring it.
    """

    severity: Severity
    reach: str
    library: str
    release: str
    is_removed: bool


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return load_file(FILE)


def class_of(qualified: str) -> tuple[str, str] | None:
    """The library and the class that a qualified name means, when the table has it."""
    library, _, rest = qualified.partition(".")
    title = rest.rpartition(".")[2] or rest
    if library not in ("transformers", "trl") or ".experimental." in qualified:
        return None
    return (library, title) if title in _data()[library]["classes"] else None


@lru_cache(maxsize=1)
def changing_names() -> frozenset[str]:
    """Arguments that some release takes and another one refuses."""
    return frozenset(n for lib in ("transformers", "trl") for c in _data()[lib]["classes"].values() for n in c["names"])


@lru_cache(maxsize=1)
def class_names() -> frozenset[str]:
    """The names of all classes of the table."""
    return frozenset(title for library in ("transformers", "trl") for title in _data()[library]["classes"])


def taken(owner: tuple[str, str], name: str, releases: Releases) -> str:
    """Whether the class takes an argument in the releases in use: ``yes``, ``no``, ``maybe``; empty: never changes.

    ``maybe`` where the stated releases differ, or nobody states one.
    """
    library, title = owner
    data = _data()[library]["classes"][title]
    version = releases.of(library)
    if library == "trl" and name in data["always"]:
        return ""
    own = _holds(library, data["names"].get(name, []), version)
    inherited = "no"
    for base, spans in data.get("base", {}).items():
        foreign = _data()["transformers"]["classes"][base]
        above = foreign["names"]
        if name not in above and name not in foreign["always"] and name not in data["names"]:
            return ""
        status = (
            "yes" if name in foreign["always"] else _holds("transformers", above.get(name, []), releases.transformers)
        )
        inherited = _both(_holds(library, spans, version), status)
    if name not in data["names"] and not data.get("base"):
        return ""
    if _holds(library, data["present"], version) == "no" or _holds(library, data.get("open", []), version) != "no":
        return "maybe"
    return _either(own, inherited)


@lru_cache(maxsize=1)
def removed_fields() -> frozenset[str]:
    """The arguments of ``TrainingArguments`` that the newest release of the table does not have any more."""
    names = _data()["transformers"]["classes"]["TrainingArguments"]["names"]
    return frozenset(name for name, span in names.items() if len(span) % 2 == 0)


def may_speak(_: str, context: Context, raw: bytes) -> bool:
    """A script may name a class of the table, or an argument that the newest release does not have.

    A project may have names of its own for classes.
    """
    titles, removed = _words()
    if context.vocabulary.stands_in(raw) or (may_name(raw, titles) and _changing().search(raw) is not None):
        return True
    return may_name(raw, removed) and any(re.search(rb"\.[\s\\]*%s\b" % name, raw) for name in removed)


@lru_cache(maxsize=1)
def _changing() -> re.Pattern[bytes]:
    """A keyword or a text that is the name of an argument which some release refuses."""
    names = "|".join(sorted(changing_names()))
    return re.compile(rf"[(,]\s*(?:#[^\n]*\s*)*(?:{names})\s*=(?!=)|[\"'](?:{names})[\"']".encode())


@lru_cache(maxsize=1)
def _words() -> tuple[frozenset[bytes], frozenset[bytes]]:
    return frozenset(name.encode() for name in class_names()), frozenset(name.encode() for name in removed_fields())


def standing(owner: tuple[str, str], name: str, releases: Releases) -> Standing | None:
    """What the releases in use make of an argument; ``None`` where they take it, or nobody can say."""
    status, gone = taken(owner, name, releases), until(owner, name)
    library, release = gone if gone[1] else since(owner, name)
    version, is_removed = releases.of(library), bool(gone[1])
    if status == "no":
        return Standing(Severity.ERROR, "use" if version.is_known else "later", library, release, is_removed)
    if status == "maybe" and is_removed and in_newest(owner, name, releases) == "no":
        severity = Severity.WARNING if version.is_known else Severity.INFO
        return Standing(severity, "later", library, release, is_removed)
    old = deprecated_since(owner, name)
    if status == "yes" and old and version.is_known and covers(version, f">={old}", library) == "yes":
        return Standing(Severity.INFO, "deprecated", library, release, is_removed)
    return None


def hint(owner: tuple[str, str], name: str, newer: str = "") -> str:
    """What to do; ``newer`` is the requirement that has an argument which the release in use does not know yet."""
    if newer:
        old = predecessor(owner, name)
        return f"Write `{old}`, or upgrade to `{newer}`" if old else f"Delete `{name}`, or upgrade to `{newer}`"
    new = successor(owner, name)
    if new:
        return f"Write `{new}`"
    if name in INSTEAD:
        what = INSTEAD[name]
        return f"Delete `{name}`: {what[9:]}" if what.startswith("nothing: ") else f"Use {what} in its place"
    return f"Delete `{name}`, or pin the release that takes it"


def in_newest(owner: tuple[str, str], name: str, releases: Releases) -> str:
    """``taken`` by the newest releases that the project allows."""
    found = (_newest_allowed(library, releases.of(library).specifier) for library in ("transformers", "trl"))
    return taken(owner, name, Releases(*(VersionFact(f"=={release}") for release in found)))


@lru_cache(maxsize=64)
def _newest_allowed(library: str, specifier: str) -> str:
    stated = VersionFact(specifier)
    if is_pin(stated):
        return specifier.lstrip("= v")
    releases = _data()[library]["releases"]
    fitting = (
        r for r in reversed(releases) if not specifier or covers(VersionFact(f"=={r}"), specifier, library) == "yes"
    )
    return str(next(fitting, releases[-1]))


def until(owner: tuple[str, str], name: str) -> tuple[str, str]:
    """The library and the release from which on an argument is refused; empty where the newest takes it."""
    for library, names in _tables(owner):
        span = names.get(name, [])
        if span and len(span) % 2 == 0:
            return library, str(span[-1])
    return "", ""


def since(owner: tuple[str, str], name: str) -> tuple[str, str]:
    """The library and the release that brought an argument; empty for the oldest ones of the table."""
    for library, names in _tables(owner):
        span = names.get(name, [])
        if span and span[0] != _data()[library]["releases"][0]:
            return library, str(span[0])
    return "", ""


def successor(owner: tuple[str, str], name: str) -> str:
    """The new name of an argument whose values stay the same."""
    return _renames(owner).get(name, "")


def predecessor(owner: tuple[str, str], name: str) -> str:
    """The old name of an argument."""
    return next((old for old, new in _renames(owner).items() if new == name and old != "warmup_ratio"), "")


def _renames(owner: tuple[str, str]) -> Mapping[str, str]:
    return RENAMED["Trainer" if owner[1].endswith("Trainer") else "TrainingArguments"]


def deprecated_since(owner: tuple[str, str], name: str) -> str:
    """The release from which on an argument that a later one removes is called deprecated."""
    library, title = owner
    base = next(iter(_data()[library]["classes"][title].get("base", {})), "")
    places = [(library, title), *([("transformers", base)] if base else [])]
    found = (_data()[place]["classes"][t]["deprecated"].get(name) for place, t in places)
    return next(filter(None, found), "") if until(owner, name)[1] else ""


def _tables(owner: tuple[str, str]) -> list[tuple[str, Mapping[str, list[str]]]]:
    library, title = owner
    data = _data()[library]["classes"][title]
    tables: list[tuple[str, Mapping[str, list[str]]]] = [(library, data["names"])]
    tables += [("transformers", _data()["transformers"]["classes"][base]["names"]) for base in data.get("base", {})]
    return tables


def _holds(library: str, span: list[str], version: VersionFact) -> str:
    """Whether the releases in use lie in the spans between the changes."""
    return holds_between(span, _data()[library]["releases"][0], version, library)


def _both(first: str, second: str) -> str:
    return "no" if "no" in (first, second) else "yes" if first == second == "yes" else "maybe"


def _either(first: str, second: str) -> str:
    return "yes" if "yes" in (first, second) else "no" if first == second == "no" else "maybe"


def fields_ever(owner: tuple[str, str]) -> tuple[str, ...]:
    """Every argument that some release of a class takes, with those of the classes of transformers below it.

    Also where trl calls the class experimental.
    """
    library, title = owner
    data = _data()[library]["classes"].get(title)
    if data is None:
        return ()
    inherited = (name for base in data.get("base", {}) for name in fields_ever(("transformers", base)))
    return tuple(dict.fromkeys((*data["always"], *data["names"], *data.get("moved", ()), *inherited)))


def has_all_fields(owner: tuple[str, str]) -> bool:
    """Return whether a class of the table takes no arguments but those that it lists, whatever the release."""
    library, title = owner
    data = _data()[library]["classes"].get(title)
    return data is not None and "open" not in data
