"""**What.** Only some ranks load a checkpoint: `load_checkpoint` of a DeepSpeed engine, `load_state` of accelerate, or
`load_state_dict` of a model that `DistributedDataParallel` already wraps, behind a test of the rank.

**Why it hurts.** Nothing hangs and nothing fails. The other ranks go on with their fresh weights, the gradients are
averaged over different models, and the loss looks plausible; under ZeRO 3 every rank holds a model of which a part is
loaded. The same for the state of the optimizer and of the schedule.

**Fix.** Load on every rank. The fix dedents the call where it is the only statement behind a plain rank test.

**When it stays quiet.** Another branch loads as well; the weights are broadcast afterwards; a raw model is loaded
before `DistributedDataParallel` wraps it, which hands the weights of rank 0 to all. A call that waits for all ranks
behind a rank test (`save_checkpoint`, `torch.distributed.checkpoint.load`) is DSL201.

**Evidence.** Two gloo ranks: loaded on rank 0 only, the weights of the ranks differ after `load_checkpoint` at ZeRO 0,
1 and 2, after `load_state`, and after `load_state_dict` of a DDP model; at ZeRO 3 both end with other weights than
were saved. Loaded on both, they are those that were saved.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Fix
from dslint.model.script.behind import with_callees
from dslint.model.script.edits import only_statement_dedented
from dslint.model.script.marked import defined, holds
from dslint.model.script.precheck import has_guarded_call
from dslint.model.script.quick import call_name, flat
from dslint.model.script.ranks.guards import Guard
from dslint.model.script.ranks.rankset import Ranks
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL232",
    name="checkpoint-load-under-rank-guard",
    kind="script",
    severity=Severity.ERROR,
    summary="Only some ranks load a checkpoint, and the others go on with other weights",
    fix="safe",
    markers=(
        r"load_checkpoint\(|load_state\(|load_state_dict\(",
        r"rank|is_main|main_process|master|process_zero|global_zero|process_index|RANK",
        r"deepspeed|accelerat|DistributedDataParallel|DDP",
    ),
    references=("DeepSpeedEngine.load_checkpoint in deepspeed/runtime/engine.py",),
)

_LOADS = {"load_checkpoint": ("engine",), "load_state": ("accelerator",), "load_state_dict": ("ddp", "ddp_module")}
_BESIDE = ("optimizer", "scheduler")  # also those that DeepSpeed or accelerate has prepared
_WHO = {Ranks.MAIN: "only rank 0", Ranks.OTHERS: "every rank but rank 0", Ranks.SOME: "only some ranks"}


def precheck(tree: ast.Module) -> bool:
    """Something may be loaded behind a rank test, perhaps by a function of the file."""
    nodes = flat(tree)
    loads = [nodes.place(call) for call in nodes.nodes(ast.Call) if call_name(call) in _LOADS]
    holders = (at for at in nodes.places(ast.FunctionDef) if holds(loads, at, nodes.ends[at]))
    return has_guarded_call(tree, {*_LOADS, *(defined(nodes.order[at]) for at in holders)})


class Check(ScriptCheck):
    """Looks at each call that loads, behind a rank guard."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when nothing else gives the other ranks the same weights."""
        guard = self.ctx.guard(node)
        inner = (node if self._loads(node) else self._loads_inside(node)) if guard is not None else None
        if guard is None or inner is None:
            return
        method = self.ctx.called(inner)
        mine = {id(node), id(inner)}
        if self._others_get_it(node, method, mine) or (inner is not node and self._others_get_it(inner, method, mine)):
            return
        what = "calls" if inner is node else f"runs `{self.ctx.text(inner.func)}` by way of"
        self.report(
            node,
            f"{_WHO[guard.ranks]} {what} `{self.ctx.text(node.func)}`: the others go on with the weights they have, and"
            " nothing reports that the ranks train different models",
            hint=f"Call `{method}` on every rank and keep only logging behind the test",
            related=(self.ctx.location(guard.test, "only some ranks get past this test"),),
            fix=self._fix(node, guard),
            facts={"call": method, "stage": self.ctx.stage},
        )

    def _loads(self, node: cst.Call) -> bool:
        """The call loads what the ranks share."""
        method = self.ctx.called(node)
        if method not in _LOADS or not isinstance(node.func, cst.Attribute):
            return False
        return self.ctx.kind(node.func.value) in _LOADS[method]

    def _loads_inside(self, node: cst.Call) -> cst.Call | None:
        """The call of a function of the file that loads, on every rank that comes to it."""
        function = self.ctx.divergences.ground.helper(node)
        inside = self.ctx.tree.own_nodes(function) if function is not None else ()
        calls = (n for n in inside if isinstance(n, cst.Call) and self._loads(n))
        return next((call for call in calls if self.ctx.guard(call) is None), None)

    def _others_get_it(self, node: cst.Call, method: str, mine: set[int]) -> bool:
        """The function, or one that calls it, loads at another place as well, or hands the weights round."""
        function = self.ctx.enclosing_function(node)
        scopes: list[cst.CSTNode] = [function or self.ctx.doc.module]
        if function is not None:
            callers = self.ctx.names.callers.of(function)
            scopes += [self.ctx.enclosing_function(call) or self.ctx.doc.module for call in callers]
        for other in (n for scope in scopes for n in self.ctx.tree.own_nodes(scope)):
            inside = with_callees(self.ctx.names, other) if isinstance(other, cst.Call) else ()
            for call in inside:
                if isinstance(call, cst.Call) and id(call) not in mine:
                    name = self.ctx.called(call)
                    if "broadcast" in name or (name == method and not self._is_beside(call)):
                        return True
        return False

    def _is_beside(self, call: cst.Call) -> bool:
        """`optimizer.load_state_dict(...)`: certainly not the weights of a model."""
        return isinstance(call.func, cst.Attribute) and self.ctx.kind(call.func.value).endswith(_BESIDE)

    def _fix(self, node: cst.Call, guard: Guard) -> Fix | None:
        if guard.kind != "test" or not guard.is_plain:
            return None
        edit = only_statement_dedented(self.ctx.doc, self.ctx.tree, guard.owner, node)
        return Fix("Load on every rank", (edit,)) if edit is not None else None


