"""DSL201 and DSL207: what they say, where, and which look-alikes they leave alone."""

from __future__ import annotations

import re
from textwrap import indent

import pytest
from script_helpers import document, findings

from dslint.core.fact import known, unknown
from dslint.core.finding import Severity
from dslint.core.fix import Safety, apply_edits
from dslint.model.context import Context
from dslint.rules.examples.snippets import LIGHTNING_CALLBACK
from dslint.rules.markers import RANKS, waits
from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201
from dslint.rules.script import dsl202_conditional_collective_under_rank_guard as dsl202
from dslint.rules.script import dsl204_data_dependent_exit_between_collectives as dsl204
from dslint.rules.script import dsl207_uneven_loop_with_collective as dsl207

STAGE3 = Context(zero_stage=known(3))
STAGE2 = Context(zero_stage=known(2))
DIST = "import torch.distributed as dist\n"
ENGINE = "import deepspeed\nengine, opt, _, _ = deepspeed.initialize(model=m)\n"
GIVEN = "import deepspeed\ndef f(m, rank):\n    engine, *_ = deepspeed.initialize(model=m)\n"
ACCELERATE = "from accelerate import Accelerator\naccelerator = Accelerator()\n"
TRAINER = "from transformers import Trainer\ntrainer = Trainer(model=m, args=a)\n"


def guarded(call: str) -> str:
    return f"if rank == 0:\n    x()\n    {call}\n"


# -- DSL201 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        DIST + guarded("dist.barrier()"),
        DIST + guarded("dist.broadcast_object_list(objects, src=0)"),
        "from deepspeed import comm as dist\n" + guarded("dist.all_reduce(t)"),
        "from torch.distributed import barrier\n" + guarded("barrier()"),
        DIST + guarded("dist.barrier(group=None)"),
        DIST + guarded("dist.all_reduce(t, dist.ReduceOp.SUM, dist.group.WORLD)"),
        ENGINE + guarded("engine.save_checkpoint(d)"),
        ENGINE + guarded("engine.step()"),
        "import deepspeed\nengine = deepspeed.initialize(model=m)[0]\n" + guarded("engine.save_checkpoint(d)"),
        "import deepspeed\ndef save(model_engine):\n    if rank == 0:\n        model_engine.save_checkpoint(d)\n",
        ENGINE + "def save(e):\n    if rank == 0:\n        e.save_checkpoint(d)\nsave(engine)\n",
        "import deepspeed\nclass T:\n    def __init__(self, rank):\n        self.rank = rank\n"
        "        self.e, *_ = deepspeed.initialize(model=m)\n    def save(self):\n"
        "        if self.rank == 0:\n            self.e.save_checkpoint(d)\n",
        ACCELERATE + "if accelerator.is_main_process:\n    y = accelerator.gather(x)\n",
        ACCELERATE + "if not accelerator.is_main_process:\n    accelerator.wait_for_everyone()\n",
        "from accelerate import Accelerator\ndef f(accelerator: Accelerator):\n"
        "    if accelerator.is_main_process:\n        accelerator.wait_for_everyone()\n",
        TRAINER + "if trainer.is_world_process_zero():\n    trainer.evaluate()\n",
        "from transformers import Trainer\nclass My(Trainer):\n    pass\nt = My(model=m)\n" + guarded("t.evaluate()"),
        "import mmengine.dist as dist\n" + guarded("dist.all_reduce(t)"),
        DIST + "@rank_zero_only\ndef save():\n    dist.barrier()\n",
        DIST + "rank == 0 and dist.barrier()\n",
        DIST + "if rank == 1:\n    dist.barrier()\n",
        DIST + "if rank == 0:\n    group = dist.new_group([0, 1])\n",
        "from torch.nn.parallel import DistributedDataParallel as DDP\n" + guarded("model = DDP(model)"),
        "import torch.distributed.checkpoint as dcp\n" + guarded("dcp.save(state, checkpoint_id=d)"),
        "import torch as th\nr = th.distributed.get_rank()\nif r == 0:\n    th.distributed.barrier()\n",
        DIST + "r = dist.get_rank()\nfirst = r == 0\nleads = first\nif leads:\n    dist.barrier()\n",
        "from accelerate import PartialState\n" + guarded("PartialState().wait_for_everyone()"),
        ACCELERATE + "if accelerator.is_main_process:\n    accelerator.check_trigger()\n",
        ACCELERATE + "def f(m, o):\n    m, o = accelerator.prepare(m, o)\n    if accelerator.is_main_process:\n"
        "        m.save_checkpoint(d)\n",
        "def save(accelerator):\n    if accelerator.is_main_process:\n        accelerator.wait_for_everyone()\n",
        "from transformers import Trainer\nclass My(Trainer):\n    def f(self, x):\n"
        "        if self.is_world_process_zero():\n            self.accelerator.gather(x)\n",
        "from transformers import TrainerCallback\nclass C(TrainerCallback):\n    def __init__(self, trainer):\n"
        "        self.trainer = trainer\n    def on_save(self, args, state, *a):\n"
        "        if state.is_world_process_zero:\n            self.trainer.evaluate()\n",
        "import deepspeed\nr = deepspeed.initialize(model=m)\ne = r[0]\n" + guarded("e.save_checkpoint(d)"),
        DIST + "class A:\n    def sync(self):\n        dist.barrier()\nclass B(A):\n    def f(self, rank):\n"
        "        if rank == 0:\n            super().sync()\n",
        DIST + ACCELERATE + "@accelerator.on_last_process\ndef save():\n    dist.barrier()\n",
        DIST + "def a():\n    dist.barrier()\ndef b():\n    a()\n" + guarded("b()"),
        DIST + "class A:\n    def sync(self):\n        dist.barrier()\n    def f(self, rank):\n"
        "        if rank == 0:\n            self.sync()\n",
    ],
)
def test_dsl201_fires_once_on_a_collective_that_only_some_ranks_reach(code: str) -> None:
    (found,) = findings(dsl201, code)
    assert found.severity is Severity.ERROR
    assert "and the job hangs" in found.message
    assert found.related


