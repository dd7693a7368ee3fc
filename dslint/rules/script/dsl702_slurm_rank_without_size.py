"""The branch for Slurm takes the rank from the job, and leaves the number of processes at what an option says.

**What.** `init_distributed_mode` and its relatives: `elif "SLURM_PROCID" in os.environ:` sets `args.rank` (and the
GPU), but not `args.world_size`, which the branch for torchrun does set; both then call
`init_process_group(world_size=args.world_size, rank=args.rank)`.

**Why it hurts.** Under `srun` the world size is the default of the option, 1 nearly always. Rank 0 makes a group of its
own and trains alone; the other ranks are refused, or wait for the store until their timeout, and the job fails after it
has waited in the queue. With torchrun inside of the job the same code works, for it takes the other branch.

**Fix.** `args.world_size = int(os.environ["SLURM_NTASKS"])` in that branch.

**When it stays quiet.** Anything in the project sets the number of processes by Slurm or by its launcher (submitit,
`num_tasks`); every command passes it; its default is no number of processes (-1); the group is made without it.

**Evidence.** torch 2.13 `init_process_group` with `rank=1, world_size=1`: the TCP store of rank 1 finds no server, and
with `env://` both numbers go to the rendezvous as they are. Slurm sets `SLURM_PROCID` and `SLURM_NTASKS`, and neither
`RANK` nor `WORLD_SIZE`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.otherscripts import texts_of_others
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL702",
    name="slurm-rank-without-size",
    kind="script",
    severity=Severity.WARNING,
    summary="the branch for Slurm sets the rank and not the number of processes, which stays at a default",
    markers=(r"SLURM_PROCID", r"init_process_group", r"world_size"),
    references=(
        "https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES",
        "https://github.com/pytorch/pytorch/issues/62381",
    ),
    depends_on_run=True,
    no_experiment="a job of Slurm is needed",
)
_RANK, _SIZE = "rank", "world_size"
_SLURM = re.compile(r"[\"']SLURM_PROCID[\"']")
# What tells a job of Slurm how many processes it has.
_COUNTS = re.compile(
    r"SLURM_(?:NTASKS|NPROCS|STEP_NUM_TASKS|TASKS_PER_NODE)|world_?size\w*\s*=[^=\n]*(?:num_tasks|n_?procs|ntasks)"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each branch for Slurm that sets the rank of a group alone."""
    seen: set[int] = set()
    for found in run.happenings("starts-group"):
        event = found.event
        rank, size = event.nodes.get(_RANK), event.nodes.get(_SIZE)
        if event.open or rank is None or size is None or not event.api.startswith("torch.distributed."):
            continue
        branch = _branch(event, ast.unparse(rank), ast.unparse(size))
        if branch is None or id(branch) in seen or not _may_be_one(run, ast.unparse(size)) or _is_told(run):
            continue
        seen.add(id(branch))
        yield _finding(run, event, branch, ast.unparse(size))


def _branch(event: Event, rank: str, size: str) -> ast.If | None:
    """Return the test for Slurm whose branch sets one name and not the other, beside branches that set both."""
    for node in _tests(event.module, event.node, "." in size):
        test = ast.unparse(node.test)
        if not _SLURM.search(test) or _SLURM.search(f"{test}:".partition(" not in ")[2]):
            continue
        mine, others = _set(node.body), _set(_beside(event.module, node))
        if rank in mine and size not in mine and size in others and not _leaves(node.body):
            return node
    return None


def _tests(module: Module, call: ast.AST, is_field: bool) -> Iterator[ast.If]:
    """Yield the tests that may have set a field, or those before the call that may have set a variable."""
    if is_field:
        yield from module.nodes_of(ast.If)
        return
    scope: ast.AST | None = call
    while scope is not None and not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
        scope = module.parents.get(scope)
    line = getattr(call, "lineno", 0)
    yield from (n for n in ast.walk(scope or module.tree) if isinstance(n, ast.If) and n.lineno < line)


def _beside(module: Module, node: ast.If) -> list[ast.stmt]:
    """Return what the other branches of the same chain do."""
    found = list(node.orelse)
    parent = module.parents.get(node)
    while isinstance(parent, ast.If) and parent.orelse == [node]:
        found += parent.body
        node, parent = parent, module.parents.get(parent)
    return found


def _set(statements: list[ast.stmt]) -> set[str]:
    """Return the names and fields that statements give a value to."""
    targets: list[ast.AST] = []
    for node in (inner for statement in statements for inner in ast.walk(statement)):
        if isinstance(node, ast.Assign):
            targets += [part for target in node.targets for part in ast.walk(target)]
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets.append(node.target)
    return {ast.unparse(target) for target in targets if isinstance(target, ast.Name | ast.Attribute)}


