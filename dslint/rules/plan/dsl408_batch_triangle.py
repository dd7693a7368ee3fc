"""**What.** DeepSpeed demands `train_batch_size` = `train_micro_batch_size_per_gpu` x `gradient_accumulation_steps`
x world size. The world size is in the launch command, the micro batch often in the script's arguments, the
total in the config: three files whose product must fit.

**Why it hurts.** The job is scheduled, every rank starts and loads its libraries, and then each of them stops with
`AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu *
gradient_acc_step * world_size`. Under the Trainer of transformers the same numbers end in `ValueError: Please
correct the following DeepSpeed config values that mismatch TrainingArguments values`.

**Fix.** With the Trainer, write `"auto"`: it fills in the product. Without it, correct the number that is wrong, or
leave `train_batch_size` out and let DeepSpeed compute it.

**When it stays quiet.** When the world size or the batch size is not readable (`$WORLD_SIZE` of a platform,
`"auto"` outside the Trainer, an unseen argument), when the script computes or changes the config, and when pipeline,
tensor or sequence parallel groups of a size that is not visible may share a sample. The world size is divided by
`num_stages` where the script makes one `PipelineModule` and no other groups. AutoTP (`tensor_parallel.autotp_size`)
does not divide it: DeepSpeed reads the config before it makes these groups. Where it speaks, `batch-inconsistent`,
which sees only the config, stays silent.

**Evidence.** DeepSpeed `DeepSpeedConfig._set_batch_related_parameters` and `_batch_assertion`; transformers
`HfTrainerDeepSpeedConfig.trainer_config_process`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.deepspeed.batch import judge
from dslint.model.edits import replace_value
from dslint.model.plan.batch import stated_world
from dslint.model.plan.recipe import starts
from dslint.model.plan.runplan import Peer, RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import ARGUMENTS, TRAINER

META = RuleMeta(
    code="DSL408",
    name="batch-triangle",
    kind="plan",
    severity=Severity.ERROR,
    summary="The batch sizes of config and arguments do not fit the world size of the launch command",
    fix="safe",
    depends_on_run=True,
    supersedes=("DSL130",),
    versions=("deepspeed>=0.9",),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/6914",
        "https://github.com/OpenRLHF/OpenRLHF/issues/346",
    ),
    needs=("config",),
)

_PIPELINE = ARGUMENTS.replace(
    "model = torch.nn.Linear(8, 8)",
    "model = deepspeed.pipe.PipelineModule([torch.nn.Linear(8, 8)] * 2, num_stages=2)",
)
_CONFIG = """\
{
  "train_batch_size": 30,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 1
}
"""
_FILLED = """\
{
  "train_batch_size": 30,
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "zero_optimization": {"stage": 2}
}
"""
_RUN = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n"
_JOB = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\nsrun python" + _RUN.removeprefix(
    "deepspeed --num_gpus 8"
)
_RUN_TRAINER = """\
torchrun --nproc_per_node 8 train.py \\
    --deepspeed ds.json \\
    --output_dir out \\
    --per_device_train_batch_size 4
