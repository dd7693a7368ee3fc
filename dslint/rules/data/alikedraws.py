"""What the workers of a loader draw, and whether they draw the same on every rank."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslint.python.events import Event
from dslint.python.names import spelled
from dslint.python.queries.reach import Piece, reached
from dslint.python.source import Module
from dslint.python.sources import Source
from dslint.python.values import Function, Value
from dslint.python.varies import CLOCK, DATA, HOST, LOST, RANDOM, RANKED
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import trainers
from dslint.rules.training.plateaus import instances

_OWN = RANKED | RANDOM | CLOCK | HOST | LOST | DATA
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Methods that give no items: what is drawn there is drawn once, or for nobody.
_NO_ITEMS = frozenset({"__init__", "__len__", "__repr__", "set_epoch"})
# Functions that draw from a generator of the process, by its library.
_OF_PROCESS = re.compile(
    r"(?P<random>random)\.(?!Random\b|SystemRandom\b|seed\b|getstate\b|setstate\b)[a-z]\w*"
    r"|(?P<numpy>(?:np|numpy)\.random)\.(?!seed\b|get_state\b|set_state\b|default_rng\b)[a-z]\w*"
    r"|(?P<torch>torch)\.(?:rand\w*|multinomial|bernoulli|normal)"
)
_DRAWS = frozenset(
    {"normal", "standard_normal", "uniform", "integers", "randint", "random", "choice", "choices", "sample", "shuffle"}
    | {"permutation", "permuted", "gauss", "poisson", "exponential", "beta", "binomial", "randrange", "rand", "randn"}
)
_MAKES = re.compile(r"(?:\w+\.)*(?:default_rng|RandomState|Random|Generator|PCG64|SeedSequence)")
# What tells ranks apart, and what is another number in each process.
_KNOWS_RANK = re.compile(
    r"(?i)rank|process_?(?:index|id\b|count)|num_processes|world_size|environ|getenv|shard|\bdist\.|\bmpu\b|node_?id"
)
_ENTROPY = re.compile(
    r"urandom|\bsecrets\b|SystemRandom|uuid|getpid|hostname|\btime\.|time\(\)|time_ns|entropy|datetime"
    r"|\b(?:default_rng|RandomState|Random|seed)\((?:None)?\)"
)
_BASE_SEED = re.compile(
    r"initial_seed|worker_info|\binfo\.seed|base_seed|worker_seed|torch\.rand|random\.rand|getrandbits"
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A draw in the code of a data set: `library` is whose generator of the process it asks, empty for an own one.

    `seeds` is what is behind the seed of an own generator.
    """

    module: Module
    node: ast.Call
    library: str
    seeds: tuple[Piece, ...] = ()


def item_code(run: RunQuery, source: Source) -> list[Piece]:
    """Return the code that gives the items of a data set of the project, with what it leads to."""
    pieces: list[Piece] = []
    for module, node in source.code:
        if isinstance(node, ast.ClassDef):
            pieces += [(module, n) for n in node.body if isinstance(n, _FUNCTIONS) and n.name not in _NO_ITEMS]
    return reached(run.machine.program, pieces)


def item_draws(run: RunQuery, code: Sequence[Piece]) -> list[Drawn] | None:
    """Return what such code draws; `None` where a part of it may be another one on each rank."""
    found: list[Drawn] = []
    for module, piece in code:
        if is_own(piece):
            return None
        for node in ast.walk(piece):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            library = _library(module, node)
            if library:
                found.append(Drawn(module, node, library))
            elif isinstance(node.func, ast.Attribute) and node.func.attr in _DRAWS:
                seeds = _own_generator(run, module, node.func.value)
                if seeds is not None and any(is_own(part) for _, part in seeds):
                    return None
                found += [Drawn(module, node, "", tuple(seeds))] if seeds else []
    return found


def is_own(node: ast.AST) -> bool:
    """Return whether code asks for the rank, or for a number that is another one in each process."""
    text = ast.unparse(node)
    return _KNOWS_RANK.search(text) is not None or _ENTROPY.search(text) is not None


def _library(module: Module, node: ast.Call) -> str:
    for text in (ast.unparse(node.func), spelled(module.tree, node.func)):
        found = _OF_PROCESS.fullmatch(text)
        if found is not None:
            return found.lastgroup or ""
    return ""


def _own_generator(run: RunQuery, module: Module, node: ast.expr) -> list[Piece] | None:
    """Return what a generator is made of, where all code that makes it gives it a seed; else nothing."""
    pieces: list[Piece] = [(m, n) for m, n in run.derived.of(module, [node]) or []]
    makes = [
        n for _, p in pieces for n in ast.walk(p) if isinstance(n, ast.Call) and _MAKES.fullmatch(ast.unparse(n.func))
    ]
    return pieces if makes and all(n.args or n.keywords for n in makes) else None


