"""Agents of several nodes whose rendezvous leads them to different places.

Every rank of the arm is the agent of a node: torchrun in its own process. As written, the nodes wait at different
ports, each at its own loopback, each as node 0, or for a node that nobody starts; as fixed, all nodes name the address
and the port of node 0 and their own node rank. The agents then wait for the whole time of the rendezvous (600 s for
a static one), without a word; two cases shorten that time to show what they say at last.

Where the loopback of each host matters, each agent gets a host of its own: a network namespace. Elsewhere both share
one loopback, and "each its own port" or "each its own store" stands for "each its own host".
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_WAITS = Expect((Kind.STALL,), r"next_rendezvous|_create_tcp_store|rendezvous")
_GIVES_UP = Expect((Kind.RAISE,), r"[Tt]imed out after|client socket has timed out")
_ALONE = Expect((Kind.WRONG,), r"node 0 trains alone, in a world of 1")
_EACH_ALONE = Expect((Kind.WRONG,), r"each node trains alone, in a world of 1")
_ROOT = Needs(root=True, programs=("ip",), why="each node gets a network namespace, a loopback of its own")

EXPERIMENT = Experiment(
    name="nodes-never-meet",
    summary="the agents of two nodes wait for each other at different places",
    one_host=True,
    expect=_WAITS,
    cases=(
        Case("different-ports", {"how": "ports"}, rules=("DSL349", "DSL494")),
        Case("different-ports-time-out", {"how": "ports", "timeout": 1}, _GIVES_UP, rules=("DSL349",)),
        Case("master-is-localhost", {"how": "localhost", "hosts": True}, rules=("DSL349", "DSL312"), needs=_ROOT),
        Case("port-and-address-unset", {"how": "xtuner", "hosts": True}, rules=("DSL349",), needs=_ROOT),
        Case("nnodes-alone", {"how": "alone"}, rules=("DSL311",)),
        Case("nnodes-alone-on-two-hosts", {"how": "alone", "hosts": True}, rules=("DSL311",), needs=_ROOT),
        Case("c10d-without-endpoint", {"how": "c10d", "hosts": True}, rules=("DSL311",), needs=_ROOT),
        Case("standalone", {"how": "standalone"}, rules=("DSL313",)),
        Case("node-missing", {"how": "missing"}, rules=("DSL356", "DSL367")),
        Case("node-missing-time-out", {"how": "missing", "timeout": 1}, _GIVES_UP, rules=("DSL356",)),
        Case("each-node-alone", {"how": "each-alone", "timeout": 1}, _EACH_ALONE, rules=("DSL367",)),
        Case("nodes-differ", {"how": "more-nodes"}, rules=("DSL494",)),
        Case("node-rank-of-no-node", {"how": "rank-2"}, rules=("DSL368",)),
        Case("same-node-rank", {"how": "same-rank", "hosts": True}, rules=("DSL314", "DSL316"), needs=_ROOT),
        Case(
            "two-agents-on-a-node",
            {"how": "twice"},
            Expect((Kind.RAISE,), r"EADDRINUSE|[Aa]ddress already in use"),
            rules=("DSL319", "DSL310"),
        ),
        Case("one-says-nnodes-1", {"how": "disagree", "timeout": 1}, _ALONE),
        Case("accelerate-address-missing", {"how": "no-host", "timeout": 1}, _GIVES_UP, rules=("DSL188",)),
        Case("accelerate-machine-rank-of-no-machine", {"how": "rank-2"}, rules=("DSL190",)),
        Case("on-two-hosts", {"how": "right", "hosts": True}, verdict=Verdict.NOT_REPRODUCED, needs=_ROOT),
    ),
)


def written(rank: RankApi) -> Json:
    """Each node is started in the way that the case names."""
    return _run(rank, rank.params["how"])


def fixed(rank: RankApi) -> Json:
    """Each node names the same address and port, and its own rank."""
    return _run(rank, "right")


def _run(rank: RankApi, how: str) -> Json:
    from dslint.probe.parts.hosts import agree, free_port, own_host, shared_port
    from dslint.probe.parts.launcher import torchrun

    address = "127.0.0.1"
    if rank.params.get("hosts"):
        own_host(rank)
        address = "10.77.0.1"
    port, own, node = shared_port(rank), free_port(), rank.index
    where = {
        "ports": (address, own if node else port),
        "localhost": ("127.0.0.1", port),
        # accelerate writes the address that nobody gave as text.
        "no-host": ("None", port),
        # XTuner: ``ADDR`` is 127.0.0.1 and ``PORT`` is drawn by each node, unless they are set.
        "xtuner": ("127.0.0.1", 20000 + (port + 7 * node) % 10000),
    }.get(how, (address, port))
    nodes = "3" if how == "more-nodes" and not node else "2"
    own_rank = 2 if how == "rank-2" and node else node
    words = ["--nnodes", nodes, "--node_rank", str(own_rank), "--master_addr", where[0], "--master_port", str(where[1])]
    words = _without(how, words, node, port if rank.params.get("hosts") else own)
    timeout = rank.params.get("timeout", 0)
    if timeout:
        words += ["--rdzv_conf", f"timeout={timeout}"]
    if how == "missing" and node:
        return {"worlds": []}
    words += ["--nproc_per_node", "1", "train.py"]
    agree(rank, "start", "now")
    try:
        notes = torchrun(rank, words, patience=4.0 * timeout)
    except Exception as error:
        if how != "disagree":
            raise
        return {"error": f"{type(error).__name__}: {error}"}
    return {"worlds": [int(note["WORLD_SIZE"]) for note in notes]}


def _without(how: str, words: list[str], node: int, port: int) -> list[str]:
    """The words of a node, with what the case leaves out or says in another way."""
    if how == "alone":
        return ["--nnodes", "2", "--master_port", str(port)]
    if how == "standalone":
        return ["--standalone", "--nnodes", "2"]
    if how == "c10d":
        return ["--nnodes", "2", "--rdzv_backend", "c10d"]
    if how == "twice":
        return ["--nnodes", "1", "--node_rank", "0", *words[4:]]
    if how == "each-alone":
        return ["--nnodes", "1", "--master_port", str(port)]
    if how == "same-rank":
        words[3] = "0"
    elif how == "disagree" and node == 0:
        words[1] = "1"
    return words


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A node whose processes are alone, or both."""
    if values == reference or values[0].get("worlds") != [1]:
        return None
    if values[1].get("worlds") == [1]:
        return "each node trains alone, in a world of 1"
    return f"node 0 trains alone, in a world of 1, and node 1 ends with {values[1].get('error', 'nothing')}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case for what is not set: `PORT`, `ADDR` or both; for accelerate the one named as the rule."""
    if subject.finding.code == "DSL316":
        return None  # `rank-expanded-early` shows what the finding says; here is what comes of it
    if subject.finding.code in ("DSL311", "DSL312", "DSL313", "DSL314", "DSL319", "DSL310"):
        without = "c10d" if subject.finding.fact("missing") == "--rdzv_endpoint" else "alone"
        return {} if subject.finding.code != "DSL311" or case.params["how"] == without else None
    if subject.finding.code == "DSL367":
        is_alone = subject.finding.fact("told") == 1
        return {} if is_alone == (case.params["how"] == "each-alone") else None
    if subject.finding.code == "DSL494":
        of = {"port": "ports", "nodes": "more-nodes"}.get(str(subject.finding.fact("what")))
        return {"how": of} if case.params["how"] == of else None
    if subject.finding.code == "DSL368":
        return {}
    if subject.finding.code != "DSL349":
        return {"how": case.params["how"]} if case.name == subject.finding.name else None
    wanted = "master-is-localhost" if subject.finding.fact("missing") == "ADDR" else "different-ports"
    return {"how": case.params["how"]} if case.name == wanted else None
