"""Each process chooses the port of the rendezvous itself.

**What.** A function that every rank runs binds a socket to port 0, writes the number that it was given to
`MASTER_PORT` (or into `init_method="tcp://..."`), and joins the process group.

**Why it hurts.** Each rank gets another free port. Rank 0 listens at its own, the others knock at theirs: the group
never forms, and the job waits until the timeout. With one process it works. Where the port is chosen only when the
usual one is taken, rank 0 may be the one that has taken it.

**Fix.** Choose the port where the processes are started, before `mp.spawn`, or take the one that the launcher gives.

**When it stays quiet.** A parent that chooses the port and starts the processes; a world size of 1, as a parameter
unless somebody passes another, or a rank of 0; a port that the function sends to others; a test of the rank around it;
other tests around it, which may mean a single process; `MASTER_PORT` only where it is not set, unless the ranks come
from Slurm or `mp.spawn`; tests.

**Evidence.** Two gloo ranks, torch 2.13: with a port of its own for each rank all of them wait in the rendezvous; with
one port the group forms.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.binding import default_of
from dslint.python.environment import SET
from dslint.python.events import Alt, Event
from dslint.python.queries.asked import expressions_of
from dslint.python.queries.order import following
from dslint.python.values import Instance, Tuple, Value
from dslint.python.varies import ASSUMED, HOST
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import function_around
from dslint.rules.ranks.ways import ways_to
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL272",
    name="port-chosen-per-process",
    kind="script",
    severity=Severity.ERROR,
    summary="every rank chooses a free port of its own for the rendezvous, and the group never forms",
    markers=(r"\.bind\(", r"getsockname", r"init_process_group|init_distributed", r"MASTER_PORT|tcp://"),
    references=("https://github.com/pytorch/pytorch/issues/53395",),
    depends_on_run=True,
)

_TEST = re.compile(r"(?:^|/)(?:tests?|unit_tests)/|(?:^|/)test_[^/]*$|_test\.py$|conftest\.py$")
_PORT_TEST = re.compile(r"MASTER_PORT|\bport\b|free_port|port_free|available_port|port_in_use", re.I)
_HANDS_ON = re.compile(r"(?:bcast|broadcast|scatter|all_gather)\w*\b")


def applies(path: str, _context: object) -> bool:
    """Tests start one process, or choose a port for each case."""
    return _TEST.search(path) is None


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire once for each place where the ranks of a group get ports of their own for the rendezvous."""
    if run.context.is_one_process and not run.has("spawns"):
        return
    ports = list(_free_ports(run))
    seen: set[int] = set()
    for join in run.occurrences("starts-group") if ports else ():
        if not _is_of_many(run, join) or _hands_on(join.event):
            continue
        for found, value, node in _given(run, join):
            port = next((port for port in ports if _is_from(run, value, port.event)), None)
            if port is None or id(node) in seen or _hands_on(found.event):
                continue
            severity = _judged(run, join, (found, port))
            if severity is not None:
                seen.add(id(node))
                yield _finding(run, join, found, node, port, severity)


def _free_ports(run: RunQuery) -> Iterator[Happening]:
    """Yield where the port of a socket is asked that was bound to any free one."""
    bound = {
        atom
        for found in run.occurrences("binds-port")
        if found.event.receiver is not None and _is_any(found.event.arguments.get("address"))
        for atom in found.event.receiver.atoms
    }
    for found in run.occurrences("gives-port"):
        if found.event.receiver is not None and found.event.receiver.atoms & bound:
            yield found


def _is_any(address: Value | None) -> bool:
    pair = address.single if address is not None else None
    return isinstance(pair, Tuple) and len(pair.items) == 2 and pair.items[1].constants == (0,)


def _is_from(run: RunQuery, value: Value, port: Event) -> bool:
    """Return whether a value is made of the port of that socket."""
    begun = run.machine.origin(value) if run.machine.varies(value) & HOST else None
    made = [atom.node for atom in port.receiver.atoms if isinstance(atom, Instance)] if port.receiver else []
    return begun is not None and any(begun[1] is node for node in (port.node, *made))


def _given(run: RunQuery, join: Happening) -> Iterator[tuple[Happening, Value, ast.AST]]:
    """Yield what a group takes for its port or address, with the place where it is given."""
    method = join.event.arguments.get("init_method")
    if method is not None:
        yield join, method, join.event.nodes.get("init_method", join.event.node)
    for found in run.occurrences("sets-environment"):
        event = found.event
        if found.entry is join.entry and event.api == SET and event.arguments["name"].constants == ("MASTER_PORT",):
            yield found, event.arguments["value"], event.node


