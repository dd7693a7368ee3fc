"""The workers of a loader are seeded without the rank: worker k draws the same numbers on every rank.

**What.** The `worker_init_fn` of a loader with a `DistributedSampler` seeds `random`, NumPy or torch by the number of
the worker (and a seed or an epoch) alone, and the data set draws its crops and noise from there.

**Why it hurts.** Each rank has its own items, but they get the same augmentations: worker 0 of all eight ranks draws
the same crops, gains and noise in the same order. The batch of the job has an eighth of the variety, and nothing
fails.

**Fix.** Put the rank into the seed: `seed + rank * num_workers + worker_id`; or take `torch.initial_seed()`, where
each rank seeds torch its own way.

**When it stays quiet.** The rank, `torch.initial_seed()`, `get_worker_info().seed`, entropy or the time takes part in
the seed; a data set that draws nothing, or whose code is not there; loaders without a `DistributedSampler`.

**Evidence.** torch 2.13 gives the workers `base_seed + worker_id`; a function that seeds by `worker_id` gives equal
numbers in any two processes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.derived import Derived
from dslint.python.queries.reach import reached
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Function, Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.undivided import draws
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL653",
    name="worker-seeds-without-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="worker k of every rank draws the same augmentations: its seed does not know the rank",
    markers=(r"worker_init_fn", r"DistributedSampler", r"seed\("),
    references=(
        "https://pytorch.org/docs/stable/notes/randomness.html#dataloader",
        "https://github.com/huggingface/transformers/issues/37932",
    ),
    depends_on_run=True,
    no_experiment="that one seed gives one row of numbers needs no ranks",
)
_SEEDS = re.compile(
    r"(?:random\.|np\.random\.|numpy\.random\.|torch\.)(?:manual_)?seed(?:_all)?|seed_everything|set_seed"
)
_KNOWS = re.compile(
    r"(?i)rank|process_index|initial_seed|get_worker_info|worker_info|base_seed|environ|entropy|time|urandom|getpid"
    r"|randint|getrandbits|secrets"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each seed of a worker that has nothing to do with the rank."""
    if run.context.is_one_process:
        return
    for found in run.happenings("makes-loader"):
        event = found.event
        begins = event.arguments.get("worker_init_fn")
        if begins is None or event.open or not _is_divided(run, event) or not _draws(run, event):
            continue
        for module, code, owner in _codes(begins):
            seed = _blind_seed(run.derived, module, code, owner)
            if seed is not None:
                yield _finding(run, event, module, seed)
                break


def _is_divided(run: RunQuery, event: Event) -> bool:
    kinds = [atom.cls for atom in instances(event.arguments.get("sampler"))]
    libraries = run.machine.libraries
    return bool(kinds) and all(isinstance(k, str) and libraries.is_class(k, "distributed-sampler") for k in kinds)


def _draws(run: RunQuery, event: Event) -> bool:
    """Return whether the code of the data set draws random numbers."""
    data = [source for source in event.sources if source.role == "dataset"]
    return any(draws(*piece) for source in data for piece in reached(run.machine.program, source.code))


def _codes(begins: Value) -> Iterator[tuple[Module, ast.AST, Instance | None]]:
    """Yield the functions of the project that begin a worker; of an object its method, and the object."""
    for atom in begins.atoms:
        function = atom if isinstance(atom, Function) else getattr(atom, "function", None)
        if isinstance(function, Function):
            yield function.module, function.node, None
        elif isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
            yield from ((atom.cls.module, method, atom) for method in _methods(atom, "__call__"))


def _methods(atom: Instance, name: str) -> list[ast.FunctionDef]:
    body = atom.cls.node.body if isinstance(atom.cls, ClassAtom) else []
    return [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]


