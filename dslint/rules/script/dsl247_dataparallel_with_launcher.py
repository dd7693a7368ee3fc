"""**What.** `torch.nn.DataParallel` in a process that is one rank of a distributed job.

**Why it hurts.** `DataParallel` spreads its batch over all GPUs that the process sees. Under a launcher every rank sees
all of them: eight processes make eight replicas each, and all meet on the same GPUs. The memory is used several times
over, the replicas of a step are discarded, and the gradients of DeepSpeed's or DDP's hooks are those of replica 0.

**Fix.** Remove the wrapper: `DistributedDataParallel`, the DeepSpeed engine or accelerate wrap the model once per rank.

**When it stays quiet.** In the arm that runs without distribution (`if local_rank == -1`, `if not args.distributed`),
in another function than the one that joins the job, and where a test other than the number of GPUs decides. An
`Accelerator` alone, which prepares nothing, need not be a job. With `device_ids=[local_rank]` it is a plain wrapper,
and one that `model = model.module` takes off at once does nothing.

**Evidence.** torch 2.13 `nn/parallel/data_parallel.py`: `device_ids` is by default all visible devices, and `forward`
replicates the module to each of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event
from dslint.python.queries.asked import expressions_of, is_followed
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.ways import Decided, ways_to
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL247",
    name="dataparallel-with-launcher",
    kind="script",
    severity=Severity.WARNING,
    summary="`DataParallel` in a rank of a distributed job replicates the model on all GPUs in every process",
    markers=(r"DataParallel",),
    references=("https://pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",),
    depends_on_run=True,
    no_experiment="without GPUs `DataParallel` only calls the module",
)

# What makes the process a rank of a job. An `Accelerator` that prepares nothing may be there for its device alone.
_JOINING = ("starts-group", "makes-engine", "wraps-model", "prepares")
_COUNT = re.compile(r"(?:^|\.)device_count$")
_SEVERAL = re.compile(r"device_count|\brange\(")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where every process that wraps has joined, or joins, a job."""
    if run.context.world_size.get_or(0) == 1:
        return
    joins = [found for found in run.occurrences(*_JOINING) if _joins(run, found.event)]
    for found in run.happenings("wraps-model", "replicates-model") if joins else ():
        event = found.event
        if not _is_dp(run, event) or event.may or _has_one_device(event) or _is_unwrapped(event):
            continue
        ways = _ways(run, found)
        start = next((join for join in joins if join.entry is found.entry and ways & _ways(run, join)), None)
        if start is not None:
            yield run.finding(
                META,
                event.module,
                event.node,
                "`DataParallel` in every rank replicates the model on all GPUs: N processes make N replicas on each",
                hint="Remove it: `DistributedDataParallel`, DeepSpeed or accelerate wrap the model once per rank",
                related=(run.location(start.event.module, start.event.node, "the process is a rank of a job"),),
            )


def _is_dp(run: RunQuery, event: Event) -> bool:
    return any(base.kind == "dp" for base in run.machine.libraries.lineage(event.api))


def _joins(run: RunQuery, event: Event) -> bool:
    is_state = event.api.startswith("accelerate.") and "prepares" not in event.tags
    return not (event.may or is_state or "training-arguments" in event.tags or _is_dp(run, event))


def _ways(run: RunQuery, found: Happening) -> frozenset[tuple[int, Decided]]:
    """Return what decides whether a process comes to an event, for each way, and the ranks that do."""
    return frozenset((found.event.lanes, way) for way in ways_to(run, found, _counts_gpus))


def _counts_gpus(test: Alt) -> bool:
    """Return whether a test asks for the number of GPUs and nothing else: it is the same on every rank."""
    asked = list(expressions_of(test))
    parts = [part for expression in asked for part in ast.walk(expression)]
    if not any(isinstance(part, ast.Compare) for part in parts) or any(isinstance(p, ast.BoolOp) for p in parts):
        return False
    counts = [part for part in parts if isinstance(part, ast.Call) and _COUNT.search(ast.unparse(part.func))]
    known = {id(name) for call in counts for name in ast.walk(call)}
    known |= {id(name) for name in parts if isinstance(name, ast.Name) and is_followed(test, name)}
    return bool(counts) and all(id(part) in known for part in parts if isinstance(part, ast.Name | ast.Attribute))


def _has_one_device(event: Event) -> bool:
    """Return whether the wrapper certainly gets one device, or devices that nobody knows."""
    devices = event.arguments.get("device_ids")
    if event.open:
        return True
    if devices is None or devices.constants == (None,):
        return False
    node = event.nodes.get("device_ids")
    is_several = node is not None and _SEVERAL.search(event.module.text(node)) is not None
    return len(event.items.get("device_ids", ())) < 2 and not is_several


def _is_unwrapped(event: Event) -> bool:
    """Return whether `model = model.module` follows: nobody calls the wrapper, and only a call replicates."""
    for node in event.module.nodes:
        if isinstance(node, ast.Attribute) and node.value is event.node:
            return node.attr == "module"
        body = getattr(node, "body", None)
        statements = body if isinstance(body, list) else []
        for at, one in enumerate(statements):
            if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is event.node:
                return _takes_off(_target(one), statements[at + 1 :])
    return False