@pytest.mark.parametrize(
    "code",
    [
        # a distance, not a module
        "import torch\ndist = cdist(a, b)\nif rank == 0:\n    dist.barrier()\n    dist.gather(x)\n",
        DIST + "if rank == 0:\n    dist.barrier(group=local_group)\n",
        DIST + "if rank == 0:\n    dist.all_reduce(t, dist.ReduceOp.SUM, tp_group)\n",
        DIST + "if rank == 0:\n    dist.all_reduce(t, **options)\n",
        DIST + "if rank == 0:\n    dist.send(t, dst=1)\n    dist.destroy_process_group()\n    dist.get_rank()\n",
        DIST + "if rank == -1:\n    dist.barrier()\n",
        DIST + "if state.should_save:\n    dist.barrier()\n",
        DIST + "if step % 10 == 0:\n    dist.barrier()\n",
        DIST + "def sync(wait=False):\n    if wait:\n        dist.barrier()\nif rank == 0:\n    sync()\n",
        ENGINE + guarded("opt.step()"),
        ENGINE + guarded("engine.load_checkpoint(d)"),
        ENGINE + guarded("other.save_checkpoint(d)"),
        "from pytorch_lightning import Trainer\ntrainer = Trainer(devices=1)\n" + guarded("trainer.test()"),
        "from pytorch_lightning import Trainer\ntrainer = Trainer(devices=1)\n" + guarded("trainer.predict()"),
        TRAINER + guarded("trainer.save_state()"),
        TRAINER + guarded("trainer.log_metrics('eval', m)"),
        TRAINER + guarded("trainer._save(d)"),
        TRAINER + guarded("trainer.create_model_card()"),
        ACCELERATE + "if accelerator.is_main_process:\n    accelerator.print(1)\n    accelerator.log({})\n",
        ACCELERATE + "with accelerator.main_process_first():\n    load()\naccelerator.wait_for_everyone()\n",
        "import deepspeed\ndef f(engine):\n    if rank == 0:\n        engine.step()\n",
        "import torch.distributed.checkpoint as dcp\n" + guarded("dcp.save(state, no_dist=True)"),
        "import torch.distributed as dist\nimport checkpoint\n" + guarded("checkpoint.save(state)"),
        DIST + "if rank < 4:\n    dist.barrier()\n",
        DIST + "if rank == 0:\n    dist.barrier()\nelif rank == 1:\n    dist.barrier()\nelse:\n    dist.barrier()\n",
        DIST + "def f():\n    if rank % tp != 0:\n        exit(0)\n    dist.barrier()\n",
        DIST + "if rank != 0:\n    exit()\ndist.init_process_group('nccl')\ndist.barrier()\n",
        DIST + "if rank == 0:\n    def later():\n        dist.barrier()\n",
        # The model is sharded below: here each rank has all of it.
        "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n"
        "from torch.distributed.fsdp import fully_shard\ndef f(model):\n    if rank == 0:\n"
        "        full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\n"
        "    fully_shard(model)\n    load(model, full)\n",
        # Only Lightning before 1.7 calls this hook, and there ``save_checkpoint`` waits for nobody.
        "import pytorch_lightning as pl\nclass Saver(pl.Callback):\n"
        "    def on_keyboard_interrupt(self, trainer, pl_module):\n        if trainer.global_rank == 0:\n"
        "            trainer.save_checkpoint('last.ckpt')\n",
    ],
)
def test_dsl201_quiet_on_look_alikes(code: str) -> None:
    assert findings(dsl201, code) == []


