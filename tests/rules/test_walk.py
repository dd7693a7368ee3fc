"""The one walk: order, names, constants, loops, and rules that behave like visitors."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script_helpers import asked, call, calls, document, script

from dslint.core.fact import known
from dslint.core.finding import Severity
from dslint.core.source import SourceFile, Span
from dslint.model.context import Context
from dslint.parse.python import ScriptDoc
from dslint.parse.tree import Tree
from dslint.python.launches import Launch
from dslint.rules.base import RuleMeta
from dslint.rules.walk import ScriptCheck, run_script_rules

META = RuleMeta("DSL999", "test-rule", "script", Severity.ERROR, "a test")


def run(code: str, check: type[ScriptCheck]) -> list[str]:
    return [f.message for f in run_script_rules(document(code), [(META, check)], Context())]


# -- dispatch -----------------------------------------------------------------------------------------------------


class Order(ScriptCheck):
    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.report(node, f"enter {node.name.value}")

    def leave_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.report(node, f"leave {node.name.value}")

    def visit_Call(self, node: cst.Call) -> None:
        self.report(node, self.ctx.text(node))

    def finish(self) -> None:
        self.report(self.ctx.doc.module.body[0], "end")


def test_handlers_run_in_source_order_and_leave_after_the_children() -> None:
    code = """
    def f():
        a()
        def g():
            b(c())
    d()
    """
    assert run(code, Order) == ["enter f", "a()", "enter g", "b(c())", "c()", "leave g", "leave f", "d()", "end"]


def test_decorators_and_keyword_arguments_are_walked() -> None:
    assert run("@a()\ndef f(x=b()): pass\nc(k=d())\n", Order)[:4] == ["enter f", "a()", "b()", "leave f"]


def test_a_handler_for_an_unknown_node_type_is_a_mistake_of_the_rule() -> None:
    class Wrong(ScriptCheck):
        def visit_Cal(self, node: cst.CSTNode) -> None: ...

    with pytest.raises(AttributeError):
        run("a()\n", Wrong)


def test_every_call_of_the_cheap_tree_is_seen_by_the_walk() -> None:
    code = Path(__file__).read_text(encoding="utf-8")
    seen: list[cst.Call] = []

    class Count(ScriptCheck):
        def visit_Call(self, node: cst.Call) -> None:
            seen.append(node)

    run_script_rules(document(code), [(META, Count)], Context())
    assert len(seen) == sum(isinstance(n, ast.Call) for n in ast.walk(ast.parse(code)))


def test_a_finding_has_the_place_of_its_node() -> None:
    class One(ScriptCheck):
        def visit_Call(self, node: cst.Call) -> None:
            self.report(node, "m", hint="h", severity=Severity.INFO)

    (found,) = run_script_rules(document("x = 1\ny = f(\n  2)\n"), [(META, One)], Context())
    region = found.location.region
    assert (region.line, region.column, region.end_line, region.end_column) == (2, 5, 3, 5)
    assert (found.hint, found.severity) == ("h", Severity.INFO)


# -- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch.distributed as dist\ndist.barrier()", "torch.distributed.barrier"),
        ("from torch import distributed as dist\ndist.barrier()", "torch.distributed.barrier"),
        ("import torch\ntorch.distributed.barrier()", "torch.distributed.barrier"),
        ("import torch.distributed\ntorch.distributed.barrier()", "torch.distributed.barrier"),
        ("from torch.distributed import barrier\nbarrier()", "torch.distributed.barrier"),
        ("from deepspeed import comm as dist\ndist.barrier()", "deepspeed.comm.barrier"),
        ("import deepspeed.comm as dist\ndist.barrier()", "deepspeed.comm.barrier"),
        ("import torch\ndist = torch.distributed\ndist.barrier()", "torch.distributed.barrier"),
        ("try:\n    import x as d\nexcept ImportError:\n    d = None\nd.barrier()", "x.barrier"),
        ("from . import dist\ndist.barrier()", ".dist.barrier"),
        ("from ..a import dist\ndist.barrier()", "..a.dist.barrier"),
        ("def f():\n    import torch.distributed as dist\n    dist.barrier()", "torch.distributed.barrier"),
    ],
)
def test_every_import_style_gives_the_canonical_name(code: str, name: str) -> None:
    ctx = script(code)
    assert ctx.qualified_name(call(ctx, "barrier").func) == name


@pytest.mark.parametrize(
    "code",
    [
        "dist = compute()\ndist.barrier()",
        "def f(dist):\n    dist.barrier()",
        "import torch.distributed as dist\ndef f(dist):\n    dist.barrier()",
        "import torch.distributed as dist\nfor dist in x:\n    dist.barrier()",
        "from torch.distributed import *\nbarrier()",
        "def barrier(): ...\nbarrier()",
        "f().barrier()",
        "self.dist.barrier()",
    ],
)
def test_what_is_no_import_has_no_qualified_name(code: str) -> None:
    ctx = script(code)
    assert ctx.qualified_name(call(ctx, "barrier").func) is None


def test_builtins_keep_their_name_unless_rebound() -> None:
    ctx = script("range(3)\n")
    assert ctx.qualified_name(call(ctx, "range").func) == "range"
    ctx = script("def range(n): ...\nrange(3)\n")
    assert ctx.qualified_name(call(ctx, "range").func) is None


def test_methods_do_not_see_class_names_and_closures_see_outer_functions() -> None:
    ctx = script(
        """
        class A:
            from m import x
            def f(self):
                x()
        def outer():
            from n import y
            def inner():
                y()
        """
    )
    assert ctx.qualified_name(call(ctx, "x").func) is None
    assert ctx.qualified_name(call(ctx, "y").func) == "n.y"


def test_class_bases_are_followed_within_the_file() -> None:
    ctx = script("from transformers import Trainer\nclass A(Trainer): ...\nclass B(A, Generic[T]): ...\n")
    assert ctx.class_bases("B") == ["A", "Generic", "transformers.Trainer"]


# -- constants ----------------------------------------------------------------------------------------------------


def value_of(code: str, context: Context | None = None) -> object:
    ctx = script(code if "types." not in code else f"import types\n{code}", context)
    fact = ctx.constant(call(ctx, "use").args[0].value)
    return fact.value if fact.is_known else "unknown"


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("use(3)", 3),
        ("use(-3)", -3),
        ("use(1_000)", 1000),
        ("use('a' 'b')", "ab"),
        ("N = 4 * 2\nuse(N + 1)", 9),
        ("N = 4\ndef f():\n    use(N)", 4),
        ("use((1, 'a'))", (1, "a")),
        ("use({'a': [1, 2]})", {"a": [1, 2]}),
        ("use(int('8'))", 8),
        ("use(3 if True else 4)", 3),
        ("use(3 if x else 3)", 3),
        ("class A:\n    def __init__(self):\n        self.n = 5\n    def f(self):\n        use(self.n)", 5),
        ("a, b = 1, 2\nuse(b)", 2),
        ("N = 4\nN = 5\nuse(N)", 5),
        ("N = 4\nN += 5\nuse(N)", 9),
        ("args = make()\nargs.n = 4\nuse(args.n)", 4),
        ("settings = types.SimpleNamespace(steps=64)\nuse(settings.steps)", 64),
        ("made = types.SimpleNamespace(steps=64)\nother = made\nuse(other.steps)", 64),
        ("class settings:\n    steps = (64)\nuse(settings.steps)", 64),
        ("settings = types.SimpleNamespace(steps=64)\nsetattr(settings, 'steps', 2)\nuse(settings.steps)", 2),
    ],
)
def test_constants_that_the_file_states(code: str, value: object) -> None:
    assert value_of(code) == value


@pytest.mark.parametrize(
    "code",
    [
        "for N in range(3):\n    use(N)",
        "def f(n=3):\n    use(n)",
        "import os\nuse(os.environ.get('N', 3))",
        "use(f(3))",
        "use(3 if x else 4)",
        "use(1 / 0)",
        "use(9 ** 9 ** 9)",
        "use([1, *x])",
        "use({**x})",
        "a = a\nuse(a)",
        "a = b\nb = a\nuse(a)",
        "p.add_argument('--n', default=3)\nargs = p.parse_args()\nuse(args.n)",
        "p.add_argument('--n', type=convert, default=3)\nuse(convert(3))",
        "settings = types.SimpleNamespace(steps=64)\nsettings.steps = args.steps\nuse(settings.steps)",
        "settings = types.SimpleNamespace(steps=64)\nfor k in more:\n    setattr(settings, k, 2)\nuse(settings.steps)",
    ],
)
def test_what_is_not_certain_is_unknown(code: str) -> None:
    assert value_of(code) == "unknown"


def test_what_the_launch_command_passes_is_known() -> None:
    code = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=3)\n"
        "args = p.parse_args()\nuse(args.n)"
    )
    assert value_of(code) == "unknown"
    launch = Launch(SourceFile("run.sh", "python a.py --n 8").location(Span(0, 6)), "argparse", {"n": 8})
    assert value_of(code, Context(launches=(launch,))) == 8


def test_a_constant_knows_its_place() -> None:
    ctx = script("N = 8\nuse(N)\n")
    fact = ctx.constant(call(ctx, "use").args[0].value, origins=True)
    assert [o.region.line for o in fact.origins] == [1]


# -- what the interpreter believes ---------------------------------------------------------------------------------

HELD = """
import argparse
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainingArguments

