"""Summaries of calls: a call with equal arguments that would read equal cells does what it did before.

A summary holds while every cell that the call read has the same value, and every test that was decided by an earlier
test is decided the same way. Calls that hand out new objects of the project, that raise into a `try` around them, or
that yield, have none.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from dslint.python.binding import Arguments
from dslint.python.events import Call, Seq
from dslint.python.heap import CONTENT, RAGGED
from dslint.python.joins import is_definite
from dslint.python.machine import Machine
from dslint.python.paths import MADE_OF, made_of
from dslint.python.store import Key
from dslint.python.values import (
    Atom,
    Bound,
    ClassAtom,
    Const,
    Function,
    Instance,
    Partial,
    PerRank,
    Tuple,
    Unknown,
    Value,
)

_MAX = 6
_MAX_READS = 4_000


@dataclass(slots=True)
class Summary:
    """What one call has read, written, returned and done."""

    reads: dict[Key, Value | None]
    decided: dict[object, bool]
    writes: dict[Key, Value]
    result: Value
    contents: dict[Instance, dict[str, Value]]  # of the new tensors and the like in the result
    events: Seq | None
    lanes: int
    alive: bool
    steps: int


def summarized(m: Machine, function: Function, arguments: Arguments, node: ast.AST, run: Callable[[], Value]) -> Value:
    """Return the result of a call: by a summary that still holds, else by running it."""
    if m.recorder is not None:
        return run()
    key = _key(m, function, arguments)
    known = m.summaries.setdefault(key, [])
    for summary in known:
        if _holds(m, summary):
            return _replayed(m, summary, function, node)
    return _recorded(m, known, run) if len(known) < _MAX else run()


def _key(m: Machine, function: Function, arguments: Arguments) -> object:
    keywords = tuple(sorted(arguments.keywords.items(), key=lambda item: item[0]))
    given = tuple(arguments.positional)
    # Two texts that nobody knows look alike, and may be two files.
    files = tuple(made_of(value) for value in (*given, *arguments.keywords.values()))
    return (function, given, keywords, arguments.rest, arguments.open_keywords, m.lanes, files)


def _holds(m: Machine, summary: Summary) -> bool:
    store = m.store
    peek = store.peek
    for key, value in summary.reads.items():
        found = peek(key)
        if found is not value and (found != value or (key[1] == MADE_OF and not _is_same_path(found, value))):
            return False
    return all(m.path.get(number) is decided for number, decided in summary.decided.items())


def _is_same_path(first: Value | None, second: Value | None) -> bool:
    return (first.number if first else None) == (second.number if second else None)


def _replayed(m: Machine, summary: Summary, function: Function, node: ast.AST) -> Value:
    store = m.store
    if store.reads is not None:
        for key, value in summary.reads.items():
            if key not in store.written:
                store.reads.setdefault(key, value)
        m.decided.update(summary.decided)
    for key, value in summary.writes.items():
        # What the same code computes another time need not be the same number again.
        store.set(key, value if is_definite(value) else replace(value))
    if summary.events is not None:
        m.events.append(Call(node, m.frame.module, function, summary.events))
    m.steps += max(summary.steps // 50, 1)
    m.alive = summary.alive
    if not summary.alive:
        return summary.result
    m.lanes = summary.lanes
    return _renewed(m, summary, summary.result, node, [0])


def _renewed(m: Machine, summary: Summary, value: Value, node: ast.AST, count: list[int]) -> Value:
    """Return the result with objects of this call in place of those of the call that was summarised."""
    if not summary.contents:
        return value
    atoms: set[Atom] = set()
    for atom in value.atoms:
        if isinstance(atom, Instance) and atom in summary.contents:
            count[0] += 1
            loops = m.frame.loops
            context = m.context((m.frame.id, "summary", count[0]))
            made = m.instance(node, context, atom.cls, loops[-1].number if loops else 0)
            for name, held in summary.contents[atom].items():
                m.store.set((made, name), held)
            if made is not atom:
                m.renewed[made] = atom
            atoms.add(made)
        elif isinstance(atom, Tuple):
            atoms.add(Tuple(tuple(_renewed(m, summary, item, node, count) for item in atom.items), atom.cls))
        else:
            atoms.add(atom)
    return Value(frozenset(atoms), value.varies, value.shape, value.made_by, value.number, value.origin)


def _recorded(m: Machine, known: list[Summary], run: Callable[[], Value]) -> Value:
    store = m.store
    outer_reads, outer_written, outer_decided = store.reads, store.written, m.decided
    store.reads, store.written, m.decided = {}, set(), {}
    before, steps, mark = len(m.events), m.steps, store.mark()
    raised = len(m.tries[-1][1]) if m.tries else 0
    lost = sum(m.lost.values())
    try:
        result = run()
    finally:
        reads, written, decided = store.reads, store.written, m.decided
        store.reads, store.written, m.decided = outer_reads, outer_written, outer_decided
        if outer_reads is not None:
            for key, value in (reads or {}).items():
                if key not in outer_written:
                    outer_reads.setdefault(key, value)
            outer_written |= written
            outer_decided.update(decided)
    is_quiet = not m.tries or len(m.tries[-1][1]) == raised
    if (
        not is_quiet
        or reads is None
        or len(reads) > _MAX_READS
        or sum(m.lost.values()) != lost
        or len(store.trail) < mark
    ):
        return result
    new = {key[0] for key in written if isinstance(key[0], Instance)} - {k[0] for k in reads}
    contents: dict[Instance, dict[str, Value]] = {}
    if not _is_plain(m, result, new, contents):
        return result
    changes = store.changes(mark)
    kept = {
        key: value
        for key, value in changes.items()
        if (not isinstance(key[0], int) and key[0] not in new) or _is_module(m, key[0])
    }
    if any(not _is_settled(value, new) for value in kept.values()):
        return result
    tree = m.events[-1] if len(m.events) > before else None
    events = tree.body if isinstance(tree, Call) else None
    known.append(Summary(reads, decided, kept, result, contents, events, m.lanes, m.alive, m.steps - steps))
    return result


def _is_module(m: Machine, owner: object) -> bool:
    return isinstance(owner, int) and owner in m.program.module_frames


def _is_plain(
    m: Machine, value: Value, new: set[Instance], contents: dict[Instance, dict[str, Value]], depth: int = 0
) -> bool:
    """Return whether a result holds no new object but tensors and the like, whose content is kept in `contents`."""
    for atom in value.atoms:
        if isinstance(atom, Instance) and atom in new:
            content = m.store.peek((atom, CONTENT))
            if atom.cls not in ("", "torch.Tensor") or content is None:
                return False
            length = m.store.peek((atom, RAGGED))
            contents[atom] = {CONTENT: content} if length is None else {CONTENT: content, RAGGED: length}
        elif isinstance(atom, Tuple):
            if depth > 3 or not all(_is_plain(m, item, new, contents, depth + 1) for item in atom.items):
                return False
        elif isinstance(atom, Bound) and isinstance(atom.receiver, Instance) and atom.receiver in new:
            return False
        elif isinstance(atom, Function | Partial):
            return not isinstance(atom, Partial) and not atom.frames
        elif not isinstance(atom, Const | PerRank | Unknown | Instance | ClassAtom | Bound | Tuple) and depth > 4:
            return False
    return True


def _is_settled(value: Value, new: set[Instance]) -> bool:
    """Return whether a written value holds no new object of the project."""
    for atom in value.atoms:
        if isinstance(atom, Instance) and atom in new and atom.cls not in ("", "torch.Tensor"):
            return False
        if isinstance(atom, Tuple) and not all(_is_settled(item, new) for item in atom.items):
            return False
        if isinstance(atom, Bound) and isinstance(atom.receiver, Instance) and atom.receiver in new:
            return False
    return True
