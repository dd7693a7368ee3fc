"""**What.** `NCCL_SOCKET_IFNAME` or `GLOO_SOCKET_IFNAME` names interfaces in a way that does not do what it says: a
list of exclusions for Gloo (`GLOO_SOCKET_IFNAME=^docker0`), an exclusion list of NCCL without the loopback on several
nodes (`NCCL_SOCKET_IFNAME=^docker0`), or `lo` itself on several nodes. Or they hold an address or the name of a host,
perhaps only where a command for the name of the interface fails: `$(my_interface || hostname -I | awk '{print $1}')`.

**Why it hurts.** Gloo takes the text for the name of an interface and stops: `Unable to find address for: ^docker0`.
With `10.0.0.4` it does the same, and NCCL finds no interface of that name: `no socket interface found`.
NCCL leaves out `lo` and `docker` by itself, but only while nobody sets the variable: with a list of its own the
loopback comes first, every rank tells the others `127.0.0.1`, and the ranks of another node connect to themselves.

**Fix.** `NCCL_SOCKET_IFNAME=^lo,docker0`, or the name of the interface; for Gloo the name.

**When it stays quiet.** On one node (but for Gloo's list and addresses), for names, and for values that are not known,
unless a command prints them that prints addresses and host names only.

**Evidence.** torch 2.13, run: `GLOO_SOCKET_IFNAME=^lo` stops with `ifa != nullptr. Unable to find address for: ^lo`.
NCCL's `socket.cc`: the default `^docker,lo` counts where the variable is not set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import settings
from dslint.model.shell.scope import NOT_EXPORTED
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL375",
    name="network-interface-value",
    kind="launch",
    severity=Severity.WARNING,
    summary="A value for network interfaces that Gloo or NCCL cannot use, or that leaves NCCL the loopback",
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",),
    depends_on_run=True,
    no_experiment="NCCL needs GPUs on two nodes; what Gloo does was run once",
    needs=("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes=%s --node_rank=$NODE_RANK --master_addr=$HEAD --nproc_per_node=8 train.py\n"
_ONE = "torchrun --standalone --nproc_per_node=8 train.py\n"
EXAMPLES = (
    bad("the loopback stays", {"run.sh": "export NCCL_SOCKET_IFNAME=^docker0\n" + _RUN % 2, **_SCRIPT}, "run.sh:1"),
    bad("a number of nodes from outside", {
        "run.sh": "export NCCL_SOCKET_IFNAME=^docker,veth\n" + _RUN % "$NNODES", **_SCRIPT,
    }, "run.sh:1"),
    bad("the loopback by name", {"run.sh": "NCCL_SOCKET_IFNAME=lo " + _RUN % 2, **_SCRIPT}, "run.sh:1"),
    bad("Gloo has no lists", {"run.sh": "export GLOO_SOCKET_IFNAME=^lo,docker0\n" + _ONE, **_SCRIPT}, "run.sh:1"),
    bad("an address", {"run.sh": "export NCCL_SOCKET_IFNAME=10.0.0.4\n" + _RUN % 2, **_SCRIPT}, "run.sh:1"),
    bad("the first address of the host", {
        "run.sh": "export GLOO_SOCKET_IFNAME=$(hostname -I | awk '{print $1}')\n" + _ONE, **_SCRIPT,
    }, "run.sh:1"),
    bad("an address where the interface is not found, in a file that is sourced", {
        "env.sh": 'IFACE=$(bash iface.sh 2>/dev/null || hostname -I | cut -d" " -f1)\n'
        'export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-$IFACE}"\n',
        "iface.sh": "ip -o -4 route show to default | awk '{print $5}'\n",
        "run.sh": "source env.sh\n" + _RUN % 2, **_SCRIPT,
    }, "env.sh:1"),
    bad("an address that is cut out of a list", {
        "run.sh": "IP=$(ip -4 addr show eth0 | grep inet | awk '{print $2}' | cut -d/ -f1)\n"
        "export NCCL_SOCKET_IFNAME=$IP\n" + _RUN % 2, **_SCRIPT,
    }, "run.sh:1"),
    good("the interface that has the address", {
        "run.sh": "IP=$(hostname -I | awk '{print $1}')\n"
        "export NCCL_SOCKET_IFNAME=$(ip -o addr | grep \"$IP\" | awk '{print $2}')\n" + _RUN % 2, **_SCRIPT,
    }),
    good("the interface of the default route", {
        "run.sh": "export NCCL_SOCKET_IFNAME=$(ip route get 8.8.8.8 | awk '{print $5}')\n" + _RUN % 2, **_SCRIPT,
    }),
    good("nothing where the interface is not found", {
        "run.sh": "export NCCL_SOCKET_IFNAME=$(bash iface.sh || true)\n" + _RUN % 2, **_SCRIPT,
    }),
    good("the loopback is left out", {
        "run.sh": "export NCCL_SOCKET_IFNAME=^lo,docker GLOO_SOCKET_IFNAME=eth0\n" + _RUN % 2, **_SCRIPT,
    }),
    good("a name", {"run.sh": "export NCCL_SOCKET_IFNAME=eth0,bond0\n" + _RUN % 2, **_SCRIPT}),
    good("one node", {"run.sh": "export NCCL_SOCKET_IFNAME=^docker0\n" + _ONE, **_SCRIPT}),
    good("the loopback on one node", {"run.sh": "export NCCL_SOCKET_IFNAME=lo\n" + _ONE, **_SCRIPT}),
)  # fmt: skip

_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?:/\d+|:\d+)?")
_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Lists of interfaces that do not do what they say."""
    del context
    for setting in settings(doc):
        if setting.name in _NAMES:
            nodes = setting.command.nodes
            is_several = not nodes.is_absent and nodes.get_or(2) > 1
            yield from _judged(doc, setting.name, setting.value, setting.location, is_several)
    places = {place: name for command in doc.commands for name, place in _printed(command)}
    for place, name in places.items():
        yield _address(doc, name, place, "what a command prints")