def needs_base_seed(drawn: Drawn) -> bool:
    """Return whether the seed that a loader gives to its workers decides over a draw."""
    return bool(drawn.library) or any(_BASE_SEED.search(ast.unparse(node)) for _, node in drawn.seeds)


def common_start(run: RunQuery, loader: Event) -> Event | None:
    """Return what seeds the workers of a loader alike on every rank: its generator, or torch itself."""
    if not _begins_alike(run, loader):
        return None
    given = loader.arguments.get("generator")
    if given is None or given.constants == (None,):
        return _seeded_alike(run, "torch")
    if loader.snapshot["generator"][0] & _OWN:
        return None
    made = instances(given)
    if not made or any(atom.cls != "torch.Generator" for atom in made):
        return None
    seeds = [h.event for h in run.occurrences("seeds") if any(a in made for a in instances(h.event.receiver))]
    return seeds[0] if seeds and not any(_is_own_seed(run, event) for event in seeds) else None


def _is_own_seed(run: RunQuery, event: Event) -> bool:
    """Return whether a seed may be another one on each rank, by its value or by the words behind it."""
    if event.open or event.may or event.lanes != run.machine.worlds.full:
        return True
    if any(varies & _OWN for name, (varies, _, _) in event.snapshot.items() if name != "self"):
        return True
    node = event.node
    pieces = run.derived.of(event.module, node.args) if isinstance(node, ast.Call) else None
    return pieces is None or any(is_own(part) or "initial_seed" in ast.unparse(part) for _, part in pieces)


def _seeded_alike(run: RunQuery, library: str) -> Event | None:
    """Return the first call that seeds the generator of a library; nothing where one of them seeds each rank apart."""
    found = []
    for event in (h.event for h in run.occurrences("seeds") if h.event.receiver is None):
        whose = event.api.partition(".")[0]
        if whose in ("torch", "numpy", "random") and (whose != library or event.api.startswith("torch.cuda.")):
            continue
        row = run.machine.libraries.function(event.api)
        own = event.arguments.get(str(row.extra.get("per_rank"))) if row is not None else None
        if (own is not None and own.constants != (False,)) or not event.arguments or _is_own_seed(run, event):
            return None
        found.append(event)
    return found[0] if found else None


def process_start(run: RunQuery, libraries: set[str]) -> Event | None:
    """Return what seeds the generators of the process alike on every rank, all of the libraries that are asked."""
    found = [_seeded_alike(run, library) for library in sorted(libraries)]
    return found[0] if found and all(found) else None


def worker_codes(begins: Value | None) -> list[Piece] | None:
    """Return the functions that begin a worker; `None` where one of them is not known."""
    if begins is None or begins.constants == (None,):
        return []
    functions = [getattr(atom, "function", atom) for atom in begins.atoms]
    known: list[Piece] = [(function.module, function.node) for function in functions if isinstance(function, Function)]
    return known if known and len(known) == len(functions) else None


def seeds_by_worker(code: ast.AST) -> bool:
    """Return whether a function that begins a worker seeds without what torch has drawn for it (DSL653)."""
    text = ast.unparse(code)
    return "seed(" in text and _BASE_SEED.search(text) is None


def _begins_alike(run: RunQuery, loader: Event) -> bool:
    """Return whether what begins the workers of a loader knows no rank; Lightning may do that itself."""
    begins = loader.arguments.get("worker_init_fn")
    codes = worker_codes(begins)
    if codes is None or (begins is not None and loader.snapshot["worker_init_fn"][0] & _OWN):
        return False
    if not codes:
        return not _lightning_begins(run)
    node = next((k.value for k in getattr(loader.node, "keywords", ()) if k.arg == "worker_init_fn"), None)
    given = run.derived.of(loader.module, [node]) if node is not None else []
    return given is not None and not any(is_own(part) for _, part in [*reached(run.machine.program, codes), *given])


def _lightning_begins(run: RunQuery) -> bool:
    """Return whether Lightning may give each worker a seed by its rank: `seed_everything(seed, workers=True)`."""
    if not trainers(run):
        return False
    given = [h.event.arguments.get("workers") for h in run.occurrences("seeds") if h.event.api.startswith("lightning")]
    if any(value is not None and value.constants != (False,) for value in given):
        return True
    return any("PL_SEED_WORKERS" in module.source.text for module in run.machine.program.modules())


def has_workers(run: RunQuery, loader: Event) -> bool | None:
    """Return whether a loader has workers; of an option its default; `None` where nobody says how many."""
    stated = loader.arguments.get("num_workers")
    counts = run.likely(stated) if stated is not None else (0,)
    numbers = [count for count in counts or () if isinstance(count, int)]
    if not numbers or len(numbers) < len(counts or ()):
        return None
    return True if min(numbers) > 0 else False if max(numbers) == 0 else None


def data_sets(event: Event) -> Iterator[Source]:
    """Yield the data sets of the project that a loader gets."""
    yield from (source for source in event.sources if source.role == "dataset" and source.is_own)
