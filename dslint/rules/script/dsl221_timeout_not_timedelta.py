"""**What.** A number is passed as the `timeout` of a process group, where a `datetime.timedelta` is needed; or a
`timedelta` as `ddp_timeout` of the Hugging Face `TrainingArguments`, where a number of seconds is.

**Why it hurts.** The call raises on every rank, after the job has queued and started: `torch.distributed` says
`TypeError: Expected timeout argument to be of type datetime.timedelta`, DeepSpeed stops at an assertion, and
accelerate and the strategies of Lightning fail when they hand the value to torch. transformers fails when it makes a
`timedelta` of the `timedelta`.

**Fix.** `timeout=timedelta(seconds=1800)`. The safe fix reads the number as seconds, which is what every other
timeout of PyTorch means, and adds the import when the file has none. `ddp_timeout` gets the seconds of the `timedelta`.

**When it stays quiet.** `monitored_barrier` takes a float as seconds (an integer raises); values that cannot be read.
An argument of the command line that is a number or, when it is not given, `None` is a warning, and so is a parameter
whose default is a number.

**Evidence.** torch 2.13 `distributed_c10d._check_valid_timeout`; DeepSpeed 0.19.8 `comm/comm.py: init_distributed`
(`assert isinstance(timeout, timedelta)`). Two gloo ranks: `init_process_group`, `new_group`,
`monitored_barrier(timeout=30)`, `InitProcessGroupKwargs`, `PartialState` and `init_distributed` raise on both, and so
does `TrainingArguments(ddp_timeout=timedelta(...))`; `init_distributed` does not where a process group exists
already, since it then ignores the timeout.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.firstlook import may_name
from dslint.model.script.data.labels import items_of
from dslint.model.script.dotted import is_none
from dslint.model.script.quick import Flat, call_name, flat
from dslint.model.script.setup.timeouts import (
    FLOAT_TAKERS,
    TIMEDELTA,
    TIMEOUT_TAKERS,
    import_edit,
    timedelta_spelling,
    timeout_position,
)
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.markers import begins_run
from dslint.rules.runs import RunQuery
from dslint.rules.timeouts import wrong_timeouts
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL221",
    name="timeout-not-timedelta",
    kind="script",
    severity=Severity.ERROR,
    summary="The timeout of a process group is a number instead of a `timedelta`",
    fix="safe",
    markers=(
        # The ends of `new_group`, `monitored_barrier` and the like: one cheap pass over every file.
        r"_(?:group|subgroups\w*|distributed|barrier|timeout)\b|InitProcessGroupKwargs|PartialState|Strategy\(",
        r"timeout|init_process_group\([^)\n]*,[^)\n]*,|init_distributed\((?:[^)\n]*,){4}|new_group\([^\n]*,"
        r"|monitored_barrier\([^)\n]*,|new_subgroups\w*\([^\n]*,|split_group\([^\n]*,",
    ),
    versions=("torch>=1.8",),
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",),
    depends_on_run=True,
)

EXAMPLES = (
    bad(
        "a parameter whose default is a number",
        {
            "train.py": "import deepspeed\n\n\ndef setup(backend, timeout=3600):\n"
            "    deepspeed.init_distributed(backend, timeout=timeout)\n"
        },
        at="train.py:5 warning",
    ),
    bad(
        "minutes from the environment, in a dictionary that the call unpacks",
        {
            "train.py": (
                "import os\n\nimport torch.distributed as dist\n\n"
                "options = dict(backend='nccl', timeout=int(os.environ['MINUTES']) * 60)\n"
                "dist.init_process_group(**options)\n"
            )
        },
        at="train.py:5 error",
    ),
    bad(
        "seconds as an integer",
        {
            "train.py": (
                "import torch.distributed as dist\n\ndist.init_process_group('nccl', timeout=7200)  # two hours\n"
            )
        },
        at="train.py:3 error",
        fixed={
            "train.py": (
                "from datetime import timedelta\nimport torch.distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(seconds=7200))  # two hours\n"
            )
        },
    ),
    bad(
        "a constant, in a file that imports datetime",
        {
            "train.py": (
                "import datetime\n\nimport deepspeed\n\nTIMEOUT = 60 * 60\n"
                "deepspeed.init_distributed(timeout=TIMEOUT)\n"
            )
        },
        at="train.py:6",
        fixed={
            "train.py": (
                "import datetime\n\nimport deepspeed\n\nTIMEOUT = 60 * 60\n"
                "deepspeed.init_distributed(timeout=datetime.timedelta(seconds=TIMEOUT))\n"
            )
        },
    ),
    bad(
        "an integer for `monitored_barrier`",
        {"train.py": "import datetime\n\nimport torch.distributed as dist\n\ndist.monitored_barrier(timeout=30)\n"},
        at="train.py:5",
        fixed={
            "train.py": (
                "import datetime\n\nimport torch.distributed as dist\n\n"
                "dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))\n"
            )
        },
    ),
    bad(
        "a timedelta for the Trainer, which wants seconds",
        {
            "train.py": (
                "from datetime import timedelta\n\nfrom transformers import TrainingArguments\n\n"
                "args = TrainingArguments('out', ddp_timeout=timedelta(hours=2))\n"
            )
        },
        at="train.py:5 error",
        fixed={
            "train.py": (
                "from datetime import timedelta\n\nfrom transformers import TrainingArguments\n\n"
                "args = TrainingArguments('out', ddp_timeout=int(timedelta(hours=2).total_seconds()))\n"
            )
        },
    ),
    bad(
        "a strategy of Lightning, and an argument that is a number when it is given",
        {
            "train.py": (
                "import argparse\n\nimport torch.distributed as dist\n"
                "from lightning.pytorch.strategies import DDPStrategy\n\n"
                "parser = argparse.ArgumentParser()\nparser.add_argument('--timeout', type=int)\n"
                "args = parser.parse_args()\nstrategy = DDPStrategy(timeout=7200)\n"
                "dist.init_process_group('nccl', timeout=args.timeout)\n"
            )
        },
        at=("train.py:9 error", "train.py:10 warning"),
    ),
    bad(
        "a field, and a helper of another file that passes its keywords on",
        {
            "train.py": "from groups import start\nimport torch.distributed as dist\n\n\nclass Settings:\n"
            "    def __init__(self):\n        self.limit = 30 * 60\n\n\n"
            "start('nccl', timeout=Settings().limit)\ndist.barrier()\n",
            "groups.py": "import torch.distributed as dist\n\n\ndef start(kind, **options):\n"
            "    dist.init_process_group(kind, **options)\n",
        },
        at="groups.py:5 error",
    ),
    good(
        "a field that holds a timedelta, for a helper of another file",
        {
            "train.py": "from datetime import timedelta\nfrom groups import start\nimport torch.distributed as dist\n\n"
            "limits = {'timeout': timedelta(seconds=1800)}\nstart('nccl', **limits)\ndist.barrier()\n",
            "groups.py": "import torch.distributed as dist\n\n\ndef start(kind, **options):\n"
            "    dist.init_process_group(kind, **options)\n",
        },
    ),
    good(
        "a timedelta",
        {
            "train.py": (
                "from datetime import timedelta\n\nfrom torch import distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            )
        },
    ),
    good(
        "calls that take seconds",
        {
            "train.py": (
                "import torch.distributed as dist\nfrom transformers import TrainingArguments\n\n"
                "args = TrainingArguments('out', ddp_timeout=7200)\ndist.monitored_barrier(timeout=30.0)\n"
            )
        },
    ),
    good(
        "a value from the caller",
        {
            "train.py": (
                "import torch.distributed as dist\n\n\ndef setup(timeout):\n"
                "    dist.init_process_group('nccl', timeout=timeout)\n"
            )
        },
    ),
)


_TAKERS = frozenset(name.encode() for name in TIMEOUT_TAKERS | {"ddp_timeout"})


def applies(_: str, context: Context, raw: bytes) -> bool:
    """The file names something that takes a timeout, or may lead to it; a project may have other names for it."""
    return may_name(raw, _TAKERS) or context.vocabulary.stands_in(raw) or begins_run(raw)


def precheck(tree: ast.Module) -> bool:
    """A call that takes a timeout may have a number there."""
    nodes = flat(tree)
    if any(
        k.arg == "ddp_timeout" and _may_be_timedelta(k.value) for call in nodes.nodes(ast.Call) for k in call.keywords
    ):
        return True
    takers = [call for call in nodes.nodes(ast.Call) if call_name(call) in TIMEOUT_TAKERS]
    if any(len(call.args) > 1 or any(k.arg is None for k in call.keywords) for call in takers):
        return True
    values = [k.value for call in takers for k in call.keywords if k.arg == "timeout"]
    return any(not _is_timedelta(value) and not _holds_timedelta(value, nodes) for value in values)


def _may_be_timedelta(value: ast.expr) -> bool:
    return _is_timedelta(value) or isinstance(value, ast.Name)


def _is_timedelta(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and call_name(value) == "timedelta"


def _holds_timedelta(value: ast.expr, nodes: Flat) -> bool:
    """A variable that is given a `timedelta` wherever it is assigned."""
    if not isinstance(value, ast.Name):
        return False
    given = [a.value for a in nodes.nodes(ast.Assign) for t in a.targets if _is_named(t, value.id)]
    return bool(given) and all(map(_is_timedelta, given))


def _is_named(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on timeouts that reach a call as numbers or texts, by whatever way."""
    yield from wrong_timeouts(run, META)


