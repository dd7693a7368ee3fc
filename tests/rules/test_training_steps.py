"""Rules about training steps past an engine, a wrapper or an Accelerator, and what they ask the model."""

from __future__ import annotations

import ast
import textwrap

import pytest
from script_helpers import findings as visited
from script_helpers import queried

from dslint.core.fact import absent, known, unknown
from dslint.core.finding import Finding, Severity
from dslint.core.source import SourceFile
from dslint.engine.judge import Job
from dslint.engine.runs import run_queries
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.batch import Batch, accumulation_of
from dslint.parse.python import parse_ast
from dslint.probe.experiment import Subject
from dslint.probe.registry import of_finding
from dslint.rules.script import dsl215_engine_bypass_optimizer_step as dsl215
from dslint.rules.script import dsl216_engine_bypass_loss_backward as dsl216
from dslint.rules.script import dsl217_double_gas_scaling as dsl217
from dslint.rules.script import dsl218_manual_accumulation_around_engine as dsl218
from dslint.rules.script import dsl219_clip_grad_with_engine as dsl219
from dslint.rules.script import dsl220_zero_grad_misplaced_with_engine as dsl220
from dslint.rules.script import dsl233_ddp_module_bypassed as dsl233
from dslint.rules.script import dsl262_scheduler_step_with_engine as dsl262
from dslint.rules.script import dsl263_backward_past_accelerator as dsl263

HEAD = """\
import deepspeed
import torch
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel as DDP
m, o = torch.nn.Linear(4, 1), torch.optim.SGD(p, lr=1.0)
e, r, _, s = deepspeed.initialize(args=a, model=m, optimizer=o)
"""


def findings(module: object, code: str, context: Context | None = None) -> list[Finding]:
    return (queried if hasattr(module, "query") else visited)(module, code, context)


def stage(number: int) -> Context:
    return Context(zero_stage=known(number))


def loop(*lines: str) -> str:
    return HEAD + "for i, b in enumerate(d):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"


def severities(module: object, code: str, context: Context | None = None) -> list[str]:
    return [f.severity.value for f in findings(module, code, context)]


# -- what the model says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "world", "steps"),
    [
        (Batch(steps=known(4)), absent(), 4),
        (Batch(train=known(32), micro=known(2)), known(4), 4),
        (Batch(train=known(32)), absent(), 1),
        (Batch(micro=unknown("auto")), absent(), 1),
        (Batch(train=known(32), micro=known(2)), absent(), None),
        (Batch(train=known(33), micro=known(2)), known(4), None),
        (Batch(steps=unknown("auto"), micro=known(1)), known(1), None),
        (Batch(steps=known(True)), absent(), None),
        (Batch(), known(4), None),
    ],
)
def test_the_accumulation_is_worked_out_as_deepspeed_does(batch: Batch, world: object, steps: int | None) -> None:
    assert accumulation_of(batch, world).value == steps  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "steps"),
    [
        ("c = {'gradient_accumulation_steps': 4}", 4),
        ("n = 2\nc = {'gradient_accumulation_steps': n * 2}", 4),
        ("c = {'gradient_accumulation_steps': args.n}", None),
        ("c = {'gradient_accumulation_steps': 4}\nc['gradient_accumulation_steps'] = 2", 2),
        ("c = {'train_batch_size': 4, 'fp16': {}}", 1),
        ("c = {'train_batch_size': 4, **more, 'fp16': {}}", None),
        ("c = {}", None),
    ],
)
def test_the_accumulation_of_a_dictionary(code: str, steps: int | None) -> None:
    source = SourceFile("train.py", f"import deepspeed\n{code}\ne = deepspeed.initialize(model=q(), config=c)[0]\n")
    tree = parse_ast(source)
    assert isinstance(tree, ast.Module)
    run = run_queries(Job("train.py", source.text.encode(), "script", (), Context()), source, tree, None)
    (made,) = run.happenings("makes-engine")
    known = made.event.accumulation.constants if made.event.accumulation is not None else None
    assert (known[0] if known is not None else None) == steps


