"""**What.** A script makes a device mesh, `init_device_mesh("cuda", (dp, tp))`, whose sizes are in the config, the
arguments or the script, and their product is more than the processes that the command starts.

**Why it hurts.** Every rank stops with `RuntimeError: Mesh should not be bigger than default world size`, after the
job has waited in its queue.

**Fix.** Start as many processes as the product, or make a size smaller.

**When it stays quiet.** When a size or the number of processes is not known or computed, when the script makes
several meshes, and for a smaller product.

**Evidence.** torch 2.13 `torch/distributed/device_mesh.py`; two gloo ranks and a mesh of 2 x 2, run.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL363",
    name="mesh-larger-than-run",
    kind="plan",
    severity=Severity.WARNING,
    summary="A device mesh of more ranks than the command starts",
    depends_on_run=True,
    no_experiment="the error is raised by torch before any communication; it was seen with two gloo ranks",
    references=(
        "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.init_device_mesh",
    ),
    needs=("mesh",),
)

_BY_CONFIG = """\
import argparse

import torch.distributed as dist
import yaml
from torch.distributed.device_mesh import init_device_mesh

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
with open(parser.parse_args().config) as file:
    cfg = yaml.safe_load(file)
sizes = cfg["parallelism"]
mesh = init_device_mesh("cuda", (sizes["dp"], sizes["tp"]), mesh_dim_names=("dp", "tp"))
"""
_BY_OPTIONS = """\
import argparse

from torch.distributed.device_mesh import init_device_mesh

parser = argparse.ArgumentParser()
parser.add_argument("--dp", type=int, default=2)
parser.add_argument("--tp", type=int, default=2)
args = parser.parse_args()
mesh = init_device_mesh("cuda", mesh_shape=(args.dp, args.tp))
"""
_NUMBERS = """\
import torch
from torch.distributed.device_mesh import init_device_mesh

TP = 4
shape = (4, TP)
mesh = init_device_mesh("cuda", shape, mesh_dim_names=("dp", "tp"))
"""
_RUN = "torchrun --standalone --nproc_per_node %s train.py%s\n"
_CONFIG = "model:\n  dim: 64\nparallelism:\n  dp: %s\n  tp: 2\n"

EXAMPLES = (
    bad("sizes of the config", {
        "run.sh": _RUN % (4, " --config c.yaml"), "c.yaml": _CONFIG % 4, "train.py": _BY_CONFIG,
    }, "train.py:12 warning"),
    bad("the number of make", {
        "Makefile": "NGPUS ?= 4\n\ntrain:\n\ttorchrun --nproc_per_node=$(NGPUS) train.py --config=c.yaml\n",
        "c.yaml": _CONFIG % 8,
        "train.py": _BY_CONFIG,
    }, "train.py:12 warning"),
    bad("options", {"run.sh": _RUN % (4, " --tp 4"), "train.py": _BY_OPTIONS}, "train.py:9 warning"),
    bad("numbers", {"run.sh": _RUN % (8, ""), "train.py": _NUMBERS}, "train.py:6 warning"),
    bad("in a module that the script imports", {
        "run.sh": _RUN % (8, ""), "train.py": "import mesh\n", "mesh.py": _NUMBERS,
    }, "mesh.py:6 warning"),
    good("as many", {
        "run.sh": _RUN % (8, " --config c.yaml"), "c.yaml": _CONFIG % 4, "train.py": _BY_CONFIG,
    }),
    good("an option that fits", {"run.sh": _RUN % (4, " --tp 2"), "train.py": _BY_OPTIONS}),
    good("nobody knows how many", {"run.sh": _RUN % ("$N", " --tp 4"), "train.py": _BY_OPTIONS}),
    good("a size of the run", {
        "run.sh": _RUN % (8, ""), "train.py": _NUMBERS.replace("(4, TP)", "(torch.cuda.device_count() // TP, TP)"),
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The ranks of the mesh beside those of the run."""
    mesh, world = plan.mesh, plan.world_size
    if mesh is None or not world.is_known or mesh.ranks <= world.get():
        return
    yield META.finding(
        mesh.location,
        f"a mesh of {' x '.join(map(str, mesh.sizes))} ranks needs {mesh.ranks}, and the command starts {world.get()}:"
        " every rank stops with a `RuntimeError`",
        hint=f"Start {mesh.ranks} processes, or make a size smaller",
        related=(*mesh.places, *world.origins, plan.command.location.labelled("the command that starts this run")),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"mesh": mesh.ranks, "world": world.get()},
    )
