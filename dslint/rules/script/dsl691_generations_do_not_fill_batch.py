"""GRPO samples `num_generations` completions of each prompt, and the batch of all processes is not a multiple of it.

**What.** `GRPOConfig(...)` (or `RLOOConfig`) of trl in a script that a command starts with a known number of processes:
`per_device_train_batch_size` x processes x `steps_per_generation` (`gradient_accumulation_steps` unless stated),
or `generation_batch_size`, cannot be divided by `num_generations`. The numbers may be in the call, on the command
line, or in the file of arguments that the command names.

**Why it hurts.** A batch holds whole groups of completions of one prompt. The arguments raise on every rank, after the
job has waited for its GPUs: `generation_batch_size (4) must be divisible by num_generations (8)`. The same script runs
on another number of GPUs.

**Fix.** Make the product a multiple: more accumulation, a larger batch per device, or another `num_generations`.

**When it stays quiet.** Numbers that cannot be read, a number of processes that no command states, values that only
documents pass on the command line.

**Evidence.** `GRPOConfig.__post_init__` of trl 0.18 and later; up to 0.16 the constructor of `GRPOTrainer` refuses
more, for there the accumulation does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.versions.resolve import covers
from dslint.python.binding import default_of
from dslint.python.events import Event
from dslint.python.values import INPUT, Unknown, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL691",
    name="generations-do-not-fill-batch",
    kind="script",
    severity=Severity.WARNING,
    summary="the batch of all processes is not a multiple of `num_generations`: GRPO raises at the start",
    markers=(r"GRPOConfig|RLOOConfig",),
    references=(
        "https://github.com/huggingface/trl/issues/2858",
        "GRPOConfig.__post_init__ in trl/trainer/grpo_config.py",
    ),
    depends_on_run=True,
    no_experiment="the numbers can be multiplied without ranks",
)
_SIZE, _STEPS, _GROUP = "per_device_train_batch_size", "gradient_accumulation_steps", "num_generations"
_WHOLE, _TURNS = "generation_batch_size", "steps_per_generation"
_MAY_SHRINK = "auto_find_batch_size"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on arguments whose numbers cannot be divided."""
    world = run.context.world_size.get_or(0)
    stated = run.context.libraries.get("trl")
    is_old = stated is not None and covers(stated, "<0.17", "trl") == "yes"
    for found in run.happenings("training-arguments") if world else ():
        event = found.event
        group = _number(run, event, _GROUP)
        if (
            not event.api.startswith("trl.")
            or event.open
            or event.may
            or not group
            or _is_said(run, event, _MAY_SHRINK)
        ):
            continue
        size = _batch(run, event, world, is_old=is_old)
        if size is None or size[0] % group == 0:
            continue
        yield run.finding(
            META,
            event.module,
            event.node,
            f"{size[1]} = {size[0]} is not a multiple of `num_generations` ({group}): every rank raises at the start",
            hint=f"Change the batch size, {'' if is_old else 'the accumulation '}or `num_generations`",
            related=run.given_at(_GROUP, _WHOLE, _SIZE, _TURNS, *(() if is_old else (_STEPS,))),
            facts={"world": world, "batch": size[0], "generations": group},
        )


def _batch(run: RunQuery, event: Event, world: int, *, is_old: bool) -> tuple[int, str] | None:
    """Return how many completions are made at once, and what they are the product of."""
    size = _number(run, event, _SIZE)
    if is_old:
        return (size * world, f"{size} x {world} processes") if size else None
    if _is_said(run, event, _WHOLE):
        whole = _number(run, event, _WHOLE)
        return (whole, f"`{_WHOLE}`") if whole and not _is_said(run, event, _TURNS) else None
    name = _TURNS if _is_said(run, event, _TURNS) else _STEPS
    steps = _number(run, event, name)
    return (size * world * steps, f"{size} x {world} processes x {steps} (`{name}`)") if size and steps else None


def _is_said(run: RunQuery, event: Event, name: str) -> bool:
    """Return whether an argument may be stated: in the call, or in the command that fills the object."""
    value = event.arguments.get(name)
    return value is not None and not (_is_option(value) and run.leaves_out(name))


