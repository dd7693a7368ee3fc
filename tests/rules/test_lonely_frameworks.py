"""DSL201 in the words of other frameworks: which of their calls wait for all ranks, and which do not."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.core.fact import known
from dslint.model.context import Context
from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "m = FSDP(net)\n"
            "if rank == 0:\n"
            "    x()\n"
            "    y = m(b)\n",
            id="fsdp-forward",
        ),
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "m = FSDP(net)\n"
            "if rank == 0:\n"
            "    x()\n"
            "    torch.save(m.state_dict(), p)\n",
            id="fsdp-state_dict",
        ),
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "m = FSDP(net)\n"
            "if rank == 0:\n"
            "    with FSDP.state_dict_type(m, S.FULL):\n"
            "        sd = m.state_dict()\n",
            id="fsdp-state_dict_type",
        ),
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "if rank == 0:\n"
            "    with FSDP.summon_full_params(m):\n"
            "        x()\n",
            id="summon",
        ),
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "m = FSDP(net)\n"
            "if rank == 0:\n"
            "    x()\n"
            "    m.clip_grad_norm_(1.0)\n",
            id="fsdp-clip",
        ),
        pytest.param(
            "import torch\n"
            "from torch.distributed.fsdp import fully_shard\n"
            "def f(model, rank):\n"
            "    fully_shard(model)\n"
            "    if rank == 0:\n"
            "        x()\n"
            "        model(b)\n",
            id="fsdp2-fwd",
        ),
        pytest.param(
            "import torch\n"
            "from torch.distributed.fsdp import fully_shard\n"
            "def f(model, rank):\n"
            "    fully_shard(model)\n"
            "    if rank == 0:\n"
            "        x()\n"
            "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
            id="fsdp2-clip",
        ),
        pytest.param(
            "import torch\nimport torch.distributed as dist\nif rank == 0:\n    x()\n    w = p.full_tensor()\n",
            id="full_tensor",
        ),
        pytest.param(
            "import torch\n"
            "from torch.distributed.fsdp import fully_shard\n"
            "from torch.distributed.checkpoint.state_dict import get_model_state_dict, StateDictOptions\n"
            "if rank == 0:\n"
            "    x()\n"
            "    s = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))\n",
            id="get_model_state_dict",
        ),
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "if rank == 0:\n"
            "    x()\n"
            "    s = FSDP.optim_state_dict(m, o)\n",
            id="fsdp-optim_state_dict",
        ),
        pytest.param(
            "import lightning as L\ntrainer = L.Trainer()\nif trainer.is_global_zero:\n    trainer.test(m)\n",
            id="lightning-test",
        ),
        pytest.param(
            "from pytorch_lightning import Callback\n"
            "class C(Callback):\n"
            "    def on_train_end(self, trainer, pl_module):\n"
            "        if trainer.is_global_zero:\n"
            "            trainer.save_checkpoint(p)\n",
            id="lightning-save_checkpoint",
        ),
        pytest.param(
            "import lightning as L\n"
            "class M(L.LightningModule):\n"
            "    def f(self):\n"
            "        if self.trainer.is_global_zero:\n"
            "            self.trainer.strategy.barrier()\n",
            id="lightning-strategy",
        ),
        pytest.param(
            "import lightning as L\n"
            "class M(L.LightningModule):\n"
            "    def f(self):\n"
            "        if self.global_rank == 0:\n"
            "            self.log('a', x, sync_dist=True)\n",
            id="lightning-log",
        ),
        pytest.param(
            "import lightning as L\n"
            "class M(L.LightningModule):\n"
            "    def f(self):\n"
            "        if self.global_rank == 0:\n"
            "            self.all_gather(x)\n",
            id="lightning-all_gather",
        ),
        pytest.param(
            "import lightning as L\n"
            "from lightning.pytorch.utilities import rank_zero_only\n"
            "class M(L.LightningModule):\n"
            "    @rank_zero_only\n"
            "    def f(self):\n"
            "        self.log('a', x, sync_dist=True)\n",
            id="lightning-rank_zero_only",
        ),
        pytest.param(
            "from lightning.fabric import Fabric\n"
            "fabric = Fabric()\n"
            "if fabric.is_global_zero:\n"
            "    fabric.save(p, s)\n",
            id="fabric",
        ),
        pytest.param(
            "import lightning as L\ndef f(fabric):\n    if fabric.global_rank == 0:\n        fabric.barrier()\n",
            id="fabric-param",
        ),
        pytest.param(
            "from mmengine.runner import Runner\n"
            "from mmengine.dist import is_main_process\n"
            "runner = Runner.from_cfg(cfg)\n"
            "if is_main_process():\n"
            "    runner.val()\n",
            id="mmengine-runner",
        ),
        pytest.param(
            "from openrlhf.utils import get_strategy\n"
            "def train(args):\n"
            "    strategy = get_strategy(args)\n"
            "    if strategy.is_rank_0():\n"
            "        strategy.save_model(m, t, p)\n",
            id="openrlhf-get_strategy",
        ),
        pytest.param(
            "import openrlhf.x\n"
            "class T:\n"
            "    def __init__(self, strategy):\n"
            "        self.strategy = strategy\n"
            "    def f(self):\n"
            "        if self.strategy.is_rank_0():\n"
            "            self.strategy.all_reduce(x)\n",
            id="openrlhf-self.strategy",
        ),
        pytest.param(
            "from colossalai.cluster import DistCoordinator\n"
            "coordinator = DistCoordinator()\n"
            "if coordinator.is_master():\n"
            "    coordinator.block_all()\n",
            id="colossalai-block_all",
        ),
        pytest.param(
            "from colossalai.booster import Booster\n"
            "from colossalai.cluster import DistCoordinator\n"
            "booster = Booster(plugin=p)\n"
            "coordinator = DistCoordinator()\n"
            "if coordinator.is_master():\n"
            "    model, *_ = booster.boost(model)\n",
            id="colossalai-boost",
        ),
        pytest.param(
            "from composer.utils import dist\nif dist.get_global_rank() == 0:\n    dist.barrier()\n",
            id="composer",
        ),
        pytest.param(
            "from composer import Trainer\n"
            "from composer.utils import dist\n"
            "t = Trainer(model=m)\n"
            "if dist.get_global_rank() == 0:\n"
            "    t.fit()\n",
            id="composer-trainer",
        ),
        pytest.param(
            "from torchtune import training\nclass Recipe:\n    def save(self, m):\n        if self._is_rank_zero:\n"
            "            training.gather_cpu_state_dict(m, True)\n",
            id="torchtune",
        ),
        pytest.param(
            "from xtuner.dataset import process_hf_dataset\nif rank == 0:\n    x()\n    process_hf_dataset(d)\n",
            id="xtuner",
        ),
        pytest.param(
            "from megatron.core import mpu\nif rank == 0:\n    x()\n    mpu.initialize_model_parallel(2)\n",
            id="megatron",
        ),
        pytest.param(
            "from accelerate import Accelerator\n"
            "accelerator = Accelerator()\n"
            "if accelerator.is_main_process:\n"
            "    model = accelerator.prepare(model)\n",
            id="accelerate-prepare",
        ),
        pytest.param(
            "from accelerate import Accelerator\n"
            "accelerator = Accelerator()\n"
            "if accelerator.is_main_process:\n"
            "    with accelerator.main_process_first():\n"
            "        x()\n",
            id="accelerate-main_process_first",
        ),
        pytest.param(
            "from transformers import TrainingArguments\n"
            "args = TrainingArguments('o')\n"
            "if args.local_rank == 0:\n"
            "    with args.main_process_first():\n"
            "        x()\n",
            id="training_arguments-main_process_first",
        ),
        pytest.param(
            "from deepspeed.utils import safe_get_full_fp32_param\n"
            "import torch.distributed as dist\n"
            "if rank == 0:\n"
            "    x()\n"
            "    safe_get_full_fp32_param(p)\n",
            id="deepspeed-safe_get_full",
        ),
        pytest.param(
            "from accelerate import Accelerator\n"
            "accelerator = Accelerator()\n"
            "if accelerator.is_main_process:\n"
            "    accelerator.backward(loss)\n",
            id="accelerate-backward",
        ),
        pytest.param(
            "from transformers import Trainer\n"
            "class T(Trainer):\n"
            "    def f(self, x):\n"
            "        if self.is_world_process_zero():\n"
            "            self._nested_gather(x)\n",
            id="trainer-nested_gather",
        ),
    ],
)
def test_fires_behind_a_rank_guard(code: str) -> None:
    assert len(findings(dsl201, code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n"
            "m = FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD)\n"
            "if rank == 0:\n"
            "    x()\n"
            "    y = m(b)\n",
            id="no_shard",
        ),
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "m = FSDP(net, sharding_strategy=s)\n"
            "if rank == 0:\n"
            "    x()\n"
            "    y = m(b)\n",
            id="unknown-shard",
        ),
        pytest.param(
            "from torch.distributed.fsdp import fully_shard\n"
            "fully_shard(model)\n"
            "if rank == 0:\n"
            "    x()\n"
            "    s = model.state_dict()\n",
            id="fsdp2-sd",
        ),
        pytest.param(
            "from torch.distributed.checkpoint.state_dict import get_model_state_dict, StateDictOptions\n"
            "if rank == 0:\n"
            "    x()\n"
            "    s = get_model_state_dict(m, options=StateDictOptions(cpu_offload=True))\n",
            id="plain-full-sd",
        ),
        pytest.param(
            "import lightning as L\n"
            "trainer = L.Trainer()\n"
            "trainer.fit(m)\n"
            "if trainer.is_global_zero:\n"
            "    t = L.Trainer(devices=1)\n"
            "    t.test(m)\n",
            id="one-device",
        ),
        pytest.param(
            "import lightning as L\n"
            "class M(L.LightningModule):\n"
            "    def f(self):\n"
            "        if self.global_rank == 0:\n"
            "            self.log('a', x, rank_zero_only=True)\n",
            id="pl-log-nosync",
        ),
        pytest.param(
            "from accelerate import Accelerator\n"
            "def f(loader):\n"
            "    accelerator = Accelerator()\n"
            "    if accelerator.is_main_process:\n"
            "        loader = accelerator.prepare(loader)\n",
            id="prep-loader",
        ),
        pytest.param(
            "from colossalai.cluster import DistCoordinator\n"
            "coordinator = DistCoordinator()\n"
            "if coordinator.is_master():\n"
            "    coordinator.block_all(process_group=g)\n",
            id="coord-group",
        ),
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "m = FSDP(net)\n"
            "if rank == 0:\n"
            "    x()\n"
            "    c = FSDP.state_dict_type(m, k)\n",
            id="static-type",
        ),
        pytest.param(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "m = FSDP(net)\n"
            "sd = m.state_dict()\n"
            "if rank == 0:\n"
            "    x()\n"
            "    torch.save(sd, p)\n",
            id="hf-get",
        ),
        pytest.param(
            "from mmengine.runner import Runner\n"
            "runner = Runner.from_cfg(c)\n"
            "if rank == 0:\n"
            "    x()\n"
            "    runner.save_checkpoint(d, n)\n",
            id="mm-ckpt",
        ),
    ],
)
def test_quiet_where_nobody_waits(code: str) -> None:
    assert findings(dsl201, code, Context(zero_stage=known(3))) == []


def test_under_a_stage_the_accelerator_is_one_of_deepspeed() -> None:
    code = (
        "from accelerate import Accelerator, DistributedType\n"
        "accelerator = Accelerator()\n"
        "model = accelerator.prepare(model)\n"
        "for batch in loader:\n"
        "    accelerator.backward(model(batch))\n"
        "    if accelerator.is_main_process or accelerator.distributed_type == DistributedType.DEEPSPEED:\n"
        "        accelerator.save_state(path)\n"
    )
    assert findings(dsl201, code, Context(zero_stage=known(3))) == []