# -- DSL215 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "context", "expected"),
    [
        (("o.step()",), None, ["error"]),
        (("o.step()",), stage(2), ["error"]),
        (("o.step()",), stage(0), ["warning"]),
        (("r.step()",), stage(3), ["warning"]),
        (("e.optimizer.step()",), None, ["info"]),
        (("o.step()", "e.step()"), stage(0), ["error"]),
        (("e.step()", "o.step()"), stage(0), []),
        (("o.step()", "e.step()"), stage(2), []),
        (("r.step()", "e.step()"), stage(2), ["error"]),
        (("r.step()", "e.step()"), None, ["warning"]),
        (("r.step()", "e.step()"), stage(0), []),
        (("e.step()",), None, []),
        (("if x:", "    e.step()", "else:", "    o.step()"), None, []),
        (("q = make()", "q.step()"), None, []),
    ],
)
def test_dsl215_by_stage_and_by_what_else_steps(
    lines: tuple[str, ...], context: Context | None, expected: list[str]
) -> None:
    assert severities(dsl215, loop(*lines), context) == expected


def test_dsl215_fix_needs_an_engine_of_one_name() -> None:
    (one,) = findings(dsl215, loop("o.step()"))
    (two,) = findings(dsl215, loop("o.step()") + "e = None\n")
    assert one.fix is not None
    assert one.fix.edits[0].text == "e"
    assert one.hint == "Call `e.step()` instead"
    assert two.fix is None


# -- DSL216 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "number", "expected"),
    [
        ("==0.16.0", 2, ["error"]),
        ("==0.18.3", 2, []),
        (">=0.16", 2, []),
        ("", 2, []),
        ("", 0, ["error"]),
        ("==0.18.3", 0, ["error"]),
    ],
)
def test_dsl216_asks_for_the_release_and_the_stage(version: str, number: int, expected: list[str]) -> None:
    context = Context(zero_stage=known(number), deepspeed=VersionFact(version))
    assert severities(dsl216, loop("loss = e(b)", "loss.backward()"), context) == expected
    assert severities(dsl216, loop("loss = e(b)", "e.backward(loss)"), context) == []


# -- DSL217 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "steps", "expected"),
    [
        (("e.backward(e(b) / args.gradient_accumulation_steps)",), 4, 1),
        (("e.backward(e(b) / 4)",), 4, 1),
        (("e.backward(e(b) / 3)",), 4, 0),
        (("e.backward(e(b) / args.accum)",), 1, 0),
        (("e.backward(e(b) / args.accum)",), None, 0),
        (("e.backward(e(b) / e.gradient_accumulation_steps())",), None, 1),
        (("loss = e(b)", "loss /= args.gas", "e.backward(loss)"), 2, 1),
        (("loss = e(b)", "if args.gas > 1:", "    loss = loss / args.gas", "e.backward(loss)"), 2, 1),
        (("loss = e(b)", "if args.fast:", "    loss = loss / args.gas", "e.backward(loss)"), 2, 0),
        (("loss = e(b)", "log = loss / args.gas", "e.backward(loss)"), 2, 0),
        (("e.backward(e(b) / args.gas, scale_wrt_gas=False)",), 2, 0),
    ],
)
def test_dsl217_divides_by_the_same_number(lines: tuple[str, ...], steps: int | None, expected: int) -> None:
    context = Context(accumulation=known(steps) if steps else absent())
    assert len(findings(dsl217, loop(*lines), context)) == expected


# -- DSL218 ---------------------------------------------------------------------------------------------------------

EVERY = ("e.backward(e(b))", "if (i + 1) % n == 0:", "    e.step()")


@pytest.mark.parametrize(
    ("number", "steps", "expected"),
    [
        (2, 1, ["error"]),
        (1, 1, ["error"]),
        (3, 1, []),
        (0, 1, []),
        (3, 4, ["error"]),
        (0, None, []),
        (2, None, ["error"]),
        (None, None, ["warning"]),
        (None, 4, ["error"]),
        (None, 1, ["warning"]),
    ],
)
def test_dsl218_by_stage_and_accumulation(number: int | None, steps: int | None, expected: list[str]) -> None:
    context = Context(
        zero_stage=known(number) if number is not None else absent(), accumulation=known(steps) if steps else absent()
    )
    assert severities(dsl218, loop(*EVERY), context) == expected


