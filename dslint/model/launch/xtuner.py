"""What ``xtuner train`` does with its environment (XTuner ``entry_point.cli``)."""

from __future__ import annotations

from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand


def trains(command: LaunchCommand) -> bool:
    """The command is ``xtuner train CONFIG``, not a call for help."""
    asks = {"-h", "--help"} & {w.text for w in command.script_args}
    return command.launcher == "xtuner" and not asks


def asks_for_slurm(command: LaunchCommand) -> bool:
    """``--launcher slurm``: XTuner starts plain Python and leaves the processes to srun."""
    flag = command.script_flag("--launcher")
    return flag is not None and (flag.value is None or flag.value.text in (None, "slurm"))


def lacks_launcher(command: LaunchCommand) -> bool:
    """Neither the command nor a word of it that cannot be read names a launcher; its one operand is the config."""
    flag = command.script_flag("--launcher")
    if flag is None:
        return not command.may_hide_flags(operands=1)
    return flag.value is not None and flag.value.text == "none"


def starts_torchrun(command: LaunchCommand) -> bool:
    """``NPROC_PER_NODE`` or ``NNODES`` makes XTuner start torchrun, one per call; unknown counts as yes."""
    return not (_is_one(command, "NPROC_PER_NODE") and _is_one(command, "NNODES"))


def _is_one(command: LaunchCommand, name: str) -> bool:
    fact = command.variable(name)
    return fact.is_absent or fact.get_or("") == "1"


def multi_node_origins(command: LaunchCommand) -> tuple[Location, ...]:
    """The places that say how many nodes there are."""
    return command.nodes.origins or command.variable("NNODES").origins
