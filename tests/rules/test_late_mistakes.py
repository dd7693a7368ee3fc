"""Calls, results and attributes of the project's own that Python refuses when it comes to a line, in many spellings."""

from __future__ import annotations

import pytest
from script_helpers import queried

from dslint.core.finding import Severity
from dslint.rules.script import dsl723_call_refused as calls
from dslint.rules.script import dsl724_result_of_other_length as results
from dslint.rules.script import dsl725_attribute_never_set as attributes

HEAD = "import functools\nimport torch\nimport torch.distributed as dist\nfrom torch import nn\n"
HEAD += "dist.init_process_group()\n"
NET = "class Net(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n        self.size = size\n"
NET += "    def forward(self, x, mask):\n        return x\n    @classmethod\n    def build(cls, size):\n"
NET += "        return cls(size)\n    @staticmethod\n    def loss(a, b):\n        return a\n"
BASE = (
    "class Base:\n    def __init__(self, model):\n        self.model = model\n    def log(self, name):\n        pass\n"
)
POINT = "from typing import NamedTuple\nclass Point(NamedTuple):\n    x: int\n    y: int = 0\n"
DATA = "import dataclasses\n@dataclasses.dataclass\nclass One:\n    a: int\n    b: int = dataclasses.field(default=1)\n"
DATA += "@dataclasses.dataclass\nclass Two(One):\n    c: int = dataclasses.field(init=False, default=0)\n"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(NET + "Net(8)(1)\n", id="forward by a call of the object"),
        pytest.param(NET + "Net.build()\n", id="a class method"),
        pytest.param(NET + "Net(8).loss(1)\n", id="a static method"),
        pytest.param(NET + "model = nn.parallel.DistributedDataParallel(Net(8))\nmodel(1)\n", id="forward inside DDP"),
        pytest.param(BASE + "class Own(Base):\n    pass\nOwn(1).log()\n", id="a method of a base"),
        pytest.param(
            BASE + "class Own(Base):\n    def __init__(self):\n        super().__init__()\nOwn()\n", id="super"
        ),
        pytest.param(POINT + "Point()\n", id="a named tuple"),
        pytest.param(DATA + "Two(1, 2, c=3)\n", id="a field that is no argument"),
        pytest.param(DATA + "Two()\n", id="a field of a base"),
        pytest.param("def f(a, *, b):\n    pass\nf(1, 2)\n", id="only by keyword"),
        pytest.param("def f(a, /):\n    pass\nf(a=1)\n", id="only by position"),
        pytest.param("def f(a, b):\n    pass\ng = functools.partial(f, b=1)\ng(1, 2)\n", id="partial"),
        pytest.param(
            "def f(a):\n    pass\noptions = {'a': 1, 'b': 2}\nf(**options)\n", id="a dictionary that is known"
        ),
        pytest.param("def f(a):\n    yield a\nfor x in f():\n    print(x)\n", id="a generator"),
    ],
)
def test_a_call_that_python_refuses(code: str) -> None:
    found = queried(calls, HEAD + code)
    assert [finding.severity for finding in found] == [Severity.ERROR]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(NET + "Net(8)(1, 2)\nNet.build(8)\nNet.loss(1, b=2)\n", id="all fit"),
        pytest.param("def f(*values, **options):\n    pass\nf(1, 2, a=3)\n", id="anything is taken"),
        pytest.param("def f(a, b):\n    pass\nf(*values())\nf(1, **options())\n", id="nobody knows what is unpacked"),
        pytest.param("import lib\n@lib.fixture\ndef f(a):\n    pass\nf()\n", id="a decorator that nobody knows"),
        pytest.param(DATA + "Two(1, 2)\nTwo(a=1)\nPoint = One(1)\n", id="a dataclass"),
        pytest.param("class A:\n    def __new__(cls, a):\n        return object()\nA(1)\n", id="`__new__`"),
        pytest.param("class E(ValueError):\n    pass\nE('text', 1)\n", id="a base that is no class of the project"),
    ],
)
def test_a_call_that_python_may_take(code: str) -> None:
    assert queried(calls, HEAD + code) == []


def test_an_option_makes_it_a_warning() -> None:
    code = "import sys\ndef f(a):\n    pass\nif '--save' in sys.argv:\n    f()\n"
    assert [finding.severity for finding in queried(calls, HEAD + code)] == [Severity.WARNING]


def test_a_choice_by_a_text_makes_it_a_note() -> None:
    code = "import os\ndef f(a):\n    pass\nif os.environ['DATA'] == 'coco':\n    f()\n"
    assert [finding.severity for finding in queried(calls, HEAD + code)] == [Severity.INFO]


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        pytest.param("def f():\n    return 1, 2, 3\na, b = f()\n", True, id="fewer names"),
        pytest.param("def f():\n    return 1, 2\n(a, b, c) = f()\n", True, id="more names"),
        pytest.param("def f():\n    return 1, 2\na, b, c, *d = f()\n", True, id="more names than parts beside a star"),
        pytest.param("def f():\n    return 1, 2, 3\na, *b = f()\n", False, id="a star"),
        pytest.param(
            "def f(x):\n    if x:\n        return 1, 2\n    return 1, 2, 3\na, b = f(g())\n", False, id="a way"
        ),
        pytest.param("def f(x):\n    return g(x)\na, b = f(1)\n", False, id="nobody knows"),
    ],
)
def test_results_of_another_length(code: str, *, is_found: bool) -> None:
    assert bool(queried(results, HEAD + code)) is is_found


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        pytest.param(BASE + "Base(1).lgo('a')\n", True, id="a method"),
        pytest.param(BASE + "print(Base(1).modle)\n", True, id="a field"),
        pytest.param(BASE + "b = Base(1)\nb.modle = 2\nprint(Base(1).modle)\n", False, id="set from outside"),
        pytest.param(BASE + "b = Base(1)\nif hasattr(b, 'extra'):\n    b.extra()\n", False, id="asked before"),
        pytest.param(BASE + "import lib\nclass Own(Base, lib.Mixin):\n    pass\nOwn(1).any()\n", False, id="a base"),
        pytest.param(BASE + "    def __getattr__(self, name):\n        return 1\nBase(1).any\n", False, id="any name"),
        pytest.param(NET + "n = Net(8)\nif 'w.b' in n.state_dict():\n    print(n.w)\n", False, id="asked for by name"),
        pytest.param(NET + "Net(8).train()\nNet(8).cuda().state_dict()\n", False, id="what modules have"),
        pytest.param(NET + "n = Net(8)\nn.register_buffer('w', torch.ones(1))\nprint(n.w)\n", False, id="a buffer"),
    ],
)
def test_attributes_that_nothing_sets(code: str, *, is_found: bool) -> None:
    assert bool(queried(attributes, HEAD + code)) is is_found
