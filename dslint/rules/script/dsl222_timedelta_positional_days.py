"""**What.** `timedelta(1800)` is used as a timeout. The first positional argument of `timedelta` is *days*.

**Why it hurts.** The process group waits 1800 days: a hang is never reported, and the job holds its GPUs until
somebody notices.

**Fix.** `timedelta(seconds=1800)`. The safe fix adds `seconds=`.

**When it stays quiet.** Fewer than 30 days may be meant; calls with a keyword or with two positional arguments
(days, seconds); a `timedelta` that no call of torch or of a library on top of it gets as a timeout.

**Evidence.** Python's `datetime.timedelta(days=0, seconds=0, ...)`; torch takes the value as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.python.durations import seconds_of
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import timeout_of
from dslint.rules.runs import RunQuery

# A timeout of a month is nobody's intention; 30 seconds is.
_LEAST_DAYS = 30

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


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a `timedelta` of many days that reaches a timeout, by whatever way."""
    seen: set[int] = set()
    for found in run.happenings("takes-timeout"):
        value = timeout_of(run, found.event)
        made = value.single if value is not None else None
        days = (seconds_of(value) or 0) / 86400
        node = made.node if isinstance(made, Instance) else None
        is_plain = isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
        module = run.machine.program.home_of(node) if is_plain else None
        if days < _LEAST_DAYS or module is None or not isinstance(node, ast.Call) or id(node) in seen:
            continue
        seen.add(id(node))
        start = module.span(node.args[0]).start
        text = run.text(module, node.args[0])
        yield run.finding(
            META,
            module,
            node,
            f"`{run.text(module, node)}` means {days:g} days, not seconds: a hang would not be reported for that long",
            hint=f"Write `timedelta(seconds={text})`",
            fix=Fix("Name the unit: seconds", (Edit(run.path, Span(start, start), "seconds="),))
            if module.path == run.path
            else None,
            facts={"days": days},
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