@pytest.mark.parametrize(
    "lines",
    [
        ("if i % n == 0:", "    e.backward(e(b))", "    e.step()"),
        ("e.backward(e(b))", "if i % 1 == 0:", "    e.step()"),
        ("e.backward(e(b))", "if i > n:", "    e.step()"),
        ("e.backward(e(b))", "e.set_gradient_accumulation_boundary(i % n == 0)", "if i % n == 0:", "    e.step()"),
        ("e.backward(e(b))", "if i % n == 0:", "    log()", "e.step()"),
    ],
)
def test_dsl218_leaves_other_tests_alone(lines: tuple[str, ...]) -> None:
    assert findings(dsl218, loop(*lines), stage(2)) == []


# -- DSL219, DSL220 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "number", "expected"),
    [
        ("e.parameters()", 2, ["error"]),
        ("e.module.parameters()", 3, ["error"]),
        ("m.parameters()", 1, ["error"]),
        ("[q for q in m.parameters() if q.requires_grad]", 1, ["error"]),
        ("filter(f, e.parameters())", None, ["warning"]),
        ("e.parameters()", 0, []),
        ("judge.parameters()", 2, []),
        ("params", 2, []),
    ],
)
def test_dsl219_asks_whose_parameters(given: str, number: int | None, expected: list[str]) -> None:
    code = loop("e.backward(e(b))", f"torch.nn.utils.clip_grad_norm_({given}, 1.0)", "e.step()")
    assert severities(dsl219, code, stage(number) if number is not None else None) == expected


def test_dsl219_judges_what_accelerate_prepared_only_where_the_run_uses_zero() -> None:
    code = "import torch\nfrom accelerate import Accelerator\na = Accelerator()\nm = a.prepare_model(q())\n"
    code += "torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n"
    assert severities(dsl219, code) == []
    assert severities(dsl219, code, stage(2)) == ["error"]


@pytest.mark.parametrize(
    ("lines", "number", "steps", "expected"),
    [
        (("e.zero_grad()", "e.backward(e(b))", "e.step()"), 0, 4, ["warning"]),
        (("e.backward(e(b))", "e.step()", "o.zero_grad()"), None, 4, ["info"]),
        (("e.backward(e(b))", "e.step()", "o.zero_grad()"), 2, 4, ["info"]),
        (("e.backward(e(b))", "e.step()", "o.zero_grad()"), 0, 1, []),
        (("e.backward(e(b))", "e.step()", "if i % 4 == 0:", "    o.zero_grad()"), 0, 4, []),
        (("e.backward(e(b))", "e.step()", "other.zero_grad()"), 0, 4, []),
    ],
)
def test_dsl220_by_stage(lines: tuple[str, ...], number: int | None, steps: int, expected: list[str]) -> None:
    context = Context(zero_stage=known(number) if number is not None else absent(), accumulation=known(steps))
    assert severities(dsl220, loop(*lines), context) == expected


# -- DSL233, DSL262, DSL263 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("w.module(b).backward()",), ["error"]),
        (("loss = w.module.forward(b)", "loss.backward()"), ["error"]),
        (("loss = q(b)", "scaler.scale(loss).backward()"), ["error"]),
        (("inner = w.module", "loss = inner(b)", "loss.backward()"), ["error"]),
        (("loss = w(b)", "loss.backward()"), []),
        (("x = w.module(b)", "print(x)"), []),
        (("loss = w(b) + w.module(b)", "loss.backward()"), []),
        (("with torch.no_grad():", "    t = w.module(b)", "loss = w(b)", "loss.backward()"), []),
        (("loss = w.module(b)", "loss.backward()", "dist.all_reduce(g.grad.data)"), []),
        (("loss = e.module(b)", "loss.backward()"), []),
        (("w.eval()", "w.module(b).backward()"), []),
        (("w.eval()", "w.train()", "w.module(b).backward()"), ["error"]),
    ],
)
def test_dsl233_needs_a_backward_without_the_wrapper(lines: tuple[str, ...], expected: list[str]) -> None:
    code = loop(*lines).replace("for i, b", "q = make()\nw = DDP(q)\nfor i, b")
    assert severities(dsl233, code) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("e.step()", "s.step()"), 1),
        (("e.step()", "e.lr_scheduler.step()"), 1),
        (("e.step()", "for _ in range(n):", "    s.step()"), 1),
        (("s.step()",), 0),
        (("e.step()", "t.step()"), 0),
        (("if x:", "    e.step()", "else:", "    s.step()"), 0),
    ],
)
def test_dsl262_needs_the_engine_beside_it(lines: tuple[str, ...], expected: int) -> None:
    assert len(findings(dsl262, loop(*lines))) == expected