CONDITIONAL = [
    TRAINER + guarded("trainer.save_model(d)"),
    TRAINER + guarded("trainer.push_to_hub()"),
    ACCELERATE + "if accelerator.is_main_process:\n    s = accelerator.get_state_dict(m)\n",
    ENGINE + guarded("engine.save_16bit_model(d)"),
    ENGINE + guarded("engine(batch)"),
    GIVEN + "    if rank == 0:\n        engine.module(batch)\n",
    GIVEN + "    if rank == 0:\n        m.chat(x)\n",
    GIVEN + "    if rank == 0:\n        engine.module.chat(msgs=x)\n",
    "import deepspeed\nclass T:\n    def f(self, x, rank):\n        self.e, *_ = deepspeed.initialize(model=m)\n"
    "        if rank == 0:\n            self.e(x)\n",
    ACCELERATE + "def f(m, o):\n    m, o = accelerator.prepare(m, o)\n    if accelerator.is_main_process:\n"
    "        m(batch)\n",
    GIVEN + "    if rank == 0:\n        engine.module.generate(batch)\n",
    ENGINE + "if rank == 0:\n    with deepspeed.zero.GatheredParameters(p):\n        x()\n",
]


@pytest.mark.parametrize("code", CONDITIONAL)
def test_dsl202_reports_what_only_stage_3_makes_collective_as_far_as_the_stage_is_known(code: str) -> None:
    (found,) = findings(dsl202, code, STAGE3)
    assert "under ZeRO stage 3" in found.message
    assert found.severity is Severity.ERROR
    assert findings(dsl202, code, STAGE2) == []
    (found,) = findings(dsl202, code, Context(zero_stage=unknown("two configs")))
    assert found.severity is (Severity.INFO if re.search(r"chat|generate|\((batch|x)\)", code) else Severity.WARNING)
    for context in (Context(), STAGE2, STAGE3):
        assert findings(dsl201, code, context) == []


def test_dsl202_gathering_first_does_not_help_because_the_hooks_of_stage_3_gather_again() -> None:
    code = (
        "    with deepspeed.zero.GatheredParameters(p):\n        if rank == 0:\n            engine.module.generate(x)\n"
    )
    assert len(findings(dsl202, GIVEN + code, STAGE3)) == 1
    reads = "with deepspeed.zero.GatheredParameters(p):\n    if rank == 0:\n        torch.save(p, f)\n"
    assert findings(dsl202, ENGINE + reads, STAGE3) == []


