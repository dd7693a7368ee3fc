"""**What.** Two launches run at the same time (`&` after the first, no `wait` before the second) on the same GPUs, or
with the same port. So do the turns of a loop, the calls of a function, and what `xargs -P` and `parallel` start.

**Why it hurts.** The second one stops with `EADDRINUSE: address already in use` when both take the same port (29500
where `deepspeed` or `accelerate launch` is not told another). With `--rdzv_endpoint` the second one joins the store of
the first, and dies with it. Or both share the memory of the same GPUs until one of them runs out of it.

**Fix.** Give each its own `CUDA_VISIBLE_DEVICES` and `--master_port`, or `wait` in between.

**When it stays quiet.** When the devices differ or are not known, when one command runs on other hosts (`srun`, `ssh`),
for several nodes, across conditions, when the file waits or kills in between, and for ports that a variable decides.

**Evidence.** torch 2.13: the second `TCPStore` on a port raises `DistNetworkError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, pairwise

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.around import branches, in_background
from dslint.model.launch.atonce import repeated_at_once
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.ports import Port, default_port, ports
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL350",
    name="concurrent-launch-same-gpus",
    kind="launch",
    severity=Severity.WARNING,
    summary="Two launches run at the same time on the same GPUs or with the same port",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("/&/", "/\\b(?:parallel|xargs)\\b/"),
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
_BETWEEN = re.compile(r"\b(?:wait|kill|pkill|killall|done|exit)\b|\bsleep\s+(?!\d{1,3}s?\b|[1-9]m\b)")
# So short that no training ends meanwhile.
_SLEEPS = re.compile(r"\bsleep\b")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Commands of which one runs on while the next starts."""
    del context
    local = [c for c in doc.commands if c.launcher in _LAUNCHERS and _is_here(doc, c)]
    yield from _repeated(doc, local)
    for first, second in pairwise(local):
        between = doc.source.text[first.location.span.end : second.location.span.start]
        if first.location.span.end > second.location.span.start or _BETWEEN.search(between):
            continue
        if not in_background(doc, first) or branches(doc, first) != branches(doc, second):
            continue
        found = _port(first, second) or (None if _SLEEPS.search(between) else _devices(first, second))
        if found is not None:
            what, place, other = found
            yield META.finding(
                second.location,
                f"this command starts while the one above runs, and both take {what}",
                hint="Give each its own `CUDA_VISIBLE_DEVICES` and `--master_port`, or `wait` in between",
                related=(first.location.labelled("runs in the background"), *other, *place),
                severity=Severity.INFO if doc.in_docs else None,
            )


def _repeated(doc: LaunchDoc, commands: list[LaunchCommand]) -> Iterator[Finding]:
    """Commands that the text starts several times at once, with one port for all."""
    for place, group in groupby(commands, key=lambda command: command.location):
        turns = list(group)
        again = repeated_at_once(doc, turns[0])
        numbers = {number for turn in turns for number in _numbers(turn)}
        written = [port for turn in turns for port in ports(turn)]
        is_one = len(numbers) == 1 and (len(turns) > 1 or not any(_varies(doc, turns[0], port) for port in written))
        if again is None or not is_one:
            continue
        yield META.finding(
            place,
            f"several of these run at the same time on one machine, and all take port {numbers.pop()}",
            hint="Give each its own port, or `--rdzv_endpoint=localhost:0`, or `--standalone`",
            related=(again, *[port.location for port in written[:1]]),
            severity=Severity.INFO if doc.in_docs else None,
        )


def _numbers(command: LaunchCommand) -> list[int]:
    """The ports that a command takes."""
    return [number for number, _ in _numbered(command) or _default(command)]


def _numbered(command: LaunchCommand) -> list[_Numbered]:
    """The ports that a command states, with their places; one of 0 is free."""
    return [(port.number, (port.location,)) for port in ports(command) if port.number]


def _varies(doc: LaunchDoc, command: LaunchCommand, port: Port) -> bool:
    """A variable or a placeholder stands in the text of a port."""
    flag = command.launcher_flag(port.name)
    place = port.location
    text = doc.source.text[place.span.start : place.span.end]
    raw = flag.value.raw if flag is not None and flag.value is not None else text
    return place.path != doc.source.path or any(mark in raw for mark in "${`")


def _is_here(doc: LaunchDoc, command: LaunchCommand) -> bool:
    """The command runs on this machine, and on no other."""
    away = command.outer or command.variable("").is_unknown or command.nodes.get_or(1) > 1
    return not away and command.location.path == doc.source.path and not command.conditions


_Numbered = tuple[int, tuple[Location, ...]]
_Found = tuple[str, tuple[Location, ...], tuple[Location, ...]]


def _port(first: LaunchCommand, second: LaunchCommand) -> _Found | None:
    ours, theirs = _numbered(first), _numbered(second)
    if first.launcher == second.launcher:
        ours, theirs = ours or _default(first), theirs or _default(second)
    for number, place in ours:
        for other, there in theirs:
            if number == other:
                return f"port {number}", place, there
    return None


def _default(command: LaunchCommand) -> list[_Numbered]:
    """The port that a launcher takes by itself; it stands nowhere."""
    found = default_port(command)
    return [(found[0], ())] if found is not None else []


def _devices(first: LaunchCommand, second: LaunchCommand) -> _Found | None:
    one, two = first.variable("CUDA_VISIBLE_DEVICES"), second.variable("CUDA_VISIBLE_DEVICES")
    if any(c.launcher_flag("-i", "--include", "-e", "--exclude", "--gpu_ids") for c in (first, second)):
        return None
    if not one.is_known or not two.is_known:
        return None
    ids = {part.strip() for part in one.get().split(",")} & {part.strip() for part in two.get().split(",")}
    ids = {part for part in ids if part.isdecimal()}
    if not ids:
        return None
    named = f"GPU {', '.join(sorted(ids))}" if len(ids) == 1 else f"the GPUs {', '.join(sorted(ids))}"
    return named, one.origins[:1], two.origins[:1]
