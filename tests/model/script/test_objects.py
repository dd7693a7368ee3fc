"""What a name holds: kinds of objects through assignments, arms, attributes, containers and calls."""

from __future__ import annotations

import textwrap

import pytest
from script_helpers import calls, script

HEAD = """\
import deepspeed
import torch
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments, get_scheduler
"""


def kinds(code: str) -> list[str]:
    """The kind of the first argument of each `show(...)`, in order."""
    ctx = script(HEAD + textwrap.dedent(code))
    return [ctx.kind(call.args[0].value) for call in calls(ctx, "show")]


def test_a_method_that_returns_leaves_what_it_has_bound() -> None:
    code = """
        class Strategy:
            def __init__(self):
                self.engine = None

            def prepare(self, model):
                self.engine, _, _, _ = deepspeed.initialize(model=model)
                return self.engine

            def save(self):
                show(self.engine)
    """
    assert kinds(code) == ["engine"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("show(deepspeed.initialize(model=m)[0])", "engine"),
        ("e, o, l, s = deepspeed.initialize(model=m)\nshow(e)", "engine"),
        ("e, o, l, s = deepspeed.initialize(model=m)\nshow(o)", "ds_optimizer"),
        ("e, o, l, s = deepspeed.initialize(model=m)\nshow(l)", "ds_loader"),
        ("e, o, l, s = deepspeed.initialize(model=m)\nshow(s)", "ds_scheduler"),
        ("e, *rest = deepspeed.initialize(model=m)\nshow(e)", "engine"),
        ("*rest, s = deepspeed.initialize(model=m)\nshow(s)", ""),
        ("e, *_ = deepspeed.initialize(model=m)\nshow(e.optimizer)", "ds_optimizer"),
        ("e, *_ = deepspeed.initialize(model=m)\nshow(e.lr_scheduler)", "ds_scheduler"),
        ("e, *_ = deepspeed.initialize(model=m)\nshow(e.module)", "engine_module"),
        ("r = deepspeed.initialize(model=m)\ne = r[0]\nshow(e)", "engine"),
        ("r = deepspeed.initialize(model=m)\ne, o, _, _ = r\nshow(o)", "ds_optimizer"),
        ("if (e := deepspeed.initialize(model=m)[0]) and show(e): pass", "engine"),
        ("o = torch.optim.AdamW(p)\nshow(o)", "optimizer"),
        ("s = torch.optim.lr_scheduler.StepLR(o, 1)\nshow(s)", "scheduler"),
        ("show(get_scheduler('linear', o))", "scheduler"),
        ("show(AutoModelForCausalLM.from_pretrained('x').to('cuda'))", "model"),
        ("class Net(torch.nn.Module): ...\nshow(Net().cuda())", "model"),
        ("show(DDP(m))", "ddp"),
        ("show(torch.compile(DDP(m)))", "ddp"),
        ("show(DDP(m).module)", "ddp_module"),
        ("show(DataLoader(d))", "loader"),
        ("show(DistributedSampler(d))", "distributed_sampler"),
        ("class T(Trainer): ...\nshow(T(model=m))", "trainer"),
        ("t = Trainer(model=m)\nshow(t.accelerator)", "accelerator"),
        ("t = Trainer(model=m)\nshow(t.args)", "training_arguments"),
        ("class A(TrainingArguments): ...\np = HfArgumentParser((M, A))\n"
         "m, a = p.parse_args_into_dataclasses()\nshow(a)", "training_arguments"),
        ("show(x)", ""),
        ("def f(x):\n    show(x)", ""),
    ],
)  # fmt: skip
def test_what_makes_an_object(code: str, kind: str) -> None:
    assert kinds(code) == [kind]


ENGINE = "o = torch.optim.SGD(p)\ns = torch.optim.lr_scheduler.StepLR(o, 1)\n"
TAKEN = ENGINE + "e, *_ = deepspeed.initialize(model=m, optimizer=o, lr_scheduler=s)\n"


def test_what_deepspeed_takes_is_the_clients_from_then_on() -> None:
    assert kinds(ENGINE + "show(o)\ne, *_ = deepspeed.initialize(args, m, o)\nshow(o)\nshow(m)\n") == [
        "optimizer",
        "client_optimizer",
        "engine_module",
    ]
    assert kinds(TAKEN + "show(s)") == ["client_scheduler"]
    assert kinds(TAKEN + "o = torch.optim.SGD(q)\nshow(o)") == ["optimizer"]
    rebound = (
        ENGINE + "m, o, _, s = deepspeed.initialize(model=m, optimizer=o, lr_scheduler=s)\nshow(m)\nshow(o)\nshow(s)"
    )
    assert kinds(rebound) == ["engine", "ds_optimizer", "ds_scheduler"]