def _is_of_many(run: RunQuery, join: Happening) -> bool:
    """Return whether a process joins with a rank and a size that it is given, or that a launch command states."""
    event = join.event
    rank, world = event.arguments.get("rank"), event.arguments.get("world_size")
    if event.open or event.may:
        return False
    if rank is not None:
        return world is not None and all(_is_given(join, name) for name in ("rank", "world_size"))
    written = {
        name: found.event.arguments["value"]
        for found in run.occurrences("sets-environment")
        if found.event.api == SET and found.entry is join.entry
        for name in found.event.arguments["name"].constants or ()
    }
    several: bool = run.context.world_size.get_or(1) > 1
    if any(written[name].constants is not None for name in ("RANK", "WORLD_SIZE") if name in written):
        return False
    return "RANK" in written or several


def _is_given(join: Happening, name: str) -> bool:
    """Return whether an argument says more than that there is one process, also by the default of an open parameter."""
    event, value = join.event, join.event.arguments[name]
    node, function = event.nodes.get(name), join.entry.node
    is_open = isinstance(function, ast.FunctionDef) and function_around(event.module, event.node) is function
    if is_open and isinstance(node, ast.Name | None) and isinstance(function, ast.FunctionDef):
        # What a dictionary holds mostly comes from the parameter of the same name.
        default = default_of(function.args, node.id if node is not None else name)
        if isinstance(default, ast.Constant) and isinstance(default.value, int):
            return False
    return value.constants is None or (name == "world_size" and value.constants != (1,))


def _hands_on(event: Event) -> bool:
    """Return whether the function around sends something from one rank to the others, as it may the port."""
    function = function_around(event.module, event.node)
    return function is not None and _HANDS_ON.search(event.module.text(function)) is not None


def _judged(run: RunQuery, join: Happening, steps: tuple[Happening, ...]) -> Severity | None:
    """Return how bad a port is that each rank chooses on the way to the group; `None` where it may not be chosen."""
    tests: frozenset[Alt] = frozenset()
    joins = ways_to(run, join)
    for found in steps:
        event = found.event
        beyond = [way.beyond(other) for way in ways_to(run, found) for other in joins]
        sides = min((few for few in beyond if few is not None), key=len, default=None)
        is_before = event is join.event or any(later is join.event for later in following(join.entry.tree, event))
        if sides is None or not is_before or found.entry is not join.entry or join.event.lanes & ~event.lanes:
            return None
        tests |= sides
    asked = [" ".join(map(ast.unparse, expressions_of(test))) for test in tests]
    is_given = any("MASTER_PORT" in text for text in asked) and not _is_started_alone(run, join)
    if is_given or not all(map(_PORT_TEST.search, asked)):
        return None
    return Severity.WARNING if tests else Severity.ERROR


def _is_started_alone(run: RunQuery, join: Happening) -> bool:
    """Return whether what starts the processes gives them no port: Slurm, or a function that starts processes."""
    is_slurm = "SLURM_PROCID" in join.event.module.code
    return is_slurm or any(way.started for way in ways_to(run, join))


def _finding(
    run: RunQuery, join: Happening, found: Happening, node: ast.AST, port: Happening, severity: Severity
) -> Finding:
    event = found.event
    around = {id(call) for call in found.around}
    called = next((call for call in port.calls if id(call) not in around), None)
    chosen = (
        run.text(called.module, called.node) if called is not None else run.text(port.event.module, port.event.node)
    )
    process = "each process that comes here" if severity is Severity.WARNING else "each process"
    group = run.location(join.event.module, join.event.node, "the group that every rank joins")
    return run.finding(
        META,
        event.module,
        node,
        f"`{chosen}` gives {process} another port: they never meet, and the group never forms",
        hint="Choose the port where the processes are started, or take the one that the launcher gives",
        related=(group,),
        severity=severity,
        varies=join.event.varies & ASSUMED,
    )


