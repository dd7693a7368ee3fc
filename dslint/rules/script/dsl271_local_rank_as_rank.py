"""The rank within the machine is passed as the rank of the job.

**What.** `init_process_group(rank=local_rank, world_size=world_size)` with the `LOCAL_RANK` of the launcher as the rank
and its `WORLD_SIZE` as the number of processes. Or `DistributedSampler(rank=local_rank)`, a sampler or data set of
the project that distributes by it, a cut (`items[local_rank::world_size]`), or a seed that is offset by it:
`torch.manual_seed(seed + local_rank)`.

**Why it hurts.** On one machine the two ranks are the same, and the script works. On two machines each rank is taken
twice and half of the ranks by nobody: the group never forms, and the job waits until the timeout while the GPUs are
paid for. A sampler deals the parts of the first machine out again on the second one, and half of the data is never
seen. Seeds repeat on each machine: its processes draw the noise, the augmentations and the dropout masks of the first.

**Fix.** `rank=int(os.environ["RANK"])`, or neither `rank` nor `world_size`: `init_process_group` reads both itself.

**When it stays quiet.** A world size of one machine, such as `torch.cuda.device_count()`; a world size or a rank whose
origin is not certain, as a variable called `local_rank` that holds the rank of the job; commands that start a single
machine; processes that meet at an address of this machine; a file that says it is for one machine
(`--standalone`, `--nnodes=1`); tests.

**Evidence.** torchrun of torch 2.13 for two machines with a process each: both processes are rank 0, and
`init_process_group` ends in a timeout; with `RANK`, or on one machine, the group forms.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.python.events import Event, Loop
from dslint.python.values import Const, PerRank, Value
from dslint.python.varies import ASSUMED, LOCAL, LOST, NODE, OWN, RANK, RANKED, UNSURE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.sharescripts import (
    DOWNLOADED,
    GROUP_HEAD,
    LOCAL_GROUP,
    LOCAL_SAMPLER,
    OWN_SAMPLER,
    OWN_SHARDS,
    PARSED_GROUP,
    RANK_CUT,
)
from dslint.rules.ranks.devices import written
from dslint.rules.ranks.visible import HERE, meets_here
from dslint.rules.runs import Happening, RunQuery

if TYPE_CHECKING:
    from dslint.core.source import Location
    from dslint.python.source import Module

META = RuleMeta(
    code="DSL271",
    name="local-rank-as-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="the rank within the machine is passed as the rank of the job: two machines take each rank twice",
    fix="safe",
    markers=(
        r"torch|deepspeed|accelerat|lightning",
        r"LOCAL_?RANK|local_?rank|SLURM_LOCALID|MPI_",
        r"rank\s*=|seed|rank\s*:",
    ),
    references=(
        "https://github.com/pytorch/pytorch/issues/23074",
        "https://pytorch.org/docs/stable/elastic/run.html#environment-variables",
    ),
    depends_on_run=True,
)


_TEST = re.compile(r"(?:^|/)(?:tests?|unit_tests)/|(?:^|/)(?:test_|two_gpu)[^/]*$|_test\.py$|conftest\.py$")
_ONE_MACHINE = re.compile(r"--standalone|nnodes[= ]+[\"']?1\b")
# Variables of launchers whose variable for the rank of the job is another one.
_OF_OTHERS = re.compile(r"SLURM|MPI|PMI|MV2")


def applies(path: str, _context: object) -> bool:
    """Tests run on one machine."""
    return _TEST.search(path) is None


def query(run: RunQuery) -> Iterator[Finding]:
    """Yield groups and samplers that get the rank within the machine for that of the job."""
    context = run.context
    is_here = context.world_size.is_known and context.world_size.value == context.processes_per_node.get_or(None)
    if not (context.is_one_process or is_here or meets_here(run)):
        yield from _groups(run)
        yield from _samplers(run)
        cuts = list(_parts(run))
        yield from cuts
        # What `mp.spawn` counts is the rank of a job on one machine.
        if run.has("wraps-model", "prepares", "makes-engine", "trainer-train") and not run.has("spawns"):
            yield from _shares(run)
            if not cuts:
                yield from _loops(run)
            yield from _seeds(run)


def _parts(run: RunQuery) -> Iterator[Finding]:
    """Yield cuts into as many parts as the job has processes, of which each takes that of its rank on the machine."""
    seen: set[int] = set()
    for found in run.happenings("shares", "shards-data") if not run.has("spawns") else ():
        event = found.event
        given = [value for name, value in event.arguments.items() if name != "size"]
        is_cut = "shares" in event.tags or any(_holds(run, value, 3) for value in given)
        if event.may or event.open or not is_cut or not any(_holds(run, value, 1) for value in given):
            continue
        if id(event.node) not in seen:
            seen.add(id(event.node))
            yield run.finding(
                META,
                event.module,
                event.node,
                f"`{run.text(event.module, event.node, 50)}` begins at the local rank: a second machine takes the items"
                " of the first again",
                hint="Begin at the rank of the job (`dist.get_rank()`, `RANK`)",
                related=run.origin(next(value for value in given if _holds(run, value, 1)), "the local rank"),
                facts={"call": "cut"},
            )


def _shares(run: RunQuery) -> Iterator[Finding]:
    """Yield loaders whose items depend on the rank within the machine, and on no other number of the process."""
    for found in run.happenings("makes-loader"):
        event = found.event
        own = [source for source in event.sources if source.varies & RANKED]
        if event.open or event.may or not own or any(source.varies & (RANK | NODE | LOST) for source in own):
            continue
        if run.machine.worlds.full != event.lanes:
            continue
        node = next((event.nodes[s.role] for s in own if s.role in event.nodes), event.node)
        places = tuple(run.location(m, n, "the items are divided here") for m, n in own[0].code[:1])
        yield _divided(run, event.module, node, own[0].role.replace("_", " "), places, own[0].varies, "loader")


def _divided(run: RunQuery, module: Module, node: ast.AST, role: str, places: Iterable[Location], varies: int,
             call: str) -> Finding:  # fmt: skip
    return run.finding(
        META,
        module,
        node,
        f"The {role} divides by the local rank: a second machine trains on the items of the first again",
        hint="Divide by the rank of the job (`dist.get_rank()`, `RANK`)",
        related=tuple(places),
        varies=varies,
        facts={"call": call},
    )


def _loops(run: RunQuery) -> Iterator[Finding]:
    """Yield loops that train on a part of the data that the rank within the machine alone has chosen."""
    seen: set[int] = set()
    loaders = {found.event.node for found in run.happenings("makes-loader")}  # told where they are made
    for found in run.happenings("backward"):
        loops = (node for node in found.around if isinstance(node, Loop) and not node.items & loaders)
        loop = next((loop for loop in loops if loop.varies & RANKED == LOCAL), None)
        if loop is None or loop.varies & (OWN | LOST | UNSURE) or id(loop.node) in seen:
            continue
        seen.add(id(loop.node))
        node = getattr(loop.node, "iter", loop.node)
        places = run.origin(loop.subject, "the items are divided here") if loop.subject is not None else ()
        yield _divided(run, loop.module, node, "loop", places, loop.varies, "loop")


def _seeds(run: RunQuery) -> Iterator[Finding]:
    """Yield seeds that are offset by the rank within the machine."""
    for found in run.happenings("seeds"):
        event = found.event
        for name, (varies, _, _) in event.snapshot.items():
            if "seed" not in name or event.open or event.may or varies & RANKED != LOCAL or varies & (UNSURE | LOST):
                continue
            value = event.arguments.get(name)
            yield run.finding(
                META,
                event.module,
                event.nodes.get(name) or event.node,
                "The seed depends on the local rank: processes with the same local rank on all machines draw the same",
                hint="Add the rank of the job to the seed (`dist.get_rank()`, `RANK`)",
                related=run.origin(value, "the rank within the machine") if value is not None else (),
                facts={"call": "seed"},
            )


def _groups(run: RunQuery) -> Iterator[Finding]:
    """Yield groups whose rank is certainly that within the machine, and whose size that of the job."""
    for found in run.happenings("starts-group"):
        event = found.event
        rank, size, met = (event.arguments.get(name) for name in ("rank", "world_size", "init_method"))
        if rank is None or event.open or event.may or _is_for_one_machine(found) or _may_be_here(met):
            continue
        if _holds(run, rank, 1) and (size is None or size.constants == (-1,) or _holds(run, size, 3)):
            yield _of_group(run, event, rank)


def _is_for_one_machine(found: Happening) -> bool:
    modules = (found.event.module, found.entry.module)
    return any(_TEST.search(m.path) or m.search(_ONE_MACHINE) for m in modules)


def _may_be_here(met: Value | None) -> bool:
    """Return whether the address of the meeting is this machine, or nobody knows."""
    if met is None or met.constants == (None,):
        return False
    return met.constants is None or any(HERE.search(str(word)) for word in met.constants)


def _of_group(run: RunQuery, event: Event, rank: Value) -> Finding:
    per_node = run.context.processes_per_node.get_or(None)
    is_known = run.context.world_size.is_known and isinstance(per_node, int)
    count = f" of {per_node} processes each" if is_known else ""
    node = written(event, "rank")
    return run.finding(
        META,
        event.module,
        node,
        f"`rank={_text(run, event)}` is the local rank, but the world size counts the whole job: on two"
        f" machines{count} the group never forms",
        hint='Pass `rank=int(os.environ["RANK"])`, or leave out both `rank` and `world_size`',
        related=tuple(
            place
            for place in run.origin(rank, "the rank within the machine")
            if place.span != event.module.location(node).span
        ),
        severity=Severity.ERROR if is_known else None,
        fix=_fix(run, event, rank),
        facts={"library": event.api.partition(".")[0]},
    )


def _text(run: RunQuery, event: Event) -> str:
    node = written(event, "rank")
    return "..." if node is event.node else run.text(event.module, node)


def _fix(run: RunQuery, event: Event, rank: Value) -> Fix | None:
    """Pass the variable beside it, where the file reads the environment by `os`."""
    node, origin = written(event, "rank"), run.machine.origin(rank)
    source = origin[0].text(origin[1]) if origin is not None else event.module.source.text
    if node is event.node or _OF_OTHERS.search(source) or event.module.imported.get("os") != [("os", "")]:
        return None
    edit = Edit(event.module.path, event.module.span(node), 'int(os.environ["RANK"])')
    return Fix("Pass the rank of the job", (edit,))


def _samplers(run: RunQuery) -> Iterator[Finding]:
    """Yield samplers that deal out by the rank within the machine."""
    for found in run.happenings("makes-distributed-sampler"):
        event = found.event
        rank, count = event.arguments.get("rank"), event.arguments.get("num_replicas")
        if not event.may and _holds(run, rank, 1) and (count is None or _holds(run, count, 3)):
            yield run.finding(
                META,
                event.module,
                event.nodes.get("rank") or event.node,
                "The sampler gets the local rank: a second machine trains on the same part as the first",
                hint="Pass the rank of the job, or neither `rank` nor `num_replicas`: the sampler asks for both itself",
                severity=Severity.ERROR if run.machine.worlds.stated else None,
                facts={"call": "sampler"},
            )


def _holds(run: RunQuery, value: Value | None, column: int) -> bool:
    """Return whether a value is the local rank (1) or the world size (3) on each lane, and not the rank of the job."""
    worlds = run.machine.worlds
    held = tuple(lane[column] for lane in worlds.lanes)
    atom = value.single if value is not None and not value.varies & ASSUMED else None
    if isinstance(atom, Const):
        return held == (atom.value,) * len(held)
    return isinstance(atom, PerRank) and tuple(atom.values) == held != tuple(lane[0] for lane in worlds.lanes)


EXAMPLES = (
    bad("questions that are dealt out", {"train.py": RANK_CUT % "LOCAL_RANK"}, "train.py:15"),
    good("questions that are dealt out by the rank", {"train.py": RANK_CUT % "RANK"}),
    bad("a sampler of the project", {"train.py": OWN_SAMPLER % ("rank", "local_rank")}, "train.py:22"),
    bad("an object of the project that deals out", {"train.py": OWN_SHARDS % "local_rank"}, "train.py:23"),
    good("it deals out by the rank of the job", {"train.py": OWN_SHARDS % "dist.get_rank()"}),
    bad("a seed", {"train.py": OWN_SAMPLER % ("local_rank", "rank")}, "train.py:21"),
    good("the first process of each machine downloads", {"train.py": DOWNLOADED % ("rank", "rank")}),
    good("both by the rank of the job", {"train.py": OWN_SAMPLER % ("rank", "rank")}),
    bad(
        "both from the launcher",
        {"train.py": LOCAL_GROUP % ("local_rank", "world_size")},
        "train.py:9 warning",
        fixed={"train.py": LOCAL_GROUP % ('int(os.environ["RANK"])', "world_size")},
    ),
    bad(
        "the world size is left to the environment",
        {"train.py": LOCAL_GROUP.replace(", world_size=%s", "") % "local_rank"},
        "train.py:9",
    ),
    bad("the option that the launcher passes", {"train.py": PARSED_GROUP % ""}, "train.py:18"),
    bad(
        "handed to a function",
        {
            "train.py": GROUP_HEAD + "def init(rank, world_size):\n"
            "    dist.init_process_group('gloo', 'env://', None, world_size, rank)\n\n\n"
            "class Run:\n    def __init__(self):\n"
            "        self.local_rank = int(os.getenv('LOCAL_RANK', '0'))\n"
            "        self.world_size = int(os.getenv('WORLD_SIZE', '1'))\n"
            "        init(self.local_rank, self.world_size)\n"
        },
        "train.py:7",
    ),
    bad(
        "two machines are started",
        {
            "train.py": LOCAL_GROUP % ("local_rank", "world_size"),
            "run.sh": "torchrun --nnodes 2 --nproc_per_node 8 --node_rank $R --master_addr $M train.py\n",
        },
        "train.py:9 error",
    ),
    bad("a sampler in another module", {
        "train.py": GROUP_HEAD + "from data import sampler\n\ndist.init_process_group('nccl')\nsampler([1, 2, 3])\n",
        "data.py": LOCAL_SAMPLER % "LOCAL_RANK"}, "data.py:7"),
    good("a sampler that gets the rank of the job", {
        "train.py": GROUP_HEAD + "from data import sampler\n\ndist.init_process_group('nccl')\nsampler([1, 2, 3])\n",
        "data.py": LOCAL_SAMPLER % "RANK"}),
    good("the rank of the job", {"train.py": LOCAL_GROUP % ("int(os.environ['RANK'])", "world_size")}),
    good("the GPUs of this machine", {"train.py": LOCAL_GROUP % ("local_rank", "torch.cuda.device_count()")}),
    good(
        "the number of the machine counts",
        {"train.py": LOCAL_GROUP % ("int(os.environ['NODE_RANK']) * 8 + local_rank", "world_size")},
    ),
    good(
        "a variable of that name that holds the rank of the job",
        {
            "train.py": LOCAL_GROUP.replace('"LOCAL_RANK"', '"RANK"').replace("torch.cuda.set_device", "print")
            % ("local_rank", "world_size"),
            "parsed.py": PARSED_GROUP % "    args.local_rank = int(os.environ['RANK'])",
            "given.py": GROUP_HEAD + "def init(local_rank, world_size):\n"
            "    dist.init_process_group('nccl', rank=local_rank, world_size=world_size)\n",
        },
    ),
    good(
        "they meet on this machine",
        {
            "train.py": (LOCAL_GROUP % ("local_rank", "world_size")).replace(
                "torch.cuda.set", "os.environ['MASTER_ADDR'] = '127.0.0.1'\ntorch.cuda.set"
            ),
            "tcp.py": LOCAL_GROUP % ("local_rank", "world_size, init_method='tcp://localhost:29500'"),
            "deals.py": LOCAL_SAMPLER % "LOCAL_RANK"
            + "\n\nos.environ['MASTER_ADDR'] = 'localhost'\nsampler([1, 2, 3])\n",
        },
    ),
    good(
        "one machine is started",
        {"train.py": LOCAL_GROUP % ("local_rank", "world_size"), "run.sh": "torchrun --nproc_per_node 8 train.py\n"},
    ),
    good(
        "the file says that it is for one machine",
        {"train.py": 'USAGE = "torchrun --standalone train.py"\n' + LOCAL_GROUP % ("local_rank", "world_size")},
    ),
    good("a test of one machine", {"tests/test_groups.py": LOCAL_GROUP % ("local_rank", "world_size")}),
)  # fmt: skip
