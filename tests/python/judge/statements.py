"""Draws statements of random programs: assignments, branches, loops, handlers, contexts, changes of containers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .writing import BOOL, DICT, FLOAT, INT, INTS, SET, STR, STRS, Lines, Scope, Words, indent

KINDS = (INT, INT, INT, STR, STR, BOOL, INTS, INTS, STRS, DICT, FLOAT, SET)


@dataclass(frozen=True)
class Place:
    """Where a statement stands."""

    rooms: int = 2  # how much deeper blocks may go
    in_loop: bool = False
    in_function: str = ""  # the type it returns
    together: bool = True  # no test that ranks may decide differently is around it


Statement = Callable[["Statements", Scope, Place], Lines]


class Statements:
    """Draws blocks. `own` are statements that families and idioms add, with their weights."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.own: list[tuple[Statement, float]] = []

    def block(self, scope: Scope, place: Place, size: int) -> Lines:
        lines: Lines = []
        for _ in range(size):
            lines += self.statement(scope, place)
        return lines

    def inner(self, scope: Scope, place: Place, size: int | None = None, **changes: object) -> Lines:
        """A block one level deeper: what it binds is not certain afterwards."""
        wanted = size or self.words.rng.choice((1, 1, 2, 3))
        deeper = replace(place, **{"rooms": place.rooms - 1, "together": False, **changes})  # type: ignore[arg-type]
        return indent(self.block(scope.child(), deeper, wanted))

    def statement(self, scope: Scope, place: Place) -> Lines:
        choices: list[tuple[Statement, float]] = [*_SIMPLE, *self.own]
        if place.rooms > 0:
            choices += _COMPOUND
        makers, weights = zip(*choices, strict=True)
        maker: Statement = self.words.rng.choices(makers, weights)[0]
        return maker(self, scope, place)


def assign(s: Statements, scope: Scope, place: Place) -> Lines:
    kind = s.words.pick(KINDS)
    value = s.words.expr(kind, scope)
    name = s.words.pick(scope.of(kind)) if scope.of(kind) and s.words.maybe(0.3) else s.words.fresh("v")
    scope.add(kind, name)
    if s.words.maybe(0.1) and kind in (INT, STR):
        return [f"{name}: {kind} = {value}"]
    return [f"{name} = {value}"]


def augment(s: Statements, scope: Scope, place: Place) -> Lines:
    names = scope.of(INT)
    if not names:
        return assign(s, scope, place)
    name, value = s.words.pick(names), s.words.expr(INT, scope, 1)
    form = s.words.pick(("{} += {} % 11", "{} -= {} % 11", "{} ^= {} & 7", "{} //= abs({}) + 1", "{} |= {} & 3"))
    return [form.format(name, value)]


def unpack(s: Statements, scope: Scope, place: Place) -> Lines:
    words = s.words
    a, b = words.fresh("p"), words.fresh("q")
    form = words.rng.randrange(5)
    x, y = words.expr(INT, scope, 1), words.expr(INT, scope, 1)
    if form == 0:
        lines = [f"{a}, {b} = {x}, {y}"]
    elif form == 1:
        rest = words.fresh("rest")
        lines = [f"{a}, *{rest} = [{x}, *{words.expr(INTS, scope, 1)}]", f"{b} = len({rest})"]
        scope.add(INTS, rest)
    elif form == 2:
        lines = [f"{a}, ({b}, _) = {x}, ({y}, {words.expr(STR, scope, 1)})"]
    elif form == 3:
        lines = [f"{a} = {b} = {x}"]
    else:
        lines = [f"{a}, {b} = {x}, {y}", f"{a}, {b} = {b}, {a}"]
    scope.add(INT, a)
    scope.add(INT, b)
    return lines


def show(s: Statements, scope: Scope, place: Place) -> Lines:
    kinds = [s.words.pick(KINDS) for _ in range(s.words.rng.choice((1, 2)))]
    return [f"print({', '.join(s.words.expr(k, scope) for k in kinds)})"]