def test_dsl201_reports_every_collective_in_a_branch() -> None:
    code = DIST + "if rank == 0:\n    dist.barrier()\n    dist.all_reduce(t)\n"
    assert [f.location.region.line for f in findings(dsl201, code)] == [3, 4]


def test_dsl201_reports_an_early_exit_once_and_names_the_rest() -> None:
    code = DIST + "def f():\n    if rank != 0:\n        return\n    dist.barrier()\n    dist.all_reduce(t)\n"
    (found,) = findings(dsl201, code)
    assert found.location.region.line == 5
    assert [r.region.line for r in found.related] == [3, 6]


def test_dsl201_follows_engines_out_of_the_function_that_makes_them() -> None:
    code = (
        "import deepspeed\ndef make():\n    a, *_ = deepspeed.initialize(model=m)\n"
        "    b, *_ = deepspeed.initialize(model=n)\n"
        "    return a, b\nactor, critic = make()\nif rank == 0 and step % 10 == 0:\n    actor.save_checkpoint(d)\n"
        "    critic.save_checkpoint(d)\n"
    )
    assert [f.location.region.line for f in findings(dsl201, code)] == [8, 9]


def test_dsl201_says_which_side_waits() -> None:
    (found,) = findings(dsl201, DIST + "if rank != 0:\n    dist.barrier()\n")
    assert "rank 0 never calls it" in found.message
    (found,) = findings(dsl201, DIST + "def f():\n    if rank != 0:\n        return\n    dist.barrier()\n")
    assert "only rank 0 calls it" in found.message
    assert found.related[0].region.line == 3


@pytest.mark.parametrize(
    ("test", "who"),
    [("local_rank == 0", "rank 0 of each node"), ("args.local_rank == -1 or dist.get_rank() == 0", "rank 0")],
)
def test_dsl201_names_the_same_rank_in_the_message_and_at_the_test(test: str, who: str) -> None:
    (found,) = findings(dsl201, f"import torch.distributed as dist\nif {test}:\n    dist.barrier()\n")
    assert f"only {who} calls it" in found.message
    assert found.related[0].label == f"only {who} gets past this test"


def fixed(code: str) -> tuple[str, Safety] | None:
    (found,) = findings(dsl201, code)
    if found.fix is None:
        return None
    text = apply_edits(document(code).source.text, found.fix.edits)
    assert findings(dsl201, text) == []
    return text, found.fix.safety


def test_dsl201_fix_dedents_the_only_statement() -> None:
    code = ENGINE + "def f():\n    # keep\n    if rank == 0:\n        engine.save_checkpoint(d)  # note\n    done()\n"
    expected = ENGINE + "def f():\n    # keep\n    engine.save_checkpoint(d)  # note\n    done()\n"
    assert fixed(code) == (expected, Safety.SAFE)


def test_dsl201_fix_keeps_the_lines_of_a_long_call() -> None:
    code = ENGINE + "if rank == 0:\n    engine.save_checkpoint(\n        d,\n        tag=t,\n    )\n"
    assert fixed(code) == (ENGINE + "engine.save_checkpoint(\n    d,\n    tag=t,\n)\n", Safety.SAFE)


def test_dsl201_fix_of_an_exchange_of_data_needs_a_look() -> None:
    found = fixed(DIST + "if rank == 0:\n    dist.broadcast_object_list(objects)\n")
    assert found is not None
    assert found[1] is Safety.UNSAFE


