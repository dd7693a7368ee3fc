"""Random command lines of launchers, of options that the installed releases have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version

from dslint.model.context import VersionFact
from dslint.model.launch.launchers.releases import LauncherOption, launcher_options, library_of

# Files that the words may name.
_LOCAL = "compute_environment: LOCAL_MACHINE\n"
_TWO = "num_machines: 2\nmain_process_ip: 10.0.0.1\nmain_process_port: 29511\n"
FILES = {
    "hosts": "a slots=2\nb slots=2\n",
    "uneven": "# nodes\na slots=2\n\nb slots=4\n",
    "wrong": "a slots=2\na slots=2\n",
    "multi.yaml": _LOCAL + "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 4\n",
    "two.yaml": _LOCAL + _TWO + "distributed_type: MULTI_GPU\nnum_processes: 8\nmachine_rank: 1\nsame_network: true\n",
    "alone.yaml": _LOCAL + "distributed_type: 'NO'\nnum_machines: 1\nnum_processes: 1\n",
    "none.yaml": _LOCAL + "distributed_type: 'NO'\nnum_machines: 1\nnum_processes: 4\n",
    "cpus.yaml": _LOCAL + "distributed_type: MULTI_CPU\nnum_machines: 1\nnum_processes: 4\nuse_cpu: true\n",
    "zero.yaml": _LOCAL + "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 2\n",
    "pdsh.yaml": _LOCAL + _TWO + "distributed_type: DEEPSPEED\nnum_processes: 4\nmachine_rank: 0\ndeepspeed_config:\n"
    "  deepspeed_hostfile: hosts\n  deepspeed_multinode_launcher: pdsh\n  zero_stage: 2\n",
}
_SCRIPTS = ("t.py", "pkg/t.py", "./t.py", "/opt/t.py")
_ARGUMENTS = (
    "--lr",
    "1e-4",
    "--nproc_per_node",
    "8",
    "--num_processes=4",
    "--num_gpus",
    "-m",
    "--",
    "-x",
    "two words",
    "",
    "t.py",
    "--flag=a=b",
    "$5",
    "'",
)
# What the options that matter are given; others get a word that their parser takes.
_VALUES = {
    "--nnodes": ("1", "2", "1:1", "2:2", "1:4"),
    "--nproc_per_node": ("1", "2", "3", "gpu", "auto", "cpu"),
    "--rdzv_backend": ("static", "c10d", "etcd"),
    "--rdzv_endpoint": ("h:29400", "h", "[::1]:29400", "localhost:0", "h:99999"),
    "--rdzv_conf": ("timeout=3", "a=1,b=2"),
    "--node_rank": ("0", "1"),
    "--master_port": ("29501", "0", "70000"),
    "--main_process_port": ("29501",),
    "--redirects": ("0", "3", "0:1,1:2"),
    "--tee": ("0", "3"),
    "--local_ranks_filter": ("0", "0,1"),
    "--hostfile": ("hosts", "uneven", "missing", "wrong"),
    "--include": ("localhost:0,1", "localhost", "a:0@b:0,1", "b", "a:0,1", "localhost:7,7,2", "a:9", "a:0@a:1"),
    "--exclude": ("localhost:0", "a", "b:1"),
    "--num_nodes": ("1", "2", "3"),
    "--num_gpus": ("1", "2", "4"),
    "--launcher": ("pdsh", "openmpi", "slurm", "mpich", "impi", "PDSH", "pytorch"),
    "--num_processes": ("1", "2", "4", "8", "5"),
    "--num_machines": ("1", "2"),
    "--machine_rank": ("0", "1"),
    "--main_process_ip": ("10.0.0.1",),
    "--gpu_ids": ("all", "0,1", "2"),
    "--config_file": (
        "multi.yaml",
        "two.yaml",
        "alone.yaml",
        "none.yaml",
        "cpus.yaml",
        "zero.yaml",
        "pdsh.yaml",
        "missing.yaml",
    ),
    "--mixed_precision": ("no", "bf16"),
    "--deepspeed_hostfile": ("hosts",),
    "--zero_stage": ("2",),
}
# Taken more often than others.
_COMMON = {
    "torchrun": ("--nnodes", "--nproc_per_node", "--node_rank", "--master_addr", "--master_port", "--module"),
    "deepspeed": ("--hostfile", "--include", "--num_gpus", "--num_nodes", "--master_port"),
    "accelerate": ("--config_file", "--num_processes", "--num_machines", "--machine_rank", "--multi_gpu", "--cpu"),
}
_NEVER = frozenset(
    {"--help", "--autotuning", "--tpu", "--tpu_use_cluster", "--use_megatron_lm", "--use_parallelism_config"}
    | {"--mpirun_hostfile", "--logs_specs", "--enable_each_rank_log", "--save_pid", "--event_log_handler"}
)
_VARIABLES = {
    "torchrun": ("PET_NNODES=2", "PET_NPROC_PER_NODE=3", "PET_NODE_RANK=1", "PET_STANDALONE=1", "PET_MASTER_ADDR=h"),
    "deepspeed": ("CUDA_VISIBLE_DEVICES=1,3", "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES="),
    "accelerate": ("CUDA_VISIBLE_DEVICES=1,3",),
}


@dataclass(slots=True)
class Line:
    """A command line: ``launcher`` as ``launched`` takes it, its words, and the variables in front of it."""

    launcher: str
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def random_lines(count: int, seed: int) -> Iterator[Line]:
    """``count`` command lines; the same for the same seed and the same installed releases."""
    chance = random.Random(seed)
    for number in range(count):
        launcher = ("torchrun", "deepspeed", "accelerate", "launch")[number % 4]
        yield _line(launcher, chance)


def _line(launcher: str, chance: random.Random) -> Line:
    table = "torchrun" if launcher == "launch" else launcher
    release = VersionFact(f"=={version(library_of(table)).partition('+')[0]}")
    program = "python -m torch.distributed.launch" if launcher == "launch" else launcher
    options = {o.name: o for o in launcher_options(table, release, program) if o.name not in _NEVER}
    common = [options[name] for name in _COMMON[table] if name in options]
    chosen = [
        chance.choice(common if chance.random() < 0.6 else list(options.values())) for _ in range(chance.randint(0, 4))
    ]
    words: list[str] = []
    for option in chosen:
        words += _words(option, launcher, chance)
    if chance.random() < 0.05:
        words.append("--")
    is_module = any(option.name == "--module" for option in chosen)
    words.append("pkg.train" if is_module else chance.choice(_SCRIPTS))
    words += [chance.choice(_ARGUMENTS) for _ in range(chance.randint(0, 4))]
    environment = {}
    if chance.random() < 0.3:
        name, _, value = chance.choice(_VARIABLES[table]).partition("=")
        environment[name] = value
    return Line(launcher, words, environment)


def _words(option: LauncherOption, launcher: str, chance: random.Random) -> list[str]:
    name = chance.choice(option.spellings)
    if launcher != "accelerate" and name.startswith("--") and len(name) > 7 and chance.random() < 0.2:
        name = name[: chance.randint(6, len(name))]
    if not option.takes_value:
        return [name]
    value = chance.choice(_values(option))
    if name.startswith("--"):
        return [f"{name}={value}"] if chance.random() < 0.5 else [name, value]
    return [name + value] if chance.random() < 0.3 and value else [name, value]


def _values(option: LauncherOption) -> tuple[str, ...]:
    if option.name in _VALUES:
        return _VALUES[option.name]
    if option.choices:
        return option.choices
    return {"int": ("1", "2"), "float": ("0.5",)}.get(option.kind, ("word", "1"))
