"""What is known of a script whose interpretation takes too many steps."""

from __future__ import annotations

import pytest

from dslint.python import budgets
from dslint.python.entries import Analysis
from dslint.python.events import Alt, Context, Event, Loop, Lost, Node, children, walk
from dslint.python.files import Texts
from dslint.python.questions import Effort

SCRIPT = """\
import torch
import torch.distributed as dist


def train(loader, found):
    for epoch in range(9):
        for batch in loader:
            with torch.no_grad():
                dist.barrier()
                for name in found:
                    batch = epoch * batch + name
                    found = [batch, found]
            dist.all_reduce(batch)


train(make(), [])
"""


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept for the rest of a function whose calls have taken its budget."""
    monkeypatch.setattr(budgets, "_MOST", 0)


def tree(limit: int) -> Node:
    analysis = Analysis(Texts({"main.py": SCRIPT}))
    analysis.program.effort = Effort(script=limit)
    entry = analysis.script("main.py")
    assert entry is not None
    return entry.tree


def paths(node: Node, *around: type) -> list[tuple[str, tuple[type, ...]]]:
    """Return the events with the kinds of the nodes around them."""
    here = [(node.api.rpartition(".")[2], around)] if isinstance(node, Event) else []
    inner = (*around, type(node)) if isinstance(node, Loop | Context) else around
    return here + [found for child in children(node) for found in paths(child, *inner)]


@pytest.mark.usefixtures("_at_once")
def test_what_a_block_has_done_stays_in_its_loop_and_context() -> None:
    """At every limit the events that are found have the blocks around them that they have in the whole tree."""
    whole = set(paths(tree(100_000)))
    assert ("barrier", (Loop, Loop, Context)) in whole
    seen = 0
    for limit in range(20, 400, 7):
        left = tree(limit)
        assert set(paths(left)) <= whole
        if paths(left) and any(isinstance(node, Lost) for node in walk(left)):
            seen += 1
    assert seen >= 3


@pytest.mark.usefixtures("_at_once")
def test_a_whole_turn_of_a_loop_says_more_than_a_part_of_the_next() -> None:
    """Once the end of the body was seen, no larger limit loses it."""
    known = False
    for limit in range(20, 400, 3):
        names = [name for name, _ in paths(tree(limit))]
        assert not known or "all_reduce" in names, limit
        known = known or "all_reduce" in names
    assert known


PART = """
class Part{n}:
    def __init__(self, place, owner):
        self.rank = dist.get_rank()
        self.place, self.owner = [place, owner, [place, [owner]]], {{"a": place, "b": [owner, place]}}
        self.inner = [Part{m}(self, place), Part{m}(owner, self), Part{m}(place, owner)]

    def forward(self, batch):
        return batch + self.rank
"""
MODELS = (
    "import sys\nimport torch.distributed as dist\n\n\ndef Part0(place, owner):\n    return place\n\n"
    + "".join(PART.format(n=n + 1, m=n) for n in range(4))
    + """

def main():
    kind = sys.argv[1]
    if kind == "a":
        model = Part4(kind, 1)
    elif kind == "b":
        model = Part4(kind, 2)
    else:
        model = Part4(kind, kind)
    for batch in make():
        loss = model.forward(batch)
        dist.all_reduce(loss)
    dist.barrier()


main()
"""
)


def test_a_function_whose_calls_take_its_budget_is_read_to_its_end() -> None:
    analysis = Analysis(Texts({"main.py": MODELS}))
    whole = analysis.script("main.py")
    assert whole is not None
    assert whole.steps > 4_000
    for limit in range(1_500, whole.steps, 500):
        analysis = Analysis(Texts({"main.py": MODELS}))
        analysis.program.effort = Effort(script=limit)
        entry = analysis.script("main.py")
        assert entry is not None
        names = [event.api.rpartition(".")[2] for event in walk(entry.tree) if isinstance(event, Event)]
        assert {"all_reduce", "barrier"} <= set(names), limit
        # What is kept for it has an end, too.
        assert entry.steps <= limit + 2_000


@pytest.mark.parametrize(("name", "is_read"), [("main", True), ("cli_main", True), ("helper", False)])
def test_a_function_that_an_installed_program_starts_gets_what_the_script_has_left(name: str, is_read: bool) -> None:
    text = MODELS.replace("\n\nmain()\n", "\n").replace("def main():", f"def {name}():")
    analysis = Analysis(Texts({"cli.py": text}))
    analysis.program.effort = Effort(open=400)
    analysis.script("cli.py")
    entry = next(entry for entry in analysis.entries if getattr(entry.node, "name", "") == name)
    assert any(isinstance(event, Event) and event.api.endswith(".barrier") for event in walk(entry.tree)) == is_read


REPLACED = (
    """\
import torch.distributed as dist


class One:
    def run(self, a):
        dist.all_reduce(a)


class Two:
    def run(self, a, b):
        dist.all_reduce(a)


class Base:
    def __init__(self, sizes):
        self.part = One()
        dist.barrier()


class Model(Base):
    def __init__(self, sizes):
        super().__init__(sizes)
"""
    + "        dist.all_reduce([sizes, [sizes, sizes]])\n" * 400
    + """\
        self.part = Two()


def main():
    model = Model(make())
    model.part.run(1, 2)


main()
"""
)


@pytest.mark.usefixtures("_at_once")
def test_a_constructor_that_is_given_up_may_replace_what_it_has_inherited() -> None:
    analysis = Analysis(Texts({"main.py": REPLACED}))
    whole = analysis.script("main.py")
    assert whole is not None
    given_up = 0
    for limit in range(800, whole.steps, 600):
        analysis = Analysis(Texts({"main.py": REPLACED}))
        analysis.program.effort = Effort(script=limit)
        entry = analysis.script("main.py")
        assert entry is not None
        given_up += any(isinstance(node, Lost) for node in walk(entry.tree))
        # `Two.run` takes both arguments: that `One.run` is meant is never certain.
        assert not refused(entry.tree), limit
    assert given_up


def refused(node: Node) -> bool:
    """Return whether a refused call is the only thing that an expression may mean."""
    if isinstance(node, Event):
        return "refused-call" in node.tags
    inner = [child for child in children(node) if not isinstance(child, Alt)]
    return any(map(refused, inner))
