"""Small programs whose dictionaries, orders and ways out were read wrongly; CPython found them (`judge/`)."""

from __future__ import annotations

import pytest
from test_interpreter import RANK, TWO, constants, held

from dslint.python.varies import DIVERGENT, LOST, RANKED

TEXTS = "import os\nwords = os.environ['WORDS'].split()\n"


def same(text: str, name: str = "x") -> bool:
    """Return whether the engine claims that a name holds the same on all ranks where it is read."""
    return not held(text, name, TWO)[1] & (DIVERGENT | LOST)


ROWS = "rows = [{'name': 'a', 'n': 1}, {'name': 'b', 'n': 2}]\n"


@pytest.mark.parametrize("view", ["", ".keys()", ".values()", ".items()"])
def test_where_ranks_skip_other_keys_those_at_one_place_differ(view: str) -> None:
    text = RANK + ROWS + "d = {row['name']: row['n'] for row in rows if row['n'] > %s}\nfor x in d%s:\n    x"
    assert not same(text % ("rank", view))
    assert same(text % ("1", view))
    assert not same(
        RANK + TEXTS + f"d = {{}}\nfor w in words:\n    if len(w) > rank:\n        d[w] = 1\nfor x in d{view}:\n    x"
    )
    assert not same(RANK + f"d = {{}}\nif rank:\n    d['a'] = 1\nd['b'] = 2\nfor x in d{view}:\n    x")
    assert same(RANK + f"d = {{'a': 1}}\nd['b'] = 2\nfor x in d{view}:\n    x")


@pytest.mark.parametrize("more", ["", "d['c'] = 3\n", "del d['a']\nd['a'] = 4\n"])
def test_keys_that_ranks_add_in_another_order_stand_at_other_places(more: str) -> None:
    text = RANK + "d = {}\nif rank == 0:\n    d['a'] = 1\n    d['b'] = 2\nelse:\n    d['b'] = 2\n    d['a'] = 1\n"
    assert {"a", "b"} <= constants(text + more + "for x in d:\n    x")
    assert more.startswith("del") or not same(text + more + "for x in d:\n    x")
    assert same(text + more + "x = d['a']\nx")
    assert constants(text + more + "x = d['b']\nx") == {2}


def test_keys_that_equal_keys_replace_count_once() -> None:
    text = RANK + TEXTS + "x = len({len(w) // %s: 1 for w in words})\nx"
    assert not same(text % "(rank + 1)")
    assert same(text % "2")


def test_a_display_in_a_loop_reads_what_it_replaces() -> None:
    head = f"{TEXTS}d = {{'a': 2}}\nfor w in words:\n"
    turn = "    d = {'b': d.get('a', 5), w: d.get('b', 7)}\n    x = d.get(w, 9)\n    x"
    assert {7, 2, 5} <= constants(head + turn)
    for form in ("{**d, w: 1}", "{w: 1, **d}", "dict(d, **{w: 1})", "{**d, 'z': d.get('z', 0)}"):
        assert 2 in constants(head + f"    d = {form}\n    d['y'] = 3\nx = d.get('a', 4)\nx"), form
        assert {3, 4} <= constants(head + f"    x = d.get('y', 4)\n    x\n    d = {form}\n    d['y'] = 3"), form


def test_a_list_that_ranks_sort_in_another_direction_has_another_order() -> None:
    text = RANK + TEXTS + "words.sort(reverse=%s)\nx = words\nx"
    assert not same(text % "rank == 0")
    assert same(text % "True")
    assert not same(RANK + TEXTS + "words.sort(key=lambda w: len(w) * rank)\nx = words\nx")


def test_a_name_with_the_rank_in_a_try_asks_for_no_job() -> None:
    way = "    try:\n        return 0\n        v += abs(rank)\n    except ValueError:\n        pass\n"
    assert 0 in constants(RANK + f"def f(v):\n{way}    return rank or 7\nx = f(1)\nx")
    made = RANK + "import torch\nx = torch.tensor([float(rank)])\n"
    assert not same(made + "try:\n    print(rank)\nexcept Exception:\n    dist.all_reduce(x)\nx")


def test_what_rank_0_does_not_have_is_no_rank_of_a_run_of_one_process() -> None:
    text = RANK + "def f(v):\n    if v.rank:\n        return 0\n    return rank %s\nx = f(open('x'))\nx"
    assert 0 in constants(text % "or 7")
    assert 0 not in constants(text % "+ 0")


@pytest.mark.parametrize("ask", ["dist.get_rank()", "int(os.environ['RANK'])", "get_rank()"])
def test_a_try_that_asks_for_the_rank_gives_it(ask: str) -> None:
    imports = "import os\nimport torch.distributed as dist\nfrom torch.distributed import get_rank\n"
    text = f"{imports}try:\n    x = {ask}\nexcept Exception:\n    x = 0\nx"
    assert held(text)[1] & RANKED
    assert 0 not in constants(text)