def change(s: Statements, scope: Scope, place: Place) -> Lines:
    """Change a container in place."""
    words = s.words
    if scope.of(DICT) and words.maybe(0.5):
        name = words.pick(scope.of(DICT))
        form = words.pick(
            (
                f"{name}['a'] = <int>",
                f"{name}.setdefault(<str>, <int>)",
                f"{name}.update(b=<int>)",
                f"{name}.pop('a', None)",
                f"{name}[<str>] = {name}.get('b', 0) + 1",
                f"{name}.update({{'c': <int>}})",
                f"{name} |= {{'z': <int>}}",
                f"{name}.clear()",
            )
        )
        return [words.fill(form, scope)]
    if scope.of(INTS):
        name = words.pick(scope.of(INTS))
        forms = (
            (f"{name}.append(<int>)",),
            (f"{name}.extend(<ints>[:2])",),
            (f"{name}.sort(reverse=<bool>)",),
            (f"{name}.insert(0, <int>)",),
            (f"if {name}:", f"    {name}.pop()"),
            (f"if {name}:", f"    del {name}[0]"),
            (f"{name}[:1] = [<int>]",),
            (f"{name} += [<int>]",),
            (f"{name}.reverse()",),
        )
        lines = [words.fill(line, scope) for line in words.rng.choice(forms)]
        return [*lines, f"del {name}[8:]"]
    return assign(s, scope, place)


def walrus(s: Statements, scope: Scope, place: Place) -> Lines:
    name = s.words.fresh("w")
    lines = [f"if ({name} := {s.words.expr(INT, scope)}) > {s.words.expr(INT, scope, 1)}:", f"    print({name})"]
    scope.add(INT, name)
    return lines


def remove(s: Statements, scope: Scope, place: Place) -> Lines:
    name = s.words.fresh("gone")
    return [f"{name} = {s.words.expr(INT, scope)}", f"print({name} + 1)", f"del {name}"]


def leave(s: Statements, scope: Scope, place: Place) -> Lines:
    """`break`, `continue` or `return` behind a test."""
    test = s.words.expr(BOOL, scope)
    ways = ["break", "continue"] if place.in_loop else []
    if place.in_function:
        ways.append(f"return {s.words.expr(place.in_function, scope, 1)}")
    return [f"if {test}:", f"    {s.words.pick(ways)}"] if ways else assign(s, scope, place)


def branch(s: Statements, scope: Scope, place: Place) -> Lines:
    lines = [f"if {s.words.expr(BOOL, scope)}:", *s.inner(scope, place)]
    if s.words.maybe(0.3):
        lines += [f"elif {s.words.expr(BOOL, scope)}:", *s.inner(scope, place)]
    if s.words.maybe(0.5):
        lines += ["else:", *s.inner(scope, place)]
    return lines


def both(s: Statements, scope: Scope, place: Place) -> Lines:
    """A name bound on either way."""
    kind, name = s.words.pick(KINDS), s.words.fresh("e")
    test, yes, no = s.words.expr(BOOL, scope), s.words.expr(kind, scope), s.words.expr(kind, scope)
    scope.add(kind, name)
    return [f"if {test}:", f"    {name} = {yes}", "else:", f"    {name} = {no}"]


def loop(s: Statements, scope: Scope, place: Place) -> Lines:
    words = s.words
    inside, i = scope.child(), words.fresh("i")
    ints = words.expr(INTS, scope, 1)
    form = words.rng.randrange(6)
    bound = [i]
    if form == 0:
        head = f"for {i} in range({words.rng.randrange(1, 4)}):"
    elif form == 1:
        head = f"for {i} in {ints}[:4]:"
    elif form == 2:
        bound.append(words.fresh("x"))
        head = f"for {i}, {bound[1]} in enumerate({ints}[:3], 1):"
    elif form == 3:
        bound.append(words.fresh("y"))
        head = f"for {i}, {bound[1]} in zip({ints}[:3], range(5)):"
    elif form == 4:
        key = words.fresh("k")
        inside.add(STR, key)
        head = f"for {key}, {i} in sorted({words.expr(DICT, scope, 1)}.items())[:3]:"
    else:
        head = f"for {i} in reversed(range({words.rng.randrange(1, 4)})):"
    for name in bound:
        inside.add(INT, name)
    together = place.together and form in (0, 5)
    lines = [head, *s.inner(inside, place, in_loop=True, together=together)]
    if words.maybe(0.15):
        lines += ["else:", *s.inner(scope, place, 1)]
    return lines


