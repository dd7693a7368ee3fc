"""**What.** A script sets the environment of a run of several processes by hand (`RANK=0 WORLD_SIZE=4
MASTER_ADDR=localhost`), and starts one process, or fewer than that, or one after the other without `&`.

**Why it hurts.** `init_process_group` waits for three ranks that nobody starts, until it times out (30 minutes, 10 in
newer releases with NCCL).

**Fix.** `torchrun --standalone --nproc_per_node=4 train.py`, which sets these variables for each of its processes, or
`WORLD_SIZE=1`.

**When it stays quiet.** When the file starts other ranks, in a loop, in the background, under a launcher, when the
rank or the address comes from outside, and where another file may start the others: the address is not this
machine's.

**Evidence.** torch 2.13, run: `DistStoreError: Timed out after ... waiting for clients. 1/4 clients joined`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.around import LOOPS, enclosing, in_background
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.launchers.base import env_text
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL382",
    name="partners-never-started",
    kind="launch",
    severity=Severity.WARNING,
    summary="The environment says several processes, and the file starts fewer, or one after the other",
    references=("https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization",),
    no_experiment="what follows is that of a rank that is missing (DSL446)",
    needs=("WORLD_SIZE",),
)

_SCRIPT = {"train.py": "print()\n"}
_SET = "export MASTER_ADDR=%s MASTER_PORT=29500\nexport RANK=%s WORLD_SIZE=%s LOCAL_RANK=0\npython train.py --lr 1%s\n"

_FIRST = "RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 python train.py%s\n"
_SECOND = _FIRST.replace("RANK=0 LOCAL_RANK=0", "RANK=1 LOCAL_RANK=1")
_RANKS = (
    "export MASTER_ADDR=localhost MASTER_PORT=29500\nfor i in %s; do\n"
    "  RANK=$i LOCAL_RANK=$i WORLD_SIZE=4 python train.py%s\ndone\n"
)

EXAMPLES = (
    bad("one of four", {"run.sh": _SET % ("localhost", 0, 4, ""), **_SCRIPT}, "run.sh:3"),
    bad("in front of the command", {
        "run.sh": "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python train.py\n", **_SCRIPT,
    }, "run.sh:1"),
    bad("a loop without `&`", {"run.sh": _RANKS % ("0 1 2 3", ""), **_SCRIPT}, "run.sh:3"),
    bad("a loop that ends too early", {"run.sh": _RANKS % ("0 1 2", " &"), **_SCRIPT}, "run.sh:3"),
    bad("a sequence that counts", {"run.sh": _RANKS % ("$(seq 0 3)", ""), **_SCRIPT}, "run.sh:3"),
    bad("the first one in the foreground", {"run.sh": _FIRST % "" + _SECOND % " &" + "wait\n", **_SCRIPT}, "run.sh:1"),
    bad("variables for both", {
        "run.sh": "export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2\nRANK=0 python train.py\n"
                  "RANK=1 python train.py\n", **_SCRIPT,
    }, "run.sh:2"),
    good("all at once", {"run.sh": _RANKS % ("0 1 2 3", " &") + "wait\n", **_SCRIPT}),
    good("the last one in the foreground", {"run.sh": _FIRST % " &" + _SECOND % "", **_SCRIPT}),
    good("each may start several", {"run.sh": _RANKS % ("0 1", " &") + "wait\n", **_SCRIPT}),
    good("another machine", {
        "run.sh": (_FIRST % "" + _SECOND % "").replace("localhost", "node0"), **_SCRIPT,
    }),
    good("two terminals", {"README.md": "```bash\n" + _FIRST % "" + _SECOND % "" + "```\n", **_SCRIPT}),
    good("a function that is called in the background", {
        "run.sh": "go() {\n  " + (_FIRST % "").replace("RANK=0", "RANK=$1") + "}\ngo 0 &\ngo 1 &\nwait\n", **_SCRIPT,
    }),
    good("a world of one", {"run.sh": _SET % ("localhost", 0, 1, ""), **_SCRIPT}),
    good("another machine", {"run.sh": _SET % ("10.0.0.1", 0, 2, ""), **_SCRIPT}),
    good("a rank from outside", {"run.sh": _SET % ("localhost", "$1", 2, ""), **_SCRIPT}),
    good("the other one in the background", {
        "run.sh": "export MASTER_ADDR=localhost MASTER_PORT=29500 WORLD_SIZE=2\n"
        "RANK=1 LOCAL_RANK=1 python train.py &\nRANK=0 LOCAL_RANK=0 python train.py\n",
        **_SCRIPT,
    }),
    good("a launcher sets them anew", {
        "run.sh": "export RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost\ntorchrun --standalone --nproc_per_node=4 train.py",
        **_SCRIPT,
    }),
)  # fmt: skip

_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
_REPEATED = (*LOOPS, "function_definition")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Single processes of a world of several."""
    del context
    found = [command for command in doc.commands if command.launcher == "python"]
    ranks = {env_text(command.env, "RANK").get_or("?") for command in found}
    if len(ranks) > 1 and not doc.in_docs:
        yield from _of_several(doc, found)
    if len(ranks) != 1 or "?" in ranks or not next(iter(ranks)).isdigit():
        return
    for command in found:
        size = env_text(command.env, "WORLD_SIZE")
        if not _is_alone(doc, command) or not size.get_or("").isdigit() or int(size.get()) < 2:
            continue
        rank = env_text(command.env, "RANK")
        yield META.finding(
            command.location,
            f"this is rank {rank.get()} of {size.get()}, and nobody starts the others: it waits for them until it times"
            " out",
            hint=f"Write `torchrun --standalone --nproc_per_node={size.get()}` in place of `python`",
            related=(*size.origins[:1], *rank.origins[:1]),
            severity=Severity.INFO if doc.in_docs else None,
            facts={"world_size": int(size.get())},
        )
        return


