"""`accelerate launch` is told one precision, and the script hands another one to its `Accelerator`.

**What.** The YAML file of accelerate says `mixed_precision: fp16`, or the command `--mixed_precision bf16`, and the
script makes its `Accelerator(mixed_precision=...)` with another value: one in the call, or the default of an
option that the command does not pass (`--mixed_precision` with `default="no"`).

**Why it hurts.** The launch command sets `ACCELERATE_MIXED_PRECISION`, which an `Accelerator` reads when it gets no
precision. The other value wins silently: the run trains in fp32 with about twice the memory and time, or in a
half precision that nobody asked for.

**Fix.** `default=None` for the option, or `Accelerator()` without the argument: then the launch command decides.

**When it stays quiet.** The same precision in both places; `None`; a file that says `no`, which is what `accelerate
config` writes where nobody answers; an option that the command passes (a note); values that are not known; an
`Accelerator` that is made under a condition; a DeepSpeed config with a precision of its own; the Trainer.

**Evidence.** `AcceleratorState.__init__` of accelerate 1.15 (`accelerate/state.py`), run: the variable says `bf16`,
`Accelerator(mixed_precision="no")` trains in fp32. https://github.com/huggingface/diffusers/pull/1359
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact, absent, known
from dslint.core.finding import Finding, Severity
from dslint.core.source import labelled
from dslint.model.accelerate.plans import view_of_plan
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL434",
    name="launched-precision-replaced",
    kind="plan",
    severity=Severity.WARNING,
    summary="The `Accelerator` of the script gets another precision than `accelerate launch`, and it wins silently",
    references=(
        "https://huggingface.co/docs/accelerate/package_reference/accelerator",
        "https://github.com/huggingface/diffusers/pull/1359",
    ),
    depends_on_run=True,
    no_experiment="both values meet in one process, before any rank talks to another",
    needs=("own_precision",),
)

_YAML = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: %s\nnum_processes: 4\n"
_RUN = "accelerate launch --config_file acc.yaml train.py%s\n"
_FLAG = "accelerate launch --multi_gpu --num_processes 4 --mixed_precision %s train.py\n"
_OPTION = """\
import argparse

from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--mixed_precision", default=%s)
args = parser.parse_args()
accelerator = Accelerator(mixed_precision=args.mixed_precision)
print(accelerator.device)
"""
_PLAIN = "from accelerate import Accelerator\n\naccelerator = Accelerator(%s)\nprint(accelerator.device)\n"
_MODULE = """\
from accelerate import Accelerator

from options import parse

def main():
    args = parse()
    accelerator = Accelerator(log_with="tensorboard", mixed_precision=args.precision)
    print(accelerator.device)

if __name__ == "__main__":
    main()
"""
_PARSE = """\
import argparse

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["no", "fp16", "bf16"], default="no")
    return parser.parse_args()
"""

EXAMPLES = (
    bad("the default of an option", {
        "acc.yaml": _YAML % "fp16", "run.sh": _RUN % "", "train.py": _OPTION % '"no"',
    }, "acc.yaml:3 warning"),
    bad("a default in another module", {
        "acc.yaml": _YAML % "bf16", "run.sh": _RUN % "", "train.py": _MODULE, "options.py": _PARSE,
    }, "acc.yaml:3 warning"),
    bad("a value in the script", {"run.sh": _FLAG % "bf16", "train.py": _PLAIN % 'mixed_precision="fp16"'},
        "run.sh:1 warning"),
    bad("the other half precision", {
        "acc.yaml": _YAML % "bf16", "run.sh": _RUN % "", "train.py": _PLAIN % 'mixed_precision="fp16"',
    }, "acc.yaml:3 warning"),
    bad("both on the command line", {
        "run.sh": (_FLAG % "bf16").replace("train.py", "train.py --mixed_precision no"), "train.py": _OPTION % '"no"',
    }, "run.sh:1 info"),
    good("no default", {"acc.yaml": _YAML % "fp16", "run.sh": _RUN % "", "train.py": _OPTION % "None"}),
    good("the same", {"acc.yaml": _YAML % "fp16", "run.sh": _RUN % "", "train.py": _OPTION % '"fp16"'}),
    good("passed", {
        "acc.yaml": _YAML % "fp16", "run.sh": _RUN % " --mixed_precision fp16", "train.py": _OPTION % '"no"',
    }),
    good("passed, and other than the file", {
        "acc.yaml": _YAML % "fp16", "run.sh": _RUN % " --mixed_precision bf16", "train.py": _OPTION % '"no"',
    }),
    good("may be passed", {"acc.yaml": _YAML % "fp16", "run.sh": _RUN % ' "$@"', "train.py": _OPTION % '"no"'}),
    good("left to the launch command", {"run.sh": _FLAG % "bf16", "train.py": _PLAIN % ""}),
    good("a file that asks for nothing", {
        "acc.yaml": _YAML % "'no'", "run.sh": _RUN % "", "train.py": _PLAIN % 'mixed_precision="bf16"',
    }),
)  # fmt: skip

_HALF = ("fp16", "bf16", "fp8")


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The precision of the launch command, and the one that wins."""
    ours, asked = plan.own_precision, _launched(plan, context)
    if not ours.is_known or asked.get_or("") not in _HALF or ours.get() in ("", asked.get()):
        return
    if plan.config is not None and (plan.config.has("/fp16") or plan.config.has("/bf16")):
        return
    is_passed = plan.command.script_flag("--mixed_precision", "--mixed-precision", "--precision") is not None
    if is_passed and plan.command.launcher_flag("--mixed_precision") is None:
        return  # what the command says outright, against a file for many runs
    place, *default = ours.origins
    yield META.finding(
        asked.origins[0] if asked.origins else plan.command.location,
        f"`{asked.get()}` is not what this run gets: the script hands `{ours.get()}` to its `Accelerator`, which wins"
        " silently",
        hint="Hand `None` where nobody asks for a precision: the launch command then decides",
        related=(place.labelled("handed over here"), *labelled(tuple(default[:1]), "its value")),
        severity=Severity.INFO if is_passed or plan.command.in_docs else None,
        facts={"launched": asked.get(), "own": ours.get()},
    )


def _launched(plan: RunPlan, context: Context) -> Fact[str]:
    """The precision that the command, or the file that it names, asks for."""
    flag = plan.command.launcher_flag("--mixed_precision")
    if flag is not None:
        text = flag.value.text if flag.value is not None else None
        return known(text, flag.location) if text is not None else absent()
    view = view_of_plan(plan, context)
    fact = view.stated("mixed_precision") if view is not None else absent()
    return known(str(fact.get()), *fact.origins) if fact.is_known else absent()
