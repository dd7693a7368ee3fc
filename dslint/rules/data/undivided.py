"""Training loaders whose items and order do not depend on the rank."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.events import Event, Loop, events
from dslint.python.names import spelled
from dslint.python.program import Program
from dslint.python.queries.reach import reached
from dslint.python.source import Module
from dslint.python.sources import Source
from dslint.python.varies import LOST, RANDOM, RANKED
from dslint.rules.data.trainingloaders import trained_loaders
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery

ITERABLE = "torch.utils.data.IterableDataset"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN_SAMPLERS = frozenset({"torch.utils.data.RandomSampler", "torch.utils.data.SequentialSampler"})
# A stream divides its items among the workers of a loader, and among ranks only where it is told so.
_STREAM = "datasets.IterableDataset"
_LIBRARIES = ("torch.utils.data.", "torchvision.", "datasets.")
# What is said of code is no code.
_TEXT = re.compile(r"\"\"\"(?:.|\n)*?\"\"\"")
# A name or a key that speaks of samplers.
_SAMPLER = re.compile(r"(?i)^\w*sampler\w*$")
# Code that asks for the rank, or that may be told it from outside.
_ASKS = re.compile(
    r"get_rank|get_world_size|environ|getenv|process_index|num_processes|process_count|(?:global|local|node|dp|data_parallel)_?rank"
    r"|PartialState|AcceleratorState|split_dataset_by_node|split_by_node|\bdist\.|\bmpu\b|rank_(?:zero|info)",
    re.I,
)
_TOLD = re.compile(r"rank|replica|shard|process_?(?:id|index)|\bnode|worker_?i|\bdp_|\bhvd\b", re.I)
# Draws from the generator of the process.
_DRAWS = re.compile(
    r"(?<![\w.])random\.(?!Random\b)[a-z]\w*\(|np\.random\.(?!default_rng|RandomState|Generator)|"
    r"numpy\.random\.(?!default_rng|RandomState|Generator)|torch\.(?:rand|multinomial|bernoulli|normal)|"
    r"default_rng\(\)|RandomState\(\)|Random\(\)|\btime\.|uuid|urandom|secrets"
)


@dataclass(frozen=True, slots=True)
class Undivided:
    """What makes a loader, and the `source` of its items or order that knows no rank."""

    happening: Happening
    source: Source
    program: Program

    @property
    def is_forgotten(self) -> bool:
        """Return whether nobody has thought of a sampler: no code around the loader speaks of one."""
        if self.source.role != "dataset" or ITERABLE in self.source.bases:
            return False
        event = self.happening.event
        around = function_around(event.module, event.node) or event.module.tree
        pieces = reached(self.program, [(event.module, around)])
        return not any(
            _SAMPLER.search(word) for _, piece in pieces for node in ast.walk(piece) for word in _words(node)
        )


def undivided(run: RunQuery) -> Iterator[Undivided]:
    """Yield each training loader of several ranks whose items and order do not depend on the rank."""
    if run.context.is_one_process:
        return
    for happening, adds_sampler in trained_loaders(run):
        event = happening.event
        sources = event.sources
        if event.open or not sources or event.lanes != run.machine.worlds.full or _samples(run, event):
            continue
        # A helper makes the loaders for training and for evaluation: which one it is, its node does not say.
        alike = [other.event for other in run.occurrences("makes-loader") if other.event.node is event.node]
        if all(_is_undivided(run, other, adds_sampler) for other in alike):
            yield Undivided(happening, sources[0], run.machine.program)


def _samples(run: RunQuery, made: Event) -> bool:
    """Return whether the loop over a loader trains on what a model samples: equal prompts become other samples."""
    for step in run.occurrences("backward", "engine-backward"):
        for loop in (node for node in step.around if isinstance(node, Loop) and made.node in node.items):
            done = list(events(loop.body))
            before = done[: next((at for at, event in enumerate(done) if event is step.event), 0)]
            if any("generate" in event.tags and _draws_tokens(event) for event in before):
                return True
    return False


def _draws_tokens(event: Event) -> bool:
    """Return whether what a model generates is drawn, as far as the call says so or may say so."""
    asked = event.arguments.get("do_sample")
    if asked is not None:
        return asked.constants != (False,)
    return event.open or "generation_config" in event.arguments


def _is_undivided(run: RunQuery, event: Event, adds_sampler: bool) -> bool:
    sources = event.sources
    if not sources or not _is_about_items(sources[0], event, adds_sampler):
        return False
    return all(is_blind(run, source) for source in sources)


def _words(node: ast.AST) -> Iterator[str]:
    """Yield the names in a node, and the text of a key."""
    for name in ("id", "attr", "arg", "value"):
        word = getattr(node, name, None)
        if isinstance(word, str):
            yield word


def _is_about_items(source: Source, event: Event, adds_sampler: bool) -> bool:
    """Return whether a source that knows no rank means that all ranks see the same items."""
    if source.role == "dataset":
        if ITERABLE in source.bases:
            known = iterates(source) if source.is_own else source.path == _STREAM
            return known and event.arguments.get("worker_init_fn") is None
        is_list = source.path == "builtins.list" and isinstance(source.made, ast.ListComp)
        return not adds_sampler and (source.is_own or is_list or source.path.startswith(_LIBRARIES))
    return not adds_sampler and (source.is_own or source.path in _PLAIN_SAMPLERS)


def is_blind(run: RunQuery, source: Source) -> bool:
    """Return whether neither the contents nor the code nor the making of a source have to do with the rank."""
    if source.varies & RANDOM or not knows_no_rank(run, source):
        return False
    is_ordered = source.role != "dataset" or ITERABLE in source.bases
    is_own = is_ordered and source.is_own
    return not (is_own and any(draws(*piece) for piece in reached(run.machine.program, source.code)))


def draws(module: Module, node: ast.AST) -> bool:
    """Return whether code draws numbers from a generator of the process, also by names that it was imported by."""
    text = _TEXT.sub("", ast.unparse(node))
    return _DRAWS.search(text) is not None or _DRAWS.search(_TEXT.sub("", spelled(module.tree, node))) is not None


def knows_no_rank(run: RunQuery, source: Source) -> bool:
    """Return whether a source gives every process all of its items, if perhaps in an order of its own."""
    if source.varies & (RANKED | LOST) or "torch.utils.data.DistributedSampler" in source.bases:
        return False
    if any(asks_for_rank(node) for _, node in reached(run.machine.program, source.code)):
        return False
    if isinstance(source.made, ast.ListComp) and asks_for_rank(source.made):
        return False
    return not (isinstance(source.made, ast.Call) and any(map(_is_told, (*source.made.args, *source.made.keywords))))


def asks_for_rank(node: ast.AST) -> bool:
    """Return whether code asks for the rank or the number of processes, by its words."""
    return _ASKS.search(_TEXT.sub("", ast.unparse(node))) is not None


def _is_told(argument: ast.AST) -> bool:
    """Return whether an argument may say which part of the items is meant, by its words."""
    value = argument.value if isinstance(argument, ast.keyword) and argument.arg is None else None
    is_spelt = isinstance(value, ast.Dict) or (isinstance(value, ast.Call) and ast.unparse(value.func) == "dict")
    return (value is not None and not is_spelt) or bool(_TOLD.search(ast.unparse(argument)))


def iterates(source: Source) -> bool:
    """Return whether the code that hands out the items is there to be read."""
    return any(isinstance(n, _FUNCTIONS) and n.name == "__iter__" for _, c in source.code for n in ast.walk(c))