@pytest.mark.parametrize(
    "code",
    [
        DIST + "if rank == 0:\n    x()\n    dist.barrier()\n",
        DIST + "if rank == 0:\n    dist.barrier()\nelse:\n    x()\n",
        DIST + "if rank == 0 and verbose:\n    dist.barrier()\n",
        DIST + "if a:\n    x()\nelif rank == 0:\n    dist.barrier()\n",
        DIST + "if rank == 0:\n    # why\n    dist.barrier()\n",
        DIST + "if rank == 0: dist.barrier()\n",
        DIST + "if rank == 0:\n    y = dist.barrier()\n",
        DIST + "lead = rank == 0 and verbose\nif lead:\n    dist.barrier()\n",
        DIST + "def f():\n    if rank != 0:\n        return\n    dist.barrier()\n",
    ],
)
def test_dsl201_offers_no_fix_that_could_change_more(code: str) -> None:
    assert fixed(code) is None


@pytest.mark.parametrize(
    "name",
    [
        *("all_reduce_coalesced", "_all_gather_base", "all_reduce_dict", "collect_results", "collect_results_cpu"),
        *(
            "block_all",
            "broadcast_object_list",
            "check_trigger",
            "distributed_concat",
            "evaluation_loop",
            "full_tensor",
        ),
        *(
            "gather_cpu_state_dict",
            "get_model_state_dict",
            "initialize_model_parallel",
            "load_from_full_model_state_dict",
        ),
        *("main_process_first", "optim_state_dict", "priority_execution", "process_hf_dataset", "push_to_hub"),
        *("reduce_boolean_decision", "save_16bit_model", "save_ckpt", "save_model", "scatter_object_list"),
        *("summon_full_params", "sync_random_seed", "_nested_gather", "prediction_step", "allreduce_gradients"),
    ],
)
def test_modules_without_a_run_are_looked_at_for_every_collective(name: str) -> None:
    assert waits(f"x.{name}(y)".encode())


@pytest.mark.parametrize(
    "test",
    [
        "if rank == 0:",
        "if (\n    rank == 0\n):",
        "lead = dist.get_rank() == 0",
        "x = int(os.environ['LOCAL_RANK']) == 0",
        "first = args.local_rank in (-1, 0)",
        "@rank_zero_only",
        "@accelerator.on_main_process",
        "lead = accelerator.is_main_process",
        "return args.should_save",
        "lead = not rank",
        "x = a if RANK else b",
    ],
)
def test_markers_let_every_guard_through(test: str) -> None:
    for marker in (*dsl201.META.markers, RANKS):
        assert re.search(marker.encode(), test.encode())


# -- DSL207 -------------------------------------------------------------------------------------------------------

SHARES = """\
import os
from itertools import islice
import numpy as np
import torch.distributed as dist
from accelerate import Accelerator
from tqdm import tqdm
def main(data, x, n, k, g, r, f, model, out):
    accelerator = Accelerator()
    rank, world_size = dist.get_rank(), dist.get_world_size()
"""
CUTS = [
    "for i in range(rank, len(data), world_size):",
    "for i in range(dist.get_rank(), n, dist.get_world_size()):",
    "for i in tqdm(range(rank, n, world_size)):",
    "for x in data[rank::world_size]:",
    "for i, x in enumerate(data[rank::world_size]):",
    "for x in np.array_split(data, world_size)[rank]:",
    "for x in data.chunk(world_size)[rank]:",
    "for x in islice(data, rank, None, world_size):",
    "for i in range(int(os.environ['RANK']), n, int(os.environ['WORLD_SIZE'])):",
    "for i in range(accelerator.process_index, n, accelerator.num_processes):",
]


@pytest.mark.parametrize("cut", CUTS)
def test_dsl207_fires_on_every_way_to_deal_out_the_work(cut: str) -> None:
    (found,) = findings(dsl207, SHARES + indent(f"{cut}\n    dist.all_reduce(f(x))\n", "    "))
    assert found.severity is Severity.ERROR
    assert found.location.region.line == 10
    assert found.related[0].region.line == 11


@pytest.mark.parametrize("cut", CUTS)
def test_dsl207_quiet_when_the_gather_follows_the_loop(cut: str) -> None:
    code = f"{cut}\n    r.append(model(x))\ndist.all_gather_object(out, r)\n"
    assert findings(dsl207, SHARES + indent(code, "    ")) == []


