"""The arguments of a Trainer: what a script constructs itself, and the classes that its parser fills."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dslint.core.fact import Fact, known, unknown
from dslint.model.plan.readfields import ReadField, read_fields
from dslint.model.plan.scriptrun import ScriptRun, option_of, place_of, written
from dslint.python.attributes import lineage
from dslint.python.events import Event
from dslint.python.values import ClassAtom, Instance, Tuple, Value

_EXACT = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
_NO_CLASS = ("", "object", "builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol")
# ``CustomTrainingArguments``, ``SFTConfig``; not ``ModelConfig`` or ``InferencerArguments``.
_TRAINING = re.compile(r"(?i:train)|[A-Z]{3,}Config$")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The classes that a parser of dataclasses fills.

    ``kind``: ``exact`` when the ``TrainingArguments`` of transformers or a subclass in view is among them, ``foreign``
    when a class from elsewhere is, whose name says so, ``maybe`` when nobody sees what a class is, else empty.
    ``rewritten``: fields that a subclass in view assigns after parsing, ``fields`` those that classes in view
    add or give another default. ``is_open``: there are fields out of view.
    """

    kind: str = ""
    rewritten: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Constructed:
    """One call of such a class in the script.

    ``kind``: ``exact`` for the class of transformers, ``foreign`` for one with other defaults; empty: there is no call.
    ``values``: its keywords, ``dests`` those that are options of the script. The keyword ``**`` stands for others.
    """

    kind: str = ""
    values: Mapping[str, Fact[object]] = field(default_factory=dict)
    dests: Mapping[str, str] = field(default_factory=dict)
    # Those that the script reads in a file.
    fields: Mapping[str, ReadField] = field(default_factory=dict)


def parsed_classes(run: ScriptRun) -> Parsed:
    """What the parsers of the script fill."""
    kind, is_open = "", False
    rewritten: set[str] = set()
    fields: set[str] = set()
    for event in (e for e in run.all_events if "parses-arguments" in e.tags and _fills(run, e)):
        for cls in _classes(event):
            bases = [base for base in _bases(run, cls) if base not in _NO_CLASS]
            if any(base in _EXACT for base in bases):
                kind = kind or "exact"
            elif bases:
                named = any(base.startswith("trl.") or _TRAINING.search(base) for base in bases)
                kind = "foreign" if named else kind or "maybe"
            is_open = is_open or any(base not in _EXACT for base in bases)
            for own in _own(run, cls):
                stores, sets_any = _assigned(own.node)
                rewritten |= stores
                annotated = [n.target for n in own.node.body if isinstance(n, ast.AnnAssign)]
                fields |= {target.id for target in annotated if isinstance(target, ast.Name)}
                is_open = is_open or sets_any
    return Parsed(kind, frozenset(rewritten), frozenset(fields), is_open)


def constructions(run: ScriptRun) -> list[Event]:
    """The calls of a class of arguments of a Trainer, without the objects that parsers fill; each place once."""
    filled = {event.node for event in run.all_events if "parses-arguments" in event.tags}
    made = {e.node: e for e in reversed(run.all_events) if "training-arguments" in e.tags and e.node not in filled}
    return list(reversed(made.values()))


def constructed(run: ScriptRun) -> Constructed:
    """The one construction; of several nobody knows which one trains."""
    found = constructions(run)
    if not found:
        return Constructed()
    if len(found) > 1:
        names = {name for event in found for name in event.arguments}
        return Constructed("foreign", dict.fromkeys(names, unknown("the script makes several")))
    (event,) = found
    values = {name: _fact(event, name, value) for name, value in event.arguments.items()}
    if event.open:
        values["**"] = unknown("keywords are unpacked")
    dests = {name: option for name, value in event.arguments.items() if (option := option_of(value))}
    return Constructed(kind_of(event), values, dests, read_fields(event))


def kind_of(event: Event) -> str:
    """``exact`` for a construction of the class of transformers itself, else ``foreign``."""
    made = _only(event.result)
    return "exact" if isinstance(made, Instance) and made.cls in _EXACT else "foreign"


def _fact(event: Event, name: str, value: Value) -> Fact[object]:
    here = place_of(event, name)
    constants = value.constants
    if constants is None or len(constants) != 1:
        return unknown("the script computes it", here)
    return known(constants[0], *dict.fromkeys((written(event, name, constants[0]), here)))


def _only(value: Value | None) -> object:
    return value.single if value is not None else None


def _fills(run: ScriptRun, event: Event) -> bool:
    """Return whether a method of a parser fills dataclasses."""
    owner, _, name = event.api.rpartition(".")
    row = run.analysis.machine.libraries.method(owner, name)
    return row is not None and "dataclasses" in row.extra


def _classes(event: Event) -> list[ClassAtom | str]:
    """Return the classes of the objects that a parser gives; of one that nobody sees the name in the script."""
    given, parser = _only(event.result), _only(event.receiver)
    items = given.items if isinstance(given, Tuple) else ()
    made = parser.node if isinstance(parser, Instance) else None
    first = made.args[0] if isinstance(made, ast.Call) and made.args else None
    named = first.elts if isinstance(first, ast.Tuple | ast.List) else [first] if first is not None else []
    names = [f"?.{ast.unparse(node)}" for node in named]
    found: list[ClassAtom | str] = []
    for at, item in enumerate(items):
        name = names[at] if at < len(names) else "?"
        found += [atom.cls or name for atom in item.atoms if isinstance(atom, Instance)]
    return found or [*names] or ["?"]


def _bases(run: ScriptRun, cls: ClassAtom | str) -> list[str]:
    """Return the classes of libraries that a class is, or derives from at once."""
    if isinstance(cls, str):
        return [cls] if not cls.startswith("builtins.") else []
    return [base for base in lineage(run.analysis.machine, cls) if isinstance(base, str)]


def _own(run: ScriptRun, cls: ClassAtom | str) -> list[ClassAtom]:
    found = lineage(run.analysis.machine, cls) if isinstance(cls, ClassAtom) else []
    return [base for base in found if isinstance(base, ClassAtom)]


def _assigned(body: ast.ClassDef) -> tuple[set[str], bool]:
    """Return the attributes that the methods of a class assign, and whether they assign any by a computed name."""
    nodes = list(ast.walk(body))
    stores = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    return stores, any(isinstance(func, ast.Name) and func.id == "setattr" for func in calls)