"""

EXAMPLES = (
    bad("30 samples cannot be spread over 8 ranks", {"run.sh": _RUN_TRAINER, "train.py": TRAINER, "ds.json": _FILLED},
        "ds.json:2", fixed={"ds.json": _FILLED.replace("30", '"auto"')}),
    bad("4 x 1 x 8 = 32, not 30", {"run.sh": _RUN, "train.py": ARGUMENTS, "ds.json": _CONFIG}, "ds.json:2"),
    bad("the config fits 7 ranks, the command starts 8", {
        "run.sh": _RUN,
        "train.py": ARGUMENTS,
        "ds.json": _CONFIG.replace("30", "28"),
    }, "ds.json:2"),
    bad("the ranks of a Slurm job: 4 x 1 x (2 x 4) = 32, not 30", {
        "job.sbatch": _JOB, "train.py": ARGUMENTS, "ds.json": _CONFIG,
    }, "ds.json:2"),
    good("the ranks of a Slurm job: 32", {
        "job.sbatch": _JOB, "train.py": ARGUMENTS, "ds.json": _CONFIG.replace("30", "32"),
    }),
    bad("two pipeline stages share a batch: 4 x 1 x 8 / 2 = 16", {
        "run.sh": _RUN,
        "train.py": _PIPELINE,
        "ds.json": _CONFIG.replace("30", "32"),
    }, "ds.json:2"),
    good("4 x 1 x 8 = 32", {"run.sh": _RUN, "train.py": ARGUMENTS, "ds.json": _CONFIG.replace("30", "32")}),
    good("the number of ranks comes from the platform", {
        "run.sh": _RUN.replace("8", '"$GPUS"'),
        "train.py": ARGUMENTS,
        "ds.json": _CONFIG.replace("30", "32"),
    }),
    good("the Trainer fills in the product", {
        "run.sh": _RUN_TRAINER,
        "train.py": TRAINER,
        "ds.json": _FILLED.replace("30", '"auto"'),
    }),
    good("the number of stages is an argument", {
        "run.sh": _RUN,
        "train.py": _PIPELINE.replace("num_stages=2", "num_stages=args.stages").replace(
            "parser.add", 'parser.add_argument("--stages", type=int, default=2)\nparser.add', 1),
        "ds.json": _CONFIG.replace("30", "32"),
    }),
    good("the script lays the ranks out", {
        "run.sh": _RUN,
        "train.py": _PIPELINE.replace("num_stages=2", "num_stages=2, topology=layout"),
        "ds.json": _CONFIG.replace("30", "32"),
    }),
    good("pipeline stages share a batch", {
        "run.sh": _RUN,
        "train.py": _PIPELINE,
        "ds.json": _CONFIG.replace("30", "16"),
    }),
)  # fmt: skip

_LOWER = {Severity.ERROR: Severity.WARNING, Severity.WARNING: Severity.INFO}


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Judge the batch triangle of one run."""
    doc = plan.config
    if doc is None or plan.config_is_rewritten:
        return
    verdict = judge(plan.batch, stated_world(doc, plan.batch_world, context.world_size))
    if verdict.kind not in ("inconsistent", "indivisible") or verdict.at is None:
        return
    alike = [peer for peer in plan.peers if peer.numbers == plan.numbers and peer.consumer == plan.consumer]
    if any(peer.is_earlier for peer in alike):
        return  # Said once for all runs with these numbers.
    is_trainer = plan.consumer.get_or("") == "hf"
    # Without knowing who reads the config, another program may fill or ignore the numbers.
    severity = Severity.ERROR if plan.consumer.is_known else Severity.WARNING
    yield META.finding(
        verdict.at,
        verdict.message,
        hint='Set `train_batch_size` to `"auto"`: the Trainer fills in the product'
        if is_trainer
        else "Correct the number that is wrong, or delete `train_batch_size`: DeepSpeed computes it from the others",
        related=(*_related(plan, verdict.related), *(_also(peer) for peer in alike[:5])),
        fix=_fix(plan) if is_trainer else None,
        severity=_LOWER[severity] if plan.command.in_docs else severity,
        pointer="/train_batch_size",
        facts=_facts(plan, context),
    )


def _facts(plan: RunPlan, context: Context) -> dict[str, str | int | float | bool | None]:
    world = plan.world_size.or_else(context.world_size)
    if plan.profile is not None and plan.profile.pipeline_stages.is_known:
        world = plan.batch_world
    return {
        "consumer": plan.consumer.get_or("unknown"),
        "world": world.get_or(None),
        "micro": plan.batch.micro.get_or(None),
        "steps": plan.batch.steps.get_or(None),
    }


def _related(plan: RunPlan, places: tuple[Location, ...]) -> tuple[Location, ...]:
    command = plan.command.location
    if any(place.path == command.path for place in places):
        return places
    return (*places, starts(plan.command))


def _also(peer: Peer) -> Location:
    return peer.command.location.labelled("another run with the same numbers")


def _fix(plan: RunPlan) -> Fix | None:
    """``"auto"`` keeps micro batch and accumulation; a reader that is no Trainer cannot fill it."""
    assert plan.config is not None
    edits = replace_value(plan.config, "/train_batch_size", '"auto"')
    if not edits:
        return None
    shared = all(peer.consumer.get_or("") == "hf" for peer in plan.peers)
    return Fix('Set `train_batch_size` to `"auto"`', edits, Safety.SAFE if shared else Safety.UNSAFE)
