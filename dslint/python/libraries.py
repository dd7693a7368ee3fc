"""What library functions and classes do, as data: the rows of `schemas/libraries/*.toml`, merged into one file by
`scripts/generate_libraries.py`.

The README beside the files states their keys. A path is canonical after :meth:`Libraries.canonical`; a member that no
row lists is unknown, and never a library event.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Any

from dslint.core.schemafiles import load_file
from dslint.python.varies import CLOCK, DATA, HOST, LOCAL, NODE, RANDOM, RANK, SAME, UNMODELLED
from dslint.python.vocabulary import TRAINER, Vocabulary

_VARIES = {
    "same": SAME,
    "rank": RANK,
    "local-rank": LOCAL,
    "node": NODE,
    "data": DATA,
    "clock": CLOCK,
    "random": RANDOM,
    "host": HOST,
    "assumed": UNMODELLED,
}


# Of attributes that the loop of each rank looks at, and of those that name the labels of an evaluation.
STEERS, LABELS, METRIC = "steers-loop", "names-labels", "names-metric"
# Of what reads the numbers or the shape of a tensor: an event where that is a parameter.
READS = "reads-parameter"
# Of calls without a row that get a model which is wrapped for several ranks: those arguments are all that is kept.
HANDED = "gets-wrapped-model"


@dataclass(frozen=True, slots=True)
class Returns:
    """A parsed `returns`: its word, the names that follow, parts of a tuple or of an `or`, fields of a new object."""

    word: str
    name: str = ""
    parts: tuple[Returns, ...] = ()
    fields: tuple[tuple[str, Returns], ...] = ()


OPAQUE_RESULT = Returns("opaque")


@dataclass(frozen=True, slots=True)
class Row:
    """A function, method or constructor of a library."""

    path: str
    parameters: ast.arguments | None
    tags: frozenset[str] = frozenset()
    returns: Returns = OPAQUE_RESULT
    varies: int | None = None  # None: as its arguments
    shape: int = 0
    makes_same: tuple[str, ...] = ()
    makes_own: tuple[str, ...] = ()
    makes_same_on: str = ""
    callbacks: tuple[tuple[str, str], ...] = ()
    retains: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A class of a library."""

    path: str
    bases: tuple[str, ...]
    constructor: Row
    kind: str = ""
    fields: Mapping[str, Returns] = field(default_factory=dict)
    methods: Mapping[str, Row] = field(default_factory=dict)
    properties: Mapping[str, Row] = field(default_factory=dict)
    items: Returns | None = None
    item_varies: int | None = None
    length: int = 0
    call: str = ""
    length_from: str = ""  # `from A, B`: as the first of these arguments; `arguments`: as all of them


