"""What the interpreter believes at a place, in words: the answer to "why is dslint silent?"."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from dslint.python.entries import Analysis
from dslint.python.events import Alt, Event, Loop, walk
from dslint.python.files import Files
from dslint.python.libraries import libraries
from dslint.python.machine import Machine
from dslint.python.source import Module
from dslint.python.values import (
    INPUT,
    OPAQUE,
    UNKNOWN_LANE,
    Api,
    Atom,
    Bound,
    ClassAtom,
    Const,
    Function,
    Instance,
    ModuleAtom,
    Partial,
    PerRank,
    Property,
    Static,
    Super,
    Tuple,
    Unknown,
    Value,
)
from dslint.python.varies import DIVERGENT, LOST, described
from dslint.python.vocabulary import Vocabulary

# What the kinds of unknown values mean for somebody who waits for a finding.
KINDS = {
    INPUT: "comes from outside: an argument, a parameter, the environment",
    OPAQUE: "made by code that dslint has no model of, or computed from unknown values",
    "lost": "given up by dslint itself: rules are silent about it",
}


@dataclass(frozen=True, slots=True)
class Belief:
    """What one expression may hold in one chain of calls. Lines and columns are 1-based."""

    code: str
    line: int
    column: int
    values: tuple[str, ...]
    ranks: str
    shape: str
    comes_here: str
    called_from: tuple[str, ...]
    origin: str
    unknown: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Facts:
    """All that is believed at a line.

    `found` says that some entry has reached the line; `lost` counts, by reason, what was given up anywhere on the way.
    """

    path: str
    line: int
    beliefs: list[Belief] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        """Return whether any entry has reached the line."""
        return bool(self.beliefs or self.events or self.tests)


def facts_at(
    files: Files, script: str, path: str, line: int, name: str = "", own: Vocabulary | None = None
) -> Facts | None:
    """Return what is believed at a line of `path` when `script` is interpreted; `None` when Python cannot read it.

    `name` keeps only expressions with exactly this code; `own` are the names that the settings add.
    """
    analysis = Analysis(files, rows=libraries(own))
    machine = analysis.machine
    target = files.absolute(path)
    facts = Facts(path, line)
    seen: set[Belief] = set()

    def record(module: Module, node: ast.AST, value: Value) -> None:
        if module.absolute != target or not (getattr(node, "lineno", 0) <= line <= (node.end_lineno or 0)):  # type: ignore[attr-defined]
            return
        if isinstance(node, ast.Constant) or (getattr(node, "lineno", 0) != line):
            return
        code = " ".join(module.text(node).split())
        if name and code != name:
            return
        belief = _belief(machine, module, node, value, code)
        if belief not in seen:
            seen.add(belief)
            facts.beliefs.append(belief)

    machine.recorder = record
    if analysis.script(script, everything=True) is None:
        return None
    if not name:
        _tree_facts(analysis, target, line, facts)
    facts.beliefs.sort(key=lambda b: (b.called_from, b.line, b.column, len(b.code)))
    facts.lost = dict(sorted(machine.lost.items()))
    return facts


def _belief(m: Machine, module: Module, node: ast.AST, value: Value, code: str) -> Belief:
    region = module.location(node).region
    origin = m.origin(value)
    place = "" if origin is None else str(origin[0].location(origin[1]))
    unknowns = dict.fromkeys(_unknowns(m, value, 0))
    return Belief(
        code,
        region.line,
        region.column,
        tuple(dict.fromkeys(atom_text(m, atom) for atom in sorted(value.atoms, key=repr))) or ("nothing",),
        described(m.varies(value)),
        described(m.shape(value)),
        lanes_text(m, m.lanes),
        _chain(m),
        place if m.varies(value) & (DIVERGENT | LOST) else "",
        tuple(unknowns),
    )


def _chain(m: Machine) -> tuple[str, ...]:
    """Return the calls that lead here, outermost first: ``train.py:12 main``."""
    found: list[str] = []
    frame = m.frame
    while frame is not None and frame.parent is not None:
        if frame.function is not None and frame.call is not None:
            caller = frame.parent.module
            found.append(f"{caller.location(frame.call)} {frame.function.name}")
        frame = frame.parent
    return tuple(reversed(found))


def _unknowns(m: Machine, value: Value, depth: int) -> list[tuple[str, str]]:
    found = []
    for atom in value.atoms:
        if isinstance(atom, Unknown):
            found.append((atom.kind, atom.reason))
        elif isinstance(atom, Instance):
            content = m.store.peek((atom, "#content"))
            if content is not None and depth < 2:
                found += _unknowns(m, content, depth + 1)
        elif isinstance(atom, Tuple) and depth < 2:
            for item in atom.items:
                found += _unknowns(m, item, depth + 1)
    return found


def atom_text(m: Machine, atom: Atom) -> str:
    """Return one thing that an expression may hold, in words."""
    if isinstance(atom, Const):
        return repr(atom.value)
    if isinstance(atom, PerRank):
        return _per_rank(m, atom)
    if isinstance(atom, Api):
        return f"`{atom.path}`"
    if isinstance(atom, Function):
        return f"function `{atom.name}` ({atom.module.location(atom.node)})"
    if isinstance(atom, ClassAtom):
        return f"class `{atom.node.name}` ({atom.module.location(atom.node)})"
    if isinstance(atom, ModuleAtom):
        return f"module {atom.module.path}"
    if isinstance(atom, Instance):
        return _instance(atom)
    if isinstance(atom, Tuple):
        return f"tuple of {len(atom.items)}"
    if isinstance(atom, Bound):
        function = atom.function if isinstance(atom.function, str) else atom.function.name
        return f"method `{function}`"
    if isinstance(atom, Unknown):
        return f"unknown {atom.type.removeprefix('builtins.')}".strip()
    kinds = {Partial: "partial", Property: "property", Static: "function", Super: "super()"}
    return kinds.get(type(atom), "unknown")


def _instance(atom: Instance) -> str:
    line = getattr(atom.node, "lineno", 0)
    where = f" made in line {line}" if line else ""
    if isinstance(atom.cls, ClassAtom):
        return f"object of class `{atom.cls.node.name}`{where}"
    if atom.cls:
        return f"object of `{atom.cls.removeprefix('builtins.')}`{where}"
    return f"object of unknown class{where}"


def _per_rank(m: Machine, atom: PerRank) -> str:
    group = max(m.worlds.groups, key=len)[:4] if m.worlds.stated else m.worlds.groups[2]
    values = ", ".join("?" if atom.values[lane] is UNKNOWN_LANE else repr(atom.values[lane]) for lane in group)
    return f"by rank: {values} on ranks 0 to {len(group) - 1}"


def lanes_text(m: Machine, lanes: int) -> str:
    """Return which ranks a set of lanes means: all, or those of the largest machine that is looked at."""
    if lanes == m.worlds.full:
        return "all ranks"
    group = m.worlds.groups[2] if len(m.worlds.groups) > 2 else m.worlds.groups[0]
    ranks = [m.worlds.lanes[lane][0] for lane in group if lanes >> lane & 1]
    if not ranks:
        return "some ranks of larger jobs only"
    return f"ranks {', '.join(map(str, ranks))} of {len(group)} only"


def _tree_facts(analysis: Analysis, target: str, line: int, facts: Facts) -> None:
    m = analysis.machine
    for entry in analysis.entries:
        for node in walk(entry.tree):
            place = getattr(node, "node", None)
            module: Any = getattr(node, "module", None)
            if place is None or module is None or getattr(place, "lineno", 0) != line or module.absolute != target:
                continue
            if isinstance(node, Event):
                text = f"event `{node.api}` ({', '.join(sorted(node.tags))}), on {lanes_text(m, node.lanes)}"
                _once(facts.events, text)
            elif isinstance(node, Alt):
                _once(facts.tests, _test_text(m, node))
            elif isinstance(node, Loop):
                _once(facts.tests, f"loop: number of turns {described(node.varies)}")


def _test_text(m: Machine, alt: Alt) -> str:
    if alt.varies & DIVERGENT:
        return f"test: ranks may decide differently by {described(alt.varies)}"
    if alt.then_lanes and alt.else_lanes:
        return f"test: true on {lanes_text(m, alt.then_lanes)}, false on {lanes_text(m, alt.else_lanes)}"
    return "test: decided, one side is never taken"


def _once(texts: list[str], text: str) -> None:
    if text not in texts:
        texts.append(text)