def test_dsl207_follows_a_name_and_a_context_manager() -> None:
    code = "    mine = data[rank::world_size]\n    for x in mine:\n        dist.all_reduce(x)\n"
    (found,) = findings(dsl207, SHARES + code)
    assert (found.location.region.line, [r.region.line for r in found.related]) == (10, [11, 12])
    code = "    with accelerator.split_between_processes(data) as part:\n        for x in part:\n"
    (found,) = findings(dsl207, SHARES + code + "            accelerator.gather(x)\n")
    assert "apply_padding=True" in found.hint


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(0, n, world_size):\n    dist.all_reduce(x)",
        "for i in range(rank, n):\n    dist.all_reduce(x)",
        "for i in range(rank * k, (rank + 1) * k):\n    dist.all_reduce(x)",
        "assert len(data) % world_size == 0\nfor x in data[rank::world_size]:\n    dist.all_reduce(x)",
        "n = len(data) // world_size * world_size\nfor i in range(rank, n, world_size):\n    dist.all_reduce(x)",
        "n = ceil(len(data) / world_size) * world_size\nfor i in range(rank, n, world_size):\n    dist.all_reduce(x)",
        "data = pad_to_multiple(data)\nfor x in data[rank::world_size]:\n    dist.all_reduce(x)",
        "for x in data[rank::world_size]:\n    dist.all_reduce(x, group=g)",
        "for x in data[rank::world_size]:\n    if done(x):\n        break\n    dist.all_reduce(x)",
        "with accelerator.split_between_processes(data, apply_padding=True) as d:\n    for x in d:\n"
        "        dist.all_reduce(x)",
        "for x in data[rank::world_size]:\n    def later():\n        dist.barrier()",
    ],
)
def test_dsl207_quiet_on_look_alikes(code: str) -> None:
    assert findings(dsl207, SHARES + indent(code, "    ")) == []


def test_dsl207_counts_where_the_numbers_are_known() -> None:
    code = SHARES + "    for i in range(rank, 64, world_size):\n        dist.all_reduce(x)\n"
    assert findings(dsl207, code, Context(world_size=known(8))) == []
    (found,) = findings(dsl207, code, Context(world_size=known(6)))
    assert "(64 over 6 ranks)" in found.message


def test_dsl207_knows_that_stage_3_makes_a_forward_collective() -> None:
    code = "    engine, *_ = deepspeed.initialize(model=model)\n    for x in data[rank::world_size]:\n"
    code = "import deepspeed\n" + SHARES + code + "        engine.module.generate(x)\n"
    assert len(findings(dsl207, code, STAGE3)) == 1
    assert findings(dsl207, code, STAGE2) == []
    assert findings(dsl207, code) == []


def test_dsl207_warns_on_the_backward_of_a_ddp_model() -> None:
    code = (
        "from torch.nn.parallel import DistributedDataParallel as DDP\n" + SHARES + "    model = DDP(model)\n"
        "    for x in data[rank::world_size]:\n        model(x).backward()\n"
    )
    (found,) = findings(dsl207, code)
    assert found.severity is Severity.WARNING
    joined = code.replace("    for x", "    with model.join():\n     for x")
    assert findings(dsl207, joined) == []


def test_dsl201_counts_the_calls_of_both_sides() -> None:
    code = DIST + "if rank == 0:\n    dist.barrier()\n    dist.barrier()\nelse:\n    dist.barrier()\n"
    (found,) = findings(dsl201, code)
    assert found.location.span.start == code.index("dist.barrier()", code.index("dist.barrier()") + 1)
    assert "rank 0 calls it 2 times and the other ranks once" in found.message


LOOP_HEAD = """\
import os
import torch.distributed as dist
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader, DistributedSampler, Subset
def f(data, x, rank, world_size, opt):
"""