class Libraries:
    """All rows, by canonical path; `own` are the names that the settings of a project add."""

    own: Vocabulary | None = None

    def __init__(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self._functions: dict[str, Any] = {}
        self._classes: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._aliases: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self._patterns: dict[str, str] = {}
        for table in tables.values():
            self._functions.update(table.get("function", {}))
            self._classes.update(table.get("class", {}))
            self._values.update(table.get("value", {}))
            self._aliases.update(table.get("aliases", {}))
            self.environment.update(table.get("environment", {}))
            self._patterns.update(table.get("patterns", {}))
        self._rows: dict[str, Row | None] = {}
        self._class_rows: dict[str, ClassRow | None] = {}

    @cached_property
    def roots(self) -> frozenset[str]:
        """Return the top-level packages that have rows."""
        return frozenset(p.partition(".")[0] for p in (*self._functions, *self._classes, *self._values))

    def tagged(self, tags: frozenset[str]) -> Iterator[str]:
        """Yield the paths of all functions, classes, methods and properties that have one of the tags."""
        for path, row in (*self._functions.items(), *self._classes.items()):
            if any(tag.split()[0] in tags for tag in row.get("tags", ())):
                yield path
        for path, row in self._classes.items():
            for name, method in (*row.get("method", {}).items(), *row.get("property", {}).items()):
                if any(tag.split()[0] in tags for tag in method.get("tags", ())):
                    yield f"{path}.{name}"

    @cached_property
    def watched(self) -> Mapping[str, str]:
        """Return the names of attributes whose writing is an event, with the tag that says why."""
        return {
            path.rpartition(".")[2]: tag for tag in (STEERS, LABELS, METRIC) for path in self.tagged(frozenset((tag,)))
        }

    @cached_property
    def reading(self) -> frozenset[str]:
        """Return the names of attributes that say something of the numbers or the shape of a tensor."""
        rows = self._classes["torch.Tensor"].get("property", {})
        return frozenset(name for name, row in rows.items() if READS in row.get("tags", ()))

    @cached_property
    def config_readers(self) -> frozenset[str]:
        """Return the names, without their packages, of what takes a DeepSpeed configuration."""
        rows = (*self._functions.items(), *self._classes.items())
        return frozenset(path.rpartition(".")[2] for path, row in rows if "config_reader" in row)

    def classes_with(self, key: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the rows of classes with a key, by their names without packages."""
        return {path.rpartition(".")[2]: row for path, row in self._classes.items() if key in row}

    @cached_property
    def registered_configs(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """Return the parameter of a class in a registry that takes a whole DeepSpeed configuration, and its members."""
        return {n: (r["config"], tuple(r["config_members"])) for n, r in self.classes_with("config_members").items()}

    def members(self, path: str) -> list[str]:
        """Return the paths directly below a module."""
        prefix = f"{path}."
        every = (*self._functions, *self._classes, *self._values, *self._aliases)
        return [p for p in every if p.startswith(prefix) and "." not in p[len(prefix) :]]

    def canonical(self, path: str) -> str:
        """Return the canonical spelling of a path: aliases of the whole path, else of its longest prefix."""
        found = self._aliases.get(path)
        if found is not None:
            return found
        if self.own is not None and self.own.kind(path) == "trainers":
            return TRAINER
        head, dot, tail = path.rpartition(".")
        while head:
            found = self._aliases.get(head)
            if found is not None:
                return f"{found}{dot}{tail}"
            head, _, last = head.rpartition(".")
            tail = f"{last}.{tail}"
        return path

    def function(self, path: str) -> Row | None:
        """Return the row of a function."""
        if path not in self._rows:
            found = self._functions.get(path)
            self._rows[path] = None if found is None else row_of(path, found)
        return self._rows[path]

    def value(self, path: str) -> Row | None:
        """Return the row of a module-level value."""
        found = self._values.get(path)
        return None if found is None else row_of(path, found)

    def class_(self, path: str) -> ClassRow | None:
        """Return the row of a class."""
        if path not in self._class_rows:
            found = self._classes.get(path)
            self._class_rows[path] = self._by_pattern(path) if found is None else _class_row(path, found)
        return self._class_rows[path]

    def _by_pattern(self, path: str) -> ClassRow | None:
        """Return the row of a class that only a pattern names: it derives from the class of the pattern."""
        if not path.rpartition(".")[2][:1].isupper() or path in self._functions or path in self._values:
            return None
        target = next((t for p, t in self._patterns.items() if fnmatchcase(path, p)), None)
        base = self.class_(target) if target is not None and target != path else None
        if base is None:
            return None
        return replace(base, path=path, bases=(base.path,), fields={}, methods={}, properties={})

    def lineage(self, path: str) -> Iterator[ClassRow]:
        """Yield the rows of a class and of its bases, nearest first."""
        pending, seen = [path], set()
        while pending:
            top = pending.pop(0)
            row = self.class_(top)
            if row is None or top in seen:
                continue
            seen.add(top)
            yield row
            pending += row.bases

    def is_class(self, path: str, *wanted: str) -> bool:
        """Return whether a class is, or derives from, one of the wanted ones (by path or by `kind`)."""
        return any(row.path in wanted or row.kind in wanted for row in self.lineage(path)) or path in wanted

    def method(self, path: str, name: str) -> Row | None:
        """Return the row of a method of a class or of the nearest base that has it."""
        return next((row.methods[name] for row in self.lineage(path) if name in row.methods), None)


@cache
def libraries(own: Vocabulary | None = None) -> Libraries:
    """Return the rows that dslint ships, with the names that a project adds."""
    if own is None or not own.words:
        return libraries() if own is not None else Libraries(load_file("libraries.json"))
    found = copy(libraries())
    found.own = own
    return found


def _parameters(signature: str | None) -> ast.arguments | None:
    if signature is None:
        return None
    tree = ast.parse(f"def f({signature}): pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree.args


_KNOWN = frozenset(
    {"signature", "tags", "returns", "varies", "shape", "makes_same", "makes_own", "makes_same_on", "callbacks"}
    | {"retains", "changes"}
)


def row_of(path: str, table: Mapping[str, Any], *, default: Returns = OPAQUE_RESULT) -> Row:
    """Return the row that a table of a file of rows describes."""
    returns = table.get("returns")
    callbacks = table.get("callbacks", {})
    return Row(
        path,
        _parameters(table.get("signature")),
        frozenset(table.get("tags", ())),
        parse_returns(returns) if returns else default,
        _VARIES.get(table.get("varies", "arguments")),
        _VARIES.get(table.get("shape", ""), 0),
        tuple(table.get("makes_same", ())),
        tuple(table.get("makes_own", ())),
        table.get("makes_same_on", ""),
        tuple(callbacks.items()) if isinstance(callbacks, dict) else (),
        tuple(table.get("retains", ())),
        tuple(table.get("changes", ())),
        {key: value for key, value in table.items() if key not in _KNOWN},
    )


def _class_row(path: str, table: Mapping[str, Any]) -> ClassRow:
    items, length = table.get("items"), table.get("length", "same")
    constructor = row_of(
        path, {k: v for k, v in table.items() if k not in ("method", "property", "fields", "items", "length")}
    )
    given = [p.arg for p in _all_parameters(constructor.parameters)]
    return ClassRow(
        path,
        tuple(table.get("bases", ())),
        constructor,
        table.get("kind", ""),
        _fields(table.get("fields", {}), given),
        {name: row_of(f"{path}.{name}", row) for name, row in table.get("method", {}).items()},
        {name: row_of(f"{path}.{name}", row) for name, row in table.get("property", {}).items()},
        parse_returns(items) if items and items not in _VARIES and items != "arguments" else None,
        _VARIES.get(items) if items else None,
        _VARIES.get(length, 0),
        table.get("call", ""),
        length if length == "arguments" or length.startswith("from ") else "",
    )


def _fields(table: Mapping[str, str] | str, given: list[str]) -> dict[str, Returns]:
    """Return the fields of a class; the word `signature` means one for each parameter of its constructor."""
    if isinstance(table, str):
        return {name: Returns("parameter", name) for name in given}
    return {n: Returns("parameter", text) if text in given else parse_returns(text) for n, text in table.items()}


def _all_parameters(parameters: ast.arguments | None) -> list[ast.arg]:
    if parameters is None:
        return []
    starred = [p for p in (parameters.vararg, parameters.kwarg) if p is not None]
    return [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs, *starred]


@cache
def parse_returns(text: str) -> Returns:
    """Return the parsed form of a `returns` text.

    Raises:
        ValueError: the text has no known form.
    """
    parser = _Parser(text)
    found = parser.alternatives()
    if parser.rest.strip():
        raise ValueError(f"returns: cannot read {parser.rest!r} in {text!r}")
    return found


_NAMED = frozenset(
    {"parameter", "parameters", "field", "group-rank", "group-size", "is-rank", "is-local-rank", "wrapped"}
    | {"unwrapped", "copy", "deep-copy", "environment", "from", "rank-of", "local-rank-of", "elements", "number"}
)
_NESTED = frozenset({"tuple", "list", "iterator", "dict", "set"})


class _Parser:
    """Reads the small language of `returns`."""

    def __init__(self, text: str) -> None:
        self.rest = text

    def alternatives(self) -> Returns:
        parts = [self.conditional()]
        while self._take("or "):
            parts.append(self.conditional())
        return parts[0] if len(parts) == 1 else Returns("or", parts=tuple(parts))

    def conditional(self) -> Returns:
        found = self.primary()
        if self._take("if "):
            name = self._word()
            return Returns("if", name, parts=(found,))
        return found

    def primary(self) -> Returns:
        if self._take("`"):
            text, _, self.rest = self.rest.partition("`")
            return Returns("constant", text)
        word = self._word()
        if word == "new":
            path = self._word()
            return Returns("new", path, fields=tuple(self._fields()))
        if word in _NESTED and self._take("("):
            return Returns(word, parts=tuple(self._list()))
        if word in _NAMED:
            return Returns(word, self._names() if word == "from" else self._word())
        if not word:
            raise ValueError(f"returns: cannot read {self.rest!r}")
        return Returns(word)

    def _list(self) -> Iterator[Returns]:
        while not self._take(")"):
            yield self.alternatives()
            self._take(",")

    def _fields(self) -> Iterator[tuple[str, Returns]]:
        if not self._take("("):
            return
        while not self._take(")"):
            name = self._word()
            self._take("=")
            yield name, self.alternatives()
            self._take(",")

    def _names(self) -> str:
        names = [self._word()]
        while self._take(","):
            names.append(self._word())
        return " ".join(names)

    def _take(self, text: str) -> bool:
        rest = self.rest.lstrip()
        if rest.startswith(text):
            self.rest = rest[len(text) :]
            return True
        return False

    def _word(self) -> str:
        rest = self.rest.lstrip()
        end = 0
        while end < len(rest) and (rest[end].isalnum() or rest[end] in "._-*"):
            end += 1
        self.rest = rest[end:]
        return rest[:end]
