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


LISTS = {"known": "x = [3, 1, 2]\n", "open": "x = [len(w) for w in words]\n"}


@pytest.mark.parametrize("made", LISTS)
@pytest.mark.parametrize(
    "write",
    ["x.insert({0}, 9)", "x.pop({0})", "del x[{0}]", "del x[{0}:]", "x[:{0}] = []", "x *= {0} + 1"],
)
def test_where_ranks_write_at_other_places_their_lists_differ(made: str, write: str) -> None:
    text = f"{RANK}{TEXTS}{LISTS[made]}{write}\nfirst = x\nfirst"
    assert not same(text.format("rank"), "first")
    assert same(text.format("1"), "first")


@pytest.mark.parametrize("write", ["x.append(x.pop(0))", "x.remove(1)", "x.insert(0, 5)", "del x[0]", "x.reverse()"])
def test_where_only_some_ranks_move_items_those_at_one_place_differ(write: str) -> None:
    for way in ("if rank:\n    ", "for i in range(rank):\n    "):
        assert not same(f"{RANK}{TEXTS}{LISTS['open']}{way}{write}\nfor item in x:\n    item", "item")


def test_what_is_known_of_a_list_stays_known() -> None:
    for write, items in (
        ("x.insert(1, 9)", (3, 9, 1, 2)),
        ("x.reverse()", (2, 1, 3)),
        ("del x[-1]", (3, 1)),
        ("x *= 2", (3, 1, 2, 3, 1, 2)),
        ("y = x\nx *= 2\nx = y", (3, 1, 2, 3, 1, 2)),
    ):
        assert constants(f"x = [3, 1, 2]\n{write}\nr = tuple(x) == {items}\nr", "r") == {True}, write
    assert constants("import collections\nx = collections.deque([1])\nx.extendleft([2, 3])\nr = x[0]\nr", "r") != {1}


def test_a_starred_target_gets_what_any_of_several_lists_leaves() -> None:
    text = RANK + TEXTS + "x = [3, 1, 2]\nif len(words) > 1:\n    x = [v + %s for v in x]\nfirst, *x = x\nx"
    assert not same(text % "rank")
    assert same(text % "1")


@pytest.mark.parametrize(
    "write",
    [
        "for i in range({0}):\n    d.pop('a', None)",
        "for i in range({0}):\n    d.setdefault('z', 4)",
        "for i in range({0}):\n    d[words[0]] = 4",
        "if {0} == 1:\n    d.popitem()",
        "d.pop({0}, 0)",
        "if {0} == 1:\n    d = {{**d, 'q': 4}}",
        "if {0} == 1:\n    d.pop('a', None)\nelse:\n    d.clear()",
    ],
)
def test_keys_that_only_some_ranks_have_make_dictionaries_differ(write: str) -> None:
    text = RANK + TEXTS + "d = {{1: 2, 'a': 1, 'b': 2}}\n" + write + "\nx = {{**d}}\nx"
    assert not same(text.format("rank"))
    assert same(text.format("2"))


def test_the_keys_of_fromkeys_are_those_it_is_given() -> None:
    assert constants("x = dict.fromkeys(['a', 'b'], 3)['a']\nx") == {3}
    assert constants("x = list(dict.fromkeys('ab').keys())[1]\nx") == {"b"}
    assert same(TEXTS + "x = dict.fromkeys(words)\nx")
    assert not same(RANK + TEXTS + "x = dict.fromkeys(words[rank:])\nx")


def test_a_key_by_rank_may_be_one_that_is_known_only_by_rank() -> None:
    assert constants(RANK + "d = {rank: 1, 'b': 2}\nx = d.get(rank, 0)\nx") >= {1}


def test_finally_changes_the_dictionary_that_is_returned() -> None:
    way = "    try:\n        d = rank and d or {'y': 1}\n        return d\n    finally:\n        d |= {'m': 5}\n"
    assert 5 in constants(f"{RANK}def f(d):\n{way}x = f({{}}).get('m', 4)\nx")