def _leaves(statements: list[ast.stmt]) -> bool:
    return any(isinstance(statement, ast.Return | ast.Raise) for statement in statements)


def _may_be_one(run: RunQuery, size: str) -> bool:
    """Return whether no command passes the number, and its default is 1 or not known."""
    name = size.rpartition(".")[2]
    lines = [found.event.command_line for found in run.happenings("parses-arguments")]
    options = [option for line in lines if line is not None for option in line.options if option.dest == name]
    is_other = any(option.default.is_known and option.default.value != 1 for option in options)
    return run.context.arguments.get(name) is None and not is_other


def _is_told(run: RunQuery) -> bool:
    """Return whether something in the project says how many processes a job of Slurm has."""
    texts = (module.code for module in run.machine.program.modules())
    return any(_COUNTS.search(text) for text in (*texts, *texts_of_others(run).values()))


def _finding(run: RunQuery, event: Event, branch: ast.If, size: str) -> Finding:
    return run.finding(
        META,
        event.module,
        branch.test,
        f"under `srun` the rank is that of the job, and `{size}` stays at its default: the ranks never form one group",
        hint=f'Set `{size} = int(os.environ["SLURM_NTASKS"])` here',
        related=(run.location(event.module, event.node, "the group is made here"),),
    )


_SETUP = """\
import argparse
import os

import torch
import torch.distributed as dist


def init_distributed_mode(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.world_size = int(os.environ["WORLD_SIZE"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    elif "SLURM_PROCID" in os.environ:
        args.rank = int(os.environ["SLURM_PROCID"])
        args.gpu = args.rank %% torch.cuda.device_count()%s
    else:
        args.distributed = False
        return
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl", init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    dist.barrier(device_ids=[args.gpu])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--world_size", type=int, default=%s)
    parser.add_argument("--dist_url", default="env://")
    init_distributed_mode(parser.parse_args())
    dist.destroy_process_group()
"""
_CONFIG = """\
import os

import torch
import yaml


class Launcher:
    def __init__(self, path):
        with open(path) as file:
            self.config = yaml.safe_load(file)
        self.world_size = self.config["world_size"]
        if os.environ.get("SLURM_PROCID") is not None:
            self.rank = int(os.environ["SLURM_PROCID"])
            self.local_rank = int(os.environ["SLURM_LOCALID"])
            %s
        else:
            self.rank = int(os.environ["RANK"])
            self.world_size = int(os.environ["WORLD_SIZE"])
            self.local_rank = int(os.environ["LOCAL_RANK"])

    def start(self):
        torch.cuda.set_device(self.local_rank)
        torch.distributed.init_process_group("nccl", rank=self.rank, world_size=self.world_size)


Launcher("config.yaml").start()
torch.distributed.destroy_process_group()
"""
_NAMES = """\
import os

import torch.distributed as dist


def setup(world_size=1):
    rank, local = 0, 0
    if "SLURM_PROCID" in os.environ:
        rank = int(os.environ["SLURM_PROCID"])
        local = int(os.environ["SLURM_LOCALID"])
    elif "RANK" in os.environ:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(%s)
    return local


print(setup())
dist.destroy_process_group()
"""
_GIVEN = '"gloo", rank=rank, world_size=world_size'

EXAMPLES = (
    bad("the helper that many projects copy", {"train.py": _SETUP % ("", "1")}, at="train.py:13 warning"),
    bad("a class, and a number of a config", {"train.py": _CONFIG % "print(self.rank)"}, at="train.py:12 warning"),
    bad("plain names", {"train.py": _NAMES % _GIVEN}, at="train.py:8 warning"),
    good("the number of tasks", {
        "train.py": _SETUP % ('\n        args.world_size = int(os.environ["SLURM_NTASKS"])', "1")}),
    good("in a class", {"train.py": _CONFIG % 'self.world_size = int(os.environ["SLURM_NTASKS"])'}),
    good("another file starts the job and knows", {
        "train.py": _SETUP % ("", "1"),
        "submit.py": "import submitit\nimport train\n\n\ndef start(args):\n"
        "    args.world_size = submitit.JobEnvironment().num_tasks\n    train.init_distributed_mode(args)\n"}),
    good("torch asks for itself", {"train.py": _SETUP % ("", "-1")}),
    good("the group is made without the numbers", {"train.py": _NAMES % '"gloo"'}),
)  # fmt: skip