def _printed(command: LaunchCommand) -> Iterator[tuple[str, Location]]:
    """The variables that get what a command prints about the machine, with the place of that command."""
    for name in _NAMES[::-1]:
        fact = command.env.get(name)
        if fact is not None and fact.is_unknown:
            yield from ((name, place) for place in fact.origins if not fact.reason.endswith(NOT_EXPORTED))


def _address(doc: LaunchDoc, name: str, place: Location, value: str) -> Finding:
    return META.finding(
        place,
        f"`{name}` names an interface, but {value} is an address or a host name: no interface is found",
        hint="Write the interface, such as `eth0`, or leave the variable unset",
        severity=Severity.INFO if doc.in_docs else None,
    )


def _judged(doc: LaunchDoc, name: str, value: str, place: Location, is_several: bool) -> Iterator[Finding]:
    value = value.strip("\"' ")
    severity = Severity.INFO if doc.in_docs else None
    names = value.lstrip("^=").split(",")
    if any(_ADDRESS.fullmatch(each.strip()) for each in names):
        yield _address(doc, name, place, f"`{value}`")
    elif not name.startswith("NCCL_") and value.startswith(("^", "=")):
        reader = name.partition("_")[0].capitalize()
        yield META.finding(
            place,
            f"`{name}` has no lists of exclusions: {reader} looks for an interface that is called `{value}`, and stops",
            hint="Write the name of the interface",
            severity=severity,
        )
    elif is_several and value.startswith("^") and not any("lo".startswith(each.strip()) for each in names):
        yield META.finding(
            place,
            f"`{name}={value}` replaces NCCL's own exclusions: the loopback comes first, where no other node is",
            hint=f"Write `^lo,{value[1:]}`",
            severity=severity,
        )
    elif is_several and not value.startswith("^") and [each.strip() for each in names] == ["lo"]:
        yield META.finding(
            place,
            f"`{name}={value}` keeps every node at its own loopback, where no other node is",
            hint="Write the interface that connects the nodes",
            severity=severity,
        )