def test_ddp_leaves_the_model_inside() -> None:
    assert kinds("m = Net()\nw = DDP(m)\nshow(m)\nm = DDP(m)\nshow(m)") == ["ddp_module", "ddp"]


ARMS = """
    def main(args, m):
        o = torch.optim.SGD(m.parameters())
        if args.deepspeed:
            m, o, _, _ = deepspeed.initialize(model=m, optimizer=o)
        else:
            m = DDP(m)
        show(m)
        if args.deepspeed:
            show(m)
            show(o)
        else:
            show(m)
            show(o)
"""


def test_arms_do_not_mix() -> None:
    assert kinds(ARMS) == ["", "engine", "ds_optimizer", "ddp", "optimizer"]


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        ("args.deepspeed", "client_optimizer"),
        ("not args.deepspeed", "optimizer"),
        ("args.deepspeed and args.fast", "client_optimizer"),
        ("args.other", ""),
        ("not (not args.deepspeed or x)", "client_optimizer"),
    ],
)
def test_an_optimizer_is_the_clients_only_in_the_arm_where_the_engine_exists(test: str, kind: str) -> None:
    code = ENGINE + "if args.deepspeed:\n    e, *_ = deepspeed.initialize(model=m, optimizer=o)\n"
    assert kinds(code + f"if {test}:\n    show(o)\n") == [kind]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("if b == 'ds':\n    e, *_ = deepspeed.initialize(model=m, optimizer=o)\nelif b == 'ddp':\n    m = DDP(m)\n"
         "if b == 'ddp':\n    show(o)\nif b == 'ds':\n    show(o)", ["optimizer", "client_optimizer"]),
        ("def f(ds, o, m):\n    if ds:\n        e, *_ = deepspeed.initialize(model=m, optimizer=o)\n"
         "        return e\n    show(o)\n", [""]),
        ("def f(ds, o, m):\n    e, *_ = deepspeed.initialize(model=m, optimizer=o)\n    if not ds:\n        return\n"
         "    show(o)\n", ["client_optimizer"]),
        ("ds = a()\nif ds:\n    e, *_ = deepspeed.initialize(model=m, optimizer=o)\nds = b()\nif ds:\n"
         "    show(o)", [""]),
        ("e = None\nif ds:\n    e = deepspeed.initialize(model=m)[0]\nif e is not None:\n    show(e)", ["engine"]),
        ("m = make()\nif isinstance(m, deepspeed.DeepSpeedEngine):\n    show(m)\nelse:\n    show(m)", ["engine", ""]),
        ("m = DDP(x) if d else deepspeed.initialize(model=x)[0]\nshow(m)", [""]),
        ("m = y\nfor i in r:\n    show(m)\n    m = DDP(x)", [""]),
        ("m = DDP(x)\nfor i in r:\n    show(m)\n    m = DDP(m.module)", ["ddp"]),
        ("try:\n    m = DDP(x)\nexcept ValueError:\n    raise\nshow(m)", ["ddp"]),
        ("m = x\ntry:\n    m = DDP(x)\nexcept ValueError:\n    pass\nshow(m)", [""]),
        ("try:\n    m = DDP(x)\nfinally:\n    if a:\n        m = Accelerator()\nshow(m)", [""]),
        ("m = None\nfor i in r:\n    if m is None:\n        m = DDP(x)\n    else:\n        show(m)", ["ddp"]),
        ("if a:\n    m = DDP(x)\nelse:\n    m = y\nfor i in r:\n    if a:\n        show(m)\n    a = f()", [""]),
        ("with a() as q:\n    m = DDP(x)\nshow(m)", ["ddp"]),
        ("match b:\n    case 1:\n        m = DDP(x)\n    case _:\n        m = y\nshow(m)", [""]),
    ],
)  # fmt: skip
def test_flow(code: str, expected: list[str]) -> None:
    assert kinds(ENGINE + code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("class T:\n    def __init__(self, m):\n        self.o = torch.optim.SGD(p)\n        self.e, *_ = "
         "deepspeed.initialize(model=m, optimizer=self.o)\n"
         "    def step(self):\n        show(self.e)\n        show(self.o)", ["engine", "client_optimizer"]),
        ("class T:\n    def __init__(self):\n        self.e = None\n    def setup(self, m):\n"
         "        self.e = deepspeed.initialize(model=m)[0]\n    def step(self):\n        show(self.e)", ["engine"]),
        ("class T:\n    def a(self):\n        self.m = DDP(x)\n    def b(self):\n        self.m = make()\n"
         "    def c(self):\n        show(self.m)\n        self.m = DDP(y)\n        show(self.m)", ["", "ddp"]),
        ("class T:\n    def __init__(self, e):\n        self.e = e\n    def step(self):\n        show(self.e)\n"
         "e, *_ = deepspeed.initialize(model=m)\nT(e)", ["engine"]),
        ("class B:\n    def __init__(self):\n        self.m = DDP(x)\nclass T(B):\n"
         "    def f(self):\n        show(self.m)",
         ["ddp"]),
        ("class T:\n    def __init__(self):\n        self.m = DDP(x)\nt = T()\nshow(t.m)", ["ddp"]),
        ("class T:\n    def __init__(self, args):\n        self.o = torch.optim.SGD(p)\n        if args.ds:\n"
         "            self.e, *_ = deepspeed.initialize(model=m, optimizer=self.o)\n    def f(self, args):\n"
         "        show(self.o)\n        if args.ds:\n            show(self.o)\n        else:\n            show(self.o)",
         ["", "client_optimizer", "optimizer"]),
    ],
)  # fmt: skip
def test_attributes(code: str, expected: list[str]) -> None:
    assert kinds(code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("d = {'m': DDP(x), 'o': 1}\nshow(d['m'])\nshow(d['o'])", ["ddp", ""]),
        ("d = dict(m=DDP(x))\nshow(d['m'])", ["ddp"]),
        ("d = [DDP(x), y]\nshow(d[0])\nm, z = d\nshow(m)\nshow(z)", ["ddp", "ddp", ""]),
        ("import types\nn = types.SimpleNamespace(m=DDP(x))\nshow(n.m)", ["ddp"]),
        ("n.m = DDP(x)\nshow(n.m)", ["ddp"]),
        ("n.e, n.o, _, _ = deepspeed.initialize(model=x)\nshow(n.o)", ["ds_optimizer"]),
        ("def make():\n    return DDP(x)\nshow(make())", ["ddp"]),
        ("def make():\n    e, o, _, s = deepspeed.initialize(model=x)\n    return e, s\n"
         "e, s = make()\nshow(e)\nshow(s)", ["engine", "ds_scheduler"]),
        ("def make():\n    if a:\n        return DDP(x)\n    return x\nshow(make())", [""]),
        ("def train(e, o):\n    show(e)\n    show(o)\no = torch.optim.SGD(p)\n"
         "e, *_ = deepspeed.initialize(model=m, optimizer=o)\ntrain(e, o=o)", ["engine", "client_optimizer"]),
        ("def train(m):\n    show(m)\ntrain(DDP(x))\ntrain(y)", [""]),
        ("m = x\nm = DDP(m)\ndef train():\n    show(m)\ntrain()", ["ddp"]),
        ("def train():\n    show(m)\nm = x\ntrain()\nm = DDP(m)", [""]),
        ("def f(m: DDP):\n    show(m)", ["ddp"]),
        ("import contextlib\n@contextlib.contextmanager\ndef w():\n    yield DDP(x)\n"
         "with w() as m:\n    show(m)", ["ddp"]),
        ("def f(a):\n    return g(a)\ndef g(a):\n    return f(a)\nshow(f(x))", [""]),
    ],
)  # fmt: skip
def test_containers_and_calls(code: str, expected: list[str]) -> None:
    assert kinds(code) == expected


