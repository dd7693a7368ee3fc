"""Each process chooses the port of the rendezvous itself.

**What.** A function that every rank runs binds a socket to port 0, writes the number that it was given to
`MASTER_PORT` (or into `init_method="tcp://..."`), and joins the process group.

**Why it hurts.** Each rank gets another free port. Rank 0 listens at its own, the others knock at theirs: the group
never forms, and the job waits until the timeout. With one process it works. Where the port is chosen only when the
usual one is taken, rank 0 may be the one that has taken it.

**Fix.** Choose the port where the processes are started, before `mp.spawn`, or take the one that the launcher gives.

**When it stays quiet.** A parent that chooses the port and starts the processes; a world size of 1, as a parameter
unless somebody passes another, or a rank of 0; a port that is broadcast; a test of the rank around it; other tests
around it, which may mean a single process; `MASTER_PORT` only where it is not set, unless the ranks come from Slurm or
`mp.spawn`; tests.

**Evidence.** Two gloo ranks, torch 2.13: with a port of its own for each rank all of them wait in the rendezvous; with
one port the group forms.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import flat
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.setup.timeouts import GROUP_CREATORS
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

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
            "usual.py": _SPAWN.replace("(rank, world_size)", "(rank=0, world_size=1)")
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
        {"train.py": _SPAWN % ('"29500"', "    print(find_free_port())")},
    ),
    good("a test", {"tests/test_groups.py": _SPAWN % ("str(find_free_port())", "    pass")}),
)  # fmt: skip

_TEST = re.compile(r"(?:^|/)(?:tests?|unit_tests)/|(?:^|/)test_[^/]*$|_test\.py$|conftest\.py$")
_PORT_TEST = re.compile(r"MASTER_PORT|\bport\b|free_port|port_free|available_port|port_in_use", re.I)
_HANDS_ON = re.compile(r"bcast|broadcast|scatter|all_gather")
_RANK, _WORLD, _METHOD = 4, 3, 1
_MAX_STEPS = 5


def applies(path: str, _context: object) -> bool:
    """Tests start one process, or choose a port for each case."""
    return _TEST.search(path) is None


def precheck(tree: ast.Module) -> bool:
    """Some socket is bound to port 0."""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "bind"
        and call.args
        and isinstance(call.args[0], ast.Tuple)
        and len(call.args[0].elts) == 2
        for call in flat(tree).nodes(ast.Call)
    )


class Check(ScriptCheck):
    """Looks at the ports of the functions that join a group."""

    def finish(self) -> None:
        """Fire once for each function."""
        if self.ctx.run.is_one_process:
            return
        writes = [w for w in self.ctx.startup.environment_writes if w.name == "MASTER_PORT" and w.statement is not None]
        for maker in self.ctx.startup.group_makers:
            function = self.ctx.enclosing_function(maker)
            if function is None or self.ctx.qualified_name(maker.func) not in GROUP_CREATORS:
                continue
            if not self._is_of_many(maker, function) or self._hands_on(function):
                continue
            given = [(w.statement.value, w.statement) for w in writes if w.statement is not None]
            method = self.ctx.argument(maker, "init_method", _METHOD)
            for value, place in [*given, *([(method, maker)] if method is not None else [])]:
                inside = self.ctx.enclosing_function(place) is function
                chosen = self._chosen(value, function, 0) if inside else None
                if chosen is not None and self._precedes(place, maker):
                    self._judge(value if place is maker else place, chosen, maker, function)

    def _hands_on(self, function: cst.FunctionDef) -> bool:
        """The function sends something from one rank to the others, as it may the port."""
        calls = (n for n in self.ctx.tree.own_nodes(function) if isinstance(n, cst.Call))
        return any(_HANDS_ON.search(self.ctx.called(c)) for c in calls)

    def _precedes(self, place: cst.CSTNode, maker: cst.Call) -> bool:
        position = self.ctx.tree.position
        return place is maker or (position(place) < position(maker) and not self.ctx.excludes(place, maker))

    def _is_of_many(self, maker: cst.Call, function: cst.FunctionDef) -> bool:
        """The group gets a rank and a size that are no numbers, from its arguments or the environment."""
        if self.ctx.has_unpacked_arguments(maker):
            return False
        is_torch = self.ctx.called(maker) == "init_process_group"
        rank = self.ctx.argument(maker, "rank", _RANK if is_torch else None)
        world = self.ctx.argument(maker, "world_size", _WORLD if is_torch else None)
        if rank is not None:
            return world is not None and self._is_open(rank) and self._is_open(world)
        own = [w for w in self.ctx.startup.environment_writes if self.ctx.enclosing_function(w.node) is function]
        ranks = [w for w in own if w.name == "RANK"]
        return bool(ranks) and all(w.text is None for w in own if w.name in ("RANK", "WORLD_SIZE"))

    def _is_open(self, node: cst.BaseExpression) -> bool:
        """No number of the file, and no parameter with a number for a default."""
        if number_of(node) is not None or self.ctx.constant(node).is_known:
            return False
        found = self.ctx.names.bindings(node.value, node) if isinstance(node, cst.Name) else []
        return not any(
            b.kind in ("param", "assign") and b.value is not None and number_of(b.value) is not None for b in found
        )

    def _chosen(self, node: cst.BaseExpression, function: cst.FunctionDef, steps: int) -> cst.Call | None:
        """The call in the function that chooses the port of which a value is made."""
        if steps > _MAX_STEPS:
            return None
        if isinstance(node, cst.Call):
            if self._finds_port(node):
                return node
            is_cast = self.ctx.qualified_name(node.func) in ("str", "int") and len(node.args) == 1
            return self._chosen(node.args[0].value, function, steps + 1) if is_cast else None
        if isinstance(node, cst.Name):
            value = self.ctx.names.single_value(node)
            inside = value is not None and self.ctx.enclosing_function(value) is function
            return self._chosen(value, function, steps + 1) if inside and value is not None else None
        parts: list[cst.BaseExpression] = []
        if isinstance(node, cst.FormattedString):
            parts = [p.expression for p in node.parts if isinstance(p, cst.FormattedStringExpression)]
        elif isinstance(node, cst.BinaryOperation):
            parts = [node.left, node.right]
        found = (self._chosen(part, function, steps + 1) for part in parts)
        return next((call for call in found if call is not None), None)

    def _finds_port(self, call: cst.Call) -> bool:
        """A function of the file that binds a socket to port 0 and returns what it was given."""
        function = self.ctx.names.local_function(call)
        if function is None:
            return False
        nodes = list(self.ctx.tree.own_nodes(function))
        binds = any(isinstance(n, cst.Call) and _binds_any(n) for n in nodes)
        asks = any(isinstance(n, cst.Call) and self.ctx.called(n) == "getsockname" for n in nodes)
        return binds and asks and any(isinstance(n, cst.Return) and n.value is not None for n in nodes)

    def _judge(self, place: cst.CSTNode, chosen: cst.Call, maker: cst.Call, function: cst.FunctionDef) -> None:
        tests = [t for t in self.ctx.objects.conditions.of(place) if not self.ctx.constant(t.test).is_known]
        inside = self.ctx.tree.enclosing(place, cst.Match, cst.ExceptHandler, cst.FunctionDef)
        if (
            inside is not function
            or self.ctx.guard(place) is not None
            or any(not _PORT_TEST.search(self.ctx.text(t.test)) for t in tests)
        ):
            return
        started = self.ctx.startup.starts_processes and self._is_started(function)
        is_slurm = "SLURM_PROCID" in self.ctx.text(function)
        if any("MASTER_PORT" in self.ctx.text(t.test) for t in tests) and not (started or is_slurm):
            return
        process = "each process that comes here" if tests else "each process"
        self.report(
            place,
            f"`{self.ctx.text(chosen)}` gives {process} another port: rank 0 listens at its own and the others knock at"
            " theirs, and the group never forms",
            hint="Choose the port where the processes are started, or take the one that the launcher gives",
            related=(self.ctx.location(maker, "the group that every rank joins"),),
            severity=Severity.WARNING if tests else None,
        )

    def _is_started(self, function: cst.FunctionDef) -> bool:
        """A process of its own runs the function: the file hands it, or a function that calls it, to a starter."""
        name = function.name.value
        callers = {
            f.name.value
            for c in self.ctx.tree.every(cst.Call)
            if self.ctx.names.local_function(c) is function and (f := self.ctx.enclosing_function(c)) is not None
        }
        given = (a.value for c in self.ctx.tree.every(cst.Call) for a in c.args)
        return any(isinstance(v, cst.Name) and v.value in {name, *callers} for v in given)


def _binds_any(call: cst.Call) -> bool:
    """``socket.bind((host, 0))``."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "bind" or len(call.args) != 1:
        return False
    address = call.args[0].value
    if not isinstance(address, cst.Tuple) or len(address.elements) != 2:
        return False
    return number_of(address.elements[1].value) == 0
