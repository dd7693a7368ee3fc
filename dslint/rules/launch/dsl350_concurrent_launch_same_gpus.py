"""**What.** Two launches run at the same time (`&` after the first, no `wait` before the second) on the same GPUs, or
with the same port. So do the turns of a loop, the calls of a function or of a script, and what `xargs -P` and
`parallel` start. Or they are agents of one run (`--nnodes 2 --node_rank $i --master_addr 127.0.0.1 ... &`) that all
see the same GPUs.

**Why it hurts.** The second one stops with `EADDRINUSE: address already in use` when both take the same port (29500
where `deepspeed` or `accelerate launch` is not told another). With `--rdzv_endpoint` the second one joins the store of
the first, and dies with it. Or both share the memory of the same GPUs until one of them runs out of it. Agents of one
run number their local ranks from 0, so that two ranks get each GPU, and NCCL stops with `Duplicate GPU detected`.

**Fix.** Give each its own `CUDA_VISIBLE_DEVICES` and `--master_port`, or `wait` in between.

**When it stays quiet.** When the devices differ or are not known, when one command runs on other hosts (`srun`, `ssh`),
across conditions, when the file waits or kills in between, and for ports that a variable decides; for agents on the
CPU, and where the others are on other hosts.

**Evidence.** torch 2.13: the second `TCPStore` on a port raises `DistNetworkError`. NCCL `init.cc`: two ranks of one
host on one bus address are `Duplicate GPU detected`. https://github.com/meta-pytorch/torchx/issues/377
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, pairwise

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.atonce import agents_at_once, at_once, repeated_at_once, sleeps
from dslint.model.launch.clashes import port_numbers, shared_devices, shared_port
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.meeting import is_at_loopback
from dslint.model.launch.ports import Port, ports
from dslint.model.launch.rendezvous import places
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script, place_in_text, started_by

META = RuleMeta(
    code="DSL350",
    name="concurrent-launch-same-gpus",
    kind="launch",
    severity=Severity.WARNING,
    summary="Two launches run at the same time on the same GPUs or with the same port",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("/&/", "/\\b(?:parallel|xargs)\\b/"),
    depends_on_run=True,
)

_SCRIPT = {"train.py": "print()\n"}
_ONE = "CUDA_VISIBLE_DEVICES=0,1 deepspeed --master_port 29501 train.py --lr 1 &\n"
_TWO = "CUDA_VISIBLE_DEVICES=2,3 deepspeed --master_port 29502 train.py --lr 2 &\nwait\n"
_JOINED = (
    "CUDA_VISIBLE_DEVICES=%s torchrun --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=localhost:29400"
    " train.py &\n"
)
_LOOP = (
    "for i in 0 1 2 3; do\n  CUDA_VISIBLE_DEVICES=$i,$((i + 4)) torchrun --nproc_per_node 2 %s train.py &\ndone\nwait\n"
)
_CALLED = "export CUDA_VISIBLE_DEVICES=$1\ntorchrun --nproc_per_node 2 --master_port 29501 train.py\n"
_AGENT = (
    "torchrun --nnodes 2 --node_rank %s --nproc_per_node 2 --master_addr 127.0.0.1 --master_port 29501 train.py%s &\n"
)

EXAMPLES = (
    bad("the same GPUs", {"run.sh": _ONE + _TWO.replace("2,3", "1,2"), **_SCRIPT}, "run.sh:2"),
    bad("the same port", {"run.sh": _ONE + _TWO.replace("29502", "29501"), **_SCRIPT}, "run.sh:2"),
    bad("all GPUs and the port that deepspeed takes by itself", {
        "run.sh": "deepspeed train.py --lr 1 &\ndeepspeed train.py --lr 2\n", **_SCRIPT,
    }, "run.sh:2"),
    bad("one end point, a moment later", {
        "run.sh": _JOINED % "0,1" + "sleep 20\n" + _JOINED % "2,3" + "wait\n", **_SCRIPT,
    }, "run.sh:3"),
    bad("one port for all turns", {"run.sh": _LOOP % "--master_port 29501", **_SCRIPT}, "run.sh:2"),
    bad("a function in the background", {
        "run.sh": "run() {\n  " + (_JOINED % "$1").replace(" &", "") + "}\nrun 0,1 &\nsleep 20\nrun 2,3 &\nwait\n",
        **_SCRIPT,
    }, "run.sh:2"),
    bad("the port that accelerate takes by itself", {
        "run.sh": (_LOOP % "--multi_gpu").replace("torchrun --nproc_per_node", "accelerate launch --num_processes"),
        **_SCRIPT,
    }, "run.sh:2"),
    bad("parallel", {
        "run.sh": "parallel -j 4 CUDA_VISIBLE_DEVICES={%} torchrun --master_port 29500 train.py --lr {} ::: 1 2 3\n",
        **_SCRIPT,
    }, "run.sh:1"),
    bad("a script for each turn", {
        "run.sh": "for i in 0 1; do\n  bash one.sh $i,$((i + 2)) &\ndone\nwait\n", "one.sh": _CALLED, **_SCRIPT,
    }, "run.sh:2"),
    bad("two calls of a script", {
        "run.sh": "nohup bash one.sh 0,1 > a.log &\nbash one.sh 2,3\n", "one.sh": _CALLED, **_SCRIPT,
    }, "run.sh:2"),
    bad("a function that leaves it running", {
        "run.sh": "run() { bash one.sh $1 & }\nrun 0,1\nrun 2,3\nwait\n", "one.sh": _CALLED, **_SCRIPT,
    }, "run.sh:1"),
    bad("agents in a loop", {
        "run.sh": "for r in 0 1; do\n  " + _AGENT % ("$r", "") + "done\nwait\n", **_SCRIPT,
    }, "run.sh:2"),
    bad("agents one behind the other", {
        "run.sh": "export CUDA_VISIBLE_DEVICES=0,1\n" + _AGENT % (0, "") + _AGENT % (1, ""), **_SCRIPT,
    }, "run.sh:3"),
    bad("agents that a function starts", {
        "run.sh": "go() {\n  " + (_AGENT % ("$1", "")).replace(" &", "") + "}\ngo 0 &\ngo 1 &\nwait\n", **_SCRIPT,
    }, "run.sh:2"),
    bad("agents that meet by themselves", {
        "run.sh": "for i in 1 2; do\n  torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d"
                  " --rdzv_endpoint localhost:29400 train.py &\ndone\nwait\n", **_SCRIPT,
    }, "run.sh:2"),
    good("agents with GPUs of their own", {
        "run.sh": "for r in 0 1; do\n  CUDA_VISIBLE_DEVICES=$((2 * r)),$((2 * r + 1)) " + _AGENT % ("$r", "")
                  + "done\nwait\n", **_SCRIPT,
    }),
    good("agents on the CPU", {
        "run.sh": _AGENT % (0, " --backend gloo") + _AGENT % (1, " --backend gloo"), **_SCRIPT,
    }),
    good("one call after the other", {
        "run.sh": "bash one.sh 0,1\nbash one.sh 2,3\n", "one.sh": _CALLED, **_SCRIPT,
    }),
    good("a script with a port for each turn", {
        "run.sh": "for i in 0 1; do\n  bash one.sh $i,$((i + 2)) $((29500 + i)) &\ndone\nwait\n",
        "one.sh": _CALLED.replace("29501", "$2"), **_SCRIPT,
    }),
    good("a port for each turn", {"run.sh": _LOOP % "--master_port $((29500 + i))", **_SCRIPT}),
    good("a free port", {"run.sh": _LOOP % "--standalone", **_SCRIPT}),
    good("one turn after the other", {"run.sh": (_LOOP % "--master_port 29501").replace(" &", ""), **_SCRIPT}),
    good("each turn waits", {"run.sh": (_LOOP % "--master_port 29501").replace(" &", " &\n  wait"), **_SCRIPT}),
    good("one after the other by xargs", {
        "run.sh": "cat lrs | xargs -n 1 torchrun --master_port 29500 --nproc_per_node 2 train.py --lr\n", **_SCRIPT,
    }),
    good("other GPUs, other ports", {"run.sh": _ONE + _TWO, **_SCRIPT}),
    good("one after the other", {"run.sh": _ONE + "wait\n" + _TWO.replace("2,3", "0,1"), **_SCRIPT}),
    good("devices that are not known", {
        "run.sh": _ONE.replace("0,1", "$A") + _TWO.replace("2,3", "$B"), **_SCRIPT,
    }),
    good("other hosts", {
        "run.sh": "ssh a 'torchrun --nproc_per_node 8 train.py' &\nssh b 'torchrun --nproc_per_node 8 train.py'\n",
        **_SCRIPT,
    }),
)  # fmt: skip

_LAUNCHERS = ("torchrun", "deepspeed", "accelerate")
_CPU = re.compile(r"gloo|(?<![a-z])cpu(?![a-z])", re.I)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Commands of which one runs on while the next starts."""
    del context
    local = [c for c in _in_order(doc) if c.launcher in _LAUNCHERS and _is_here(c)]
    alone = [c for c in local if c.nodes.get_or(1) == 1]
    yield from _repeated(doc, alone)
    yield from _agents(doc, [c for c in local if c.nodes.get_or(1) > 1 and is_at_loopback(c)])
    for first, second in pairwise(alone):
        if not at_once(doc, first, second):
            continue
        found = shared_port(first, second) or (None if sleeps(doc, first, second) else shared_devices(first, second))
        if found is not None:
            what, place, other = found
            yield META.finding(
                place_in_text(second),
                f"this command starts while the one above runs, and both take {what}",
                hint="Give each its own `CUDA_VISIBLE_DEVICES` and `--master_port`, or `wait` in between",
                related=(place_in_text(first).labelled("runs in the background"), *other, *place),
                severity=Severity.INFO if doc.in_docs else None,
            )


