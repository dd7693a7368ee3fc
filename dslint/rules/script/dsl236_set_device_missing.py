"""**What.** A script makes an NCCL process group and puts its model on `"cuda"`, but no line gives the process a GPU of
its own.

The same of objects (`all_gather_object`, `broadcast_object_list`) that NCCL sends, whose bytes go through the current
device, wherever the model is.

**Why it hurts.** The current device is GPU 0 until somebody chooses another one. All ranks of a machine put their model
there: NCCL refuses with `Duplicate GPU detected`, or the first GPU runs out of memory while the others stay empty.

**Fix.** `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the model is made.

**When it stays quiet.** In modules without `if __name__ == "__main__":` and without a command line, since their caller
may have chosen; when anything in the file chooses: `set_device`, `device_id=` of `init_process_group`,
`f"cuda:{local_rank}"`, `.cuda(local_rank)`, `.to(rank)`, `device_ids=`, `CUDA_VISIBLE_DEVICES`; with DeepSpeed,
accelerate, transformers, Lightning and mmengine, which choose by themselves; for other backends; for one
process (`world_size=1`).

**Evidence.** NCCL `init.cc`: `Duplicate GPU detected : rank 0 and rank 1 both on CUDA device`; PyTorch documentation of
`DistributedDataParallel`: "ensure that each process exclusively works on a single GPU". Reports:
https://github.com/NVIDIA/nccl/issues/541.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.model.script.given import given
from dslint.model.script.quick import call_name, flat
from dslint.python.events import Event, events
from dslint.python.values import Const
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL236",
    name="set-device-missing",
    kind="script",
    severity=Severity.WARNING,
    summary="An NCCL job puts every rank on GPU 0, since no line chooses a device",
    markers=(r"init_process_group", r"nccl", r"cuda", r"\.cuda\(\)|[\"']cuda[\"']"),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.cuda.set_device.html",
        "https://github.com/NVIDIA/nccl/issues/541",
    ),
    depends_on_run=True,
    no_experiment="NCCL needs GPUs, and gloo does not ask which device a process uses",
)

_HEAD = "import torch\nimport torch.distributed as dist\n\n\ndef main():\n    dist.init_process_group('nccl')\n"
_MODEL = "    model = torch.nn.Linear(8, 8).cuda()\n    return torch.nn.parallel.DistributedDataParallel(model)\n"
_OBJECTS = (
    "    device = torch.device('cuda', dist.get_node_local_rank())\n    model = torch.nn.Linear(8, 8).to(device)\n"
    "    names = [None] * dist.get_world_size()\n    dist.all_gather_object(names, str(model))\n"
)
_MAIN = "\n\nif __name__ == '__main__':\n    main()\n"

EXAMPLES = (
    bad("every rank on GPU 0", {"train.py": _HEAD + _MODEL + _MAIN}, at="train.py:7 warning"),
    bad(
        "by the name of the device",
        {"train.py": _HEAD + _MODEL.replace(".cuda()", ".to('cuda')") + _MAIN},
        at="train.py:7",
    ),
    bad(
        "NCCL where there is CUDA, and the device through a variable",
        {
            "train.py": _HEAD.replace("'nccl'", "'nccl' if torch.cuda.is_available() else 'gloo'")
            + "    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
            + _MODEL.replace(".cuda()", ".to(device)")
            + _MAIN
        },
        at="train.py:8",
    ),
    bad(
        "objects go through GPU 0, the model does not",
        {"train.py": _HEAD + _OBJECTS + _MAIN},
        at="train.py:10 warning",
    ),
    good("objects over gloo", {"train.py": _HEAD.replace("nccl", "gloo") + _OBJECTS + _MAIN}),
    good(
        "objects after the choice",
        {"train.py": _HEAD + "    torch.cuda.set_device(dist.get_node_local_rank())\n" + _OBJECTS + _MAIN},
    ),
    good(
        "chosen before",
        {
            "train.py": _HEAD.replace("import torch\n", "import os\n\nimport torch\n", 1)
            + "    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
            + _MODEL
            + _MAIN
        },
    ),
    good(
        "chosen where the group is made",
        {"train.py": _HEAD.replace("'nccl')", "'nccl', device_id=pick())") + _MODEL + _MAIN},
    ),
    good("a module that a script calls", {"train.py": _HEAD + _MODEL}),
    good("another backend", {"train.py": _HEAD.replace("nccl", "gloo") + _MODEL + _MAIN}),
    good(
        "the engine chooses",
        {
            "train.py": "import deepspeed\nimport torch\nimport torch.distributed as dist\n\n\ndef main(model):\n"
            "    dist.init_process_group('nccl')\n    deepspeed.initialize(model=model, config='ds.json')\n"
            "    x = torch.ones(1).cuda()\n" + _MAIN
        },
    ),
    good(
        "one visible GPU for each process",
        {
            "train.py": "import os\n\n" + _HEAD.replace(
                "    dist", "    os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n    dist"
            ) + _MODEL + _MAIN
        },
    ),
    good(
        "a helper of another module may choose",
        {"train.py": "from utils import setup_device\n\n" + _HEAD + "    setup_device()\n" + _MODEL + _MAIN},
    ),
    good(
        "a group of one process, for a wrapper that needs one",
        {"fold.py": _HEAD.replace("'nccl')", "'nccl', rank=0, world_size=1)") + _MODEL + _MAIN},
    ),
    good(
        "one process",
        {"train.py": _HEAD + _MODEL + _MAIN, "run.sh": "torchrun --nproc_per_node 1 train.py\n"},
    ),
)  # fmt: skip

# A name in the files of a run by which something may choose the device.
_CHOICE = re.compile(
    r"set_device|device_ids?\s*=\s*(?!\[)|CUDA_VISIBLE_DEVICES|cuda\.device\(|init_device_mesh|HIP_VISIBLE"
)
_OWNERS = frozenset({"makes-engine", "prepares", "trainer", "sets-device"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first objects that NCCL sends through the current device, which nothing has chosen."""
    if run.context.is_one_process or run.has(*_OWNERS):
        return
    for _, tree in run.trees():
        made = next((event for event in events(tree) if _makes_nccl(event)), None)
        sent = next((event for event in events(tree) if _sends_objects(run, event)), None)
        if made is None or sent is None or any(_CHOICE.search(m.source.text) for m in (made.module, sent.module)):
            continue
        yield run.finding(
            META,
            sent.module,
            sent.node,
            f"`{sent.api.rpartition('.')[2]}` sends objects through the current device, GPU 0 on every rank: NCCL stops"
            " or waits",
            hint='Call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the process group is made',
            related=(run.location(made.module, made.node, "the process group of NCCL"),),
        )
        return