class Arguments(TrainingArguments):
    pass

def main(net):
    model = DistributedDataParallel(net)
    args = Arguments("out")
    if dist.get_rank() == 0:
        show(model, args, net)
    meet(dist.barrier())
"""


def test_objects_ranks_and_what_calls_do_are_told_by_the_interpreter() -> None:
    ctx = script(HELD)
    model, args, net = (arg.value for arg in call(ctx, "show").args)
    assert ctx.class_of(model) == "torch.nn.parallel.DistributedDataParallel"
    assert ctx.class_of(args) == "transformers.TrainingArguments"
    assert ctx.class_of(net) == ""
    assert ctx.only_on(model).startswith("ranks 0 of")
    assert "collective" in ctx.tags(call(ctx, "barrier"))
    assert ctx.only_on(call(ctx, "barrier")) == ""


# -- structure ----------------------------------------------------------------------------------------------------


def test_loops_are_those_that_repeat_the_node() -> None:
    ctx = script(
        """
        for a in first():
            while second():
                third()
            else:
                fourth()
            def g():
                fifth()
        """
    )
    counts = {n: len(ctx.loops(call(ctx, n))) for n in ("first", "second", "third", "fourth", "fifth")}
    assert counts == {"first": 0, "second": 2, "third": 2, "fourth": 1, "fifth": 0}


def test_arguments_by_name_and_position() -> None:
    ctx = script("f(1, b=2)\nf(*a, 3)\n")
    first, second = calls(ctx, "f")
    value = ctx.argument(first, "a", 0)
    assert value is not None
    assert ctx.text(value) == "1"
    assert ctx.argument(first, "c", 2) is None
    assert ctx.argument(second, "b", 1) is None
    assert ctx.has_unpacked_arguments(second)


# -- zero stage ---------------------------------------------------------------------------------------------------

STAGE3 = "{'zero_optimization': {'stage': 3}}"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"import deepspeed\ndeepspeed.initialize(config={STAGE3})", 3),
        ("import deepspeed\ncfg = {'zero_optimization': {'stage': 2}}", 2),
        ("import deepspeed\ncfg = {'zero_optimization': {'stage': args.stage}}", None),
        ("import deepspeed\na = {'zero_optimization': {'stage': 2}}\nb = " + STAGE3, None),
        ("import deepspeed\n", None),
        ("import torch\n", None),
    ],
)
def test_the_stage_is_read_from_the_file_when_it_states_it(code: str, expected: int | None) -> None:
    assert asked(code).stages.stated[0] == expected


def test_the_stage_of_the_run_wins() -> None:
    assert asked(f"import deepspeed\nx = {STAGE3}", Context(zero_stage=known(2))).stages.stated[0] == 2


# -- never raises -------------------------------------------------------------------------------------------------

_WORDS = st.sampled_from(
    [
        "x = 1",
        "def f(a, *b, c=2, **d): pass",
        "class A(B): x = 1",
        "if rank == 0: f()",
        "for i in range(rank, n, w): dist.barrier()",
        "with a as (b, c): pass",
        "from . import *",
        "import a.b as c",
        "lambda: 0",
        "[x for x in y if z]",
        "global x",
        "del x",
        "match a:\n  case {'k': [b, *c], **d}: pass",
        "try: pass\nexcept E as e: pass",
        "x: int = 3",
        "async def g(): await h()",
        "@d\ndef k(): return",
        "a[b::c]",
        "f'{x!r:>{w}}'",
        "(y := 3)",
        "if not is_main: f()",
        "x += 1",
        "while 1: break",
        "rank == 0 and f()",
    ]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(_WORDS, max_size=8))
def test_no_program_makes_the_analysis_raise(lines: list[str]) -> None:
    from dslint.parse.python import parse_script

    doc = parse_script(SourceFile("a.py", "import torch.distributed as dist\n" + "\n".join(lines) + "\n"))
    if not isinstance(doc, ScriptDoc):
        return

    class Ask(ScriptCheck):
        def visit_Call(self, node: cst.Call) -> None:
            ctx = self.ctx
            ctx.qualified_name(node.func), ctx.constant(node)
            ctx.class_of(node.func), ctx.tags(node), ctx.only_on(node), ctx.argument_names(node)
            ctx.location(node), ctx.loops(node)

        def visit_Name(self, node: cst.Name) -> None:
            self.ctx.constant(node, origins=True)

    run_script_rules(doc, [(META, Ask)], Context())


NESTED = """\
def outer(a=f(1)):
    g = lambda: (h(), yield_())
    class Inner:
        x = make()
        def method(self, b=k()):
            def deeper():
                return inner()
            return deeper()
    for i in run():
        if i:
            return i
        def local():
            return call(lambda: 1)
    return last(lambda: again(), tail())
outer()
"""


def test_own_nodes_of_a_type_are_those_of_the_walk() -> None:
    """Everywhere: in functions and lambdas in classes in functions, bodies, loops and the module."""
    tree = Tree(cst.parse_module(NESTED))
    for node in tree.order:
        for kind in (cst.Call, cst.Return, cst.Lambda, cst.FunctionDef, cst.Break, cst.Name):
            expected = [n for n in tree.own_nodes(node) if type(n) is kind]
            assert [id(n) for n in tree.own(node, kind)] == [id(n) for n in expected]