class Check(ScriptCheck):
    """Looks at the timeout of every call that takes one."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on a timeout whose value is known to be a number."""
        seconds = self.ctx.argument(node, "ddp_timeout", None)
        if seconds is not None:
            self._check_seconds(node, seconds)
            return
        name = self.ctx.qualified_name(node.func)
        takes, position = timeout_position(name)
        if not takes:
            return
        value = self.ctx.argument(node, "timeout", position) or self._unpacked(node)
        if value is None:
            return
        kind = self._kind(value)
        known = self.ctx.constant(value).get_or(None)
        if not kind or (name in FLOAT_TAKERS and not isinstance(known, int | str)):
            return
        text = self.ctx.text(value)
        maybe = " when it is given" if self._may_be_none(value) else " by default" if self._default(value) else ""
        self.report(
            value,
            f"`timeout={text}` of `{self.ctx.text(node.func)}` is a {kind}{maybe}, but a `datetime.timedelta` is"
            " needed: the call raises on every rank",
            hint=f"Write `timedelta(seconds={text})`" if kind == "number" else "Write `timedelta(seconds=...)`",
            fix=self._fix(value) if kind == "number" and not maybe else None,
            severity=Severity.WARNING if maybe else None,
            facts={
                "call": self.ctx.called(node),
                "value": known if isinstance(known, int | float | str) else None,
            },
        )

    def _check_seconds(self, node: cst.Call, value: cst.BaseExpression) -> None:
        """`ddp_timeout` is the one timeout that is a number."""
        made = self.ctx.names.single_value(value) or value
        is_delta = isinstance(made, cst.Call) and self.ctx.qualified_name(made.func) == TIMEDELTA
        if not is_delta or self.ctx.kind(node) != "training_arguments":
            return
        text = f"int({self.ctx.text(value)}.total_seconds())"
        self.report(
            value,
            f"`ddp_timeout={self.ctx.text(value)}` is a `timedelta`, but a number of seconds is needed: transformers"
            " makes a `timedelta` of it and raises on every rank",
            hint=f"Write `{text}`, or the seconds as a number",
            fix=Fix("Pass the seconds", (Edit(self.ctx.doc.path, self.ctx.span(value), text),)),
            facts={"call": "ddp_timeout-timedelta", "value": None},
        )

    def _may_be_none(self, value: cst.BaseExpression) -> bool:
        """An argument of the command line without a default, which a launch command need not pass."""
        argument = self.ctx.constants.arguments.at(value) if isinstance(value, cst.Attribute) else None
        return argument is not None and not self.ctx.constant(value).is_known

    def _default(self, value: cst.BaseExpression) -> bool:
        """A parameter without an annotation whose default is a number."""
        found = self.ctx.names.bindings(value.value, value) if isinstance(value, cst.Name) else []
        param = found[0].node if len(found) == 1 else None
        plain = isinstance(param, cst.Param) and param.annotation is None
        return plain and isinstance(param, cst.Param) and isinstance(param.default, cst.Integer | cst.Float)

    def _unpacked(self, call: cst.Call) -> cst.BaseExpression | None:
        """`timeout` of a dictionary that the call unpacks, written out there or in a variable used for nothing else."""
        for arg in call.args:
            found = items_of(arg.value, self.ctx.names) if arg.star == "**" else None
            if found and "timeout" in found and self._is_untouched(arg.value):
                return found["timeout"]
        return None

    def _is_untouched(self, mapping: cst.BaseExpression) -> bool:
        """Nothing can have changed the items between the dictionary and the call."""
        if not isinstance(mapping, cst.Name):
            return isinstance(mapping, cst.Dict)
        uses = [n for n in self.ctx.tree.order if isinstance(n, cst.Name) and n.value == mapping.value]
        return len(uses) == 2

    def _kind(self, value: cst.BaseExpression) -> str:
        """`number` or `text` when the value is certainly one, whatever its size."""
        known = self.ctx.constant(value).get_or(None)
        if isinstance(known, str):
            return "text"
        if isinstance(known, int | float) and not isinstance(known, bool):
            return "number"
        if isinstance(value, cst.Attribute):
            argument = self.ctx.constants.arguments.at(value)
            plain = argument is not None and (argument.default is None or is_none(argument.default))
            return "number" if plain and argument is not None and argument.converter in ("int", "float") else ""
        if isinstance(value, cst.Name):
            found = self.ctx.names.bindings(value.value, value)
            param = found[0].node if len(found) == 1 else None
            if isinstance(param, cst.Param) and param.annotation is not None:
                return "number" if self.ctx.qualified_name(param.annotation.annotation) in ("int", "float") else ""
            if self._default(value):
                return "number"
            value = self.ctx.names.single_value(value) or value
        if isinstance(value, cst.BinaryOperation):  # ``int(minutes) * 60``; a timedelta times a number is none
            both = self._kind(value.left) == self._kind(value.right) == "number"
            return "number" if both else ""
        # ``int(os.environ.get("TIMEOUT", 1800))``
        converts = isinstance(value, cst.Call) and self.ctx.qualified_name(value.func) in ("int", "float")
        return "number" if converts else ""

    def _fix(self, value: cst.BaseExpression) -> Fix:
        path = self.ctx.doc.path
        spelling = timedelta_spelling(self.ctx.names, value)
        wrapped = f"{spelling or 'timedelta'}(seconds={self.ctx.text(value)})"
        edits = [Edit(path, self.ctx.span(value), wrapped)]
        if spelling is None:
            edits.insert(0, import_edit(path, self.ctx.doc.source.text))
        return Fix("Read the number as seconds", tuple(edits))
