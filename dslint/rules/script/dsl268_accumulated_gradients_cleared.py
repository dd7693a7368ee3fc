"""Gradients are cleared before the backward inside `accelerator.accumulate`.

**What.** `with accelerator.accumulate(model):` begins with `optimizer.zero_grad()`; `accelerator.backward(loss)` and
`optimizer.step()` follow.

**Why it hurts.** The prepared optimizer leaves out `zero_grad` and `step` on all micro batches but the last of a step.
On that one `zero_grad` clears what the others have accumulated, and the step is made with the gradient of one micro
batch, divided by the accumulation steps. Nothing raises; with one micro batch a step nothing is wrong.

**Fix.** Clear the gradients after the step, at the end of the block.

**When it stays quiet.** `zero_grad` after the step; an Accelerator that accumulates nothing; DeepSpeed, which clears
the gradients itself; optimizers that were not prepared; a backward before the call, in the same block. A number of
steps that is 1 unless somebody passes another makes it an information.

**Evidence.** Two gloo ranks, accelerate 1.15, four micro batches a step: the gradient of the step is that of the last
micro batch, a quarter of its size; with `zero_grad` after the step it is the mean of four.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.script.dotted import dotted
from dslint.model.script.quick import call_name, flat
from dslint.model.script.ranks.rankset import number_of
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.clearing import cleared_in_blocks
from dslint.rules.runs import RunQuery
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL268",
    name="accumulated-gradients-cleared",
    kind="script",
    severity=Severity.WARNING,
    summary="`zero_grad` before the backward inside `accelerator.accumulate`: only the last micro batch counts",
    fix="safe",
    markers=(r"accelerat",),
    versions=("accelerate",),
    references=("https://github.com/meituan-longcat/LongCat-Image/issues/46",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where the parts of a block stand in helpers, fields and other files."""
    yield from cleared_in_blocks(run, META)


_TRAIN = """\
from accelerate import Accelerator


def train(args, model, optimizer, scheduler, loader):
    accelerator = Accelerator(%s)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    for batch in loader:
        with accelerator.accumulate(model):
%s
"""
_STEPS = "gradient_accumulation_steps=4"
_BODY = """\
            optimizer.zero_grad()
            accelerator.backward(model(batch).mean())
            optimizer.step()"""
_LATE = """\
            accelerator.backward(model(batch).mean())
            optimizer.step()
            optimizer.zero_grad()"""
_PARSED = """\
import argparse

from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--gradient_accumulation_steps", type=int, default=%d)
args = parser.parse_args()
accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)


def train(model, optimizer, loader):
    optimizer, model, loader = accelerator.prepare(optimizer, model, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            accelerator.backward(model(batch).mean())
            optimizer.step()
"""

