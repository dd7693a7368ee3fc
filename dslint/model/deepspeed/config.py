"""What a DeepSpeed config means: who reads it, which stage, what a lax value amounts to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, Span
from dslint.model.context import Context, VersionFact
from dslint.parse.data import DataDoc

# The values that transformers fills in (HfTrainerDeepSpeedConfig.trainer_config_process and _finalize).
FILLED_BY_HF = (
    "/train_batch_size",
    "/train_micro_batch_size_per_gpu",
    "/gradient_accumulation_steps",
    "/gradient_clipping",
    "/optimizer/params/lr",
    "/optimizer/params/betas",
    "/optimizer/params/eps",
    "/optimizer/params/weight_decay",
    "/scheduler/params/warmup_min_lr",
    "/scheduler/params/warmup_max_lr",
    "/scheduler/params/warmup_num_steps",
    "/scheduler/params/total_num_steps",
    "/fp16/enabled",
    "/bf16/enabled",
    "/zero_optimization/reduce_bucket_size",
    "/zero_optimization/stage3_prefetch_bucket_size",
    "/zero_optimization/stage3_param_persistence_threshold",
)
# What accelerate's plugin fills in before and after, for the Trainer as well (accelerate/utils/dataclasses.py
# DeepSpeedPlugin, accelerator.py _prepare_deepspeed). Parameters of optimizer and scheduler come from its stand-ins.
FILLED_BY_ACCELERATE = (
    "/zero_optimization/stage",
    "/zero_optimization/offload_optimizer/device",
    "/zero_optimization/offload_optimizer/nvme_path",
    "/zero_optimization/offload_param/device",
    "/zero_optimization/offload_param/nvme_path",
    "/zero_optimization/stage3_gather_16bit_weights_on_model_save",
)
TRUE_WORDS = {"1", "on", "t", "true", "y", "yes"}
FALSE_WORDS = {"0", "off", "f", "false", "n", "no"}
_PLACEHOLDER = re.compile(r"\$|\{\{|<[^>]*>|%\(?\w+|^@|^[A-Z]+_[A-Z_]+$")


def consumer_of(doc: DataDoc, context: Context) -> str:
    """``deepspeed`` | ``hf`` | ``accelerate`` | ``lightning`` | ``unknown``: stated, else ``hf`` where a value is
    left to it. A known ``unknown``: its readers contradict each other, or a program fills it by rules of its own.
    """
    if context.consumer.is_known:
        return context.consumer.get()
    return "hf" if any(doc.get(p) == "auto" for p in FILLED_BY_HF) else "unknown"


def run_facts(doc: DataDoc, context: Context) -> dict[str, str | int]:
    """Who reads a config and on how many ranks, for the experiments: ``consumer``, and ``world`` where it is known."""
    facts: dict[str, str | int] = {"consumer": consumer_of(doc, context), **text_facts(doc)}
    return facts | ({"world": context.world_size.get()} if context.world_size.is_known else {})


def text_facts(doc: DataDoc) -> dict[str, str]:
    """For a config that is no JSON file: ``config``, its JSON, or ``config_open``, why only a run knows it."""
    if not (doc.is_embedded or doc.is_dict):
        return {}
    if doc.opaque or doc.open_objects:
        pointers = [*doc.opaque, *sorted(doc.open_objects)]
        place = f"`{pointers[0][1:].replace('/', '.')}`" if pointers[0] else "more keys"
        return {"config_open": f"only a run knows {place} of this config"}
    if doc.duplicates:
        return {"config_open": "the program has dropped the first of the two"}
    return {"config": json.dumps(doc.data, indent=2)}


def trains_with_hf(doc: DataDoc) -> bool:
    """The config leaves a training setting to transformers or accelerate; bucket sizes alone serve inference too."""
    return any(doc.get(p) == "auto" for p in FILLED_BY_HF if not p.startswith("/zero_optimization"))


def truth(value: Any) -> bool | None:
    """The boolean that pydantic makes of a value; ``None`` where it makes none (``"auto"``, other types)."""
    if isinstance(value, str):
        word = value.casefold()
        return True if word in TRUE_WORDS else False if word in FALSE_WORDS else None
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return bool(value)
    return None


def flag(doc: DataDoc, pointers: Iterable[str]) -> Fact[bool]:
    """A switch that has several names: the first one that is present counts."""
    for pointer in pointers:
        if (hidden := doc.hidden(pointer)) is not None:
            return hidden
        if doc.has(pointer):
            value = truth(doc.get(pointer))
            if value is None:
                return unknown("not a boolean", doc.value(pointer))
            return known(value, doc.value(pointer))
    return absent()


def stage_of(doc: DataDoc) -> Fact[int]:
    """The ZeRO stage; absent when the config does not speak of it, unknown when somebody else fills it."""
    section = doc.get("/zero_optimization")
    if isinstance(section, bool):
        return known(int(section), doc.value("/zero_optimization"))
    pointer = "/zero_optimization/stage"
    if (hidden := doc.hidden(pointer)) is not None:
        return hidden
    if not doc.has(pointer):
        return absent()
    value = doc.get(pointer)
    try:
        number = int(float(value)) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return unknown("not a number", doc.value(pointer))
    return known(number, doc.value(pointer))


def is_placeholder(value: Any) -> bool:
    """A value of a template that some script fills in."""
    return isinstance(value, str) and bool(_PLACEHOLDER.search(value))


def top_of(doc: DataDoc) -> Location:
    """The first character of the config, for findings about what is missing."""
    start = doc.values[""].start
    return doc.source.location(Span(start, start + 1))


def version_named(version: VersionFact, library: str = "DeepSpeed") -> str:
    """``DeepSpeed 0.12.6``, for messages; the bare name where nobody states a release.

    Where it is stated is a related place (:func:`version_origin`).
    """
    if not version.is_known:
        return library
    return f"{library} {version.specifier.removeprefix('==')}"


def version_origin(version: VersionFact, library: str = "DeepSpeed") -> tuple[Location, ...]:
    """The place that states the version, for ``related``."""
    if version.origin is None:
        return ()
    return (version.origin.labelled(f"{library} {version.specifier} is stated here"),)