_HEAD = """\
import os
import socket

import torch.distributed as dist
import torch.multiprocessing as mp


def find_free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


"""
_SPAWN = (
    _HEAD
    + """\
def worker(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = %s
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


if __name__ == "__main__":
%s
    mp.spawn(worker, args=(4,), nprocs=4)
"""
)
_PARENT = '    os.environ["MASTER_PORT"] = str(find_free_port())'
_SLURM = (
    _HEAD
    + """\
def init_slurm(port=None):
    rank, tasks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    if port is not None:
        os.environ["MASTER_PORT"] = str(port)
    elif "MASTER_PORT" not in os.environ:
        os.environ["MASTER_PORT"] = str(find_free_port())
    os.environ["WORLD_SIZE"] = str(tasks)
    os.environ["RANK"] = %s
    dist.init_process_group("nccl")
"""
)

EXAMPLES = (
    bad(
        "in each process that `mp.spawn` starts",
        {"train.py": _SPAWN % ("str(find_free_port())", "    pass")},
        "train.py:16 error",
    ),
    bad(
        "in the address of the rendezvous",
        {
            "train.py": _HEAD + "def worker(rank, world_size):\n    port = find_free_port()\n"
            "    url = f'tcp://127.0.0.1:{port}'\n"
            "    dist.init_process_group('gloo', init_method=url, rank=rank, world_size=world_size)\n"
        },
        "train.py:17 error",
    ),
    bad(
        "a port of another file, in each of the processes that a command starts",
        {
            "train.py": "import os\n\nimport torch.distributed as dist\n\nfrom net import address\n\n\n"
            "def main():\n    dist.init_process_group('nccl', init_method=address(),"
            " rank=int(os.environ['RANK']), world_size=int(os.environ['WORLD_SIZE']))\n\n\nmain()\n",
            "net.py": _HEAD + "def address():\n    return 'tcp://{}:{}'.format('localhost', find_free_port())\n",
        },
        "train.py:9 error",
    ),
    bad(
        "a socket that `closing` closes",
        {
            "train.py": (_SPAWN % ("str(find_free_port())", "    pass"))
            .replace("with socket.socket() as s", "with closing(socket.socket()) as s")
            .replace("import socket\n", "import socket\nfrom contextlib import closing\n")
        },
        "train.py:17 error",
    ),
    bad("each task of Slurm", {"train.py": _SLURM % "str(rank)"}, "train.py:19 warning"),
    good(
        "the parent chooses",
        {
            "train.py": _SPAWN % ('os.environ.get("MASTER_PORT", "29500")', _PARENT),
            "given.py": (_SPAWN % ("str(port)", "    port = find_free_port()"))
            .replace("world_size):", "world_size, port):").replace("(4,)", "(4, port)"),
        },
    ),
    good(
        "one process",
        {
            "train.py": _SPAWN.replace("world_size=world_size", "world_size=1") % ("str(find_free_port())", "    pass"),
            "first.py": _SPAWN.replace("rank=rank", "rank=0") % ("str(find_free_port())", "    pass"),
            "usual.py": _SPAWN.replace("(rank, world_size)", "(rank=0, world_size=1)").replace(
                "    mp.spawn(worker, args=(4,), nprocs=4)\n", ""
            )
            % ("str(find_free_port())", "    pass"),
            "slurm.py": _SLURM % '"0"',
        },
    ),
    good(
        "only where no launcher has given one",
        {
            "train.py": _HEAD + "def init():\n    rank = int(os.environ.get('RANK', 0))\n"
            "    world_size = int(os.environ.get('WORLD_SIZE', 1))\n    if 'MASTER_PORT' not in os.environ:\n"
            "        os.environ['MASTER_PORT'] = str(find_free_port())\n"
            "    dist.init_process_group('gloo', rank=rank, world_size=world_size)\n",
            "alone.py": _HEAD + "def init(rank, world_size):\n    if world_size == 1:\n"
            "        os.environ['MASTER_PORT'] = str(find_free_port())\n"
            "    dist.init_process_group('gloo', rank=rank, world_size=world_size)\n",
        },
    ),
    good(
        "rank 0 hands its port on",
        {
            "train.py": _HEAD + "def init(comm, rank, world_size):\n    port = comm.bcast(find_free_port(), root=0)\n"
            "    os.environ['MASTER_PORT'] = str(port)\n"
            "    dist.init_process_group('gloo', rank=rank, world_size=world_size)\n"
        },
    ),
    good(
        "a fixed port",
        {"train.py": _SPAWN % ('os.environ.get("MASTER_PORT", "29500")', "    print(find_free_port())")},
    ),
    good("a test", {"tests/test_groups.py": _SPAWN % ("str(find_free_port())", "    pass")}),
)  # fmt: skip