def test_what_accelerate_prepares_is_named_by_the_argument() -> None:
    code = """
        a = Accelerator()
        m = AutoModelForCausalLM.from_pretrained("x")
        o = torch.optim.AdamW(m.parameters())
        s = get_scheduler("linear", o)
        m, o, l, s, x = a.prepare(m, o, DataLoader(d), s, unknown)
        show(m); show(o); show(l); show(s); show(x)
        show(a.prepare(m))
        show(a.unwrap_model(m))
        show(a.prepare_data_loader(q))
    """
    prepared = ["prepared_model", "prepared_optimizer", "prepared_loader", "prepared_scheduler", "prepared"]
    assert kinds(code) == [*prepared, "prepared_model", "prepared_module", "prepared_loader"]


def test_the_calls_behind_an_object_are_known() -> None:
    ctx = script(HEAD + TAKEN + "show(e)\nshow(o)\n")
    (engine, optimizer) = (c.args[0].value for c in calls(ctx, "show"))
    (initialize,) = calls(ctx, "initialize")
    assert ctx.objects.made(engine) is initialize
    assert ctx.objects.taken(optimizer) is initialize
    assert ctx.objects.made(optimizer) in list(calls(ctx, "SGD"))


def test_a_likely_kind_is_the_one_that_an_arm_makes() -> None:
    ctx = script(HEAD + "m = Net()\nif distributed:\n    m = DDP(m)\nshow(m)\n")
    (used,) = (c.args[0].value for c in calls(ctx, "show"))
    assert (ctx.kind(used), ctx.objects.likely(used)) == ("", "ddp")