EXAMPLES = (
    bad(
        "cleared at the start of each micro batch",
        {"train.py": _TRAIN % (_STEPS, _BODY)},
        "train.py:9 error",
        fixed={"train.py": _TRAIN % (_STEPS, _LATE)},
    ),
    bad(
        "and once more after the step",
        {"train.py": _TRAIN % (_STEPS, f"{_BODY}\n            scheduler.step()\n            optimizer.zero_grad()")},
        "train.py:9 error",
        fixed={"train.py": _TRAIN % (_STEPS, _LATE.replace("step()\n", "step()\n            scheduler.step()\n"))},
    ),
    bad(
        "the parts of the block stand in functions",
        {
            "train.py": _TRAIN % (_STEPS, "            step(accelerator, optimizer, model(batch).mean())")
            + "\n\ndef step(accelerator, optimizer, loss):\n    optimizer.zero_grad()\n    accelerator.backward(loss)\n"
            "    optimizer.step()\n"
        },
        "train.py:13 error",
    ),
    bad(
        "the number of micro batches is up to a config",
        {"train.py": _TRAIN % ("gradient_accumulation_steps=args.accumulation", _BODY)},
        "train.py:9 warning",
    ),
    bad("four unless somebody passes another number", {"train.py": _PARSED % 4}, "train.py:15 error"),
    bad("one unless somebody passes another number", {"train.py": _PARSED % 1}, "train.py:15 info"),
    good("cleared after the step", {"train.py": _TRAIN % (_STEPS, _LATE)}),
    good(
        "one micro batch a step",
        {
            "train.py": _TRAIN % ("gradient_accumulation_steps=1", _BODY),
            "plain.py": _TRAIN % ("mixed_precision='bf16'", _BODY),
            "default.py": _TRAIN.replace("loader):", "loader, steps=1):", 1)
            % ("gradient_accumulation_steps=steps", _BODY),
            "settings.py": "class Settings:\n    steps = 1\n\n\n"
            + _TRAIN % ("gradient_accumulation_steps=Settings.steps", _BODY),
        },
    ),
    good(
        "DeepSpeed clears the gradients itself",
        {
            "train.py": _TRAIN.replace("import Accelerator", "import Accelerator, DeepSpeedPlugin")
            % (f"{_STEPS}, deepspeed_plugin=DeepSpeedPlugin(zero_stage=2)", _BODY)
        },
    ),
    good(
        "between two backwards of a block",
        {
            "train.py": _TRAIN
            % (
                _STEPS,
                f"{_LATE}\n            accelerator.backward(model(-batch).mean())\n            optimizer.step()\n"
                "            optimizer.zero_grad()",
            )
        },
    ),
    good(
        "outside of the block",
        {
            "train.py": _TRAIN
            % (_STEPS, f"{_LATE}\n    optimizer.zero_grad()\n    accelerator.wait_for_everyone()")
        },
    ),
    good(
        "the gradients of something else",
        {"train.py": _TRAIN % (_STEPS, "            args.probe.zero_grad()\n" + _LATE)},
    ),
)  # fmt: skip

_PREPARED = frozenset({"prepared_optimizer", "prepared"})
_STEPS_WORD = "gradient_accumulation_steps"
_OTHER_WORDS = ("gradient_accumulation_plugin", "deepspeed_plugin", "deepspeed_plugins", "megatron_lm_plugin")


def precheck(tree: ast.Module) -> bool:
    """In some block of `accumulate` a `zero_grad` stands before the first backward."""
    nodes = flat(tree)
    for block in nodes.nodes(ast.With):
        if any(isinstance(i.context_expr, ast.Call) and call_name(i.context_expr) == "accumulate" for i in block.items):
            calls = [n for n in nodes.inside(block) if isinstance(n, ast.Call)]
            cleared = [(n.lineno, n.col_offset) for n in calls if call_name(n) == "zero_grad"]
            backward = [(n.lineno, n.col_offset) for n in calls if call_name(n) == "backward"]
            if cleared and backward and min(cleared) < min(backward):
                return True
    return False


