"""**What.** `timedelta(1800)` is used as a timeout. The first positional argument of `timedelta` is *days*.

**Why it hurts.** The process group waits 1800 days: a hang is never reported, and the job holds its GPUs until
somebody notices.

**Fix.** `timedelta(seconds=1800)`. The safe fix adds `seconds=`.

**When it stays quiet.** Fewer than 30 days may be meant; calls with a keyword or with two positional arguments
(days, seconds); a `timedelta` that is no timeout; files that import neither torch nor a library on top of it.

**Evidence.** Python's `datetime.timedelta(days=0, seconds=0, ...)`; torch takes the value as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.model.script.setup.timeouts import TIMEDELTA, timeout_position
from dslint.python.durations import seconds_of
from dslint.python.source import Module
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.groups import timeout_of
from dslint.rules.runs import RunQuery
from dslint.rules.walk import ScriptCheck

# A timeout of a month is nobody's intention; 30 seconds is.
_LEAST_DAYS = 30
# Elsewhere, sessions and tokens do time out after months.
_TRAINING = ("torch", "deepspeed", "accelerate", "transformers", "trl", "lightning", "pytorch_lightning", "mmengine")

META = RuleMeta(
    code="DSL222",
    name="timedelta-positional-days",
    kind="script",
    severity=Severity.WARNING,
    summary="A timeout of `timedelta(N)` is N days, not N seconds",
    fix="safe",
    markers=(r"timedelta\(\s*[\w.]|timedelta as", r"timeout|init_process_group|init_distributed|new_group"),
    references=("https://docs.python.org/3/library/datetime.html#datetime.timedelta",),
    depends_on_run=True,
)

EXAMPLES = (
    bad(
        "1800 days",
        {
            "train.py": (
                "from datetime import timedelta\n\nimport torch.distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(1800))\n"
            )
        },
        at="train.py:5 warning",
        fixed={
            "train.py": (
                "from datetime import timedelta\n\nimport torch.distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(seconds=1800))\n"
            )
        },
    ),
    bad(
        "through a name that says timeout",
        {
            "train.py": (
                "import datetime\n\nfrom accelerate import InitProcessGroupKwargs\n\n"
                "pg_timeout = datetime.timedelta(5400)\nkwargs = InitProcessGroupKwargs(timeout=pg_timeout)\n"
            )
        },
        at="train.py:5",
        fixed={
            "train.py": (
                "import datetime\n\nfrom accelerate import InitProcessGroupKwargs\n\n"
                "pg_timeout = datetime.timedelta(seconds=5400)\nkwargs = InitProcessGroupKwargs(timeout=pg_timeout)\n"
            )
        },
    ),
    bad(
        "in a dictionary, and in a variable of another name",
        {
            "train.py": (
                "from datetime import timedelta\n\nimport torch.distributed as dist\n\n"
                "options = {'backend': 'nccl', 'timeout': timedelta(1800)}\ndist.init_process_group(**options)\n"
                "limit = timedelta(3600)\ngroup = dist.new_group(timeout=limit)\n"
            )
        },
        at=("train.py:5", "train.py:7"),
    ),
    bad(
        "from a helper of another file, for a field",
        {
            "train.py": "from limits import limit\nimport torch.distributed as dist\n\n\nclass Job:\n"
            "    def __init__(self, value):\n        self.wait = value\n\n\n"
            "job = Job(limit(7200))\ndist.init_process_group('nccl', timeout=job.wait)\n",
            "limits.py": "from datetime import timedelta\n\n\ndef limit(number):\n    return timedelta(number)\n",
        },
        at="limits.py:5 warning",
    ),
    good(
        "seconds by keyword, and one day",
        {
            "train.py": (
                "from datetime import timedelta\n\nimport torch.distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(seconds=1800))\n"
                "group = dist.new_group(timeout=timedelta(1))\n"
            )
        },
    ),
    good(
        "the sessions of a web server",
        {"app.py": "from datetime import timedelta\n\nimport flask\n\nsession_timeout = timedelta(90)\n"},
    ),
    good(
        "a span of time that is no timeout",
        {
            "report.py": (
                "from datetime import timedelta\n\nimport torch.distributed as dist\n\n"
                "retention = timedelta(90)\ntimeout = 5\n"
            )
        },
    ),
)


def precheck(tree: ast.Module) -> bool:
    """Some `timedelta` has one positional argument."""
    return any(
        len(node.args) == 1 and not node.keywords and "timedelta" in call_name(node)
        for node in flat(tree).nodes(ast.Call)
    )


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a `timedelta` of many days that reaches a timeout, by whatever way."""
    seen: set[int] = set()
    for found in run.happenings("takes-timeout"):
        value = timeout_of(run, found.event)
        made = value.single if value is not None else None
        days = (seconds_of(value) or 0) / 86400
        node = made.node if isinstance(made, Instance) else None
        is_plain = isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
        module = next((m for m in run.machine.program.modules() if _holds(m, node)), None) if is_plain else None
        if days < _LEAST_DAYS or module is None or not isinstance(node, ast.Call) or id(node) in seen:
            continue
        seen.add(id(node))
        start = module.span(node.args[0]).start
        text = run.text(module, node.args[0])
        yield run.finding(
            META,
            module,
            node,
            f"`{run.text(module, node)}` is {days:g} days: the first argument of `timedelta` is days, so a hang would"
            " not be reported for that long",
            hint=f"Write `timedelta(seconds={text})`",
            fix=Fix("Name the unit: seconds", (Edit(run.path, Span(start, start), "seconds="),))
            if module.path == run.path
            else None,
            facts={"days": days},
        )