def _blind_seed(derived: Derived, module: Module, code: ast.AST, owner: Instance | None) -> ast.Call | None:
    """Return the first seed of a function when none of them knows anything of the rank."""
    calls = [n for n in ast.walk(code) if isinstance(n, ast.Call) and _SEEDS.fullmatch(ast.unparse(n.func)) and n.args]
    for call in calls:
        pieces = derived.of(module, call.args[:1])
        # Of what is unpacked together, the fields say which part is meant.
        single: list[ast.AST] = [piece for _, piece in pieces or [] if not isinstance(piece, ast.Tuple)]
        if owner is not None:
            names = {n.attr for piece in single for n in ast.walk(piece) if isinstance(n, ast.Attribute)}
            given = [part for name in names for part in _given(derived, module, owner, name)]
            single += [part for part in given if not isinstance(part, ast.Tuple)]
        elif len(single) < len(pieces or []):
            return None
        if pieces is None or any(_KNOWS.search(ast.unparse(piece)) for piece in (call, *single)):
            return None
    return calls[0] if calls else None


def _given(derived: Derived, module: Module, owner: Instance, name: str) -> Iterator[ast.AST]:
    """Yield what a field got when the object was made, with all that is behind it."""
    for init in _methods(owner, "__init__"):
        parameters = [argument.arg for argument in init.args.args[1:]]
        for value in _assigned(init, name):
            yield value
            at = parameters.index(value.id) if isinstance(value, ast.Name) and value.id in parameters else -1
            if at < 0 or not isinstance(owner.node, ast.Call):
                continue
            passed = [k.value for k in owner.node.keywords if k.arg in (parameters[at], None)]
            passed += owner.node.args[at : at + 1]
            passed += [argument for argument in owner.node.args[:at] if isinstance(argument, ast.Starred)]
            yield from (piece for _, piece in derived.of(module, passed) or [])


def _assigned(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """Yield what a function gives to a field, also by `self.a, self.b = a, b`."""
    for node in ast.walk(function):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or target is None:
            continue
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        yield from (value for part, value in pairs if isinstance(part, ast.Attribute) and part.attr == name)


def _finding(run: RunQuery, event: Event, module: Module, seed: ast.Call) -> Finding:
    return run.finding(
        META,
        module,
        seed,
        "the worker seed ignores the rank: worker k of every rank draws the same numbers for other items",
        hint="Put the rank into it: `seed + rank * num_workers + worker_id`",
        related=(run.location(event.module, event.node, "the loader that seeds its workers so"),),
    )


_SCRIPT = """\
import random

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Clips(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]%s


def begin(worker):
    value = %s
    np.random.seed(value)


def main(rows):
    dist.init_process_group("gloo")
    data = Clips(rows)
    sampler = DistributedSampler(data)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in DataLoader(data, batch_size=8, sampler=sampler, num_workers=4, worker_init_fn=begin):
            print(batch.shape)


main(load_rows())
"""
_NOISE = " * np.random.uniform(0.5, 1.5)"

_OBJECT = """\
class Begin:
    def __init__(self, seed, rank):
        self.seed, self.rank = seed, rank

    def __call__(self, worker):
        np.random.seed(%s + worker)


def main("""
_MADE = "worker_init_fn=Begin(%s, dist.get_rank())"


def _with_object(seed: str, given: str) -> dict[str, str]:
    text = (_SCRIPT % (_NOISE, "13")).replace("def main(", _OBJECT % seed)
    return {"train.py": text.replace("worker_init_fn=begin", _MADE % given)}


EXAMPLES = (
    bad("an object that knows the rank in vain", _with_object("self.seed", "13"), at="train.py:30 warning"),
    good("an object that takes the rank", _with_object("self.seed + 100 * self.rank", "13")),
    good("an object that is given a seed by rank", _with_object("self.seed", "100 * dist.get_rank()")),
    bad("by the number of the worker", {"train.py": _SCRIPT % (_NOISE, "13 + worker")}, at="train.py:22 warning"),
    good("with the rank", {"train.py": _SCRIPT % (_NOISE, "13 + 4 * dist.get_rank() + worker")}),
    good("from torch", {"train.py": _SCRIPT % (_NOISE, "torch.initial_seed() % 2**32")}),
    good("nothing is drawn", {"train.py": _SCRIPT % ("", "13 + worker")}),
)