def _in_order(doc: LaunchDoc) -> list[LaunchCommand]:
    """The commands of the text, and those of called scripts that start one alone, in the order of the text."""
    inner: dict[int, set[Location]] = {}
    for command in doc.called:
        inner.setdefault(command.called_from[0].span.start, set()).add(command.location)
    called = [c for c in started_by(doc) if c.called_from and len(inner.get(c.called_from[0].span.start, ())) == 1]
    return sorted((*doc.commands, *called), key=lambda command: place_in_text(command).span.start)


def _agents(doc: LaunchDoc, commands: list[LaunchCommand]) -> Iterator[Finding]:
    """Agents of one run that run at the same time on this machine, and hand out the same devices."""
    for agents in agents_at_once(doc, commands):
        last = agents[-1]
        shared = _shown_alike(agents[0], last)
        if shared is None or _is_on_cpu(last):
            continue
        yield META.finding(
            place_in_text(last),
            f"several agents of one run on this machine all hand out {shared}: NCCL refuses two ranks on a GPU",
            hint="Give each agent its own `CUDA_VISIBLE_DEVICES`",
            related=(*place_in_script(last), *places(last, "--nnodes", "--nproc_per_node", "--master_addr")),
            severity=Severity.INFO if doc.in_docs else None,
        )