def while_loop(s: Statements, scope: Scope, place: Place) -> Lines:
    count = s.words.fresh("n")
    inside = scope.child()
    test = f"{count} < {s.words.rng.randrange(1, 4)}"
    if s.words.maybe(0.3):
        test += f" and {s.words.expr(BOOL, scope, 1)}"
    # The counter is no name that inner statements know: the loop ends.
    body = s.inner(inside, place, in_loop=True)
    lines = [f"{count} = 0", f"while {test}:", f"    {count} += 1", *body]
    if s.words.maybe(0.2):
        lines += ["else:", *s.inner(scope, place, 1)]
    return lines


def handled(s: Statements, scope: Scope, place: Place) -> Lines:
    words = s.words
    raised = words.fill(words.pick(("ValueError(<str>)", "KeyError('k')", "RuntimeError", "ValueError")), scope)
    caught = words.pick(("ValueError", "(ValueError, KeyError)", "Exception", "LookupError"))
    inside = scope.child()
    lines = ["try:", *s.inner(inside, place)]
    lines += [f"    if {words.expr(BOOL, scope)}:", f"        raise {raised}"]
    # Whatever is raised is caught, so that the program goes on.
    lines += [f"except {caught} as error:", "    print(type(error).__name__)"]
    if words.maybe(0.4):
        lines += s.inner(scope, place, 1)
    if caught not in ("Exception",):
        lines += ["except Exception:", *s.inner(scope, place, 1)]
    if words.maybe(0.3):
        lines += ["else:", *s.inner(scope, place, 1)]
    if words.maybe(0.3):
        lines += ["finally:", *s.inner(scope, replace(place, in_loop=False, in_function=""), 1)]
    return lines


def matched(s: Statements, scope: Scope, place: Place) -> Lines:
    words = s.words
    form = words.rng.randrange(3)
    if form == 0:
        lines = [f"match {words.expr(INT, scope)}:", "    case 0 | 1:", *indent(s.inner(scope, place, 1))]
        inside = scope.child()
        inside.add(INT, "m")
        lines += [f"    case m if m > {words.expr(INT, scope, 1)}:", *indent(s.inner(inside, place, 1))]
    elif form == 1:
        inside = scope.child()
        inside.add(INT, "first")
        inside.add(INTS, "others")
        lines = [f"match {words.expr(INTS, scope)}:", "    case []:", "        print('empty')"]
        lines += ["    case [first, *others]:", *indent(s.inner(inside, place, 1))]
    else:
        inside = scope.child()
        inside.add(INT, "found")
        lines = [f"match {words.expr(DICT, scope)}:", "    case {'a': int() as found}:"]
        lines += indent(s.inner(inside, place, 1))
    return [*lines, "    case _:", *indent(s.inner(scope, place, 1))]


def closure(s: Statements, scope: Scope, place: Place) -> Lines:
    """A function inside of a block, that reads names of its own and those around it."""
    words, name, inside = s.words, s.words.fresh("inner"), scope.child()
    inside.add(INT, "a")
    lines = [f"def {name}(a, b={words.expr(INT, scope, 1)}):", "    a = a + b"]
    for _ in range(words.rng.choice((1, 2))):
        lines += indent(show(s, inside, place))
    lines += [f"    return {words.expr(INT, inside, 1)}"]
    result = words.fresh("c")
    lines += [f"{result} = {name}({words.expr(INT, scope, 1)})"]
    scope.add(INT, result)
    return lines


_SIMPLE: list[tuple[Statement, float]] = [
    (assign, 4),
    (augment, 1.5),
    (unpack, 1.2),
    (show, 2),
    (change, 1.8),
    (walrus, 0.5),
    (remove, 0.3),
    (leave, 0.6),
]
_COMPOUND: list[tuple[Statement, float]] = [
    (branch, 1.6),
    (both, 1.0),
    (loop, 1.4),
    (while_loop, 0.5),
    (handled, 0.7),
    (matched, 0.5),
    (closure, 0.5),
]
