"""Which parameter an argument of a call is for, judged by ``inspect``; and which calls of a file run a function."""

from __future__ import annotations

import inspect
import itertools

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script_helpers import call, findings, script

from dslint.core.fact import known
from dslint.model.context import Context
from dslint.model.script.names import Names
from dslint.model.script.parameters import bound, position_of
from dslint.model.script.tree import Tree
from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201
from dslint.rules.script import dsl265_wandb_on_all_ranks as dsl265

_NAMES = ("a", "b", "c", "d", "e")


@st.composite
def _headers(draw: st.DrawFn) -> str:
    """``a, /, b='default b', *args, d, e='default e', **kwargs``."""
    positional = draw(st.integers(0, 3))
    only, defaults, named = draw(st.integers(0, positional)), draw(st.integers(0, positional)), draw(st.integers(0, 2))
    parts = [n if at < positional - defaults else f"{n}='default {n}'" for at, n in enumerate(_NAMES[:positional])]
    if only:
        parts.insert(only, "/")
    star = "*args" if draw(st.booleans()) else "*" if named else ""
    parts += [star] if star else []
    parts += [n + draw(st.sampled_from(["", f"='default {n}'"])) for n in _NAMES[3 : 3 + named]]
    return ", ".join([*parts, *(["**kwargs"] if draw(st.booleans()) else [])])


@st.composite
def _arguments(draw: st.DrawFn) -> str:
    """``'0', *values, b='named b', **options``."""
    plain = [f"'{at}'" for at in range(draw(st.integers(0, 4)))]
    if draw(st.booleans()):
        plain.insert(draw(st.integers(0, len(plain))), "*values")
    named = [f"{n}='named {n}'" for n in draw(st.sets(st.sampled_from([*_NAMES, "other"]), max_size=3))]
    return ", ".join([*plain, *named, *(["**options"] if draw(st.booleans()) else [])])


def _bindings(header: str, arguments: str) -> list[tuple[dict[str, object], dict[str, object]]]:
    """What Python binds, without and with the defaults, for several contents of what is unpacked."""
    taken: dict[str, object] = {}
    exec(f"def function({header}): pass\ndef call(*args, **kwargs): return args, kwargs", taken)  # noqa: S102 - ours
    signature = inspect.signature(taken["function"])  # type: ignore[arg-type]
    values = [["x"] * count for count in range(5)] if "*values" in arguments else [[]]
    options = [(), *((n,) for n in _NAMES), *itertools.combinations(_NAMES, 2)] if "**options" in arguments else [()]
    found = []
    for unpacked, names in itertools.product(values, options):
        scope = {**taken, "values": unpacked, "options": {n: f"option {n}" for n in names}}
        try:
            args, kwargs = eval(f"call({arguments})", scope)
            binding = signature.bind(*args, **kwargs)
        except TypeError:
            continue
        given_ = {n: v for n, v in binding.arguments.items() if n not in ("args", "kwargs")}
        binding.apply_defaults()
        found.append((given_, {n: v for n, v in binding.arguments.items() if n not in ("args", "kwargs")}))
    return found


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("def f({header}): pass\nf({call})\n", id="function"),
        pytest.param("class K:\n    def f(this, {header}): pass\nK().f({call})\n", id="method"),
        pytest.param("class K:\n    def __init__(self, {header}): pass\nK({call})\n", id="class"),
        pytest.param("class K:\n    def __call__(self, {header}): pass\nk = K()\nk({call})\n", id="object"),
        pytest.param("class K:\n    @staticmethod\n    def f({header}): pass\nK().f({call})\n", id="static method"),
    ],
)
@settings(max_examples=100)
@given(header=_headers(), arguments=_arguments())
def test_arguments_are_bound_as_python_does(code: str, header: str, arguments: str) -> None:
    """Whatever is unpacked: what is passed is what the parameter gets, and what is left out has its default."""
    tree = Tree(cst.parse_module(code.format(header=header, call=arguments).replace(", )", ")")))
    function = tree.every(cst.FunctionDef)[0]
    made = next(c for c in tree.every(cst.Call) if tree.text(c).endswith(f"({arguments})"))
    found = bound(tree, made, function)
    passed, defaults = ({n: _text(v) for n, v in part.items()} for part in found)
    for given_, every in _bindings(header, arguments):
        assert passed.items() <= given_.items()
        assert not defaults.keys() & given_.keys()
        assert defaults.items() <= every.items()
        if "values" not in arguments and "options" not in arguments:
            assert {**passed, **defaults} == every
            assert passed == given_
            for name, value in passed.items():
                at = position_of(tree, made, function, name)
                assert value == f"named {name}" or value == str(at)


def _text(node: cst.BaseExpression) -> object:
    return node.evaluated_value if isinstance(node, cst.SimpleString) else None