@pytest.mark.parametrize(
    ("code", "excluded", "implied"),
    [
        ("if a:\n    one()\nelse:\n    two()", True, False),
        ("if a:\n    one()\nif a:\n    two()", False, True),
        ("if a:\n    one()\nif a and b:\n    two()", False, True),
        ("if a and b:\n    one()\nif a:\n    two()", False, False),
        ("if a is None:\n    one()\nif a:\n    two()", True, False),
        ("one()\nif a:\n    two()", False, True),
        ("def f():\n    if not a:\n        return\n    one()\n    while a:\n        two()", False, True),
        ("if x == 1:\n    one()\nif x == 2:\n    two()", True, False),
        ("if x == 1:\n    one()\nif x != 1:\n    two()", True, False),
        ("if a:\n    one()\na = f()\nif not a:\n    two()", False, False),
        ("one() if a else two()", True, False),
        ("a and one()\na or two()", True, False),
        ("assert a\ntwo()\nif a: one()", False, True),
        ("b = x > 1\nif b:\n    one()\nif x > 1:\n    pass\nelse:\n    two()", True, False),
        ("b = True if x else False\nif b:\n    one()\nif not b:\n    two()", True, False),
        ("a = ask()\nif a:\n    one()\nb = ask()\nif not b:\n    two()", False, False),
    ],
)
def test_arms_of_tests(code: str, excluded: bool, implied: bool) -> None:
    ctx = script(code)
    one, two = next(calls(ctx, "one")), next(calls(ctx, "two"))
    assert (ctx.excludes(two, one), ctx.implies(two, one)) == (excluded, implied)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("ema = Ema()\n        ema.update(engine)", "engine"),
        ("Loop(Ema()).run(engine)", "engine"),
        ("ema = Ema() if x else Other()\n        ema.update(engine)", ""),
        ("ema = Other()\n        ema.update(engine)", ""),
    ],
)
def test_a_method_of_an_instance_gets_what_its_calls_pass(made: str, kind: str) -> None:
    code = f"""
    class Ema:
        @torch.no_grad()
        def update(self, engine):
            show(engine)

    class Other:
        def update(self, engine):
            pass

    class Loop:
        def __init__(self, ema):
            self.ema = ema

        def run(self, model):
            self.ema.update(model)

    def main(m, x):
        engine, _, _, _ = deepspeed.initialize(model=m)
        {made}
    """
    assert kinds(code) == [kind]


@pytest.mark.parametrize(
    ("annotation", "kind"), [("Saver", "ddp"), ('Optional["Saver"]', "ddp"), ("Base", ""), ("Saver | None", "ddp")]
)
def test_an_annotation_says_the_class_unless_another_derives_from_it(annotation: str, kind: str) -> None:
    code = f"""
    from typing import Optional

    class Base:
        def save(self, model):
            show(model)

    class Saver:
        def save(self, model):
            show(model)

    class Child(Base):
        pass

    def main(m, saver: {annotation}):
        saver.save(DDP(m))
    """
    assert kinds(code) == (["", kind] if annotation != "Base" else ["", ""])


def test_hasattr_tells_the_wrapper_from_the_model() -> None:
    code = """
    class Trainer:
        def __init__(self, n, distributed):
            self.model = torch.nn.Linear(n, n)
            if distributed:
                self.model = DDP(self.model)

        def inner(self):
            return show(self.model.module) if hasattr(self.model, "module") else show(self.model)
    """
    assert kinds(code) == ["ddp_module", "model"]
