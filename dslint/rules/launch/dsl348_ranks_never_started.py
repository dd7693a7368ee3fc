"""**What.** The containers of one job in a compose file or a script with `docker run`: fewer than the ranks that each
of them waits for (`--world-size 3` and two services), one rank twice, or another number of ranks in each.

**Why it hurts.** All of them wait in the rendezvous for a rank that nobody starts, until it times out; with one rank
twice both claim the same place. Nothing in a log says that a service is missing.

**Fix.** Add the service with the missing rank, or lower the number of ranks in all of them.

**When it stays quiet.** For one container, for copies (`replicas`, `scale`), when a rank or number is not known, and
where `WORLD_SIZE` may count processes of which each container starts several.

**Evidence.** torch 2.13, run: `init_process_group` with a rank that is missing waits, as does torchrun (DSL311).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.parties import Party
from dslint.model.launch.traits import PARTIES
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL348",
    name="ranks-never-started",
    kind="launch",
    severity=Severity.WARNING,
    summary="The containers of one job are fewer than the ranks that they wait for, or claim one rank twice",
    references=("https://docs.pytorch.org/docs/stable/distributed.html#initialization",),
    no_experiment="what a missing rank does is DSL311's experiment",
    needs=(PARTIES,),
)

_SERVICE = "  rank{r}:\n    image: team/train\n    gpus: 1\n    command: {c}\n"
_PYTHON = "python main.py --init-method tcp://rank0:23456 --rank {r} --world-size {n}"
_TORCHRUN = "torchrun --nnodes {n} --node-rank {r} --nproc-per-node 1 --master-addr rank0 main.py"
_DOCKER = "docker run --network train --name rank{r} -e MASTER_ADDR=rank0 -e WORLD_SIZE={n} -e RANK={r} team/train\n"
_SCRIPT = {"main.py": "print()\n"}


def _compose(command: str, numbers: int, *ranks: int) -> dict[str, str]:
    services = [_SERVICE.format(r=at, c=command.format(r=rank, n=numbers)) for at, rank in enumerate(ranks)]
    return {"docker-compose.yml": "services:\n" + "".join(services), **_SCRIPT}


def _docker(number: int, *ranks: int) -> dict[str, str]:
    return {"run.sh": "".join(_DOCKER.format(r=rank, n=number) for rank in ranks)}


EXAMPLES = (
    bad("the third rank of three", _compose(_PYTHON, 3, 0, 1), "docker-compose.yml:9"),
    bad("torchrun on three nodes", _compose(_TORCHRUN, 3, 0, 1), "docker-compose.yml:9"),
    bad("a node twice", _compose(_TORCHRUN, 2, 0, 0), "docker-compose.yml:9"),
    bad("docker run", _docker(3, 0, 1), "run.sh:2"),
    bad("the first one", _docker(3, 1, 2), "run.sh:2"),
    bad("another number in each", {
        "docker-compose.yml": "services:\n" + _SERVICE.format(r=0, c=_TORCHRUN.format(r=0, n=2))
        + _SERVICE.format(r=1, c=_TORCHRUN.format(r=1, n=3)),
        **_SCRIPT,
    }, "docker-compose.yml:9"),
    good("all of them", _compose(_PYTHON, 2, 0, 1)),
    good("nodes of torchrun", _compose(_TORCHRUN, 3, 0, 1, 2)),
    good("processes of two containers with several GPUs", {
        "docker-compose.yml": _compose(_PYTHON, 8, 0, 1)["docker-compose.yml"].replace("gpus: 1", "gpus: all"),
        **_SCRIPT,
    }),
    good("one of several machines", _docker(4, 2)),
    good("copies", {
        "docker-compose.yml": _compose(_PYTHON, 3, 0, 1)["docker-compose.yml"].replace("gpus: 1", "scale: 2"),
        **_SCRIPT,
    }),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The ranks of the containers of each image beside the number that they are told."""
    del context
    for image in dict.fromkeys(party.image for party in doc.parties):
        job = [party for party in doc.parties if party.image == image and party.rank.get_or("").isdigit()]
        if len(job) < 2 or any(party.is_open for party in doc.parties if party.image == image):
            continue
        yield from _of_job(job)


def _of_job(job: Sequence[Party]) -> Iterator[Finding]:
    counts = [_count(party) for party in job]
    if not all(count.get_or("").isdigit() for count in counts):
        return
    first, others = int(counts[0].get()), [int(count.get()) for count in counts]
    ranks = [int(party.rank.get()) for party in job]
    last, number = job[-1], counts[-1]
    twice = next((at for at, rank in enumerate(ranks) if rank in ranks[:at]), None)
    if len({party.address.get_or("") for party in job}) > 1:
        return  # several jobs
    if any(other != first for other in others):
        at = next(at for at, other in enumerate(others) if other != first)
        message = f"this container counts {others[at]} ranks, and the first one {first}: one of them waits for nobody"
        yield _finding(message, job[at], counts[at], job[0], counts[0])
    elif twice is not None:
        owner = job[ranks.index(ranks[twice])]
        message = f"two containers of one job claim rank {ranks[twice]}: they never meet"
        yield _finding(message, job[twice], job[twice].rank, owner, owner.rank)
    elif max(ranks) < first and len(ranks) < first and _are_containers(job, first):
        missing = sorted(set(range(first)) - set(ranks))
        named = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {missing[0]} to {missing[-1]}"
        if len(missing) > 1 and missing[-1] - missing[0] + 1 != len(missing):
            named = "ranks " + ", ".join(map(str, missing))
        message = f"all containers wait for {first} ranks, and nothing here starts {named}"
        yield _finding(message, last, number, job[0], counts[0])


def _count(party: Party) -> Fact[str]:
    return party.nodes.or_else(party.world)


def _are_containers(job: Sequence[Party], number: int) -> bool:
    """The number counts containers, and no processes of which each starts several."""
    return all(party.nodes.is_known or party.gpus == 1 for party in job) or number % len(job) != 0


def _finding(message: str, party: Party, here: Fact[str], other: Party, there: Fact[str]) -> Finding:
    place = here.origins[0] if here.origins else party.place
    related = [other.place.labelled("another container of the job"), *there.origins[:1]]
    return META.finding(
        place,
        message,
        hint="Start each rank from 0 to the last one once, and tell all of them the same number",
        related=tuple(found for found in related if found != place),
    )