def _is_option(value: Value) -> bool:
    return all(isinstance(atom, Unknown) and atom.kind == INPUT for atom in value.atoms)


def _number(run: RunQuery, event: Event, name: str) -> int | None:
    """Return the one number that an argument certainly is, or its default in the library."""
    value = event.arguments.get(name)
    if value is not None and _is_said(run, event, name):
        constants = value.constants or ()
        known = constants[0] if len(constants) == 1 else None
        return known if isinstance(known, int) and not isinstance(known, bool) else None
    row = run.machine.libraries.class_(event.api)
    parameters = row.constructor.parameters if row is not None else None
    default = default_of(parameters, name) if parameters is not None else None
    known = default.value if isinstance(default, ast.Constant) else None
    return known if isinstance(known, int) else None


_SCRIPT = """\
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def brevity(completions, **kwargs):
    return [-float(len(text)) for text in completions]


def main():
    args = GRPOConfig("out", per_device_train_batch_size=%s)
    data = load_dataset("trl-lib/tldr", split="train")
    GRPOTrainer("Qwen/Qwen2-0.5B", reward_funcs=brevity, args=args, train_dataset=data).train()


main()
"""
_PARSED = """\
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser


def brevity(completions, **kwargs):
    return [-float(len(text)) for text in completions]


def main(script_args, training_args, model_args):
    data = load_dataset(script_args.dataset_name, split="train")
    GRPOTrainer(model_args.model_name_or_path, reward_funcs=brevity, args=training_args, train_dataset=data).train()


if __name__ == "__main__":
    main(*TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config())
"""
_RECIPE = (
    "model_name_or_path: Qwen/Qwen2-0.5B\ndataset_name: trl-lib/tldr\noutput_dir: out\nnum_generations: %s\n"
    "per_device_train_batch_size: %s\ngradient_accumulation_steps: 16\n"
)
_RUN = "accelerate launch --num_processes %s grpo.py\n"


def _case(numbers: str, processes: int) -> dict[str, str]:
    return {"grpo.py": _SCRIPT % numbers, "run.sh": _RUN % processes}


EXAMPLES = (
    bad("two processes make four completions", _case("2", 2), at="grpo.py:10 warning"),
    bad("groups of seven", _case("4, gradient_accumulation_steps=4, num_generations=7", 8), at="grpo.py:10"),
    bad("the size is stated", _case("4, generation_batch_size=36", 3), at="grpo.py:10"),
    bad(
        "a file of arguments, and a release for which the accumulation does not count",
        {
            "grpo.py": _PARSED,
            "run.sh": _RUN.strip() % 7 + " --config r.yaml\n",
            "r.yaml": _RECIPE % (8, 1),
            "requirements.txt": "trl==0.15.2\n",
        },
        at="grpo.py:15",
    ),
    bad(
        "the same numbers on the command line",
        {
            "grpo.py": _PARSED,
            "run.sh": _RUN.strip() % 3 + " --output_dir o --num_generations 8 --per_device_train_batch_size 2"
            " --gradient_accumulation_steps 2\n",
        },
        at="grpo.py:15",
    ),
    good(
        "a file of arguments that fits",
        {
            "grpo.py": _PARSED,
            "run.sh": _RUN.strip() % 7 + " --config r.yaml\n",
            "r.yaml": _RECIPE % (7, 1),
            "requirements.txt": "trl==0.15.2\n",
        },
    ),
    good(
        "accumulation counts today",
        {
            "grpo.py": _PARSED,
            "run.sh": _RUN.strip() % 7 + " --config r.yaml\n",
            "r.yaml": _RECIPE % (8, 1),
        },
    ),
    good("accumulation makes the group whole", _case("2, gradient_accumulation_steps=4", 2)),
    good("the steps of a generation do", _case("2, steps_per_generation=2", 2)),
    good("nobody knows the processes", {"grpo.py": _SCRIPT % "2"}),
    good("nobody knows the batch", _case("load()", 2)),
)
