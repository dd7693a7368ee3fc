"""**What.** A node of several runs inside `docker run` in a network of its own: without `--network host`, with no port
or only that of the meeting published (`-p 29500:29500`); also on each host of a loop of `ssh`, of however many hosts.

**Why it hurts.** In the default bridge network a container can reach others and cannot be reached: the store of node
0 listens inside, and the other nodes wait at a port of the host where nobody listens. NCCL then tells the other ranks
an address such as `172.17.0.2`, which exists on every host, and ports that it chooses by itself: with the one port
published the nodes meet, and the first collective fails with `unhandled system error` or waits.

**Fix.** `docker run --network host ...`.

**When it stays quiet.** For one node, with any `--network`, with a range of published ports or all of them
(`-P`), and when options are in a variable.

**Evidence.** Docker's manual (bridge networks, published ports); NCCL's manual (`NCCL_SOCKET_IFNAME`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.dockerruns import container_words, words_until
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.everynode import repeated_at, turns_of
from dslint.model.launch.meeting import is_at_loopback, meeting
from dslint.model.launch.rendezvous import places
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script, place_in_text, started_by

META = RuleMeta(
    code="DSL376",
    name="container-behind-bridge",
    kind="launch",
    severity=Severity.WARNING,
    depends_on_run=True,
    summary="A node of several runs in a container that other nodes cannot reach",
    references=("https://docs.docker.com/engine/network/drivers/bridge/",),
    no_experiment="it takes containers on two hosts, and the source is Docker's manual",
    needs=(r"/\b(?:docker|podman|nerdctl)\b/",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes=%s --node_rank=$NODE_RANK --master_addr=10.0.0.1 --nproc_per_node=8 train.py\n"
_DOCKER = "docker run --rm --gpus all --ipc=host %s -v $PWD:/work -w /work team/train:1 %s"
_HOSTS = "mapfile -t HOSTS < hosts\nfor i in ${!HOSTS[@]}; do\n  host=${HOSTS[$i]}\n"
_EACH = "torchrun --nnodes=$NNODES --node_rank=$i --master_addr=$MASTER --nproc_per_node=8 train.py\n"

EXAMPLES = (
    bad("the default network", {"run.sh": _DOCKER % ("", _RUN % 2), **_SCRIPT}, "run.sh:1"),
    bad("podman", {"run.sh": (_DOCKER % ("", _RUN % 4)).replace("docker", "podman"), **_SCRIPT}, "run.sh:1"),
    bad("a script that the container runs", {
        "run.sh": _DOCKER % ("", "bash node.sh 1\n"), "node.sh": (_RUN % 2).replace("$NODE_RANK", "$1"), **_SCRIPT,
    }, "run.sh:1"),
    bad("as many hosts as a file has", {
        "run.sh": _HOSTS + "  ssh $host " + _DOCKER % ("-p 29500:29500", _EACH) + "done\n", **_SCRIPT}, "run.sh:4"),
    bad("a container on each host, in quotes", {
        "run.sh": "i=0\nfor host in $(cat hosts); do\n  ssh $host \"" + _DOCKER % ("", _EACH.strip())
        + "\" &\n  i=$((i + 1))\ndone\nwait\n", **_SCRIPT}, "run.sh:3"),
    good("the network of each host", {
        "run.sh": _HOSTS + "  ssh $host " + _DOCKER % ("--network host", _EACH) + "done\n", **_SCRIPT}),
    good("a run for each host", {
        "run.sh": "for host in $(cat hosts); do\n  ssh $host " + _DOCKER % ("", _EACH.replace("$MASTER", "$host"))
        + "done\n", **_SCRIPT}),
    good("the network of the host", {"run.sh": _DOCKER % ("--network host", _RUN % 2), **_SCRIPT}),
    good("in one word", {"run.sh": _DOCKER % ("--net=host", _RUN % 2), **_SCRIPT}),
    bad("the port of the meeting alone", {"run.sh": _DOCKER % ("-p 29500:29500", _RUN % 2), **_SCRIPT}, "run.sh:1"),
    good("a range of ports", {"run.sh": _DOCKER % ("-p 20000-40000:20000-40000", _RUN % 2), **_SCRIPT}),
    good("options that are not known", {"run.sh": _DOCKER % ("$OPTIONS", _RUN % 2), **_SCRIPT}),
    good("one node", {"run.sh": _DOCKER % ("", "torchrun --standalone --nproc_per_node=8 train.py\n"), **_SCRIPT}),
)  # fmt: skip

_OPENS = ("--network", "--net", "-P", "--publish-all", "--pod")
_PUBLISHES = ("-p", "--publish")
# `20000-40000:20000-40000`: as many ports as NCCL may be told to choose from.
_RANGE = re.compile(r"\d+-\d+")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Nodes of several inside containers of the default network."""
    del context
    told: set[int] = set()
    for command in started_by(doc):
        place = place_in_text(command)
        if place.path != doc.source.path or place.span.start in told:
            continue
        loop = _hosts(doc, command, place) if command.nodes.is_unknown else None
        if loop is None and command.nodes.get_or(1) < 2:
            continue
        words = container_words(words_until(doc.source.text, place))
        if words is None or any(_opens(word) for word in words):
            continue
        told.add(place.span.start)
        is_published = any(_publishes(word) for word in words)
        reached = "do not reach it in its own network"
        if is_published:
            reached = "reach only its published port: NCCL announces addresses and ports inside"
        yield META.finding(
            place,
            f"this container is one of {command.nodes.get_or('several')} nodes, and the others {reached}",
            hint="Write `--network host`",
            related=(
                *((loop.labelled("starts one on each host"),) if loop is not None else ()),
                *place_in_script(command),
                *places(command, "--nnodes", "--num_machines"),
            ),
            severity=Severity.INFO if doc.in_docs else None,
            facts={"nodes": command.nodes.get()} if command.nodes.is_known else {},
        )


def _hosts(doc: LaunchDoc, command: LaunchCommand, place: Location) -> Location | None:
    """The loop over hosts that starts one run on all of them, whatever their number is.

    A run for each host has no number of its node, or meets at the host itself.
    """
    how, loop = meeting(command), repeated_at(doc, command, place)
    if loop is None or is_at_loopback(command) or how.address.is_absent or how.is_standalone:
        return None
    turns, text = turns_of(doc, loop), doc.source.text[loop.span.start : loop.span.end]
    own = re.search(rf"(?:addr|ip|endpoint)[ =][\"']?\$\{{?{turns}\b", text, re.IGNORECASE) if turns else None
    return loop if own is None else None


def _opens(word: str) -> bool:
    """An option joins another network, or lets other machines in at many ports."""
    return word.partition("=")[0] in _OPENS or _RANGE.search(word) is not None


def _publishes(word: str) -> bool:
    """An option lets other machines in at a port."""
    return word.partition("=")[0] in _PUBLISHES or (word.startswith("-p") and word[2:3].isdigit())