def _makes_nccl(event: Event) -> bool:
    backend, device = event.arguments.get("backend"), event.arguments.get("device_id")
    names = [atom.value for atom in backend.atoms if isinstance(atom, Const)] if backend is not None else []
    is_chosen = event.open or (device is not None and device.constants != (None,))
    return "starts-group" in event.tags and not is_chosen and any("nccl" in str(name) for name in names)


def _sends_objects(run: RunQuery, event: Event) -> bool:
    group = event.arguments.get("group")
    is_default = group is None or group.constants == (None,)
    return "object-collective" in event.tags and event.lanes == run.machine.worlds.full and is_default


_MAKERS = frozenset({"init_process_group", "init_distributed"})
_CHOOSERS = frozenset(
    {"set_device", "device_ids", "device_id", "CUDA_VISIBLE_DEVICES", "device_mesh", "init_device_mesh"}
)
_CHOOSING = (
    "deepspeed",
    "accelerate",
    "transformers",
    "lightning",
    "pytorch_lightning",
    "mmengine",
    "mmcv",
    "ray",
    "trl",
)
_ENTRY = frozenset({"parse_args", "parse_known_args", "parse_args_into_dataclasses"})


def precheck(tree: ast.Module) -> bool:
    """A program that makes a group, and no name in it speaks of choosing."""
    nodes = flat(tree)
    calls = {call_name(call) for call in nodes.nodes(ast.Call)}
    if "init_process_group" not in calls or calls & _CHOOSERS:
        return False
    if any(k.arg in _CHOOSERS for k in nodes.nodes(ast.keyword)):
        return False
    modules = {a.name.split(".")[0] for n in nodes.nodes(ast.Import) for a in n.names}
    modules |= {(n.module or "").split(".")[0] for n in nodes.nodes(ast.ImportFrom)}
    is_entry = bool(calls & _ENTRY) or any(n.id == "__name__" for n in nodes.nodes(ast.Name))
    return is_entry and not modules & set(_CHOOSING)


