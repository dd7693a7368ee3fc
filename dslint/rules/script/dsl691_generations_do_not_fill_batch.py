"""GRPO samples `num_generations` completions of each prompt, and the batch of all processes is not a multiple of it.

**What.** `GRPOConfig(...)` (or `RLOOConfig`) of trl in a script that a command starts with a known number of processes:
`per_device_train_batch_size` x processes x `steps_per_generation` (`gradient_accumulation_steps` unless stated),
or `generation_batch_size`, cannot be divided by `num_generations`.

**Why it hurts.** A batch holds whole groups of completions of one prompt. The arguments raise on every rank, after the
job has waited for its GPUs: `generation_batch_size (4) must be divisible by num_generations (8)`. The same script runs
on another number of GPUs.

**Fix.** Make the product a multiple: more accumulation, a larger batch per device, or another `num_generations`.

**When it stays quiet.** Numbers that cannot be read, a number of processes that no command states, arguments that come
from the command line or a file.

**Evidence.** `GRPOConfig.__post_init__` of trl 0.18 and later; up to 0.16 the constructor of `GRPOTrainer` refuses
more, for there the accumulation does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.binding import default_of
from dslint.python.events import Event
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
    for found in run.happenings("training-arguments") if world else ():
        event = found.event
        group = _number(run, event, _GROUP)
        if not event.api.startswith("trl.") or event.open or event.may or not group or _MAY_SHRINK in event.arguments:
            continue
        size = _batch(run, event, world)
        if size is None or size[0] % group == 0:
            continue
        yield run.finding(
            META,
            event.module,
            event.node,
            f"{size[1]} = {size[0]} is not a multiple of `num_generations` ({group}): every rank raises at the start",
            hint="Change the batch size, the accumulation or `num_generations`",
            facts={"world": world, "batch": size[0], "generations": group},
        )


def _batch(run: RunQuery, event: Event, world: int) -> tuple[int, str] | None:
    """Return how many completions are made at once, and what they are the product of."""
    whole, turns = _number(run, event, _WHOLE), _number(run, event, _TURNS)
    if whole is not None:
        return (whole, f"`{_WHOLE}`") if turns is None and _WHOLE in event.arguments else None
    size, name = _number(run, event, _SIZE), _TURNS if _TURNS in event.arguments else _STEPS
    steps = _number(run, event, name)
    if not size or not steps or _WHOLE in event.arguments:
        return None
    return size * world * steps, f"{size} x {world} processes x {steps} (`{name}`)"


def _number(run: RunQuery, event: Event, name: str) -> int | None:
    """Return the one number that an argument certainly is, or its default in the library."""
    value = event.arguments.get(name)
    if value is not None:
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
_RUN = "accelerate launch --num_processes %s grpo.py\n"


def _case(numbers: str, processes: int) -> dict[str, str]:
    return {"grpo.py": _SCRIPT % numbers, "run.sh": _RUN % processes}


EXAMPLES = (
    bad("two processes make four completions", _case("2", 2), at="grpo.py:10 warning"),
    bad("groups of seven", _case("4, gradient_accumulation_steps=4, num_generations=7", 8), at="grpo.py:10"),
    bad("the size is stated", _case("4, generation_batch_size=36", 3), at="grpo.py:10"),
    good("accumulation makes the group whole", _case("2, gradient_accumulation_steps=4", 2)),
    good("the steps of a generation do", _case("2, steps_per_generation=2", 2)),
    good("nobody knows the processes", {"grpo.py": _SCRIPT % "2"}),
    good("nobody knows the batch", _case("load()", 2)),
)
