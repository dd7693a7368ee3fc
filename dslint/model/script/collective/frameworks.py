"""What other frameworks call the things that dslint knows: their classes, and their calls that wait for all ranks.

One table for each family, judged from the released source that its comment names. ``True`` marks a call that talks
to other ranks only when parameters are partitioned. Left out on purpose, since they wait for nobody:

* transformers: ``Trainer.save_state``, ``log``, ``log_metrics``, ``save_metrics``, ``create_model_card``;
* accelerate: ``Accelerator.save``, ``unwrap_model``, ``print``, ``log``, ``init_trackers``, ``end_training``,
  ``free_memory``, ``split_between_processes``; ``clip_grad_norm_`` waits under FSDP only;
* DeepSpeed: ``load_checkpoint`` of the engine (nothing hangs, the weights differ), ``module_state_dict``, ``destroy``;
* torch: ``init_process_group`` is a rendezvous of as many processes as the script says, and may well be for some ranks
  only; ``destroy_process_group``; the forward of DDP without gradients; ``fully_shard`` and ``init_device_mesh``;
* ColossalAI: ``Booster.save_model``, where the plugin decides; Megatron: ``print_rank_0`` tests the rank itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Family(NamedTuple):
    """The object of one framework: who makes it, and which of its methods wait for all ranks.

    ``classes`` are "package.Class", with the package alone: frameworks move their classes between modules.
    ``names`` are what variables and parameters that hold such an object are called in files that import ``packages``.
    """

    kind: str
    family: str
    packages: tuple[str, ...]
    classes: tuple[str, ...]
    methods: Mapping[str, bool]
    names: tuple[str, ...] = ()


def _all(*names: str) -> dict[str, bool]:
    return dict.fromkeys(names, False)


_LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
FAMILIES: tuple[Family, ...] = (
    # lightning 2.6.6, pytorch/trainer: every entry point passes ``strategy.barrier`` (``call.py``, ``trainer.py``), and
    # ``save_checkpoint`` ends with one.
    Family(
        "lightning_trainer", "lightning", _LIGHTNING,
        ("lightning.Trainer", "pytorch_lightning.Trainer"),
        _all("fit", "validate", "test", "predict", "save_checkpoint"),
        ("trainer",),
    ),
    # lightning 2.6.6: ``all_gather``, ``log(sync_dist=True)`` (``_ResultMetric`` reduces it on all ranks, at once or at
    # the end of the epoch), ``manual_backward`` (a backward of DDP or ZeRO).
    Family(
        "lightning_module", "lightning", _LIGHTNING,
        ("lightning.LightningModule", "pytorch_lightning.LightningModule"),
        _all("all_gather", "manual_backward", "log", "log_dict"),
        ("pl_module",),
    ),
    # lightning 2.6.6, strategies/ddp.py: ``trainer.strategy``, ``fabric.strategy``.
    Family(
        "lightning_strategy", "lightning", (), (),
        _all("barrier", "broadcast", "all_gather", "all_reduce", "reduce", "reduce_boolean_decision"),
    ),
    # lightning 2.6.6, fabric/fabric.py: ``save`` and ``load`` end with ``self.barrier()``.
    Family(
        "fabric", "fabric", _LIGHTNING,
        ("lightning.Fabric", "lightning_fabric.Fabric"),
        _all("barrier", "broadcast", "all_gather", "all_reduce", "save", "load", "backward", "rank_zero_first"),
        ("fabric",),
    ),
    # mmengine 0.10.7, runner/runner.py: the loops build a DDP model, and their metrics end in ``collect_results``;
    # ``save_checkpoint`` is ``@master_only``.
    Family(
        "mm_runner", "mmengine", ("mmengine",),
        ("mmengine.Runner", "mmengine.FlexibleRunner"),
        _all("train", "val", "test"),
    ),
    # OpenRLHF 0.11.2, utils/deepspeed/deepspeed.py: ``save_model`` and ``save_ckpt`` pass a barrier at every stage.
    Family(
        "openrlhf_strategy", "openrlhf", ("openrlhf",),
        ("openrlhf.DeepspeedStrategy", "openrlhf.get_strategy"),
        _all("all_reduce", "all_gather", "save_model", "save_ckpt", "backward", "optimizer_step"),
        ("strategy",),
    ),
    # ColossalAI, cluster/dist_coordinator.py: both are barriers of the default group.
    Family(
        "coordinator", "colossalai", ("colossalai",),
        ("colossalai.DistCoordinator",),
        _all("block_all", "priority_execution"),
        ("coordinator",),
    ),
    # ColossalAI, booster/plugin/*_plugin.py: ``boost`` wraps the model (DDP, ZeRO, Gemini), ``backward`` reduces.
    Family(
        "booster", "colossalai", ("colossalai",),
        ("colossalai.Booster",),
        _all("boost", "backward"),
        ("booster",),
    ),
    # composer 0.32.1, trainer/trainer.py and checkpoint/: every entry point and the saver reach ``dist.barrier``.
    Family(
        "composer_trainer", "composer", ("composer",),
        ("composer.Trainer",),
        _all("fit", "eval", "predict", "save_checkpoint"),
    ),
)  # fmt: skip
BY_KIND: Mapping[str, Family] = {family.kind: family for family in FAMILIES}
# (kind of the owner, attribute) -> kind.
ATTRIBUTES: Mapping[tuple[str, str], str] = {
    ("lightning_trainer", "strategy"): "lightning_strategy",
    ("lightning_module", "trainer"): "lightning_trainer",
    ("lightning_module", "fabric"): "fabric",
    ("fabric", "strategy"): "lightning_strategy",
}
# Other ways to make an instance: ``Runner.from_cfg(cfg)``.
_MAKERS = (".from_cfg", ".from_argparse_args")
_BUILT = {"mmengine.registry.RUNNERS.build": "mm_runner"}
_CLASSES = {name: family.kind for family in FAMILIES for name in family.classes}
NAMES = {name: family for family in FAMILIES for name in family.names}

# Functions of modules (and of what is in them) -> the calls that wait for all ranks.
FUNCTIONS: Mapping[str, tuple[str, frozenset[str]]] = {
    # composer 0.32.1, utils/dist.py.
    "composer.utils.dist": (
        "composer",
        frozenset(
            {
                *("barrier", "all_reduce", "broadcast", "broadcast_object_list", "all_gather", "all_gather_object"),
                "run_local_rank_zero_first",
            }
        ),
    ),
    # torchtune 0.6.1, training/_distributed.py: ``full_tensor``, ``distribute_tensor``.
    "torchtune.training": (
        "torchtune",
        frozenset({"gather_cpu_state_dict", "get_full_optimizer_state_dict", "load_from_full_model_state_dict"}),
    ),
    # xtuner 0.2.0, dataset/huggingface.py: rank 0 works, then ``monitored_barrier`` and ``broadcast_object_list``.
    "xtuner.dataset": ("mmengine", frozenset({"process_hf_dataset"})),
    # Megatron-LM, training/checkpointing.py and core/parallel_state.py: barriers; all groups are made by all ranks.
    "megatron.training.checkpointing": ("megatron", frozenset({"save_checkpoint", "load_checkpoint"})),
    "megatron.checkpointing": ("megatron", frozenset({"save_checkpoint", "load_checkpoint"})),
    "megatron.core.parallel_state": ("megatron", frozenset({"initialize_model_parallel"})),
    "megatron.core.mpu": ("megatron", frozenset({"initialize_model_parallel"})),
    # transformers 5.23, trainer_pt_utils.py.
    "transformers.trainer_pt_utils": (
        "trainer",
        frozenset({"distributed_concat", "distributed_broadcast_scalars", "torch_distributed_zero_first"}),
    ),
    # DeepSpeed 0.19.8, utils/tensor_fragment.py: an all-reduce of the fragments (stages 1 and 2), a gather (stage 3).
    "deepspeed.utils": (
        "engine",
        frozenset({"safe_get_full_fp32_param", "safe_get_full_optimizer_state", "safe_get_full_grad"}),
    ),
}
# The last words of calls that make an object of a framework, and what such objects are called.
MAKERS: frozenset[str] = frozenset({*(n.rpartition(".")[2] for n in _CLASSES), *(m[1:] for m in _MAKERS), "build"})
CALLED: frozenset[str] = frozenset({*NAMES, "strategy", "runner"})
FRAMEWORK_METHODS: frozenset[str] = frozenset(method for family in FAMILIES for method in family.methods)
FRAMEWORK_FUNCTIONS: frozenset[str] = frozenset(name for _, names in FUNCTIONS.values() for name in names)


def made_by(qualified: str) -> str:
    """The kind of what a class or factory of a framework makes; empty for any other name."""
    if qualified in _BUILT:
        return _BUILT[qualified]
    for maker in _MAKERS:
        qualified = qualified.removesuffix(maker)
    package, _, rest = qualified.partition(".")
    return _CLASSES.get(f"{package}.{rest.rpartition('.')[2]}", "")


def called(name: str) -> Family | None:
    """The family whose objects are called ``name``, in files that import one of its packages."""
    return NAMES.get(name)


def function_family(module: str, function: str) -> str:
    """The family of a function that waits for all ranks; empty for any other."""
    for prefix, (family, names) in FUNCTIONS.items():
        if function in names and (module == prefix or module.startswith(f"{prefix}.")):
            return family
    return ""
