"""Which launchers put the local rank before the words of the script: `--local_rank=N`."""

from __future__ import annotations

from dslint.model.launch.command import LaunchCommand

# The launcher of torch before torchrun.
LEGACY = "torch.distributed.launch"


def is_legacy_launch(command: LaunchCommand) -> bool:
    """The command names the launcher of torch before torchrun."""
    return any(word.text == LEGACY for word in command.words)


def adds_local_rank(command: LaunchCommand) -> bool:
    """The launcher hands the local rank to the script, as far as its options are there to be read."""
    if command.launcher == "deepspeed":
        launcher = command.launcher_flag("--launcher")
        is_own = launcher is None or (launcher.value is not None and launcher.value.text == "pdsh")
        return is_own and command.launcher_flag("--no_local_rank") is None
    return is_legacy_launch(command) and command.launcher_flag("--use_env") is None
