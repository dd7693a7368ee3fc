"""A port that does not exist, or that only root may open.

The real torchrun, and the rendezvous of torch that a process under any launcher makes with ``MASTER_PORT``, get the
number as written, and a free port as fixed. Port 0 is no free port for the processes of a static rendezvous: the agent
opens any, and its processes look for each other at 0.

For a system port the arm becomes an ordinary user in a network namespace of its own, where the limit of 1024 is the
one that the kernel starts with: some containers lift it.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_ROOT = Needs(root=True, programs=("ip",), why="the arm gives up root in a network namespace of its own")

EXPERIMENT = Experiment(
    name="port-out-of-range",
    summary="the rendezvous is given a port that does not exist or may not be opened",
    rules=("DSL309",),
    ranks=1,
    expect=Expect((Kind.RAISE,), r"ValueError: .*must be an integer between 0 and 65536"),
    cases=(
        Case("torchrun-above", {"port": 66664, "by": "torchrun"}),
        Case(
            "process-above",
            {"port": 66664, "by": "process"},
            Expect((Kind.RAISE,), r"(?:ValueError|OverflowError): .*(?:65535|65536)"),
        ),
        Case(
            "accelerate-above",
            {"port": 66664, "by": "accelerate"},
            Expect((Kind.RAISE,), r"(?:ValueError|OverflowError): .*(?:65535|65536)"),
            needs=Needs(versions=("accelerate",)),
        ),
        Case(
            "torchrun-zero",
            {"port": 0, "by": "torchrun"},
            Expect((Kind.STALL, Kind.RAISE), r"_invoke_run|timed out|port: 0"),
        ),
        Case(
            "system-port",
            {"port": 23, "by": "user"},
            Expect((Kind.RAISE,), r"[Pp]ermission denied|EACCES"),
            needs=_ROOT,
        ),
        Case("last-port", {"port": 65535, "by": "torchrun"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_JOIN = """
import torch.distributed as dist
dist.init_process_group("gloo")
note(world=dist.get_world_size())
"""


def written(rank: RankApi) -> Json:
    """The port as it is."""
    return _run(rank, rank.params["port"])


def fixed(rank: RankApi) -> Json:
    """A port that is free."""
    from dslint.probe.parts.hosts import free_port

    return _run(rank, free_port())


def _run(rank: RankApi, port: int) -> Json:
    import os

    import torch.distributed as dist

    from dslint.probe.parts.hosts import own_network
    from dslint.probe.parts.launcher import clean, torchrun

    if rank.params["by"] == "torchrun":
        notes = torchrun(rank, ["--nproc_per_node", "2", "--master_port", str(port), "train.py"], _JOIN)
        return [note["world"] for note in notes]
    if rank.params["by"] == "accelerate":
        return _accelerate(rank, port)
    clean()
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if rank.params["by"] != "user":
        dist.init_process_group("gloo")
        return [dist.get_world_size()]
    own_network()
    os.seteuid(65534)
    try:
        dist.init_process_group("gloo")
    finally:
        os.seteuid(0)
    return [dist.get_world_size()]


def _accelerate(rank: RankApi, port: int) -> Json:
    from accelerate.commands.launch import launch_command, launch_command_parser

    from dslint.probe.parts.launcher import Pulse, clean, notes, write_script

    clean()
    write_script()
    # A port is looked at for several GPUs only; the script touches none.
    words = ["--multi_gpu", "--num_processes", "2", "--main_process_port", str(port), "train.py"]
    with Pulse(rank):
        launch_command(launch_command_parser().parse_args(words))
    return [note["WORLD_SIZE"] for note in notes()]


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The port, in the case of its size and of the launcher that reads it."""
    port, launcher = subject.finding.fact("port"), subject.finding.fact("launcher")
    if not isinstance(port, int):
        return None
    if 0 < port < 1024:
        wanted = "system-port"
    elif port == 0:
        wanted = "torchrun-zero"
    else:
        by = {"torchrun": "torchrun", "xtuner": "torchrun", "accelerate": "accelerate"}
        wanted = f"{by.get(str(launcher), 'process')}-above"
    return {"port": port} if case.name == wanted else None