def _takes_off(name: str, after: list[ast.stmt]) -> bool:
    """Return whether the first thing done with a variable, or with another name of it, is `x = x.module`."""
    names = {name}
    for statement in after:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if value is None:
            return False
        if ast.unparse(value) not in names:
            target = _target(statement)
            return ast.unparse(value) == f"{target}.module" and target in names
        names.add(_target(statement))
    return False


def _target(statement: ast.stmt) -> str:
    """Return what a statement assigns to, as code."""
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0])
    return ast.unparse(statement.target) if isinstance(statement, ast.AnnAssign) else ""


_HEAD = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n\n\ndef main(args, model):\n"

EXAMPLES = (
    bad(
        "beside the process group",
        {"train.py": _HEAD + "    dist.init_process_group('nccl')\n    model = nn.DataParallel(model.cuda())\n"},
        at="train.py:8 warning",
    ),
    bad(
        "where there is more than one GPU, which is so on every rank",
        {
            "train.py": _HEAD + "    dist.init_process_group('nccl')\n"
            "    if torch.cuda.device_count() > 1:\n        model = nn.DataParallel(model)\n    return model\n"
        },
        at="train.py:9",
    ),
    bad(
        "under the engine",
        {
            "train.py": "import deepspeed\nimport torch\n\n\ndef main(model):\n"
            "    model = torch.nn.DataParallel(model)\n"
            "    return deepspeed.initialize(model=model, config='ds.json')\n"
        },
        at="train.py:6",
    ),
    bad(
        "in the distributed arm",
        {
            "train.py": _HEAD + "    if args.local_rank != -1:\n        dist.init_process_group('nccl')\n"
            "        model = nn.DataParallel(model)\n    return model\n"
        },
        at="train.py:9",
    ),
    bad(
        "helpers of other files that join and wrap",
        {
            "train.py": "from models import build\nfrom setting import begin\n\nbegin()\nmodel = build(1)\n"
            "# torch.distributed.init_process_group(...) stands in setting.py\n",
            "setting.py": "import torch.distributed as dist\n\n\ndef begin():\n    dist.init_process_group('nccl')\n",
            "models.py": "import torch\nfrom torch.nn import DataParallel as Parallel\n\n\ndef build(count):\n"
            "    return Parallel(torch.nn.Linear(count, 1))\n",
        },
        at="models.py:6",
    ),
    good(
        "returned before, where there is a job",
        {
            "train.py": _HEAD + "    if args.distributed:\n        dist.init_process_group('nccl')\n"
            "        return nn.parallel.DistributedDataParallel(model)\n    return nn.DataParallel(model)\n"
        },
    ),
    good(
        "the arm without distribution",
        {
            "train.py": _HEAD + "    if args.local_rank != -1:\n        dist.init_process_group('nccl')\n"
            "        model = nn.parallel.DistributedDataParallel(model)\n"
            "    elif args.n_gpu > 1:\n        model = nn.DataParallel(model)\n    return model\n"
        },
    ),
    good(
        "a test of its own",
        {
            "train.py": _HEAD + "    if args.distributed:\n        dist.init_process_group('nccl')\n"
            "    if not args.distributed:\n        model = nn.DataParallel(model)\n    return model\n"
        },
    ),
    good(
        "a number of GPUs that is 1 in a distributed run",
        {
            "train.py": _HEAD + "    dist.init_process_group('nccl')\n"
            "    if args.n_gpu > 1:\n        model = nn.DataParallel(model)\n    return model\n"
        },
    ),
    good(
        "the GPU of the rank",
        {
            "train.py": _HEAD + "    dist.init_process_group('nccl')\n"
            "    model = nn.DataParallel(model, device_ids=[args.local_rank])\n"
        },
    ),
    good(
        "an accelerator for its device, which prepares nothing",
        {
            "infer.py": "from accelerate import Accelerator\nfrom torch import nn\n\n\ndef main(model, batch):\n"
            "    accelerator = Accelerator()\n    model = nn.DataParallel(model.to(accelerator.device))\n"
            "    return model(batch)\n"
        },
    ),
    bad(
        "beside what an accelerator prepares",
        {
            "train.py": "from accelerate import Accelerator\nfrom torch import nn\n\n\ndef main(model, judge):\n"
            "    accelerator = Accelerator()\n    model = accelerator.prepare(model)\n"
            "    judge = nn.DataParallel(judge)\n    return model, judge\n"
        },
        at="train.py:8",
    ),
    good(
        "taken off again at once: only a call replicates",
        {
            "infer.py": _HEAD + "    dist.init_process_group('nccl')\n    model = nn.DataParallel(model)\n"
            "    model = model.module\n    return model.generate(args.tokens)\n"
        },
    ),
    good(
        "taken off again in the same line",
        {
            "infer.py": _HEAD
            + "    dist.init_process_group('nccl'); model = nn.DataParallel(model); model = model.module\n"
            "    return model.generate(args.tokens)\n"
        },
    ),
    good(
        "taken off again, in parentheses",
        {
            "infer.py": _HEAD + "    dist.init_process_group('nccl')\n    model = (nn.DataParallel(model))\n"
            "    model = (model.module)\n    return model.generate(args.tokens)\n"
        },
    ),
    good("no job", {"eval.py": "from torch import nn\n\n\ndef main(model):\n    return nn.DataParallel(model)\n"}),
    good(
        "another function",
        {
            "train.py": _HEAD + "    dist.init_process_group('nccl')\n\n\ndef evaluate(model):\n"
            "    return nn.DataParallel(model)\n"
        },
    ),
)
