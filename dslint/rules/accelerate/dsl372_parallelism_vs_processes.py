"""Sizes of an accelerate `parallelism_config` whose product is not the number of processes.

**What.** `parallelism_config` of a config of accelerate launch lays the processes out in data, tensor, context and
sequence parallel dimensions; the product of the sizes must be `num_processes`, that of the file or of the command.

**Why it hurts.** Every rank stops in `Accelerator()`: `ValueError: ParallelismConfig total_size (4) does not match
num_processes (8)`.

**Fix.** Make `parallelism_config_dp_shard_size` (or another size) so large that the product is the number of
processes.

**When it stays quiet.** When all sizes are 1, for sequence parallelism by DeepSpeed, and where a size or the number
is not known.

**Evidence.** accelerate 1.15 `ParallelismConfig._validate_accelerator`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL372",
    name="parallelism-vs-processes",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="The sizes of `parallelism_config` do not make up the number of processes",
    depends_on_run=True,
    no_experiment="the sizes need devices; the test is in the source of accelerate",
    references=("https://huggingface.co/docs/accelerate/concept_guides/nd_parallel",),
)

_SECTION = "/parallelism_config/parallelism_config_"
_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
num_machines: 1
num_processes: %s
parallelism_config:
  parallelism_config_dp_replicate_size: %s
  parallelism_config_dp_shard_size: %s
  parallelism_config_tp_size: %s
"""
_RUN = "accelerate launch --config_file nd.yaml --num_processes %s train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("four of eight", {"nd.yaml": _FILE % (8, 1, 2, 2)}, "nd.yaml:10 warning"),
    bad("sixteen of eight", {"nd.yaml": _FILE % (8, 2, 4, 2)}, "nd.yaml:9 warning"),
    bad("the number of the command", {"nd.yaml": _FILE % (8, 2, 2, 2), "run.sh": _RUN % 4, **_SCRIPT},
        "nd.yaml:10 warning"),
    bad("context parallel ranks too", {
        "nd.yaml": _FILE % (8, 1, 4, 2) + "  parallelism_config_cp_size: 2\n",
    }, "nd.yaml:9 warning"),
    good("eight of eight", {"nd.yaml": _FILE % (8, 2, 2, 2)}),
    good("the number of the command fits", {"nd.yaml": _FILE % (8, 1, 2, 2), "run.sh": _RUN % 4, **_SCRIPT}),
    good("no size at all", {"nd.yaml": _FILE % (8, 1, 1, 1)}),
    good("DeepSpeed's sequence parallelism", {
        "nd.yaml": _FILE % (8, 1, 1, 1)
        + "  parallelism_config_sp_size: 4\n  parallelism_config_sp_backend: deepspeed\n",
    }),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Multiply."""
    if not doc.has("/parallelism_config"):
        return
    view = view_of(doc, context)
    count = view.count("num_processes", 0)
    sizes = {name: doc.get(f"{_SECTION}{name}", 1) for name in _SIZES}
    if not count.get_or(0) or not all(type(size) is int and size > 0 for size in sizes.values()):
        return
    if sizes["sp_size"] > 1 and doc.get(f"{_SECTION}sp_backend", "deepspeed") == "deepspeed":
        return
    product = 1
    for size in sizes.values():
        product *= size
    if product in (1, count.get()):
        return
    largest = max((name for name in _SIZES if doc.has(f"{_SECTION}{name}")), key=lambda name: (sizes[name], name))
    named = " x ".join(f"{name.removesuffix('_size')} {size}" for name, size in sizes.items() if size > 1)
    yield META.finding(
        doc.value(f"{_SECTION}{largest}"),
        f"{named} makes {product} ranks, but {count.get()} processes are started: accelerate stops with a ValueError",
        hint=f"Make the product of the sizes {count.get()}, or start {product} processes",
        related=count.origins,
        severity=view.severity(Severity.WARNING),
        pointer=f"{_SECTION}{largest}",
    )
