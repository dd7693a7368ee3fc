"""**What.** The degrees of tensor, pipeline, context or expert parallelism that a command states (options of
Megatron, ms-swift and OpenRLHF, overrides of NeMo and verl, options and the TOML file of torchtitan) do not fit
the number of processes: their product must divide it, and with a data parallel degree of its own be it.

**Why it hurts.** Every rank stops when the groups are made: `world_size (8) is not divisible by 16`, or an assertion
of the parallel dimensions, after the job has waited in its queue.

**Fix.** Start as many processes as the product, or a multiple of it, or lower a degree.

**When it stays quiet.** When the number of processes or a degree is not known, and when words that cannot be read may
hold a degree.

**Evidence.** The sources of the libraries that `schemas/parallel_degrees.json` names for each row.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL499",
    name="degrees-vs-processes",
    kind="plan",
    severity=Severity.WARNING,
    summary="Degrees of parallelism that the processes of the command cannot have",
    depends_on_run=True,
    no_experiment="the libraries are not installed beside dslint; their assertions are named in the data",
    references=(
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/parallel_state.py",
        "https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/parallel_dims.py",
    ),
    needs=("degrees",),
)

_MEGATRON = (
    "torchrun --standalone --nproc_per_node %s pretrain_gpt.py --tensor-model-parallel-size %s \\\n"
    "  --pipeline-model-parallel-size %s --micro-batch-size 1\n"
)
_SCRIPT = {"pretrain_gpt.py": "print()\n"}
_TITAN = "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file ./llama.toml%s\n"
_TOML = "[training]\nsteps = 10\n\n[parallelism]\ndata_parallel_shard_degree = %s\ntensor_parallel_degree = %s\n"
_VERL = (
    "python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 trainer.nnodes=%s \\\n"
    "  actor_rollout_ref.rollout.tensor_model_parallel_size=%s\n"
)

EXAMPLES = (
    bad("4 x 4 of 8", {"run.sh": _MEGATRON % (8, 4, 4), **_SCRIPT}, "run.sh:1 warning"),
    bad("three of eight", {"run.sh": "TP=3\n" + _MEGATRON % (8, "$TP", 1), **_SCRIPT}, "run.sh:2 warning"),
    bad("experts", {
        "run.sh": _MEGATRON.replace("--micro", "--expert-model-parallel-size 8 --micro") % (8, 1, 2), **_SCRIPT,
    }, "run.sh:2 warning"),
    bad("ms-swift", {
        "run.sh": "NPROC_PER_NODE=4 megatron sft --model a --tensor_model_parallel_size 8\n",
    }, "run.sh:1 warning"),
    bad("torchtitan's file", {"run.sh": _TITAN % "", "llama.toml": _TOML % (-1, 3)}, "llama.toml:6 warning"),
    bad("all dimensions of torchtitan", {"run.sh": _TITAN % "", "llama.toml": _TOML % (2, 2)},
        "llama.toml:6 warning"),
    bad("an option wins over the file", {
        "run.sh": _TITAN % " --parallelism.tensor_parallel_degree 16", "llama.toml": _TOML % (-1, 2),
    }, "run.sh:1 warning"),
    bad("verl", {"run.sh": _VERL % (1, 16)}, "run.sh:2 warning"),
    bad("NeMo", {
        "run.sh": "python train_gpt.py trainer.devices=4 trainer.num_nodes=2 ++model.tensor_model_parallel_size=16\n",
        "train_gpt.py": "print()\n",
    }, "run.sh:1 warning"),
    good("4 x 2 of 8", {"run.sh": _MEGATRON % (8, 4, 2), **_SCRIPT}),
    good("a number that is not known", {"run.sh": _MEGATRON % ("$N", 4, 4), **_SCRIPT}),
    good("a degree that is not known", {"run.sh": _MEGATRON % (8, "$TP", 4), **_SCRIPT}),
    good("the rest is data parallel", {"run.sh": _TITAN % "", "llama.toml": _TOML % (-1, 4)}),
    good("all dimensions", {"run.sh": _TITAN % "", "llama.toml": _TOML % (4, 2)}),
    good("two nodes of verl", {"run.sh": _VERL % (2, 16)}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Degrees beside the number of processes."""
    found = plan.degrees
    if found is None:
        return
    named = " x ".join(f"{name.rpartition('.')[2]} {number}" for name, number, _ in found.named)
    world = found.world.get()
    must = f"is not the {world} processes" if found.is_whole else f"does not divide {world} processes"
    product = f" = {found.product}" if len(found.named) > 1 else ""
    largest = max(found.named, key=lambda item: item[1])
    yield META.finding(
        largest[2],
        f"{named}{product} {must}: {found.library} stops on every rank",
        hint=f"Start a multiple of {found.product} processes, or lower a degree"
        if not found.is_whole
        else f"Start {found.product} processes, or change a degree",
        related=(*(place for _, _, place in found.named if place is not largest[2]), *found.world.origins),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"library": found.library, "product": found.product, "world": world},
    )