@pytest.mark.parametrize(
    "body",
    [
        "    for i, d in enumerate(data):\n        if i % world_size != rank:\n            continue\n"
        "        dist.all_reduce(x)\n",
        "    for i, d in enumerate(data):\n        if i % world_size == rank:\n            dist.all_reduce(x)\n",
        "    mine = [d for i, d in enumerate(data) if i % world_size == rank]\n    for d in mine:\n"
        "        dist.all_reduce(x)\n",
        "    i = rank\n    while i < len(data):\n        dist.all_reduce(x)\n        i += world_size\n",
        "    out = [dist.all_reduce(d) for d in data[rank::world_size]]\n",
        "    data = data[rank::world_size]\n    for d in data:\n        dist.all_reduce(x)\n",
        "    data = load_dataset('rows', split='train')\n"
        "    for d in data.shard(num_shards=world_size, index=rank):\n        dist.all_reduce(x)\n",
        "    for d in split_dataset_by_node(data, rank=rank, world_size=world_size):\n        dist.all_reduce(x)\n",
        "    for d in DataLoader(data[rank::world_size], batch_size=4):\n        dist.all_reduce(x)\n",
        "    part = Subset(data, range(rank, len(data), world_size))\n"
        "    for d in DataLoader(part):\n        dist.all_reduce(x)\n",
        "    p = os.path.join(x, 'a')\n    for d in data[rank::world_size]:\n"
        "        tokenizer.pad(d)\n        dist.all_reduce(x)\n",
    ],
)
def test_dsl207_fires_on_every_way_to_take_turns(body: str) -> None:
    (found,) = findings(dsl207, LOOP_HEAD + body)
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize(
    "body",
    [
        "    for i, d in enumerate(data):\n        if i % world_size != rank:\n            continue\n"
        "        x += d\n    dist.all_reduce(x)\n",
        "    for i, d in enumerate(data):\n        if i % 10 == 0:\n            dist.all_reduce(x)\n",
        "    if x % world_size == rank:\n        dist.all_reduce(x)\n",
        "    data = data[rank::world_size]\n    if x:\n        data = pad_items(data)\n"
        "    for d in data:\n        dist.all_reduce(x)\n",
        "    for d in DataLoader(data, sampler=DistributedSampler(data)):\n        dist.all_reduce(x)\n",
        "    while len(data) % world_size:\n        data.append(data[-1])\n"
        "    for d in data[rank::world_size]:\n        dist.all_reduce(x)\n",
        "    i = rank\n    while i < len(data):\n        i += world_size\n    dist.all_reduce(x)\n",
    ],
)
def test_dsl207_quiet_when_taking_turns_is_even_or_alone(body: str) -> None:
    assert findings(dsl207, LOOP_HEAD + body) == []


DISPLAY = """\
import torch.distributed as dist


def display(step, gathered=None):
    if dist.get_rank() != 0:
        return
    if gathered is None:
        gathered = dist.all_reduce(step)
    print(gathered)


def finish(step, totals):
    {call}
"""


@pytest.mark.parametrize(
    ("called", "severity"),
    [
        ("display(step, totals)", "info"),
        ("display(step, gathered=totals)", "info"),
        ("totals.display(*step)", "info"),
        ("display(step)", "error"),
        ("totals.display(step)", "error"),
    ],
)
def test_an_arm_for_a_left_out_argument_runs_where_some_call_leaves_it_out(called: str, severity: str) -> None:
    found = findings(dsl201, DISPLAY.format(call=called))
    assert [(f.location.region.line, f.severity.value) for f in found] == [(8, severity)]


@pytest.mark.parametrize(("method", "is_told"), [("reduce_boolean_decision", True), ("setup_environment", False)])
def test_the_other_ranks_are_told_by_a_local_name_of_the_method(method: str, is_told: bool) -> None:
    told = f"decide = trainer.strategy.{method}\n        trainer.should_stop = decide(trainer.should_stop)"
    assert bool(findings(dsl204, LIGHTNING_CALLBACK % told)) is not is_told