@pytest.mark.parametrize("made", ["[{0} for v in [rank, 7]]", "list(map(lambda v: {0}, [rank, 7]))"])
def test_each_turn_of_a_comprehension_makes_an_object_of_its_own(made: str) -> None:
    lists = RANK + f"x = {made.format('[v]')}\n"
    assert constants(lists + "x = x[1][0]\nr = x\nr", "r") == {7}
    assert not same(lists + "r = x[0][0]\nr", "r")
    tensors = f"import torch\n{RANK}x = {made.format('torch.tensor(v)')}\n"
    assert not same(tensors + "r = x[0]\nr", "r")
    assert same(tensors + "r = x[1]\nr", "r")
    steps = "def make(n):\n    def step():\n        return [n]\n    return step\n"
    assert constants(f"{RANK}{steps}x = [f() for f in [make(rank), make(7)]]\nr = x[1][0]\nr", "r") == {7}


def test_the_parts_of_a_text_are_texts() -> None:
    text = f"{TEXTS}rank = words[0].partition('-')[2].count('a')\nimport torch.distributed as dist\nr = rank\nr"
    assert not held(text, "r")[1] & RANKED


def test_a_comparison_of_two_ranks_asks_for_no_job() -> None:
    text = RANK + "def f(v):\n    if rank == v.rank:\n        return -1\n    return rank\nx = f(open('x'))\nx"
    assert -1 in constants(text)
    assert -1 not in constants(text.replace("rank == v.rank", "v.rank < 0"))


@pytest.mark.parametrize("taken", ["[*bag, 1]", "list(bag)", "[v for v in bag]", "{*bag}"])
def test_an_object_of_the_project_gives_as_many_items_as_its_generator(taken: str) -> None:
    body = "    def __init__(self, items):\n        self.items = items\n    def __iter__(self):\n"
    made = RANK + TEXTS + "class Bag:\n" + body + "        for item in self.items:\n            yield item\n"
    text = made + "bag = Bag(words[%s:])\nx = len(" + taken + ")\nx"
    assert not same(text % "rank")
    assert same(text % "1")


@pytest.mark.parametrize("over", ["d", "list(d)", "d.keys()", "list(d.keys())"])
def test_a_loop_that_replaces_each_item_leaves_none_of_the_old_ones(over: str) -> None:
    text = f"d = {{'a': 1, 'b': 2}}\nfor k in {over}:\n    d[k] = d[k] + 10\nx = d['a']\nx\n"
    assert constants(text) == {11}
    assert constants(text.replace("x = d['a']", "x = d['b']")) == {12}
    assert constants("d = {'a': 1, 'b': 2}\nfor k, v in d.items():\n    d[k] = v + 10\nx = d['b']\nx\n") == {12}
    assert constants(text.replace("+ 10", "+ 10\n    if d[k] > 5:\n        break")) != {11}


@pytest.mark.parametrize("module", ["munch", "easydict", "addict"])
def test_items_of_dictionaries_that_are_attributes_too(module: str) -> None:
    name = {"munch": "Munch", "easydict": "EasyDict", "addict": "Dict"}[module]
    head = f"from {module} import {name}\nd = {name}({{'a': 1}})\nd.b = 2\nd['c'] = 3\n"
    for key, number in (("a", 1), ("b", 2), ("c", 3)):
        assert constants(head + f"x = d.{key}\nx\n") == {number}
        assert constants(head + f"x = d['{key}']\nx\n") == {number}


def test_what_lightning_keeps_of_the_arguments_of_a_constructor() -> None:
    net = (
        "import lightning as L\nclass Net(L.LightningModule):\n    def __init__(self, a, b=2, **more):\n"
        "        super().__init__()\n        self.save_hyperparameters(%s)\nn = Net(1, c=3)\n"
    )
    for key, number in (("a", 1), ("b", 2), ("c", 3)):
        assert constants(net % "" + f"x = n.hparams.{key}\nx\n") == {number}
        assert constants(net % "" + f"x = n.hparams['{key}']\nx\n") == {number}
    assert constants(net % "'a'" + "x = n.hparams.b\nx\n") == {...}
