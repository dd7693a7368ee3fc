"""Two launches on one machine that open their rendezvous on the same port at the same time.

Each launch opens a `TCPStore` on the port that it is given. As written, both are given the same one; as fixed, the
second is given another. Two launches on the same GPUs, which share their memory, are not shown.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="port-taken-twice",
    summary="the second launch on a machine finds its port taken",
    rules=("DSL350",),
    ranks=1,
    cpu_only=True,
    one_host=True,
    expect=Expect((Kind.WRONG,), r"the second launch stops: .*in use"),
    cases=(Case("same-port"),),
)


def written(rank: RankApi) -> Json:
    """The same port for both."""
    del rank
    return _open(same=True)


def fixed(rank: RankApi) -> Json:
    """A port for each."""
    del rank
    return _open(same=False)


def _open(same: bool) -> Json:
    from torch.distributed import DistNetworkError, TCPStore

    first = TCPStore("127.0.0.1", 0, 1, is_master=True)
    try:
        TCPStore("127.0.0.1", first.port if same else 0, 1, is_master=True)
    except DistNetworkError as error:  # meant, and no trouble of this machine
        return str(error).rpartition("message: ")[2]
    return ""


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """What the second one says."""
    return f"the second launch stops: {values[0]}" if values[0] != reference[0] else None