def _of_several(doc: LaunchDoc, found: list[LaunchCommand]) -> Iterator[Finding]:
    """Ranks of one group on this machine: one that runs before the others are started, and one that nobody starts."""
    sizes = {env_text(command.env, "WORLD_SIZE").get_or("") for command in found}
    numbers = [env_text(command.env, "RANK").get_or("") for command in found]
    size = next(iter(sizes))
    if len(sizes) > 1 or not size.isdigit() or not all(map(str.isdigit, numbers)) or not _are_here(doc, found):
        return
    ranks, total = [int(number) for number in numbers], int(size)
    if len(set(ranks)) < len(ranks) or max(ranks) >= total:
        return
    early = next((at for at, command in enumerate(found[:-1]) if not in_background(doc, command)), None)
    missing = sorted(set(range(total)) - set(ranks))
    if early is not None:
        message = f"rank {ranks[early]} of {total} waits here for ranks that the script starts only after it has ended"
        yield _told(found[early], message, "Start all but the last with `&`, and `wait` for them", total)
    elif missing and total % len(ranks):  # else each may start several processes
        named = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        message = f"{len(ranks)} of {total} ranks are started here, and nobody starts {named}: they wait for it"
        yield _told(found[-1], message, "Start each rank from 0 to the last one, or lower `WORLD_SIZE`", total)


def _are_here(doc: LaunchDoc, commands: list[LaunchCommand]) -> bool:
    """All of them run on this machine, whatever the tests say, and meet at one place of it."""
    told = {(env_text(c.env, "MASTER_ADDR").get_or(""), env_text(c.env, "MASTER_PORT").get_or("")) for c in commands}
    plain = all(not (c.outer or c.wrappers or c.conditions or c.called_from) for c in commands)
    is_flat = all(node.type != "function_definition" for c in commands for node in enclosing(doc, c))
    return plain and is_flat and len(told) == 1 and next(iter(told))[0] in _HERE


def _told(command: LaunchCommand, message: str, hint: str, size: int) -> Finding:
    places = [*env_text(command.env, "WORLD_SIZE").origins[:1], *env_text(command.env, "RANK").origins[:1]]
    return META.finding(command.location, message, hint=hint, related=tuple(places), facts={"world_size": size})


def _is_alone(doc: LaunchDoc, command: LaunchCommand) -> bool:
    """The command is one process of this machine, once, and nothing else starts processes of its group."""
    if command.outer or command.wrappers or command.conditions or in_background(doc, command):
        return False
    if any(node.type in _REPEATED for node in enclosing(doc, command)):
        return False
    return env_text(command.env, "MASTER_ADDR").get_or("") in _HERE
