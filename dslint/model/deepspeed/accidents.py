"""Values that stop DeepSpeed although the section that reads them would convert them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Severity
from dslint.model.context import Context
from dslint.model.deepspeed.history import refusal
from dslint.model.deepspeed.schema import NEWEST, accepts
from dslint.parse.data import DataDoc

TENSOR_SIZE = "/tensor_parallel/autotp_size"
_COMPARES_SINCE = "0.18.6"
# `get_wall_clock_breakdown(param_dict) | self.flops_profiler_config.enabled` in runtime/config.py, in all releases.
_JOINED = ("/wall_clock_breakdown", "/flops_profiler/enabled")


# deepspeed/autotuning/config.py asserts in all releases that they are not empty.
_FOLDERS = ("/autotuning/results_dir", "/autotuning/exps_dir")


@dataclass(frozen=True, slots=True)
class Accident:
    """A value that stops the run.

    ``why``: what DeepSpeed does; ``right``: the value that is meant, as JSON, or ""; ``hint``: what to do without one.
    """

    pointer: str
    severity: Severity
    why: str
    right: str
    hint: str = "Write a whole number"


def accidents(doc: DataDoc, context: Context, filled: bool) -> Iterator[Accident]:
    """All of them in a config. ``filled``: transformers or accelerate reads it.

    `deepspeed.initialize` compares the size of tensor parallelism with 0 before pydantic reads it. The switches of the
    profilers are joined with `|`, which knows no fractions; Hjson makes 1 of 1.0, Python and `json` keep it.
    """
    size = doc.get(TENSOR_SIZE)
    # What the schema refuses is reported as such.
    if isinstance(size, str) and accepts(size, TENSOR_SIZE, NEWEST):
        severity, who = refusal(context.deepspeed, _COMPARES_SINCE, "converts it")
        right = "" if size == "auto" else str(int(float(size)))
        why = f"`deepspeed.initialize` compares this text with 0: {who} with a `TypeError`"
        yield Accident(TENSOR_SIZE, severity, why, right)
    for pointer in _FOLDERS:
        if doc.get(pointer) == "":
            why = "DeepSpeed needs a folder for the autotuner, even unused, and stops"
            yield Accident(pointer, Severity.ERROR, why, "", "Name a folder, or delete the key")
    if not (filled or doc.is_dict):
        return
    for pointer in _JOINED:
        value = doc.get(pointer)
        if isinstance(value, float) and value.is_integer():
            why = "DeepSpeed combines it with another switch by `|` and stops with a `TypeError`"
            yield Accident(pointer, Severity.ERROR, why, json.dumps(bool(value)))