def _shown_alike(first: LaunchCommand, second: LaunchCommand) -> str | None:
    """The devices that both see, in words."""
    if first.variable("CUDA_VISIBLE_DEVICES").is_absent and second.variable("CUDA_VISIBLE_DEVICES").is_absent:
        return "the first GPUs of it"
    found = shared_devices(first, second)
    return found[0] if found is not None else None


def _is_on_cpu(command: LaunchCommand) -> bool:
    return any(_CPU.search(word.text or word.raw) for word in command.words) or "ACCELERATE_USE_CPU" in command.env


def _repeated(doc: LaunchDoc, commands: list[LaunchCommand]) -> Iterator[Finding]:
    """Commands that the text starts several times at once, with one port for all."""
    for place, group in groupby(commands, key=place_in_text):
        turns = list(group)
        again = repeated_at_once(doc, turns[0])
        numbers = {number for turn in turns for number in port_numbers(turn)}
        written = [port for turn in turns for port in ports(turn)]
        is_one = len(numbers) == 1 and (len(turns) > 1 or not any(_varies(doc, turns[0], port) for port in written))
        if again is None or not is_one:
            continue
        yield META.finding(
            place,
            f"several of these run at the same time on one machine, and all take port {numbers.pop()}",
            hint="Give each its own port, or `--rdzv_endpoint=localhost:0`, or `--standalone`",
            related=(again, *[port.location for port in written[:1]], *place_in_script(turns[0])),
            severity=Severity.INFO if doc.in_docs else None,
        )


def _varies(doc: LaunchDoc, command: LaunchCommand, port: Port) -> bool:
    """A placeholder stands in the text of a port: `parallel` and `xargs` put another one there each time."""
    flag = command.launcher_flag(port.name)
    place = port.location
    text = doc.source.text[place.span.start : place.span.end] if place.path == doc.source.path else ""
    word = flag.value if flag is not None else None
    return "{" in re.sub(r"\$\{|\$\(\(.*", "", word.raw if word is not None else text)


def _is_here(command: LaunchCommand) -> bool:
    """The command runs on this machine, whatever the tests around it say."""
    return not (command.outer or command.variable("").is_unknown or command.conditions)
