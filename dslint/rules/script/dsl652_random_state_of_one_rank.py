"""Every rank restores the random state that one rank has saved.

**What.** A script seeds each rank its own way (`torch.manual_seed(seed + rank)`), and on a resume
`torch.set_rng_state` (or that of CUDA, NumPy or Python) gets what is in a checkpoint of which there is one for all
ranks.

**Why it hurts.** From the resume on all ranks draw the same numbers: the same noise, time steps, masks and dropout on
different data. The batch holds one draw where it held eight. Nothing fails, and the loss looks a little noisier.

**Fix.** Save the state of each rank in a file of its own (`rng_state_{rank}.pt`), or seed again from the step and the
rank after loading.

**When it stays quiet.** Ranks that are seeded alike; a path with the rank in it; a state that is gathered and
distributed; a seed for each rank after the state was restored.

**Evidence.** The Trainer of transformers 5.23 saves `rng_state_{process_index}.pt` for each process.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.python.names import spelled
from dslint.python.queries.derived import Derived, Piece
from dslint.python.source import Module
from dslint.python.varies import LOCAL, LOST, RANK
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.ownseeds import is_own_seed
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL652",
    name="random-state-of-one-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="all ranks restore the random state of one: from then on they draw the same numbers",
    markers=(r"set_rng_state|setstate|set_state", r"seed\(", r"load"),
    references=(
        "_save_rng_state in transformers/trainer.py",
        "https://github.com/radixark/miles/pull/3187",
    ),
    depends_on_run=True,
    no_experiment="that one state gives one row of numbers needs no ranks",
)
# Of what is behind a state: an item by rank, and what is dealt out.
_OF_RANK = re.compile(r"(?i)rank|process_index")
_DEALS_OUT = re.compile(r"(?i)gather|scatter|broadcast")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first state that all ranks take from one file, where each was seeded its own way."""
    if run.context.is_one_process:
        return
    seeded = next((found for found in run.happenings("seeds") if is_own_seed(found.event)), None)
    if seeded is None:
        return
    loads = {found.event.node: found.event for found in run.happenings("loads") if found.event.api == "torch.load"}
    for found in run.happenings("restores-rng"):
        event = found.event
        pieces = _behind(run.derived, event)
        calls = [node for _, piece in pieces for node in ast.walk(piece) if node in loads]
        if not calls or any(_is_of_rank(run.derived, *piece) for piece in pieces):
            continue
        loaded = loads[calls[0]]
        if all(_is_of_all(run, loads[call]) for call in calls) and not _seeds_later(found, event):
            yield _finding(run, event, loaded, seeded.event)
            return


def _behind(derived: Derived, event: Event) -> list[Piece]:
    given = event.node.args[:1] if isinstance(event.node, ast.Call) else []
    return [*(derived.of(event.module, given) or [])]


def _is_of_rank(derived: Derived, module: Module, piece: ast.AST) -> bool:
    """Return whether a rank chooses its item, or gets its part."""
    items = (node for node in ast.walk(piece) if isinstance(node, ast.Subscript))
    numbers = [item.slice for item in items if "environ" not in ast.unparse(item.value)]
    behind = [part for number in numbers for part in derived.of(module, [number]) or []]
    chosen = any(_OF_RANK.search(spelled(home.tree, code)) for home, code in behind)
    return chosen or _DEALS_OUT.search(ast.unparse(piece)) is not None


def _is_of_all(run: RunQuery, load: Event) -> bool:
    """Return whether every rank loads, and from a path that does not hold its rank."""
    given = [causes for causes, _, _ in load.snapshot.values()]
    return not any(causes & (RANK | LOCAL | LOST) for causes in given) and load.lanes == run.machine.worlds.full


def _seeds_later(found: Happening, event: Event) -> bool:
    """Return whether each rank is seeded its own way after the state was restored."""
    order = list(events(found.entry.tree))
    at = next((number for number, other in enumerate(order) if other is event), 0)
    return any("seeds" in other.tags and is_own_seed(other) for other in order[at:])


def _finding(run: RunQuery, event: Event, loaded: Event, seeded: Event) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "every rank restores the random state that one rank saved: from here on all draw the same numbers",
        hint="Save and load the state of each rank in a separate file",
        related=(
            run.location(loaded.module, loaded.node, "one file for all ranks"),
            run.location(seeded.module, seeded.node, "each rank is seeded differently"),
        ),
    )


_SCRIPT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def resume(path, model):
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    %s


def main(loader, net, seed, path):
    dist.init_process_group("nccl")
    torch.manual_seed(seed%s)
    resume(path, net)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        model(batch + torch.randn_like(batch)).mean().backward()
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save({"model": net.state_dict(), "rng": torch.get_rng_state()}, path)


main(load_data(), torch.nn.Linear(4, 4), 1, "out.pt")
"""
_SET = 'torch.set_rng_state(state["rng"])'
_ITEM = 'torch.set_rng_state(state["rng"][dist.get_rank()])'
_OWN = 'torch.set_rng_state(torch.load(f"rng_{dist.get_rank()}.pt"))'

EXAMPLES = (
    bad("one state for all", {"train.py": _SCRIPT % (_SET, " + dist.get_rank()")}, at="train.py:9 warning"),
    good("a state for each", {"train.py": _SCRIPT % (_OWN, " + dist.get_rank()")}),
    good("an item for each", {"train.py": _SCRIPT % (_ITEM, " + dist.get_rank()")}),
    good("ranks that are seeded alike", {"train.py": _SCRIPT % (_SET, "")}),
    good(
        "seeded again",
        {"train.py": _SCRIPT % (f"{_SET}\n    torch.manual_seed(dist.get_rank())", " + dist.get_rank()")},
    ),
)
