"""Words of trees that were made by hand."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from dslint.python.events import BREAK, CONTINUE, RAISE, RETURN, Alt, Call, Event, Exit, Loop, Lost, Node, Seq, Try

from .membership import is_word

NODE = ast.parse("x").body[0]
ANY: Any = None


def event(name: str, *, may: bool = False, lanes: int = -1) -> Event:
    return Event(name, frozenset(), NODE, ANY, None, {}, None, lanes, may=may)


def seq(*items: Node | str) -> Seq:
    return Seq([event(i) if isinstance(i, str) else i for i in items])


def alt(then: Seq, orelse: Seq, then_lanes: int = -1, else_lanes: int = -1) -> Alt:
    return Alt(NODE, ANY, None, then_lanes, else_lanes, 0, then, orelse)


def loop(body: Seq, orelse: Seq | None = None, *, once: bool = False) -> Loop:
    return Loop(NODE, ANY, None, 0, body, orelse or seq(), once)


def call(body: Seq) -> Call:
    return Call(NODE, ANY, None, body)


def attempt(body: Seq, *handlers: Seq, orelse: Seq | None = None, final: Seq | None = None) -> Try:
    return Try(NODE, ANY, body, list(handlers), orelse or seq(), final or seq())


def leave(kind: str) -> Exit:
    return Exit(kind, NODE)


def accepts(tree: Seq, text: str, **options: Any) -> bool:
    return is_word(tree, text.split(), lambda e, done: e.api == done, **options).accepted


GUARD = seq(alt(seq("a"), seq()), "b")
EARLY = seq(call(seq(alt(seq(leave(RETURN)), seq()), "a")), "b")
LOOPED = seq(loop(seq("a", alt(seq(leave(BREAK)), seq()), alt(seq(leave(CONTINUE)), seq()), "b"), seq("c")), "d")
TRIED = seq(attempt(seq("a", "b"), seq("h"), orelse=seq("e"), final=seq("f")), "z")
RAISES = seq(call(seq("a", leave(RAISE))), "b")
WORDS = [
    (GUARD, "a b", True),
    (GUARD, "b", True),
    (GUARD, "a", False),
    (GUARD, "b a", False),
    (EARLY, "b", True),
    (EARLY, "a b", True),
    (EARLY, "", False),
    (LOOPED, "c d", True),
    (LOOPED, "a d", True),
    (LOOPED, "a a b a c d", True),
    (LOOPED, "a b a b c d", True),
    (LOOPED, "a b d", False),
    (LOOPED, "b d", False),
    (TRIED, "a b e f z", True),
    (TRIED, "a h f z", True),
    (TRIED, "h f z", True),
    (TRIED, "a b h f z", True),
    (TRIED, "a e f z", False),
    (TRIED, "a b f z", False),
    (RAISES, "a b", False),
    (seq(event("a", may=True), "b"), "b", True),
    (seq(Lost("budget", NODE), "b"), "x y b", True),
    (seq("a", Lost("budget", NODE)), "x", False),
    (seq(loop(seq("a"), once=True)), "", False),
    (seq(loop(seq("a"), once=True)), "a a", True),
    (seq(loop(seq(alt(seq("a"), seq())), once=True)), "", True),
]


@pytest.mark.parametrize(("tree", "text", "expected"), WORDS)
def test_words(tree: Seq, text: str, expected: bool) -> None:
    assert accepts(tree, text) is expected


def test_a_cut_trace_is_a_prefix() -> None:
    assert accepts(TRIED, "a b", cut=True)
    assert accepts(LOOPED, "a b a", cut=True)
    assert accepts(LOOPED, "a c", cut=True)
    assert not accepts(LOOPED, "b", cut=True)
    assert accepts(RAISES, "a", cut=True)


def test_a_program_that_raises_ends_there() -> None:
    assert accepts(RAISES, "a", raised=True)
    assert not accepts(RAISES, "a")


def test_a_lane_takes_its_branches() -> None:
    tree = seq(alt(seq("a"), seq("b"), then_lanes=0b01, else_lanes=0b10), "c")
    assert accepts(tree, "a c", lane=0)
    assert not accepts(tree, "a c", lane=1)
    assert accepts(tree, "b c", lane=1)


def test_events_outside_of_the_alphabet_are_skipped() -> None:
    assert accepts(seq("a", "os.makedirs", "b"), "a b", counts=lambda e: "." not in e.api)


def test_what_only_lost_explains_is_said() -> None:
    same = lambda e, done: e.api == done  # noqa: E731
    assert is_word(seq("a", Lost("budget", NODE)), ["a", "x"], same).lost
    assert not is_word(seq("a", Lost("budget", NODE)), ["a"], same).lost
    assert is_word(seq("a", "b"), ["a", "c"], same).explained == 1


def test_shared_subtrees_do_not_explode() -> None:
    shared = seq(alt(seq("a"), seq()))
    for _ in range(60):
        shared = seq(alt(seq(shared, "a"), seq("b", shared)), call(shared))
    assert accepts(shared, "a b " * 20, cut=True) in (True, False)
    deep = seq("a")
    for _ in range(1000):
        deep = seq(call(deep))
    assert accepts(deep, "a")
