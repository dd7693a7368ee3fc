"""A function that cannot be hashed is mapped under `main_process_first`, and the others never find the cache.

**What.** Inside `main_process_first` or the like, `map` or `filter` of a Hugging Face data set gets a method, object or
closure that holds what cannot be pickled: a database connection, a socket, an open HDF5 or LMDB file.

**Why it hurts.** The cache file is named by a hash of the pickled function. What cannot be pickled gets a random name
(with one warning in the log). The main process writes its file, and the others look for other names: each of them maps
the whole data set again. The work is done once for each process, and a wait of hours may outlast the timeout.

**Fix.** Keep plain data in the object (a dictionary in place of a connection), open the connection inside the function,
or pass `new_fingerprint="..."` to `map`.

**When it stays quiet.** `new_fingerprint` or `cache_file_name` is given; the class says how it is pickled
(`__getstate__`, `__reduce__`); blocks of no library that dslint knows; one process.

**Evidence.** datasets 5.2.0, fingerprint.py: `update_fingerprint` falls back to `generate_random_fingerprint` where
`Hasher.hash` fails. Python 3.11: `TypeError: cannot pickle 'sqlite3.Connection' object`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Context, Event
from dslint.python.queries.steps import tags_of
from dslint.python.source import Module
from dslint.python.values import Atom, Bound, ClassAtom, Function, Instance, Partial
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL681",
    name="mapped-function-without-hash",
    kind="script",
    severity=Severity.WARNING,
    summary="a function that cannot be hashed is mapped under `main_process_first`: every process maps again",
    markers=(r"_first\(", r"\.(?:map|filter)\("),
    references=("https://github.com/huggingface/trl/pull/1896",),
    depends_on_run=True,
    no_experiment="it costs time and disk space, and changes no result",
)
_TURNS = frozenset({"main-first", "local-main-first"})
_NAMES = ("new_fingerprint", "cache_file_name", "cache_file_names")
_PICKLES = ("__getstate__", "__reduce__", "__reduce_ex__")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each mapped function that holds what cannot be pickled, in a block that the main process runs first."""
    if run.context.is_one_process:
        return
    for found in run.happenings("slow"):
        event = found.event
        given = event.arguments.get("function")
        if not event.api.startswith("datasets.") or event.open or given is None or set(_NAMES) & event.arguments.keys():
            continue
        if not any(isinstance(n, Context) and tags_of(run.machine, n) & _TURNS for n in found.around):
            continue
        held = next((place for atom in given.atoms for place in _held(run, atom)), None)
        if held is not None:
            yield _finding(run, event, held)


def _held(run: RunQuery, atom: Atom) -> Iterator[Location]:
    """Yield where something is made that an object or a function holds, and that cannot be pickled."""
    if isinstance(atom, Bound):
        yield from _held(run, atom.receiver)
    elif isinstance(atom, Partial):
        values = (atom.function, *atom.arguments, *(value for _, value in atom.keywords))
        yield from (place for value in values for inner in value.atoms for place in _held(run, inner))
    elif isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
        yield from _in_fields(run, atom.cls)
    elif isinstance(atom, Function) and isinstance(atom.node, ast.FunctionDef | ast.Lambda):
        yield from _around(run, atom.module, atom.node)


def _in_fields(run: RunQuery, cls: ClassAtom) -> Iterator[Location]:
    """Yield the fields of a class that hold what cannot be pickled, unless the class pickles itself."""
    methods = {part.name for part in cls.node.body if isinstance(part, ast.FunctionDef)}
    if methods & set(_PICKLES):
        return
    for node in ast.walk(cls.node):
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Attribute) for target in node.targets):
            yield from _made(run, cls.module, node.value)


def _around(run: RunQuery, module: Module, function: ast.FunctionDef | ast.Lambda) -> Iterator[Location]:
    """Yield what the function around a closure has made and the closure uses."""
    outer = function_around(module, function)
    if outer is None or outer is function:
        return
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    for node in ast.walk(outer):
        names = {t.id for t in node.targets if isinstance(t, ast.Name)} if isinstance(node, ast.Assign) else set()
        if isinstance(node, ast.Assign) and names & used and not any(node is inner for inner in ast.walk(function)):
            yield from _made(run, module, node.value)


def _made(run: RunQuery, module: Module, value: ast.expr) -> Iterator[Location]:
    path = module.path_of(value.func) if isinstance(value, ast.Call) else ""
    libraries = run.machine.libraries
    row = libraries.function(libraries.canonical(path)) if path else None
    cls = libraries.class_(libraries.canonical(path)) if path and row is None else None
    tags = row.tags if row is not None else cls.constructor.tags if cls is not None else ()
    if "unpicklable" in tags:
        yield run.location(module, value, "cannot be pickled")


def _finding(run: RunQuery, event: Event, held: Location) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "this function cannot be hashed, so no process finds another's cache: each maps all rows again",
        hint="Keep plain data in it, or pass `new_fingerprint`",
        related=(held,),
    )


_ENCODER = """\
import sqlite3


class Encoder:
    def __init__(self, path):
        %s

    def encode(self, row):
        return {"label": self.find(row["code"])}

    def find(self, code):
        return self.parts.execute("SELECT label FROM parts WHERE code = ?", (code,)).fetchone()
"""
_MAIN = """\
import sqlite3

import h5py
from datasets import load_dataset
from transformers import AutoModel, Trainer, TrainingArguments

from encoder import Encoder


def main():
    args = TrainingArguments("out")
    rows = load_dataset("json", data_files="rows.json", split="train")
    %s
    with args.main_process_first(desc="encode"):
        rows = rows.map(%s)
    Trainer(AutoModel.from_pretrained("gpt2"), args, train_dataset=rows).train()


main()
"""
_OPEN = "self.parts = sqlite3.connect(path)"
_READ = (
    "connection = sqlite3.connect(path)\n        self.parts = dict(connection.execute('SELECT code, label FROM parts'))"
)
_CLOSURE = "store = h5py.File('vectors.h5')\n\n    def encode(row):\n        return {'x': store[row['id']][:]}\n"


def _files(
    init: str = _OPEN, early: str = "encoder = Encoder('parts.db')", given: str = "encoder.encode"
) -> dict[str, str]:
    return {"encoder.py": _ENCODER % init, "train.py": _MAIN % (early, given)}


EXAMPLES = (
    bad("A method of an object with a connection", _files(), at="train.py:15"),
    bad(
        "A lambda that calls the object",
        _files(_READ, "parts = sqlite3.connect('a.db')", "lambda row: {'x': parts.execute(row['q']).fetchone()}"),
        at="train.py:15",
    ),
    bad("A closure over an open file", _files(_READ, _CLOSURE, "encode"), at="train.py:19"),
    good("The contents are kept", _files(_READ)),
    good("A name of the cache", _files(given="encoder.encode, new_fingerprint='v1'")),
    good(
        "The class pickles itself",
        _files(_OPEN + "\n\n    def __reduce__(self):\n        return Encoder, ('parts.db',)"),
    ),
    good("One process", _files(), world_size=1),
)
