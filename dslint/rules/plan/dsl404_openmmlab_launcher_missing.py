"""**What.** A script in the style of OpenMMLab (mmengine, mmdetection, XTuner's `tools/train.py`) joins the job only
through its own argument `--launcher`, whose default is `none`. Where the script is not in the project, its name and
its first argument say what it is: `tools/train.py CONFIG.py`, `xtuner/tools/train.py`, `-m xtuner.tools.train`. A
command that starts several processes without it, with `none`, or with the value of another launcher, starts processes
that do not know of each other.

**Why it hurts.** With `none` the runner does not create a process group: every process prepares the whole data set
on its own, at its own pace, and the first one that needs the others waits for them until the store gives up
(`torch.distributed.DistStoreError` or "client socket has timed out after 1800s"). Or all train the same, alone.

**Fix.** Append `--launcher pytorch` under torchrun, deepspeed and accelerate, `--launcher slurm` when `srun` starts the
script itself, `--launcher mpi` under `mpirun`.

**When it stays quiet.** For a single process, when the default is already `pytorch`, when words that dslint cannot read
(`"$@"`, `$ARGS`) may hold the flag, and when the script takes the launcher from its config file or finds it out by
itself. It is a warning where the script is not in the project, and where a variable states the number of processes
(`--nproc_per_node=$GPUS`).

**Evidence.** mmengine `Runner.__init__` sets up the environment with `launcher` and calls `init_dist` only when it
is not `none`; the traceback in the report below shows the wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.plan.parser.options import Option
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL404",
    name="openmmlab-launcher-missing",
    kind="plan",
    severity=Severity.ERROR,
    summary="An OpenMMLab-style script is started on several processes without the `--launcher` it needs",
    fix="safe",
    references=("https://github.com/InternLM/xtuner/issues/438",),
    depends_on_run=True,
    needs=("profile", "convention"),
)

_SCRIPT = """\
import argparse

from mmengine.config import Config
from mmengine.runner import Runner


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--work-dir")
    parser.add_argument("--launcher", choices=["none", "pytorch", "slurm", "mpi"], default="none")
    args = parser.parse_args()
    cfg = Config.fromfile(args.config)
    cfg.launcher = args.launcher
    Runner.from_cfg(cfg).train()


if __name__ == "__main__":
    main()
"""
_RUN = "torchrun --nproc_per_node 8 tools/train.py configs/llama.py --work-dir out\n"
_JOB = "#!/bin/bash\n#SBATCH --ntasks=16\n\nsrun python tools/train.py configs/llama.py\n"

EXAMPLES = (
    bad("torchrun without --launcher", {"run.sh": _RUN, "tools/train.py": _SCRIPT}, "run.sh:1",
        fixed={"run.sh": _RUN.replace("out\n", "out --launcher pytorch\n")}),
    bad("srun without --launcher", {"job.sh": _JOB, "tools/train.py": _SCRIPT}, "job.sh:4",
        fixed={"job.sh": _JOB.replace("llama.py\n", "llama.py --launcher slurm\n")}),
    bad("`none` is no launcher", {"run.sh": _RUN.replace("out\n", "out --launcher none\n"), "tools/train.py": _SCRIPT},
        "run.sh:1 error", fixed={"run.sh": _RUN.replace("out\n", "out --launcher pytorch\n")}),
    bad("the number of processes is an argument of the launch script", {
        "tools/dist_train.sh": "CONFIG=$1\nGPUS=$2\ntorchrun --nproc_per_node=$GPUS $(dirname $0)/train.py $CONFIG\n",
        "tools/train.py": _SCRIPT,
    }, "tools/dist_train.sh:3 warning"),
    bad("the launcher of another scheduler", {
        "run.sh": _RUN.replace("out\n", "out --launcher slurm\n"),
        "tools/train.py": _SCRIPT,
    }, "run.sh:1", fixed={"run.sh": _RUN.replace("out\n", "out --launcher pytorch\n")}),
    bad("the script of the library", {
        "run.sh": _RUN.replace("tools/train.py configs/llama.py", "xtuner/tools/train.py internlm2_chat_7b_full"),
    }, "run.sh:1 warning",
        fixed={"run.sh": "torchrun --nproc_per_node 8 xtuner/tools/train.py internlm2_chat_7b_full --work-dir out"
               " --launcher pytorch\n"}),
    bad("mmdetection beside the project", {
        "job.sh": _JOB.replace("python tools", "python $MMDET/tools"),
    }, "job.sh:4 warning",
        fixed={"job.sh": _JOB.replace("python tools", "python $MMDET/tools")
               .replace("llama.py\n", "llama.py --launcher slurm\n")}),
    good("another script of that name, which takes no config", {"run.sh": _RUN.replace("configs/llama.py", "--lr 1")}),
    good("torchrun with its launcher", {
        "run.sh": _RUN.replace("out\n", "out --launcher pytorch\n"),
        "tools/train.py": _SCRIPT,
    }),
    good("one process", {"run.sh": _RUN.replace("8", "1"), "tools/train.py": _SCRIPT}),
    good("the default is pytorch already", {
        "run.sh": _RUN,
        "tools/train.py": _SCRIPT.replace('default="none"', 'default="pytorch"'),
    }),
    good("the flag may come from the caller", {
        "run.sh": _RUN.replace("out\n", 'out "$@"\n'),
        "tools/train.py": _SCRIPT,
    }),
    good("the script sees for itself who started it", {
        "run.sh": _RUN,
        "tools/train.py": _SCRIPT.replace("    cfg = Config", '''\
    if "TORCHELASTIC_RUN_ID" in os.environ:
        args.launcher = "pytorch"
    cfg = Config''').replace("import argparse\n", "import argparse\nimport os\n"),
    }),
    good("a script of its own with an unrelated --launcher", {
        "run.sh": _RUN,
        "tools/train.py": "import argparse\n\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("config")\nparser.add_argument("--work-dir")\n'
        'parser.add_argument("--launcher", default="none")\nprint(parser.parse_args())\n',
    }),
)  # fmt: skip

_NAMES = {"deepspeed": "the deepspeed launcher", "accelerate": "accelerate", "python": "srun"}
_NEEDED = {"torchrun": "pytorch", "deepspeed": "pytorch", "accelerate": "pytorch", "srun": "slurm", "mpirun": "mpi"}


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Compare the launcher that starts the processes with the one that the script is told."""
    command = plan.command
    needed = _NEEDED.get(command.launcher, "")
    profile = plan.profile
    declared = profile.launcher if profile is not None else None
    takes_none = declared is not None and declared.default.get_or("") == "none"
    if not needed or not (takes_none or plan.convention) or not _starts_several(plan):
        return
    flag = command.script_flag("--launcher")
    given = flag.value.text if flag is not None and flag.value is not None else None
    operands = sum(not option.flags for option in profile.options.values()) if profile is not None else 1
    if flag is None and not command.may_hide_flags(operands):
        yield _missing(plan, declared, needed, None)
    elif flag is not None and given == "none":
        yield _missing(plan, declared, needed, flag)
    elif flag is not None and given in {"pytorch", "slurm"} - {needed} and _is_wrong(command, given):
        yield _mismatch(plan, flag, given, needed)