def _calls(code: str, function: str) -> list[str]:
    """The calls that run a function, ``f`` or ``K.f``, in the words of the script."""
    tree = Tree(cst.parse_module(code))
    names = Names(tree)
    owner, _, name = function.rpartition(".")
    found = next(
        f
        for f in tree.every(cst.FunctionDef)
        if f.name.value == name
        and getattr(getattr(tree.enclosing(f, cst.ClassDef), "name", None), "value", "") == owner
    )
    return [tree.text(c) for c in names.callers.of(found)]


_CLASSES = "class A:\n    def __init__(self, x): pass\n    def run(self): pass\n"


@pytest.mark.parametrize(
    ("code", "function", "calls"),
    [
        pytest.param("def f(): pass\nf()\ng(f)\nf(1)\n", "f", ["f()", "f(1)"], id="function"),
        pytest.param(f"{_CLASSES}a = A(1)\na.run()\n", "A.run", ["a.run()"], id="method"),
        pytest.param(f"{_CLASSES}A(1)\n", "A.__init__", ["A(1)"], id="class"),
        pytest.param(f"{_CLASSES}class B(A): pass\nB(2)\nA(1)\n", "A.__init__", ["B(2)", "A(1)"], id="class below"),
        pytest.param(
            f"{_CLASSES}class B(A):\n    def __init__(self): super().__init__(3)\nB()\n",
            "A.__init__",
            ["super().__init__(3)"],
            id="by super, and not by the class below",
        ),
        pytest.param(f"from m import M\n{_CLASSES}class B(M, A): pass\nB(2)\n", "A.__init__", [], id="base elsewhere"),
        pytest.param(
            "class A:\n    def __init__(self): pass\n    if new:\n        def __init__(self, x): pass\nA(1)\n",
            "A.__init__",
            [],
            id="one of two",
        ),
    ],
)
def test_calls_that_run_a_function(code: str, function: str, calls: list[str]) -> None:
    assert _calls(code, function) == calls


def test_a_parameter_of_a_lambda_is_not_that_of_the_function() -> None:
    tree = Tree(cst.parse_module("def f(x):\n    return lambda x: x\nf(1)\n"))
    names = Names(tree)
    own, inner = tree.every(cst.Param)
    assert [tree.text(value) for value in names.callers.passed(own) if value is not None] == ["1"]
    assert names.callers.passed(inner) == []


# -- where readers of calls used to disagree ----------------------------------------------------------------------

_OBJECT = "import torch.distributed as dist\nclass Sync:\n    def __call__(self, x, sync={default}):\n"
_OBJECT += (
    "        if sync:\n            dist.barrier()\nsync = Sync()\nif dist.get_rank() == 0:\n    sync(1, {given})\n"
)


@pytest.mark.parametrize(("given_", "default", "fires"), [("True", "False", True), ("False", "True", False)])
def test_an_object_that_is_called_gets_its_arguments(given_: str, default: str, fires: bool) -> None:
    """The object itself is not the first of them."""
    assert bool(findings(dsl201, _OBJECT.format(given=given_, default=default))) == fires


@pytest.mark.parametrize(
    ("shard", "kinds"),
    [
        pytest.param("def shard(net, other):\n    fully_shard(net)\nshard(a, b)\n", ("fsdp", ""), id="function"),
        pytest.param(
            "class K:\n    def shard(self, net, other):\n        fully_shard(net)\nK().shard(a, b)\n",
            ("fsdp", ""),
            id="method",
        ),
        pytest.param("def shard(net, /):\n    fully_shard(net)\nshard(a)\n", ("fsdp", ""), id="by position only"),
        pytest.param("def shard(net, other):\n    fully_shard(net)\nshard(*a, b)\n", ("", ""), id="nobody knows"),
    ],
)
def test_the_argument_that_a_function_shards(shard: str, kinds: tuple[str, str]) -> None:
    ctx = script(f"from torch.distributed.fsdp import fully_shard\n{shard}use(a, b)\n")
    assert tuple(ctx.objects.kind(arg.value) for arg in call(ctx, "use").args) == kinds


def test_a_function_with_a_parameter_self_is_no_method() -> None:
    """``def forward(self, engine)`` that replaces a method is called with the object here."""
    code = "import deepspeed\nengine, *_ = deepspeed.initialize(model=m)\n"
    code += "def forward(self, engine):\n    use(engine)\nforward(model, engine)\n"
    ctx = script(code)
    assert ctx.objects.kind(call(ctx, "use").args[0].value) == "engine"


@pytest.mark.parametrize(
    ("calls", "fires"),
    [
        pytest.param("log = Log()\n", True, id="every rank makes it"),
        pytest.param("if dist.get_rank() == 0:\n    log = Log()\n", False, id="rank 0 makes it"),
        pytest.param("", False, id="who makes it is not known"),
    ],
)
def test_a_class_that_is_made_runs_its_init(calls: str, fires: bool) -> None:
    code = "import torch.distributed as dist\nimport wandb\ndist.init_process_group('nccl')\n"
    code += f"class Log:\n    def __init__(self):\n        wandb.init(project='x')\n{calls}"
    assert bool(findings(dsl265, code, Context(world_size=known(4)))) == fires
