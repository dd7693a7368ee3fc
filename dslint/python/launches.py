"""What a launch command gives to its script: options, words, environment variables, processes.

A value that the command gives is that constant, an option that it does not give has its default, and whatever cannot
be read stays an input. Without a launch, or with one that several commands have in common, all else is open.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, absent
from dslint.core.fact import unknown as unknown_fact
from dslint.core.source import Location
from dslint.python.joins import join
from dslint.python.lanes import Worlds
from dslint.python.values import INPUT, Instance, const, unknown

if TYPE_CHECKING:
    from dslint.python.heap import Heap
    from dslint.python.machine import Machine
    from dslint.python.source import Module
    from dslint.python.values import Value

_NOTHING = object()
# More ranks than this are not laid side by side: the usual worlds stand for them.
_MOST_RANKS = 16


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch command, as the script that it starts sees it.

    `kind` is that of the parser which reads its words (`argparse`, `hf`).
    `given` are the options whose value the command writes out, by destination; `left` those that it certainly leaves
    out, with the default where that is a constant of the parser. `words` are `sys.argv`, where all are known.
    `environment` holds variables that the command exports with a known value. `facts` are those of the context of a
    script (`world_size`, `zero_stage` ...), of this command alone. `places` say where the options that are given stand,
    in the command or in a file of arguments. `is_whole`: no others are given.
    """

    place: Location
    kind: str = ""
    given: Mapping[str, object] = field(default_factory=dict)
    left: Mapping[str, Fact[object]] = field(default_factory=dict)
    words: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Fact[object]] = field(default_factory=dict)
    places: Mapping[str, Location] = field(default_factory=dict, compare=False)
    is_whole: bool = False

    @property
    def worlds(self) -> Worlds | None:
        """The number of machines and processes as a world, where it is known and small."""
        nodes, local = (self._number(name) for name in ("nodes", "processes_per_node"))
        if nodes is None or local is None or not 1 <= nodes * local <= _MOST_RANKS:
            return None
        return Worlds(((nodes, local),), stated=True)

    def _number(self, name: str) -> int | None:
        value = self.facts.get(name, absent()).get_or(None)
        return value if type(value) is int else None

    def state_of(self, name: str) -> object:
        """What the launch says of an option: launches with equal answers are one run, as far as it decides."""
        if name in self.given:
            return "given", _kind(self.given[name])
        return "left" if name in self.left else "open"

    @property
    def stage(self) -> object:
        """The ZeRO stage, for comparison."""
        return _known(self.facts.get("zero_stage", absent()))

    @property
    def is_alone(self) -> bool:
        """One process for certain."""
        return self.facts.get("world_size", absent()).get_or(None) == 1


def _kind(value: object) -> object:
    """A number other than -1, 0 and 1 stands for all such numbers, a path for all paths: they seldom decide."""
    if type(value) in (int, float):
        return type(value), value if value in (-1, 0, 1) else "many"
    return (str, "path") if isinstance(value, str) and ("/" in value or len(value) > 40) else (type(value), value)


def common(launches: Sequence[Launch]) -> Launch:
    """What several launches agree on; all else is open."""
    first = launches[0]
    if len(launches) == 1:
        return first
    shared = [n for n, v in first.given.items() if all(o.given.get(n, _NOTHING) == v for o in launches)]
    left = [n for n in first.left if all(n in o.left for o in launches)]
    variables = [n for n, v in first.environment.items() if all(o.environment.get(n) == v for o in launches)]
    return replace(
        first,
        given={n: first.given[n] for n in shared},
        left={n: first.left[n] for n in left},
        words=first.words if all(o.words == first.words for o in launches) else None,
        environment={n: first.environment[n] for n in variables},
        facts={name: _agreed([o.facts.get(name, absent()) for o in launches]) for name in first.facts},
        is_whole=all(o.is_whole and o.given.keys() == first.given.keys() for o in launches),
    )


def groups(launches: Iterable[Launch], names: frozenset[str]) -> list[list[Launch]]:
    """Launches that decide alike, in order; `names` are options and variables that the code may decide by."""
    found: dict[object, list[Launch]] = {}
    for launch in launches:
        options = tuple(launch.state_of(name) for name in sorted(names))
        variables = tuple(launch.environment.get(name) for name in sorted(names))
        words = launch.words if "argv" in names else None
        found.setdefault((options, variables, words, launch.stage, launch.is_alone), []).append(launch)
    return list(found.values())


def _agreed(facts: Sequence[Fact[object]]) -> Fact[object]:
    alike = all(_known(fact) == _known(facts[0]) for fact in facts)
    return facts[0] if alike else unknown_fact("the runs of this file differ")


def _known(fact: Fact[object]) -> tuple[str, object]:
    return fact.state, fact.value


# -- what the code may decide by --------------------------------------------------------------------------------


def deciding(modules: Sequence[Module]) -> frozenset[str]:
    """The names that stand in tests, comparisons, subscripts, and calls of functions of these modules.

    An option of another name is taken to decide nothing, and commands that differ in it alone for one run, in which it
    is open.
    """
    found: set[str] = set()
    nodes = [node for module in modules for node in module.nodes]
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    for node in nodes:
        for part in _deciding_parts(node):
            found |= names_in(part)
        if isinstance(node, ast.Call) and _last_name(node.func) in own:
            found |= {name for argument in _arguments(node) if (name := _last_name(argument))}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isupper():
            found.add(node.value)  # the name of a variable, in whatever way it is asked for
        elif isinstance(node, ast.Attribute) and node.attr == "argv":
            found.add("argv")
    return frozenset(found)


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _arguments(node: ast.Call) -> Iterable[ast.expr]:
    return (*node.args, *(keyword.value for keyword in node.keywords))