def _starts_several(plan: RunPlan) -> bool:
    """More than one process, or as many as a variable says: nobody writes a variable for one."""
    command = plan.command
    if plan.world_size.is_known:
        return plan.world_size.get() > 1
    if command.launcher == "deepspeed":
        return True  # one for every GPU of the machine
    return command.launcher != "accelerate" and plan.world_size.is_unknown


def _is_wrong(command: LaunchCommand, given: str | None) -> bool:
    """``pytorch`` works under srun when the job exports the variables of torchrun itself."""
    return given != "pytorch" or command.variable("RANK").is_absent


def _launcher(command: LaunchCommand) -> str:
    return _NAMES.get(command.launcher, command.launcher)


def _processes(plan: RunPlan) -> str:
    return f"{plan.world_size.get()} processes" if plan.world_size.is_known else "several processes"


def _severity(plan: RunPlan) -> Severity | None:
    is_sure = plan.world_size.is_known and not plan.command.in_docs and plan.profile is not None
    return None if is_sure else Severity.WARNING


def _missing(plan: RunPlan, declared: Option | None, needed: str, flag: Flag | None) -> Finding:
    command = plan.command
    stays = "stays `none`" if flag is None else "is `none`"
    hint = f"Append `--launcher {needed}` to the arguments of the script" if flag is None else None
    return META.finding(
        (command.script or command.words[0]).location if flag is None else flag.location,
        f"{_launcher(command)} starts {_processes(plan)}, but the script's `--launcher` {stays}: they form no group and"
        " time out",
        hint=hint or f"Write `--launcher {needed}`",
        related=(
            *(origin.labelled("the number of processes comes from here") for origin in plan.world_size.origins),
            *((declared.location.labelled("`--launcher` is `none` unless it is given"),) if declared else ()),
        ),
        fix=_append(command, f" --launcher {needed}") if flag is None else _replaced(command, flag, "none", needed),
        severity=_severity(plan),
        facts=_facts(plan, ""),
    )


def _facts(plan: RunPlan, given: str) -> dict[str, str | int | None]:
    world = plan.world_size.get_or(None)
    return {"by": plan.command.launcher, "given": given, "world": world}


def _append(command: LaunchCommand, text: str) -> Fix | None:
    """Insert after the last word that stands in the command itself."""
    words = [w for w in (command.script, *command.script_args) if w is not None]
    inside = [w.location.span.end for w in words if w.location.path == command.location.path]
    if not inside or command.location.path.endswith(".ipynb"):
        return None
    end = max(inside)
    if not command.location.span.start <= end <= command.location.span.end:
        return None
    return Fix(f"Append `{text.strip()}`", (Edit(command.location.path, Span(end, end), text),))


def _mismatch(plan: RunPlan, flag: Flag, given: str, needed: str) -> Finding:
    command = plan.command
    name = _launcher(command)
    return META.finding(
        flag.location,
        f"`--launcher {given}` under {name} reads variables that {name} does not set: the {_processes(plan)} form no"
        " group",
        hint=f"Write `--launcher {needed}`",
        related=(command.location.labelled(f"started by {name}"),),
        fix=_replaced(command, flag, given, needed),
        severity=_severity(plan),
        facts=_facts(plan, given),
    )


def _replaced(command: LaunchCommand, flag: Flag, given: str, needed: str) -> Fix | None:
    word = flag.value
    if word is None or word.raw != given or command.location.path.endswith(".ipynb"):
        return None
    start = word.location.span.end - len(word.raw)
    return Fix(f"Write `{needed}`", (Edit(word.location.path, Span(start, word.location.span.end), needed),))