class Check(ScriptCheck):
    """Asks once for a file whether anything chooses a device."""

    def finish(self) -> None:
        """Fire on the first thing that goes to the current device of an NCCL job."""
        if self.ctx.run.is_one_process and not self.ctx.startup.starts_processes:
            return
        if not self.ctx.startup.is_entry or self._chooses():
            return
        made = next((c for c in self.ctx.startup.group_makers if self._is_nccl(c)), None)
        # A tensor made somewhere in passing is no model; ``.cuda()`` on what trains is.
        put = next((c for c in self.ctx.startup.devices.on_current if self.ctx.guard(c) is None), None)
        if made is None or put is None:
            return
        self.report(
            put,
            "no line chooses a GPU for the process: every rank of a machine works on GPU 0, and NCCL stops with"
            " `Duplicate GPU detected` or the GPU runs out of memory",
            hint='Call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the process group is made',
            related=(self.ctx.location(made, "the process group of NCCL"),),
        )

    def _is_nccl(self, call: cst.Call) -> bool:
        if self.ctx.qualified_name(call.func) not in (
            "torch.distributed.init_process_group",
            "torch.distributed.distributed_c10d.init_process_group",
        ):
            return False
        processes = self.ctx.argument(call, "world_size", 3)
        if processes is not None and self.ctx.constant(processes).get_or(None) == 1:
            return False
        given = self.ctx.argument(call, "backend", 0)
        value = (self.ctx.names.single_value(given) or given) if given is not None else None
        if isinstance(value, cst.IfExp):  # ``"nccl" if torch.cuda.is_available() else "gloo"``
            value = value.body
        backend = self.ctx.constant(value).get_or(None)
        return isinstance(backend, str) and "nccl" in backend

    def _chooses(self) -> bool:
        """Something in the file, or a function of another module that it calls with such a name, may choose."""
        if self.ctx.imports(*_CHOOSING) or self.ctx.startup.devices.choices:
            return True
        for node in self.ctx.tree.order:
            if isinstance(node, cst.Call) and (self._may_choose(node) or self._is_given_device(node)):
                return True
            if isinstance(node, cst.SimpleString) and ("cuda:" in node.value or "CUDA_VISIBLE" in node.value):
                return True
        return False

    def _is_given_device(self, call: cst.Call) -> bool:
        if self.ctx.called(call) not in _MAKERS or not any(a.star for a in call.args):
            return False
        passed = given(self.ctx.names, call)
        return passed.is_open or not passed.named.keys().isdisjoint(_CHOOSERS)

    def _may_choose(self, call: cst.Call) -> bool:
        name = call.func.attr.value if isinstance(call.func, cst.Attribute) else getattr(call.func, "value", "")
        if name == "to" and call.args and not isinstance(call.args[0].value, cst.SimpleString):
            value = call.args[0].value
            found = self.ctx.names.bindings(value.value, value) if isinstance(value, cst.Name) else []
            return not found or any(b.kind != "assign" or not _is_plain(b.value) for b in found)
        if not isinstance(name, str):
            return True
        name = self.ctx.called(call)  # as it is called where it comes from
        lowered = name.lower()
        is_foreign = self.ctx.names.local_function(call) is None and not (
            self.ctx.qualified_name(call.func) or "torch."
        ).startswith("torch.")
        return name in _CHOOSERS or (
            is_foreign and any(w in lowered for w in ("device", "setup", "dist", "init", "gpu"))
        )


def _is_plain(value: cst.BaseExpression | None) -> bool:
    """``"cuda"``, ``torch.device("cuda")``, ``torch.device("cuda" if ... else "cpu")``."""
    if isinstance(value, cst.Call):
        return len(value.args) == 1 and _is_plain(value.args[0].value)
    if isinstance(value, cst.IfExp):
        return _is_plain(value.body) and _is_plain(value.orelse)
    return isinstance(value, cst.SimpleString)
