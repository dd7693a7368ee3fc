"""Assignments of a script: ``name=value``, ``A[2]=x``, ``A=(a b)``, ``declare``, ``export``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dslint.core.source import Location, Span
from dslint.model.shell.addresses import has_output, is_address
from dslint.model.shell.arrays import EMPTY_MAP, element_key, named_element, with_elements
from dslint.model.shell.braces import brace_expanded
from dslint.model.shell.effects import side_effects
from dslint.model.shell.flow.choices import UNSET, Deferred, ForkNeededError, Unknown, World
from dslint.model.shell.flow.trees import leaves, tree_of
from dslint.model.shell.functions import Functions
from dslint.model.shell.parameters import arithmetic
from dslint.model.shell.pieces import Lookup, UnknownWordError, Value
from dslint.model.shell.reasons import reason_of
from dslint.model.shell.scope import Scope, Template
from dslint.model.shell.words import ASSIGNMENT, INNER, NAME, expand, expand_assignment, fixed_text
from dslint.parse.shell import ShellDoc
from dslint.parse.shelllex import UnfinishedWordError, array_items

if TYPE_CHECKING:
    from dslint.core.source import SourceFile
    from dslint.model.shell.commands import Heredoc, Invocation
    from dslint.model.shell.flow.loops import Loop

# Finds the file that ``source PATH`` reads, given the directory that the script is in.
FindFile = Callable[[str, Scope], "SourceFile | None"]

# A value that the caller hands over as it is.
_INPUT = re.compile(r"""["']?\$\{?(\w+)(?::?-)?\}?["']?""")
DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly", "unset"})


class AssignmentReader:
    """Gives variables the values that a script assigns."""

    def __init__(
        self,
        doc: ShellDoc,
        wanted: Callable[[str], bool],
        find_file: FindFile | None = None,
        functions: Functions | None = None,
    ) -> None:
        self.doc = doc
        self.wanted = wanted
        self.find_file = find_file
        self.may_begin: Callable[[str], bool] | None = None
        self.found: list[Invocation] = []
        self.heredocs: list[Heredoc] = []
        self.functions = functions or Functions()
        self.read_up_to = 0
        self.depth = 0
        # Names that the arms of the test at hand give a default.
        self.loops: list[Loop] = []
        self.assumed: Collection[str] = ()
        # The assignment at hand stands behind ``declare -i``.
        self.is_integer = False

    def assign(self, raw: str, span: Span, scope: Scope, export: bool = False) -> None:
        """``name=value``, ``name+=(a b)``."""
        match = ASSIGNMENT.match(raw)
        if match is None:
            return
        name = match["name"]
        value = self._fixed(raw, span, match, scope) or self._value(raw, span, match, scope)
        scope.forget(side_effects(raw))
        scope.assign(name, value, export)
        is_kept = self.wanted(raw) or (not isinstance(value, Value) and ".py" in raw)
        if not match["append"] and raw[match.end() : match.end() + 1] in ("'", '"') and is_kept:
            self._keep_template(name, raw, span, scope)

    def _keep_template(self, name: str, raw: str, span: Span, scope: Scope) -> None:
        """``run="torchrun ..."``: a later ``eval $run`` reads the text as it stands here."""
        # Quotes in the middle (``"... --schedule "LE" ..."``) make no difference to the text that eval reads.
        match = re.fullmatch(r"\w+=(?:\"([^`]*)\"|'([^']*)')", raw, re.DOTALL)
        if match is None or self.doc.anchor is not None:
            return
        is_part = re.search(r"\\[^\n]", match[1] or "") is not None or not self.wanted(raw)
        start = span.start + match.start(1 if match[1] is not None else 2)
        scope.templates[name] = Template(match[1] or match[2] or "", start + self.doc.base, scope.copy(), is_part)

    def _fixed(self, raw: str, span: Span, match: re.Match[str], scope: Scope) -> Value | None:
        """The value of ``name=text`` where nothing is expanded: most assignments. ``None`` for any other one."""
        text = fixed_text(raw[match.end() :]) if not match["index"] and not match["append"] else None
        old = scope.values.get(match["name"])
        is_text = old is None or isinstance(old, Unknown) or (isinstance(old, Value) and old.items is None)
        if text is None or not is_text or self.is_integer or match["name"] in scope.integers:
            return None
        return Value(text, None, (self.location(span),))

    def _value(self, raw: str, span: Span, match: re.Match[str], scope: Scope) -> Any:
        """What ``name=value`` assigns: where it depends on forks, a choice, or a value for later."""
        states: list[Scope] = []
        is_integer, self.is_integer = self.is_integer, False
        is_array = any(isinstance(v, Value) and v.items is not None for v in leaves(scope.values.get(match["name"])))

        def compute(world: World) -> Value | Unknown:
            # A value for later is worked out in the state of the assignment.
            state = states[0] if states else scope
            lookup = state.lookup(world)
            begin = match.end()
            try:
                if match["index"]:
                    return self._with_element(raw, span, match, state, world)
                if raw.startswith("(", begin):
                    spans = array_items(self.doc.text, span.start + begin + 1, span.end - 1)
                    value = self._array(spans, span, state, world, match)
                else:
                    text = expand_assignment(raw[begin:], lookup)
                    text = _as_integer(text, match, lookup, is_integer, state)
                    places = (self.location(span), *lookup.used)
                    value = Value(text, None, places, is_default=lookup.has_default)
            except UnfinishedWordError:
                raise UnknownWordError from None
            except UnknownWordError as error:
                _explain(error, raw[begin:], self.location(span))
                is_other = match["append"] or match["index"] or isinstance(error, ForkNeededError)
                given = None if is_other else _unknown_input(raw[begin:], error, state, world)
                if given is None:
                    raise
                return given
            if match["append"]:
                return _appended(state.held(match["name"], world), value)
            if is_array and value.items is None:
                # ``L=x`` sets the first element.
                old = state.held(match["name"], world)
                items = (old.items or ("",))[1:] if isinstance(old, Value) else ()
                return replace(value, items=(value.text, *items), places=()) if items else value
            return value

        tree = tree_of(compute, scope.here())
        if tree is None:
            states.append(scope.copy())
            return Deferred(compute)
        return tree

    def _with_element(self, raw: str, span: Span, match: re.Match[str], scope: Scope, world: World) -> Value:
        """``A[2]=x``, ``M[key]=x``."""
        held = scope.held(match["name"], world)
        if not isinstance(held, Value) and (held is not UNSET or scope.open):
            raise UnknownWordError(getattr(held, "why", ""))
        old = held if isinstance(held, Value) else None
        is_map = old is not None and old.keys is not None
        if match["append"] or raw.startswith("(", match.end()):
            raise UnknownWordError
        lookup = scope.lookup(world)
        key = element_key(match["index"][1:-1], is_map, lookup)
        text = expand_assignment(raw[match.end() :], lookup)
        return with_elements(old, {key: text}, is_map, self.location(span))

    def _map(self, spans: list[Span], whole: Span, scope: Scope, world: World, is_map: bool) -> Value:
        """``([key]=value ...)``."""
        lookup = scope.lookup(world)
        found = [named_element(self.doc.text[s.start : s.end], is_map, lookup) for s in spans]
        return with_elements(EMPTY_MAP if is_map else None, dict(found), is_map, self.location(whole))

    def _array(self, spans: list[Span], whole: Span, scope: Scope, world: World, match: re.Match[str]) -> Value:
        old = scope.held(match["name"], world)
        is_map = isinstance(old, Value) and old.keys is not None
        if is_map or any(self.doc.text.startswith("[", s.start) for s in spans):
            return self._map(spans, whole, scope, world, is_map)
        items: list[str] = []
        places: list[Location] = []
        used: list[Location] = []
        for span in spans:
            raw = self.doc.text[span.start : span.end]
            lookup = scope.lookup(world)
            texts = expand(raw, lookup)
            items += texts
            copied = len(lookup.places) == len(texts)
            places += lookup.places if copied else [self.location(span)] * len(texts)
            used += [] if copied else lookup.used
        return Value(items[0] if items else "", tuple(items), (self.location(whole), *used), tuple(places))

    def location(self, span: Span) -> Location:
        """The place of a range of the text in the host file."""
        place = self.doc.anchor or span.shifted(self.doc.base)
        return self.doc.source.location(place)

    def declare(self, raws: Sequence[tuple[str, Span]], scope: Scope) -> None:
        """``export``, ``declare``, ``local``, ``readonly``, ``unset``."""
        (command, _), *arguments = raws
        flags = [raw for raw, _ in arguments if raw.startswith(("-", "+"))]
        if command == "local" and not self.functions.is_inside:
            return  # an error in bash
        for raw, span in arguments:
            match = ASSIGNMENT.match(raw) or NAME.fullmatch(raw)
            if raw in flags:
                continue
            if match is None:
                scope.forget(None)  # ``export $(cat .env)``
                continue
            name = match[1] if match.re is ASSIGNMENT else raw
            if command in ("local", "declare", "typeset"):
                self.functions.keep(name, scope)
            if match.re is ASSIGNMENT and command != "unset":
                self._declare_value(name, raw, span, command, flags, scope)
            else:
                _mention(command, name, flags, scope)
            if any(not re.fullmatch(r"-[xrgaAi]+", f) for f in flags):
                scope.forget({name})

    def _declare_value(self, name: str, raw: str, span: Span, command: str, flags: list[str], scope: Scope) -> None:
        """``export name=value``."""
        if "-A" in flags:
            scope.assign(name, EMPTY_MAP)
        self.is_integer = _is_integer(flags)
        if self.is_integer:
            scope.integers |= {name}
        self.assign(raw, span, scope, _is_export(command, flags))
        if _makes_several(raw):
            scope.forget({name})


def _makes_several(raw: str) -> bool:
    """``export A={x,y}``: unlike in a plain assignment the braces make two of it."""
    if "{" not in raw or raw.endswith(")"):
        return False
    try:
        return len(brace_expanded(raw)) > 1
    except UnknownWordError:
        return True


def _is_export(command: str, flags: list[str]) -> bool:
    return command == "export" or any("x" in f for f in flags)


def _is_integer(flags: list[str]) -> bool:
    return any("i" in f for f in flags if f.startswith("-"))


def _mention(command: str, name: str, flags: list[str], scope: Scope) -> None:
    """``export NAME``, ``local NAME``, ``unset NAME``."""
    if _is_integer(flags):
        scope.integers |= {name}
    if command == "unset":
        scope.remove(name)
    elif _is_export(command, flags):
        scope.exports[name] = True
        if name not in scope.values:
            scope.forget({name}, f"`${name}` is set by who starts the script")
    elif "-A" in flags:
        if command == "local" or name not in scope.values:
            scope.assign(name, EMPTY_MAP)
    elif command == "local":
        scope.values.pop(name, None)


def _explain(error: UnknownWordError, raw: str, place: Location) -> None:
    error.why = error.why or reason_of(raw)
    if has_output(raw):
        error.addresses = (place,) if is_address(raw) else ()


def _unknown_input(raw: str, error: UnknownWordError, scope: Scope, world: World) -> Unknown | None:
    """The value of ``X=$Y``, where the caller may hand ``Y`` over; ``None`` when it is something else."""
    name = _INPUT.fullmatch(raw)
    if name is None:
        return None
    is_input = not scope.open and scope.held(name[1], world) is UNSET
    return Unknown(error.why, is_input, error.addresses)


def _as_integer(text: str, match: re.Match[str], lookup: Lookup, is_certain: bool, scope: Scope) -> str:
    """What ``declare -i`` makes of a text that is assigned: the value of the expression.

    Raises:
        UnknownWordError: it is not known, or nobody knows whether the variable is a number.
    """
    if match["name"] not in scope.integers:
        return text
    if match["append"] or not (is_certain or re.fullmatch(r"0|[1-9]\d*", text)):
        raise UnknownWordError
    return str(arithmetic(text, lookup, INNER))


def _appended(old: Any, new: Value) -> Value:
    if not isinstance(old, Value):
        raise UnknownWordError(getattr(old, "why", ""))
    origins = (*old.origins, *(o for o in new.origins if o not in old.origins))
    if old.keys is not None or new.keys is not None:
        if old.keys is None or new.keys is None:
            raise UnknownWordError
        return with_elements(old, dict(zip(new.keys, new.items or (), strict=True)), True, new.origins[0])
    if new.items is not None and old.items is not None:
        items = old.items + new.items
        return Value(items[0] if items else "", items, origins, old.places + new.places)
    if new.items is None and old.items is None:
        return Value(old.text + new.text, None, origins, is_default=old.is_default or new.is_default)
    raise UnknownWordError
