"""A config of `accelerate launch` that is put in place for a run which torchrun or `srun` starts.

**What.** The launch script copies a config of accelerate to where accelerate looks for it (`cp accelerate.yaml
~/.cache/huggingface/accelerate/default_config.yaml`), or names it (`export ACCELERATE_CONFIG_FILE=...`), and starts the
script by `torchrun` or `srun python`. Only `accelerate launch` reads such a file: it hands it over as variables. The
file asks for a precision, or for DeepSpeed or FSDP, of which the script says nothing itself.

**Why it hurts.** `Accelerator()` finds none of the variables: `mixed_precision` is `no`, and the model is wrapped by
plain DDP. The run goes on in fp32, slower and with twice the memory, or every GPU holds all states of
the optimizer.

**Fix.** `accelerate launch --config_file accelerate.yaml train.py`, or `Accelerator(mixed_precision="bf16")`.

**When it stays quiet.** When the same text, or a script that it calls, runs `accelerate launch`, when the script is
given the file or sets `ACCELERATE_...` variables, when it hands a precision or plugin to its `Accelerator` itself, and
for a file that comments alone name.

**Evidence.** accelerate 1.15, `AcceleratorState` and `Accelerator.__init__`: `mixed_precision` and `distributed_type`
come from `ACCELERATE_*` variables, which `utils/launch.py` alone sets.
https://github.com/huggingface/accelerate/issues/2519
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL430",
    name="accelerate-config-not-read",
    kind="plan",
    severity=Severity.WARNING,
    summary="A config of accelerate beside a run that torchrun or srun starts: nobody reads it",
    depends_on_run=True,
    no_experiment="the variables that `accelerate launch` sets are in its source, and torchrun sets none of them",
    references=("https://github.com/huggingface/accelerate/issues/2519",),
    needs=("unread",),
)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Settings of the file that do not arrive."""
    unread, command = plan.unread, plan.command
    if unread is None or command.conditions:
        return
    named = [f"`{pointer[1:]}: {unread.doc.get(pointer)}`" for pointer in unread.lost]
    program = "torchrun" if command.launcher == "torchrun" else "srun"
    yield META.finding(
        command.location,
        f"only `accelerate launch` reads `{unread.doc.path.rpartition('/')[2]}`: under {program} {' and '.join(named)}"
        f" {'has' if len(named) == 1 else 'have'} no effect",
        hint="Start it with `accelerate launch --config_file`, or say it to `Accelerator(...)`",
        related=(
            *(unread.doc.key(pointer, "is not read") for pointer in unread.lost),
            unread.location.labelled("is told nothing of it"),
        ),
        facts={"lost": " ".join(unread.lost)},
    )


_YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: %s
mixed_precision: %s
num_machines: 1
num_processes: 4
"""
_TRAIN = """\
from accelerate import Accelerator

from mine import loader, model, optimizer


def main():
    accelerator = Accelerator(%s)
    prepared, adam, batches = accelerator.prepare(model, optimizer, loader)
    for batch in batches:
        accelerator.backward(prepared(batch))
        adam.step()
        adam.zero_grad()


if __name__ == "__main__":
    main()
"""
_COPY = (
    "mkdir -p ~/.cache/huggingface/accelerate\n"
    "cp conf/accelerate.yaml ~/.cache/huggingface/accelerate/default_config.yaml\n"
)
_NAMED = "export ACCELERATE_CONFIG_FILE=conf/accelerate.yaml\n"
_RUN = "torchrun --standalone --nproc_per_node=4 train.py\n"


def _project(text: str, given: str = "", kind: str = "MULTI_GPU", precision: str = "bf16") -> dict[str, str]:
    return {"run.sh": text, "conf/accelerate.yaml": _YAML % (kind, precision), "train.py": _TRAIN % given}


EXAMPLES = (
    bad("copied to its place", _project(_COPY + _RUN), "run.sh:3"),
    bad("named in a variable", _project(_NAMED + _RUN, "gradient_accumulation_steps=4"), "run.sh:2"),
    bad("the older spelling of torchrun", _project(
        _NAMED + "python -m torch.distributed.run --nproc_per_node=4 train.py\n"), "run.sh:2"),
    bad("FSDP", _project(_COPY + _RUN, "mixed_precision='bf16'", "FSDP"), "run.sh:3"),
    bad("DeepSpeed, and no precision", _project(_NAMED + _RUN, kind="DEEPSPEED", precision="'no'"), "run.sh:2"),
    good("accelerate launch", _project(_COPY + "accelerate launch train.py\n")),
    good("the script says it itself", _project(_COPY + _RUN, "mixed_precision='bf16'")),
    good("the file asks for nothing more", _project(_COPY + _RUN, precision="'no'")),
    good("the variable itself", _project("export ACCELERATE_MIXED_PRECISION=bf16\n" + _COPY + _RUN)),
    good("both ways", _project(_COPY + _RUN + "accelerate launch --config_file conf/accelerate.yaml train.py\n"),
         select="DSL430"),
    good("another script is started by it", {
        **_project("# finetune.sh reads it\n" + _COPY + _RUN + "bash finetune.sh\n"),
        "finetune.sh": "accelerate launch train.py\n"}),
    good("named in a comment alone", _project("# the run of the paper: with accelerate and conf/accelerate.yaml\n"
                                              + _RUN)),
    good("the program in a variable", _project(
        _NAMED + "ACCELERATE=${ACCELERATE:-accelerate}\n" + _RUN + "$ACCELERATE launch train.py\n"), select="DSL430"),
    good("the module of the program", _project(
        _NAMED + _RUN + "python -m accelerate.commands.accelerate_cli launch train.py\n"), select="DSL430"),
    good("the script that submits it exports the variable", {
        **_project(""), "job.sbatch": "#!/bin/bash\n#SBATCH --gpus-per-node=4\n" + _NAMED + _RUN,
        "submit.sh": "export ACCELERATE_MIXED_PRECISION=bf16\nsbatch job.sbatch\n"}),
    good("no word of it", _project(_RUN)),
)  # fmt: skip