_HEAD = """\
import deepspeed
import torch
import torch.distributed as dist

engine, _, _, _ = deepspeed.initialize(model=make_model(), config="ds.json")
"""

EXAMPLES = (
    bad(
        "an engine that only rank 0 loads",
        {"train.py": _HEAD + "if dist.get_rank() == 0:\n    engine.load_checkpoint('out')\n"},
        at="train.py:7 error",
        fixed={"train.py": _HEAD + "engine.load_checkpoint('out')\n"},
    ),
    bad(
        "the same after an early return, and its result is used",
        {
            "train.py": _HEAD + "\n\ndef resume(rank):\n    if rank != 0:\n        return 0\n"
            "    _, state = engine.load_checkpoint('out')\n    return state['step']\n"
        },
        at="train.py:11 error",
    ),
    bad(
        "accelerate",
        {
            "train.py": (
                "from accelerate import Accelerator\n\naccelerator = Accelerator()\n"
                "model = accelerator.prepare(make_model())\n"
                "if accelerator.is_main_process:\n    accelerator.load_state('out')\n"
            )
        },
        at="train.py:6 error",
        fixed={
            "train.py": (
                "from accelerate import Accelerator\n\naccelerator = Accelerator()\n"
                "model = accelerator.prepare(make_model())\n"
                "accelerator.load_state('out')\n"
            )
        },
    ),
    bad(
        "a model that is wrapped already",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = DDP(make_model())\nif dist.get_rank() == 0:\n"
                "    state = torch.load('last.pt')\n    model.module.load_state_dict(state)\n"
            )
        },
        at="train.py:8 error",
    ),
    bad(
        "by way of a function of the file",
        {
            "train.py": _HEAD
            + "\n\ndef resume(folder):\n    engine.load_checkpoint(folder)\n    print('resumed')\n\n\n"
            "if dist.get_rank() == 0:\n    resume('out')\n"
        },
        at="train.py:14 error",
    ),
    bad(
        "every rank loads the optimizer, and only rank 0 the weights",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = DDP(make_model())\noptimizer = torch.optim.AdamW(model.parameters())\n"
                "state = torch.load('last.pt')\nif dist.get_rank() == 0:\n"
                "    model.module.load_state_dict(state['model'])\noptimizer.load_state_dict(state['optimizer'])\n"
            )
        },
        at="train.py:9 error",
        fixed={
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = DDP(make_model())\noptimizer = torch.optim.AdamW(model.parameters())\n"
                "state = torch.load('last.pt')\n"
                "model.module.load_state_dict(state['model'])\noptimizer.load_state_dict(state['optimizer'])\n"
            )
        },
    ),
    good(
        "every rank loads, rank 0 says so",
        {"train.py": _HEAD + "engine.load_checkpoint('out')\nif dist.get_rank() == 0:\n    print('loaded')\n"},
    ),
    good(
        "both branches load",
        {
            "train.py": _HEAD
            + "if dist.get_rank() == 0:\n    engine.load_checkpoint('out', tag='a')\n"
            + "else:\n    engine.load_checkpoint('out', tag='a', load_optimizer_states=False)\n"
        },
    ),
    good(
        "rank 0 loads the raw model, and DDP hands its weights to the others",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = make_model()\nif dist.get_rank() == 0:\n"
                "    model.load_state_dict(torch.load('last.pt'))\nwrapped = DDP(model)\n"
            )
        },
    ),
    good(
        "rank 0 loads and broadcasts",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = DDP(make_model())\nif dist.get_rank() == 0:\n"
                "    model.module.load_state_dict(torch.load('last.pt'))\n"
                "for parameter in model.parameters():\n    dist.broadcast(parameter.data, src=0)\n"
            )
        },
    ),
)