def _deciding_parts(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        return (node.test,)
    if isinstance(node, ast.Compare | ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return (node,)
    if isinstance(node, ast.Subscript):
        return (node.slice,)
    if isinstance(node, ast.Match):
        return (node.subject,)
    return node.ifs if isinstance(node, ast.comprehension) else ()


def names_in(part: ast.AST) -> set[str]:
    """The names, attributes and texts in an expression."""
    found = {n.attr for n in ast.walk(part) if isinstance(n, ast.Attribute)}
    found |= {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
    return found | {n.value for n in ast.walk(part) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


# -- what the interpreter asks ----------------------------------------------------------------------------------


def asked(heap: Heap) -> Launch | None:
    """The command that starts the script; the run of a module that asks for it is not that of another command."""
    if heap.launch is not None:
        heap.program.depends_on_launch()
    return heap.launch


def given_option(heap: Heap, name: str, type_: str | None, kinds: tuple[str, ...] = ("argparse",)) -> Value | None:
    """The value that the command writes out for an option; `type_` is the converter of the script, `None` for its own.

    `None`: the command does not give it, or what the script makes of the text is not known.
    """
    launch = asked(heap)
    if launch is None or name not in launch.given or type_ is None or launch.kind not in kinds:
        return None
    value = launch.given[name]
    if type_ == "builtins.bool" and isinstance(value, str):
        return const(bool(value))
    fits = {"builtins.int": int, "builtins.float": int | float, "builtins.str": str, "builtins.bool": bool}
    return const(value) if type_ == "" or isinstance(value, fits.get(type_, ())) else None


def is_left_out(heap: Heap, name: str) -> bool:
    """The command certainly does not give this option."""
    launch = asked(heap)
    return launch is not None and launch.kind == "argparse" and name in launch.left


def field_option(heap: Heap, name: str, type_: str) -> Value | None:
    """What a field of a dataclass gets: the value of the command, else a default that is a plain constant."""
    launch = asked(heap)
    if launch is None or launch.kind not in FIELDS:
        return None
    if name in launch.given:
        # A text for a field of another type: whoever fills the field converts it.
        is_read = bool(type_) or not isinstance(launch.given[name], str)
        return given_option(heap, name, type_, FIELDS) if is_read else None
    fact = launch.left.get(name)
    return const(fact.get()) if fact is not None and fact.is_known and type(fact.value) in PLAIN else None


def library_field(heap: Heap, name: str, type_: str) -> Value | None:
    """What a field of a class of a library gets from the command or its file of arguments; `type_` as it declares."""
    launch = asked(heap)
    if launch is None or launch.kind not in FIELDS or name not in launch.given or not type_:
        return None
    value, short = launch.given[name], type_.rpartition(".")[2]
    if isinstance(value, str):
        value = text_value(value, short)
    fits = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
    return const(value) if type(value) in fits.get(short, ()) else None


def text_value(text: str, type_: str) -> object:
    """What a parser of dataclasses makes of a text for a field of a plain type; the text itself where it refuses it."""
    if type_ == "bool":
        low = text.lower()
        return low in TRUE_WORDS if low in (*TRUE_WORDS, *FALSE_WORDS) else text
    try:
        return int(text) if type_ == "int" else float(text) if type_ == "float" else text
    except ValueError:
        return text


def exported(heap: Heap, name: str) -> Value | None:
    """The value of an environment variable that the launch file exports."""
    launch = asked(heap)
    text = launch.environment.get(name) if launch is not None else None
    return const(text) if text is not None else None


def reopened(m: Heap, base: Value) -> None:
    """Forget what the command says of the options in an object: something that nobody can read may set any of them."""
    launch = asked(m)
    if launch is None:
        return
    for atom in base.atoms:
        for name in (*launch.given, *launch.left) if isinstance(atom, Instance) else ():
            held = m.store.get((atom, name))
            if held is not None:
                m.store.set((atom, name), join(held, unknown(INPUT, f"option `{name}`")))


# The dictionary of an object is written into somewhere in a module, perhaps under a name of its own.
_WRITES = r"\s*(?:\.(?:update|setdefault|pop|clear)\(|\[[^\]\n]*\]\s*=[^=]|\|=)"
_WRITTEN = re.compile(rf"(?:vars\([\w.]+\)|__dict__)(?:{_WRITES}|\s*=[^=])")
_NAMED = re.compile(r"([\w.]+)\s*=\s*(?:vars\([\w.]+\)|[\w.]+\.__dict__)\s*(?:#.*)?$", re.MULTILINE)


def taken_apart(m: Heap, base: Value) -> None:
    """Forget the options in an object whose `__dict__` is read in a module that writes into such dictionaries."""
    if m.launch is not None and is_rewritten(m.frame.module):
        reopened(m, base)


def is_rewritten(module: Module) -> bool:
    """Return whether a module writes into the dictionary of some object."""
    text = module.source.text
    if _WRITTEN.search(text) is not None:
        return True
    names = {found[1] for found in _NAMED.finditer(text)}
    return any(re.search(rf"\b{re.escape(name)}{_WRITES}|\bdel\s+{re.escape(name)}\[", text) for name in names)


def words(m: Machine) -> Value | None:
    """`sys.argv`, where the command says all of it."""
    launch = asked(m)
    if launch is None or launch.words is None:
        return None
    from dslint.python.containers import new_list

    return new_list(m, m.frame.call or m.frame.module.tree, [const(word) for word in launch.words])


# What `HfArgumentParser` takes for a switch.
TRUE_WORDS = ("yes", "true", "t", "y", "1")
FALSE_WORDS = ("no", "false", "f", "n", "0")
# Parsers that fill the fields of dataclasses.
FIELDS = ("hf", "trl")
# What a constant of an option may be.
PLAIN = (str, int, float, bool, type(None))
