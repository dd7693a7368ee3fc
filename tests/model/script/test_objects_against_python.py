"""The oracle of object kinds: random programs are run by Python itself, in every arm, and must show nothing else.

A kind that is certain must be the kind of every run that gets there; where it is not, the kinds of all runs must be
among those that may arrive.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections import defaultdict
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st
from script_helpers import calls, script

MADE = {
    "DDP(q)": "ddp",
    "deepspeed.initialize(model=p)[0]": "engine",
    "torch.optim.SGD(p)": "optimizer",
    "Accelerator()": "accelerator",
}
HEAD = """\
import deepspeed
import torch
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel as DDP
"""
TESTS = ("a", "not a", "b", "not b", "a and b", "a or b", "not (a and b)", "x is None", "c == 1", "c == 2", "c != 1")

leaf = st.one_of(
    st.sampled_from(sorted(MADE)).map("x = {}".format),
    st.sampled_from(["show(x)", "show(x)", "show(x)", "pass", "y = x", "x = y", "x = None", "return", "may_fail()"]),
)


def _block(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(children, min_size=1, max_size=3).map("\n".join)


def _under(head: str, body: str) -> str:
    return f"{head}\n{textwrap.indent(body, '    ')}"


def _compound(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    test, block = st.sampled_from(TESTS), _block(children)
    return st.one_of(
        st.builds(lambda t, b: _under(f"if {t}:", b), test, block),
        st.builds(lambda t, b, o: f"{_under(f'if {t}:', b)}\n{_under('else:', o)}", test, block, block),
        st.builds(lambda t, b, u, o: f"{_under(f'if {t}:', b)}\n{_under(f'elif {u}:', o)}", test, block, test, block),
        st.builds(lambda b: _under("for _ in range(turns):", b), block),
        st.builds(lambda b, h: f"{_under('try:', b)}\n{_under('except OopsError:', h)}", block, block),
        st.builds(lambda b, f: f"{_under('try:', b)}\n{_under('finally:', f)}", block, block),
        st.builds(lambda b: _under("with context() as _:", b), block),
        st.builds(lambda t, b: _under(f"while {t}:", f"{b}\nbreak"), test, block),
    )


programs = st.lists(st.recursive(leaf, _compound, max_leaves=10), min_size=1, max_size=6).map("\n".join)


class OopsError(Exception):
    """What `may_fail` raises."""


class _Context:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def run(body: str) -> dict[int, set[str]]:
    """The kinds that each `show` of the body sees, by its number, over all arms."""
    seen: dict[int, set[str]] = defaultdict(set)
    numbers = itertools.count()
    numbered = re.sub(r"show\(", lambda _: f"show({next(numbers)}, ", body)
    code = compile(_under("def main():", f"x = y = None\n{numbered}"), "program", "exec")
    for a, b, c, turns, fails in itertools.product((0, 1), (0, 1), (1, 2, 3), (0, 2), (0, 1)):

        def may_fail(fails: int = fails) -> None:
            if fails:
                raise OopsError

        names: dict[str, object] = {
            "a": a, "b": b, "c": c, "turns": turns, "p": "", "q": "", "OopsError": OopsError, "may_fail": may_fail,
            "context": _Context, "show": lambda i, x: seen[i].add(x or "none"), "DDP": lambda _: "ddp",
            "deepspeed": SimpleNamespace(initialize=lambda model: ["engine"]),
            "torch": SimpleNamespace(optim=SimpleNamespace(SGD=lambda _: "optimizer")),
            "Accelerator": lambda: "accelerator",
        }  # fmt: skip
        exec(code, names)  # noqa: S102 - a program of this test
        try:
            names["main"]()  # type: ignore[operator]
        except OopsError:
            continue
    return seen


@settings(max_examples=150, deadline=None)
@given(programs)
def test_no_run_shows_another_kind(body: str) -> None:
    ctx = script(HEAD + _under("def main(a, b, c, turns, p, q):", f"x = y = None\n{body}") + "\n")
    runs = run(body)
    for number, shown in enumerate(calls(ctx, "show")):
        node = shown.args[0].value
        may = {t.kind for t in ctx.objects.things(node)}
        certain, seen = ctx.kind(node), runs.get(number, set())
        # ``None`` in another arm does not count: the use would fail on it.
        assert not certain or seen <= {certain, "none"}, (number, certain, seen)
        assert "" in may or seen <= may | {"none"}, (number, may, seen)