def test_dsl262_keeps_a_line_that_holds_more() -> None:
    (alone,) = findings(dsl262, loop("e.step()", "s.step()"))
    (shared,) = findings(dsl262, loop("e.step(); s.step()"))
    (noted,) = findings(dsl262, loop("e.step()", "s.step()  # per batch"))
    assert alone.fix is not None
    assert (shared.fix, noted.fix) == (None, None)


@pytest.mark.parametrize(
    ("made", "context", "severity"),
    [
        ("gradient_accumulation_steps=4", Context(), Severity.WARNING),
        ("gradient_accumulation_steps=args.n", Context(), Severity.WARNING),
        ("gradient_accumulation_steps=1", Context(), Severity.INFO),
        ("mixed_precision='fp16'", Context(), Severity.WARNING),
        ("mixed_precision='bf16'", Context(), Severity.INFO),
        ("", stage(2), Severity.WARNING),
        ("", Context(), Severity.INFO),
    ],
)
def test_dsl263_by_what_the_accelerator_does(made: str, context: Context, severity: Severity) -> None:
    code = f"from accelerate import Accelerator\na = Accelerator({made})\nm, o = a.prepare(q(), q())\n"
    code += "loss = m(b).loss\n"
    (found,) = findings(dsl263, code + "loss.backward()\n", context)
    assert found.severity is severity
    assert found.fix is not None
    assert found.fix.edits[0].text == "a.backward(loss)"
    assert findings(dsl263, code + "a.backward(loss)\n", context) == []


# -- the experiment of a finding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "lines", "context", "case", "params"),
    [
        (dsl215, ("o.step()",), stage(3), "client-optimizer-step/client-z2", {"stage": 3}),
        (dsl215, ("o.step()",), stage(0), "client-optimizer-step/client-z0", {"stage": 0}),
        (dsl215, ("r.step()",), Context(), "client-optimizer-step/returned-z2", {"stage": 2}),
        (dsl215, ("r.step()", "e.step()"), stage(1), "client-optimizer-step/both-z2", {"stage": 1}),
        (dsl216, ("e(b).backward()",), stage(0), "backward-without-engine/z0", {"stage": 0}),
        (dsl217, ("e.backward(e(b) / 4)",), Context(accumulation=known(4)),
         "accumulation-by-hand/loss-divided-twice-z2", {"how": "divide"}),
        (dsl218, EVERY, stage(1), "accumulation-by-hand/all-by-hand-z2", {"stage": 1}),
        (dsl218, EVERY, Context(accumulation=known(4)), "accumulation-by-hand/step-at-boundary-z2", {"stage": 2}),
        (dsl219, ("e.backward(e(b))", "torch.nn.utils.clip_grad_norm_(e.parameters(), 1.0)"), stage(3),
         "clip-grad-norm-bypassed/z3", {"stage": 3}),
        (dsl262, ("e.step()", "s.step()"), Context(), "scheduler-stepped-twice/z2", {"stage": 2}),
    ],
)  # fmt: skip
def test_a_finding_is_probed_as_it_is_written(
    module: object, lines: tuple[str, ...], context: Context, case: str, params: dict[str, object]
) -> None:
    code = loop(*lines)
    (found,) = findings(module, code, context)
    entry = of_finding(Subject(found, code))
    assert entry is not None
    assert f"{entry[0].experiment.name}/{entry[1].name}" == case
    assert params.items() <= entry[1].params.items()


def test_a_finding_about_an_accelerator_is_probed_with_one() -> None:
    code = "from accelerate import Accelerator\na = Accelerator(gradient_accumulation_steps=4)\nm = a.prepare(q())\n"
    (divided,) = findings(dsl217, code + "a.backward(m(b) / 4)\n")
    (passed,) = findings(dsl263, code + "m(b).backward()\n")
    for found, case in (
        (divided, "accelerate-loss-divided-twice/told"),
        (passed, "backward-past-accelerator/accumulation"),
    ):
        entry = of_finding(Subject(found, code))
        assert entry is not None
        assert f"{entry[0].experiment.name}/{entry[1].name}" == case
