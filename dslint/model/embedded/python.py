"""DeepSpeed configs as dicts of a Python file: which there are, what they hold, and who reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

from dslint.core.garbage import no_collections
from dslint.core.source import SourceFile
from dslint.model.deepspeed.batch import MICRO, STEPS, TRAIN
from dslint.model.deepspeed.detect import is_deepspeed_config
from dslint.model.embedded.document import DocumentMaker
from dslint.model.embedded.worth import may_concern
from dslint.parse.data import DataDoc
from dslint.python.configdicts import REGISTERED
from dslint.python.entries import Analysis
from dslint.python.events import Context, Handed, Node, children
from dslint.python.files import Texts
from dslint.python.snapshots import joined
from dslint.python.source import Module
from dslint.python.stack import deep_calls

_BATCH = tuple(f"/{key}" for key in (TRAIN, MICRO, STEPS))
# The name under which the interpreter sees the file, whose own path says nothing to it.
_NAME = "script.py"
# Context managers of tests, inside which a config is meant to be refused.
_EXPECTS_FAILURE = ("raises", "assertRaises", "assertRaisesRegex", "assertRaisesRegexp")
# Who writes a config to a file for others; and readers that say less than any other.
WRITTEN = "written"
_WEAK = frozenset({"", "unknown", WRITTEN})
# So many readings of one dict are judged one by one.
_MOST_READINGS = 8


def python_configs(source: SourceFile) -> tuple[DataDoc, ...]:
    """Return the configs of a Python file, each as it is when somebody reads it.

    A dict that nobody in the file reads counts when its keys and its name both say that it is a DeepSpeed config;
    other files may then add to it, so that it is open everywhere.
    """
    return _configs(source.path, source.text, source.cells)[0]


def configs_of_run(source: SourceFile) -> tuple[DataDoc, ...]:
    """Return the configs that a script hands over for certain, each once: what all calls that get it agree on.

    Without those of which nobody in the script is known to read them.
    """
    return _configs(source.path, source.text, source.cells)[1]


# The run plan and the rules about configs ask for the same files.
@lru_cache(maxsize=256)
def _configs(
    path: str, text: str, cells: tuple[tuple[int, int], ...]
) -> tuple[tuple[DataDoc, ...], tuple[DataDoc, ...]]:
    try:
        with deep_calls(), no_collections():
            read = readings(text)
            if read is None:
                return (), ()
            module, found = read
            maker = DocumentMaker(module, SourceFile(path, text, cells=cells))
            sure = [reading for reading in found if not reading.handed.may]
            known = [doc for doc in _documents(maker, _joined(sure, 1)) if doc.consumer not in ("", "unknown")]
            return tuple(_documents(maker, _joined(found, _MOST_READINGS))), tuple(known)
    except RecursionError:
        return (), ()


@dataclass(frozen=True, slots=True)
class Reading:
    """A dict that comes to a reader of configs, perhaps one that is meant to refuse it."""

    handed: Handed
    is_expected_to_fail: bool


def readings(text: str) -> tuple[Module, list[Reading]] | None:
    """Interpret a file without its imports; return it, and the dicts that come to readers of configs.

    `None` where Python cannot read it, or nothing in it speaks of configs.
    """
    analysis = Analysis(Texts({_NAME: text}))
    analysis.machine.keeps_configs = True
    module = analysis.program.load(analysis.program.files.absolute(_NAME))
    wanted = may_concern(module.tree, analysis.machine.libraries) if module is not None else None
    if module is None or wanted is None or analysis.script(_NAME, wanted=wanted) is None:
        return None
    return module, [reading for _, tree in analysis.events() for reading in _readings(tree)]


def _readings(top: Node) -> Iterator[Reading]:
    """Yield the dicts that come to readers, in the order of the tree."""
    seen: set[int] = set()
    pending = [(top, False)]
    while pending:
        node, fails = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Handed):
            yield Reading(node, fails)
        fails = fails or (isinstance(node, Context) and _expects_failure(node.node))
        pending.extend((child, fails) for child in reversed(children(node)))


def _joined(found: list[Reading], most: int) -> list[Reading]:
    """Return one reading for those of a dict by one reader that are more than so many."""
    groups: dict[tuple[str, int], list[Reading]] = {}
    for reading in found:
        groups.setdefault((reading.handed.reader, id(reading.handed.dictionary.node)), []).append(reading)
    kept: list[Reading] = []
    for group in groups.values():
        if len(group) <= most:
            kept += group
            continue
        meant = [reading for reading in group if not reading.is_expected_to_fail] or group
        every = reduce(joined, (reading.handed.dictionary for reading in meant))
        kept.append(replace(meant[0], handed=replace(meant[0].handed, dictionary=every)))
    return kept


def _expects_failure(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _EXPECTS_FAILURE


def _documents(maker: DocumentMaker, found: list[Reading]) -> list[DataDoc]:
    docs: list[DataDoc] = []
    # A dict with a known reader is judged for that one.
    found.sort(key=lambda reading: (reading.handed.reader == "", reading.handed.reader in _WEAK))
    read: set[int] = set()
    for reading in found:
        reader, node = reading.handed.reader, reading.handed.dictionary.node
        if reader in _WEAK and id(node) in read:
            continue
        read.add(id(node))
        doc = None if reading.is_expected_to_fail else maker.document(reading.handed.dictionary, reader)
        if doc is None or not doc.keys or any(_same(doc, other) for other in docs):
            continue
        if reader in ("", WRITTEN) and not _looks_like_one(doc):
            continue
        if reader == WRITTEN:
            doc.consumer = ""
        elif reader in ("", REGISTERED):
            _open(doc)
        elif reader in ("lightning", "unknown"):
            # Lightning adds what its Trainer knows; `HfDeepSpeedConfig` alone leaves the rest to others.
            doc.open_objects |= {""}
        docs.append(doc)
    return sorted(docs, key=lambda d: d.values[""])


def _same(a: DataDoc, b: DataDoc) -> bool:
    return (a.consumer, a.data, a.values, a.opaque, a.open_objects) == (
        b.consumer,
        b.data,
        b.values,
        b.opaque,
        b.open_objects,
    )


def _looks_like_one(doc: DataDoc) -> bool:
    keys = {p[1:] for p in doc.opaque if p.count("/") == 1}
    return is_deepspeed_config("config.json", {**dict.fromkeys(keys), **doc.data})


def _open(doc: DataDoc) -> None:
    """Whoever gets the dict may add to it, and nearly always sets the batch sizes."""
    doc.consumer = "unknown"
    doc.open_objects = frozenset(p for p in doc.values if isinstance(doc.get(p), dict))
    for pointer in _BATCH:
        if doc.data.pop(pointer[1:], None) is not None:
            doc.opaque = {**doc.opaque, pointer: "its reader, in another file, may set it"}