def _holds(module: Module, node: ast.AST | None) -> bool:
    return any(inner is node for inner in ast.walk(module.tree))


class Check(ScriptCheck):
    """Looks at each `timedelta(N)` with one positional number."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the value is known, large, and used as a timeout."""
        if len(node.args) != 1 or node.args[0].keyword is not None or node.args[0].star:
            return
        if self.ctx.qualified_name(node.func) != TIMEDELTA or not self._is_timeout(node):
            return
        if not self.ctx.imports(*_TRAINING):
            return
        value = node.args[0].value
        days = self.ctx.constant(value).get_or(None)
        if isinstance(days, bool) or not isinstance(days, int | float) or days < _LEAST_DAYS:
            return
        start = self.ctx.span(value).start
        self.report(
            node,
            f"`{self.ctx.text(node)}` is {days:g} days: the first argument of `timedelta` is days, so a hang would not "
            "be reported for that long",
            hint=f"Write `timedelta(seconds={self.ctx.text(value)})`",
            fix=Fix("Name the unit: seconds", (Edit(self.ctx.doc.path, Span(start, start), "seconds="),)),
            facts={"days": days},
        )

    def _is_timeout(self, node: cst.Call) -> bool:
        """The value goes to `timeout=`, to a name with "timeout" in it, or to a position that means it."""
        child: cst.CSTNode = node
        for parent in self.ctx.parents(node):
            if isinstance(parent, cst.Arg):
                if parent.keyword is not None:
                    return "timeout" in parent.keyword.value
                child = parent
                continue
            if isinstance(parent, cst.Call):
                takes, position = timeout_position(self.ctx.qualified_name(parent.func))
                return takes and position is not None and position < len(parent.args) and parent.args[position] is child
            if isinstance(parent, cst.DictElement):
                key = self.ctx.constant(parent.key).get_or(None)
                return isinstance(key, str) and "timeout" in key.lower()
            if isinstance(parent, cst.Assign):
                named = any("timeout" in last_name(t.target).lower() for t in parent.targets)
                return named or self._is_passed_on(parent.value)
            if isinstance(parent, cst.AnnAssign):
                return "timeout" in last_name(parent.target).lower()
            if isinstance(parent, cst.Param):
                return "timeout" in parent.name.value.lower()
            if not isinstance(parent, cst.IfExp):
                return False
        return False

    def _is_passed_on(self, value: cst.BaseExpression) -> bool:
        """A variable that holds nothing else is passed as `timeout=`."""
        passed = (n for n in self.ctx.tree.order if isinstance(n, cst.Arg) and n.keyword is not None)
        timeouts = (n.value for n in passed if n.keyword is not None and n.keyword.value == "timeout")
        return any(self.ctx.names.single_value(t) is value for t in timeouts)
