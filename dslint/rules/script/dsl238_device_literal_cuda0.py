"""**What.** A distributed script names GPU 0: `"cuda:0"`, `.cuda(0)`, `torch.cuda.set_device(0)`,
`map_location="cuda:0"`, `device_map={"": 0}`.

**Why it hurts.** All ranks of the machine put the model, or the weights that they load, on the same GPU. It runs out of
memory at eight processes, NCCL refuses two ranks on one device, and the other GPUs stay empty.

**Fix.** The device of the process: `torch.device("cuda", int(os.environ["LOCAL_RANK"]))`, `accelerator.device`,
`map_location="cpu"`, `device_map={"": local_rank}`.

**When it stays quiet.** In modules that are no program; in files that join no job; on rank 0 only, and in the arm that
runs without distribution; where each process sees one GPU (`CUDA_VISIBLE_DEVICES` is written); in servers and demos
(gradio, fastapi); with `set_per_process_memory_fraction`, for processes that share a GPU; for one process, also by
`world_size=1`, or one on each machine; for an `Accelerator` that prepares nothing; in tests. Where no launch command
tells how many processes a machine runs, it is an information.

**Evidence.** PyTorch documentation of `DistributedDataParallel`: "make sure that `map_location` is configured properly
for every process". accelerate 1.15 `Accelerator.prepare_model` stops on rank 1 after `device_map={"": 0}`: "You can't
train a model that has been loaded in 8-bit or 4-bit precision on a different device than the one you're training on".
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import call_name, flat
from dslint.model.script.ranks.rankset import Ranks
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.lonely import on_some_ranks
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL238",
    name="device-literal-cuda0",
    kind="script",
    severity=Severity.WARNING,
    summary="A distributed script puts every rank on GPU 0 by its name",
    markers=(
        r"init_process_group|init_distributed|deepspeed|Accelerator|PartialState|Trainer|Fabric",
        r"cuda|device",
        r"[\"']cuda:0[\"']|\.(?:cuda|to|set_device)\(0\)|device\([\"']cuda[\"'], *0\)|device_map=\{[\"']{2}: *0",
    ),
    references=("https://pytorch.org/tutorials/intermediate/ddp_tutorial.html",),
    depends_on_run=True,
    no_experiment="the ranks share a device only where there is one",
)

_HEAD = "import argparse\n\nimport torch\nimport torch.distributed as dist\n\n\ndef main():\n    {}\n"
_INIT = "dist.init_process_group('nccl')"
_MAIN = "\n\nif __name__ == '__main__':\n    main()\n"

EXAMPLES = (
    bad(
        "the model on GPU 0",
        {"train.py": _HEAD.format(_INIT) + "    model = torch.nn.Linear(8, 8).to('cuda:0')\n" + _MAIN},
        at="train.py:9 info",
    ),
    bad(
        "the group is made where a launcher has started the script",
        {
            "train.py": "import os\n\nimport torch\nimport torch.distributed as dist\n\n\ndef main():\n"
            "    if 'RANK' in os.environ:\n        dist.init_process_group('nccl')\n"
            "    device = torch.device('cuda:0')\n    return torch.nn.Linear(8, 8).to(device)\n" + _MAIN
        },
        at="train.py:10",
    ),
    good(
        "the group is made where an option asks for it",
        {
            "train.py": "import torch\nimport torch.distributed as dist\n\n\ndef main(args):\n"
            "    if args.export:\n        dist.init_process_group('nccl')\n"
            "    return torch.nn.Linear(8, 8).to('cuda:0')\n" + _MAIN.replace("main()", "main(parse())")
        },
    ),
    bad(
        "through a variable, with a choice for machines without a GPU",
        {
            "train.py": _HEAD.format(_INIT)
            + "    device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
            + "    model = torch.nn.Linear(8, 8).to(device)\n"
            + _MAIN
        },
        at="train.py:9",
    ),
    bad(
        "the weights that every rank loads",
        {"train.py": _HEAD.format(_INIT) + "    return torch.load('x.pt', map_location='cuda:0')\n" + _MAIN},
        at="train.py:9",
    ),
    bad(
        "a quantised model under accelerate",
        {
            "train.py": "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n\n\n"
            "def main():\n    accelerator = Accelerator()\n"
            "    model = AutoModelForCausalLM.from_pretrained('x', load_in_8bit=True, device_map={'': 0})\n"
            "    return accelerator.prepare(model)\n" + _MAIN
        },
        at="train.py:7",
    ),
    bad(
        "a Trainer that is started on several processes",
        {
            "train.py": "from transformers import AutoModelForCausalLM, Trainer\n\n\ndef main():\n"
            "    model = AutoModelForCausalLM.from_pretrained('x', load_in_4bit=True, device_map={'': 0})\n"
            "    Trainer(model=model).train()\n" + _MAIN,
            "run.sh": "torchrun --nproc_per_node 4 train.py\n",
        },
        at="train.py:5 warning",
    ),
    good(
        "one process on each of four machines",
        {
            "train.py": _HEAD.format(_INIT) + "    model = torch.nn.Linear(8, 8).to('cuda:0')\n" + _MAIN,
            "run.sh": "torchrun --nnodes 4 --nproc_per_node 1 --node_rank $R --master_addr $M train.py\n",
        },
        select="DSL238",
    ),
    good(
        "a Trainer that nobody starts on several processes",
        {
            "train.py": "from transformers import AutoModelForCausalLM, Trainer\n\n\ndef main():\n"
            "    model = AutoModelForCausalLM.from_pretrained('x', load_in_4bit=True, device_map={'': 0})\n"
            "    Trainer(model=model).train()\n" + _MAIN,
        },
    ),
    good(
        "rank 0 alone",
        {
            "train.py": _HEAD.format(_INIT)
            + "    if dist.get_rank() == 0:\n        print(torch.ones(1, device='cuda:0'))\n"
            + _MAIN
        },
    ),
    good(
        "the arm without distribution",
        {
            "train.py": "import torch\nimport torch.distributed as dist\n\n\ndef main(args):\n"
            "    if args.local_rank == -1:\n        device = torch.device('cuda:0')\n    else:\n"
            "        dist.init_process_group('nccl')\n        device = torch.device('cuda', args.local_rank)\n"
            "    return torch.nn.Linear(8, 8).to(device)\n" + _MAIN.replace("main()", "main(parse())")
        },
    ),
    good(
        "a map from one device to another",
        {
            "train.py": _HEAD.format(_INIT)
            + "    return torch.load('x.pt', map_location={'cuda:0': f'cuda:{pick()}'})\n"
            + _MAIN
        },
    ),
    good(
        "accelerate in one process",
        {
            "train.py": "from accelerate import Accelerator\n\n\ndef main(model):\n"
            "    accelerator = Accelerator()\n    return accelerator.prepare(model.to('cuda:0'))\n"
            + _MAIN.replace("main()", "main(build())"),
            "run.sh": "python train.py\n",
        },
    ),
    good(
        "accelerate for its device alone",
        {
            "infer.py": "from accelerate import Accelerator\n\n\ndef main(model):\n    accelerator = Accelerator()\n"
            "    return model.to('cuda:0'), accelerator.device\n" + _MAIN.replace("main()", "main(build())"),
        },
    ),
    good(
        "a job of one process, to convert a checkpoint",
        {
            "train.py": "import argparse\n\nimport torch\nimport torch.distributed as dist\n\n"
            "args = argparse.Namespace(world_size=1, rank=0)\n"
            "dist.init_process_group('nccl', world_size=args.world_size, rank=args.rank)\n"
            "model = torch.nn.Linear(8, 8).to('cuda:0')\n\nif __name__ == '__main__':\n    print(model)\n"
        },
    ),
    good(
        "a job of one process, by a setting of the file",
        {
            "convert.py": "import argparse\n\nimport torch\nimport torch.distributed as dist\n\nPROCESSES = 1\n"
            "settings = argparse.Namespace(world_size=PROCESSES, rank=0)\nargs = settings\n"
            "dist.init_process_group('nccl', world_size=args.world_size, rank=args.rank)\n"
            "model = torch.nn.Linear(8, 8).to('cuda:0')\n\nif __name__ == '__main__':\n    print(model)\n"
        },
        select="DSL238",
    ),
    bad(
        "an argument whose default is one process",
        {
            "train.py": "import argparse\n\nimport torch\nimport torch.distributed as dist\n\n"
            "parser = argparse.ArgumentParser()\nparser.add_argument('--world_size', type=int, default=1)\n"
            "args = parser.parse_args()\n"
            "dist.init_process_group('nccl', world_size=args.world_size)\n"
            "model = torch.nn.Linear(8, 8).to('cuda:0')\n\nif __name__ == '__main__':\n    print(model)\n"
        },
        at="train.py:10 info",
    ),
    good("no job", {"demo.py": "import torch\n\nmodel = torch.nn.Linear(8, 8).to('cuda:0')\n"}),
    good(
        "a module that a script calls",
        {"model.py": _HEAD.format(_INIT) + "    model = torch.nn.Linear(8, 8).to('cuda:0')\n"},
    ),
    good(
        "a number that is no device",
        {"train.py": _HEAD.format(_INIT) + "    return scale.to(0)\n"},
    ),
    good(
        "a server",
        {
            "demo.py": "import gradio\nimport torch\nimport torch.distributed as dist\n\n\ndef main():\n"
            "    dist.init_process_group('nccl')\n    gradio.Interface(torch.nn.Linear(8, 8).to('cuda:0'))\n" + _MAIN
        },
    ),
)

# An ``Accelerator`` that prepares nothing is often there for its device alone, in a program of one process.
_STATES = frozenset({"accelerate.Accelerator", "accelerate.PartialState"})
_PREPARING = frozenset({"prepare", "prepare_model", "prepare_data_loader", "split_between_processes"})
_SHARES = "set_per_process_memory_fraction"
_SERVERS = ("gradio", "fastapi", "flask", "uvicorn", "streamlit", "vllm", "sglang")
_ENVIRON = frozenset({"os", "environ", "get", "getenv", "int", "bool", "str", "None"})
_OF_LAUNCHER = re.compile(r"[\"'](?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE)[\"']")
_TEST = re.compile(r"(?:^|/)tests?/|(?:^|/)test_[^/]*$|_test\.py$|conftest\.py$")
_JOIN_NAMES = frozenset(
    {"init_process_group", "init_distributed", "initialize", "Accelerator", "PartialState", "Fabric"}
)


def applies(path: str, _context: object) -> bool:
    """Tests put small things where they like."""
    return _TEST.search(path) is None


def precheck(tree: ast.Module) -> bool:
    """The file may join a job, and names GPU 0."""
    nodes = flat(tree)
    names = {call_name(call) for call in nodes.nodes(ast.Call)}
    if not (names & _JOIN_NAMES or any(name.endswith("Trainer") for name in names)):
        return False
    return any(c.value == "cuda:0" or (c.value == 0 and c.value is not False) for c in nodes.nodes(ast.Constant))


class Check(ScriptCheck):
    """Asks once for a file which places name GPU 0."""

    def finish(self) -> None:
        """Fire on the first place that every rank of the job reaches."""
        if self.ctx.run.processes_per_node.get_or(0) == 1 and not self.ctx.startup.starts_processes:
            return  # one on each machine
        if self.ctx.run.is_one_process and not self.ctx.startup.starts_processes:
            return
        if not self.ctx.startup.is_entry or not self._joins():
            return
        if (
            self.ctx.imports(*_SERVERS)
            or not self.ctx.names.words.isdisjoint(_SERVERS)
            or any(w.name == "CUDA_VISIBLE_DEVICES" for w in self.ctx.startup.environment_writes)
        ):
            return
        if any(self.ctx.called(n) == _SHARES for n in self.ctx.tree.order if isinstance(n, cst.Call)):
            return  # the processes share a GPU on purpose; DSL258 looks at their parts
        for value in self.ctx.startup.devices.first_gpu:
            if self._every_rank_comes(value):
                self._report(value)
                return

    def _report(self, value: cst.BaseExpression) -> None:
        run, text = self.ctx.run, self.ctx.text(value)
        share = "they share its memory, and the other GPUs stay empty"
        several = run.processes_per_node.get_or(run.world_size.get_or(1)) > 1
        self.report(
            value,
            f"`{text}` is GPU 0 for every rank of the machine: {share if several else f'with several, {share}'}",
            severity=None if several else Severity.INFO,
            hint='Use the device of the process, such as `torch.device("cuda", local_rank)` or `accelerator.device`',
        )

    def _joins(self) -> bool:
        if self.ctx.run.world_size.get_or(1) > 1:
            return True
        if any(self._is_straight(call) and not self._is_alone(call) for call in self.ctx.startup.group_makers):
            return True
        calls = self.ctx.tree.every(cst.Call)
        named = {self.ctx.qualified_name(call.func) for call in calls}
        prepares = bool(named & _STATES) and any(self.ctx.called(call) in _PREPARING for call in calls)
        return prepares or "deepspeed.initialize" in named

    def _is_alone(self, call: cst.Call) -> bool:
        """`init_process_group(world_size=1)`, also of `args = Namespace(world_size=1)` in every arm that makes it."""
        size = self.ctx.argument(call, "world_size")
        if isinstance(size, cst.Attribute) and isinstance(size.value, cst.Name):
            bound = [b.value for b in self.ctx.names.bindings(size.value.value, size.value)]
            made = [v for v in bound if isinstance(v, cst.Call) and self.ctx.called(v).endswith("Namespace")]
            sizes = [self.ctx.argument(v, size.attr.value) for v in made]
            if made and len(made) == len(bound):
                return all(map(self._is_one, sizes))
        return self._is_one(size)

    def _is_one(self, node: cst.BaseExpression | None) -> bool:
        return self.ctx.constants.written(node).get_or(None) == 1

    def _is_straight(self, call: cst.Call) -> bool:
        """The group is made whenever the file runs on several processes: nothing else decides over it."""
        return all(map(self._asks_for_job, (c.test for c in self.ctx.guards.conditions(call))))

    def _asks_for_job(self, test: cst.CSTNode) -> bool:
        """`args.distributed`, `world_size > 1`, `"RANK" in os.environ`: is there more than one process."""
        if not isinstance(test, cst.BaseExpression):
            return False
        if Ranks.NONE in self.ctx.guards.branches(test):
            return True
        names = {n.value for n in self.ctx.descendants(test) if isinstance(n, cst.Name)}
        return names <= _ENVIRON and _OF_LAUNCHER.search(self.ctx.text(test)) is not None

    def _every_rank_comes(self, node: cst.CSTNode) -> bool:
        decided = any(c.ranks is not Ranks.ALL for c in self.ctx.guards.conditions(node))
        return not decided and not on_some_ranks(self.ctx, node)
