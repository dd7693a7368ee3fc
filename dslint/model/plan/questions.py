"""What plans ask of a script beside its command line: at which calls the answers stand, and by which words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from dslint.python.libraries import libraries
from dslint.python.questions import Effort, Question, command_line

ENGINE = "deepspeed.initialize"
ACCELERATOR = "accelerate.Accelerator"
PIPELINE = "deepspeed.PipelineModule"
TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
# Who fills the config that these get; of an empty one others do.
CONFIG_READERS = {
    ENGINE: "deepspeed",
    "transformers.integrations.HfDeepSpeedConfig": "",
    "accelerate.utils.HfDeepSpeedConfig": "",
    "transformers.integrations.HfTrainerDeepSpeedConfig": "hf",
    "accelerate.DeepSpeedPlugin": "accelerate",
    "lightning.pytorch.strategies.DeepSpeedStrategy": "lightning",
    "lightning.fabric.strategies.DeepSpeedStrategy": "lightning",
}
# Plans are made of many scripts, and the answers stand near the beginning of each.
_EFFORT = Effort(script=6_000, open=1_500, aside=500, modules=25)
# What a library of the project does by itself, further away, is no matter of the script.
_STEPS = 1


@cache
def profile_question() -> Question:
    """Return the question for the profile of a script: who gets a config, the arguments of a Trainer, an engine."""
    rows, parser = libraries(), command_line(libraries())
    apis = frozenset({*CONFIG_READERS, ACCELERATOR, PIPELINE})
    made = _names((*apis, *rows.tagged(frozenset({"training-arguments", "makes-experts"}))))
    tags = frozenset({"training-arguments", "parses-arguments"})
    return Question(
        "profile", made | parser.words, tags=tags, apis=apis, is_open=True, results=True, effort=_EFFORT, steps=_STEPS,
        first=parser,
    )  # fmt: skip


@cache
def trainer_question() -> Question:
    """Return the question for what a Trainer is given."""
    return Question(
        "trainer", _names(TRAINERS), apis=frozenset(TRAINERS), is_open=True, results=True, effort=_EFFORT, steps=_STEPS
    )


@cache
def group_question() -> Question:
    """Return the question for processes that a script starts itself, and for the group that they join."""
    spawning = libraries().tagged(frozenset({"spawns"}))
    words = _names(("torch.distributed.init_process_group", "deepspeed.init_distributed", *spawning))
    tags = frozenset({"spawns", "starts-group"})
    return Question("group", words, tags=tags, is_open=True, effort=_EFFORT, steps=_STEPS)


@cache
def ranks_question() -> Question:
    """Return the question for the call by which a script becomes one of several processes."""
    trainers = [path for path in libraries().tagged(frozenset({"trainer"})) if "lightning" in path]
    apis = frozenset({"torch.distributed.init_process_group", "deepspeed.init_distributed", ACCELERATOR, *trainers})
    spawning = libraries().tagged(frozenset({"spawns"}))
    return Question("ranks", _names((*apis, *spawning)), tags=frozenset({"spawns"}), apis=apis, effort=_EFFORT)


@cache
def device_question() -> Question:
    """Return the question for the call by which a process takes its GPU."""
    apis = frozenset({"torch.cuda.set_device", "torch.device"})
    return Question("device", _names(apis), apis=apis, effort=_EFFORT)


@cache
def loaders_question() -> Question:
    """Return the question for the loaders that a script makes."""
    words = _names(libraries().tagged(frozenset({"makes-loader"})))
    return Question("loaders", words, tags=frozenset({"makes-loader"}), is_open=True, effort=_EFFORT, steps=_STEPS)


def _names(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path.rpartition(".")[2] for path in paths)