class Check(ScriptCheck):
    """Looks at every block of `accelerator.accumulate`."""

    def visit_With(self, node: cst.With) -> None:
        """Fire on a `zero_grad` of the optimizer that steps in the block, before the first backward."""
        entered = [i.item for i in node.items if isinstance(i.item, cst.Call)]
        owners = [c.func.value for c in entered if isinstance(c.func, cst.Attribute) and self._accumulates(c)]
        if not owners or self._is_deepspeed():
            return
        calls = [n for n in self.ctx.descendants(node.body) if isinstance(n, cst.Call)]
        backward = next((c for c in calls if self._method(c) == "backward" and self._is_plain(c, node)), None)
        for call in calls:
            if backward is None or call is backward:
                return
            if self._method(call) == "zero_grad" and self._is_plain(call, node):
                step = self._step_after(backward, call, calls)
                if step is not None:
                    self._judge(node, call, backward, step, owners[0])
                    return

    def _accumulates(self, call: cst.Call) -> bool:
        return self._method(call) == "accumulate" and self.ctx.kind(call.func.value) == "accelerator"  # type: ignore[attr-defined]

    def _is_deepspeed(self) -> bool:
        """DeepSpeed steps and clears inside of its own backward."""
        run = self.ctx.run
        return run.launcher.get_or("") == "deepspeed" or not run.zero_stage.is_absent or not run.accumulation.is_absent

    def _method(self, call: cst.Call) -> str:
        return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""

    def _is_plain(self, call: cst.Call, block: cst.With) -> bool:
        """The call runs whenever the block does, once."""
        around = {id(c.test) for c in self.ctx.objects.conditions.of(block)}
        if any(id(c.test) not in around for c in self.ctx.objects.conditions.of(call)):
            return False
        same = self.ctx.enclosing_function(call) is self.ctx.enclosing_function(block)
        return same and self.ctx.loops(call) == self.ctx.loops(block)

    def _step_after(self, backward: cst.Call, cleared: cst.Call, calls: list[cst.Call]) -> cst.Call | None:
        """The step of the prepared optimizer whose gradients were cleared."""
        owner = cleared.func.value if isinstance(cleared.func, cst.Attribute) else None
        if owner is None or self.ctx.kind(owner) not in _PREPARED or dotted(owner) is None:
            return None
        for call in calls[calls.index(backward) :]:
            if self._method(call) == "step" and dotted(call.func.value) == dotted(owner):  # type: ignore[attr-defined]
                return call
        return None

    def _judge(
        self, block: cst.With, cleared: cst.Call, backward: cst.Call, step: cst.Call, owner: cst.BaseExpression
    ) -> None:
        made = self.ctx.objects.made(owner)
        if (
            made is None
            or self.ctx.has_unpacked_arguments(made)
            or any(self.ctx.argument(made, w) for w in _OTHER_WORDS)
        ):
            return
        stated = self.ctx.argument(made, _STEPS_WORD, 3)
        value = self.ctx.constant(stated).get_or(None) if stated is not None else 1
        if stated is None or self._is_one(stated, value):
            return
        severity = Severity.WARNING
        if isinstance(value, int):
            severity = Severity.ERROR if value > 1 else Severity.INFO
        steps = value if isinstance(value, int) and value > 1 else None
        count = f"the {steps} micro batches" if steps else "the micro batches"
        when = "" if steps else ", as soon as there is more than one"
        self.report(
            cleared,
            f"`{self.ctx.text(cleared)}` clears what {count} of a step have accumulated, before the backward of the"
            f" last one: the step is made with the gradient of one micro batch{when}",
            hint=f"Clear the gradients after `{self.ctx.text(step)}`",
            related=(
                self.ctx.location(backward, "the backward that comes after it"),
                self.ctx.location(stated, "the number of micro batches of a step"),
            ),
            fix=self._fix(block, cleared, step),
            severity=severity,
            facts={"gas": steps},
        )

    def _is_one(self, stated: cst.BaseExpression, value: object) -> bool:
        """The file says that a step has one micro batch; an option may be given another value by the command."""
        if isinstance(stated, cst.Name):
            found = self.ctx.names.bindings(stated.value, stated)
            return value == 1 or any(b.kind == "param" and number_of(b.value) == 1 for b in found if b.value)
        is_passed = isinstance(stated, cst.Attribute) and not self.ctx.constants.written(stated).is_known
        return value == 1 and not is_passed

    def _fix(self, block: cst.With, cleared: cst.Call, step: cst.Call) -> Fix | None:
        """The line goes, and comes back after the step unless the gradients are cleared there anyway."""
        lines = [self._line(block, call) for call in (cleared, step)]
        source, path = self.ctx.doc.source.text, self.ctx.doc.path
        first, last = lines
        if first is None or last is None:
            return None
        start, end = self.ctx.span(cleared), self.ctx.span(step)
        before, after = source.rfind("\n", 0, start.start) + 1, source.find("\n", start.end) + 1
        if not after or source[before : start.start].strip() or source[start.end : after].strip():
            return None
        edits = [Edit(path, type(start)(before, after), "")]
        calls = (n for n in self.ctx.descendants(block.body) if isinstance(n, cst.Call))
        position = self.ctx.tree.position
        owner = dotted(cleared.func)
        if not any(dotted(c.func) == owner and position(c) > position(step) for c in calls):
            indent = source[before : start.start]
            edits.append(Edit(path, type(end)(end.end, end.end), f"\n{indent}{self.ctx.text(cleared)}"))
        return Fix("Clear the gradients after the step", tuple(edits))

    def _line(self, block: cst.With, call: cst.Call) -> cst.SimpleStatementLine | None:
        """The call is a statement of the block by itself."""
        expression = self.ctx.parent(call)
        line = self.ctx.parent(expression) if isinstance(expression, cst.Expr) else None
        is_line = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
        return line if is_line and self.ctx.parent(line) is block.body else None  # type: ignore[arg-type, return-value]
