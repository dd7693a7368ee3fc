"""An accelerate config with FSDP whose wrap policy wraps no layer.

**What.** `fsdp_auto_wrap_policy: SIZE_BASED_WRAP` with `fsdp_min_num_params: 0` or without that number; a class of
layers or a number of parameters beside `NO_WRAP` or no policy at all; a number that accelerate cannot read (`1e8`,
`100M`).

**Why it hurts.** With zero accelerate drops the policy and says nothing, and the whole model is one unit of FSDP: each
forward pass gathers all parameters on each GPU, and the memory that sharding was to save is lost. A number that is no
whole number ends the run with a ValueError (YAML reads `1e8` as a text).

**Fix.** `fsdp_min_num_params: 100000000`, or `TRANSFORMER_BASED_WRAP` with the class of the layers.

**When it stays quiet.** For `TRANSFORMER_BASED_WRAP`, for `NO_WRAP` alone, for other types, and where a flag of the
command gives the policy or the number.

**Evidence.** accelerate 1.15, `FullyShardedDataParallelPlugin.__post_init__` and `set_auto_wrap_policy` ("If zero, we
silently ignore it"), run with each of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.view import AccelerateView, view_of
from dslint.model.context import Context
from dslint.model.deepspeed.config import is_placeholder
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL343",
    name="accelerate-fsdp-wraps-nothing",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="A wrap policy of FSDP in an accelerate config that wraps no layer",
    depends_on_run=True,
    references=("https://huggingface.co/docs/accelerate/usage_guides/fsdp",),
    versions=("accelerate>=0.20",),
    no_experiment="accelerate's plugin decides, and it was run; what an unsharded model costs needs GPUs",
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: 1
num_processes: 8
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_auto_wrap_policy: SIZE_BASED_WRAP
  fsdp_min_num_params: 0
"""
_CLASS = "fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer"
_ONE = "  fsdp_min_num_params: 0\n"
_LARGE = _FILE.replace("params: 0", "params: 100000000")

EXAMPLES = (
    bad("a number of zero", {"fsdp.yaml": _FILE}, "fsdp.yaml:8 warning"),
    bad("no number", {"fsdp.yaml": _FILE.replace(_ONE, "")}, "fsdp.yaml:7 warning"),
    bad("names without the prefix", {"fsdp.yaml": _FILE.replace("  fsdp_", "  ")}, "fsdp.yaml:8 warning"),
    bad("classes for a policy of size", {"fsdp.yaml": _FILE.replace(_ONE, f"  {_CLASS}\n")}, "fsdp.yaml:7 warning"),
    bad("a class and no policy", {
        "fsdp.yaml": _FILE.replace("fsdp_auto_wrap_policy: SIZE_BASED_WRAP", _CLASS),
    }, "fsdp.yaml:7 warning"),
    bad("a size and NO_WRAP", {"fsdp.yaml": _LARGE.replace("SIZE_BASED_WRAP", "NO_WRAP")}, "fsdp.yaml:7 warning"),
    bad("a number that is a text", {"fsdp.yaml": _FILE.replace("params: 0", "params: 1e8")}, "fsdp.yaml:8 error"),
    good("a size", {"fsdp.yaml": _LARGE}),
    good("underscores are digits to YAML and to Python", {"fsdp.yaml": _LARGE.replace("100000000", "100_000_000")}),
    good("layers by their class", {
        "fsdp.yaml": _FILE.replace("SIZE_BASED", "TRANSFORMER_BASED").replace("fsdp_min_num_params: 0", _CLASS),
    }),
    good("nothing is asked for", {"fsdp.yaml": _FILE.replace("SIZE_BASED_WRAP", "NO_WRAP")}),
    good("the command gives the number", {
        "fsdp.yaml": _FILE,
        "run.sh": "accelerate launch --config_file fsdp.yaml --fsdp_min_num_params 20000000 train.py\n",
    }),
    good("another type", {"ddp.yaml": _FILE.replace("FSDP", "MULTI_GPU")}),
)  # fmt: skip

_SECTION = "/fsdp_config"
_POLICY, _SIZE, _CLASSES = "auto_wrap_policy", "min_num_params", "transformer_layer_cls_to_wrap"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The policy, and the number or the class that it needs."""
    view = view_of(doc, context)
    if view.kind.get_or("") != "FSDP" or not view.is_local or not isinstance(doc.get(_SECTION), dict):
        return
    if any(not view.flag(f"fsdp_{name}").is_absent for name in (_POLICY, _SIZE, _CLASSES)):
        return
    policy, size = (_value(doc, name) for name in (_POLICY, _SIZE))
    if is_placeholder(size):
        return
    word = str(policy).upper() if policy is not None else ""
    if word == "SIZE_BASED_WRAP":
        yield from _by_size(doc, view, size)
    elif word in ("", "NO_WRAP") and (_value(doc, _CLASSES) or size):
        name = _CLASSES if _value(doc, _CLASSES) else _SIZE
        said = "no policy" if policy is None else f"`{policy}`"
        key = doc.key(_place(doc, name)) if policy is None else doc.value(_place(doc, _POLICY))
        message = f"`{_shown(doc, name)}` has no effect with {said}: FSDP wraps no layer, and gathers the whole model"
        yield META.finding(
            key,
            message,
            hint="Set `fsdp_auto_wrap_policy` to `TRANSFORMER_BASED_WRAP` or `SIZE_BASED_WRAP`",
            severity=view.severity(Severity.WARNING),
            pointer=_place(doc, name),
        )


def _by_size(doc: DataDoc, view: AccelerateView, size: Any) -> Iterator[Finding]:
    at = _place(doc, _SIZE)
    if isinstance(size, str) and not re.fullmatch(r"\s*[+-]?\d+(?:_\d+)*\s*", size):
        yield META.finding(
            doc.value(at),
            f"`{_shown(doc, _SIZE)}` is the text `{size}`: accelerate stops with a ValueError, it reads digits only",
            hint="Write the number in digits, such as 100000000",
            severity=view.severity(Severity.ERROR),
            pointer=at,
        )
    elif size is None or (isinstance(size, int | str) and int(size) <= 0):
        told = f"`{_shown(doc, _SIZE)}` is {size}" if size is not None else "`fsdp_min_num_params` is not set"
        yield META.finding(
            doc.value(at if size is not None else _place(doc, _POLICY)),
            f"`SIZE_BASED_WRAP` wraps no layer while {told}: FSDP gathers the whole model at once",
            hint="Set `fsdp_min_num_params` to a number such as 100000000, or wrap by the class of the layers",
            severity=view.severity(Severity.WARNING),
            pointer=at,
        )


def _place(doc: DataDoc, name: str) -> str:
    """Where the section says it: accelerate puts the prefix before a name that lacks it."""
    bare = f"{_SECTION}/{name}"
    return bare if doc.has(bare) else f"{_SECTION}/fsdp_{name}"


def _shown(doc: DataDoc, name: str) -> str:
    return _place(doc, name).rpartition("/")[2]


def _value(doc: DataDoc, name: str) -> Any:
    return doc.get(_place(doc, name))
