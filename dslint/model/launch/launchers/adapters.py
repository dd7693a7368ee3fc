"""One adapter per launcher: the words that name it, its options, and the processes it starts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.model.launch.command import Word
from dslint.model.launch.launchers import counts, frameworks, tables
from dslint.model.launch.launchers.base import Options

MPI_PAIRS = tables.MPI_PAIRS


@dataclass(frozen=True, slots=True)
class Adapter:
    """How one launcher reads its words.

    ``heads`` are the spellings of its name as words; ``modules`` the ones after ``python -m``. ``subcommands``
    start processes, others (``accelerate config``) do not; empty: there are none. ``has_script``: the first
    operand is a Python script; otherwise a tool of the launcher's own is run.
    """

    name: str
    heads: tuple[str, ...]
    table: Options | str
    counter: counts.Counter
    modules: tuple[str, ...] = ()
    subcommands: tuple[str, ...] = ()
    has_script: bool = True
    module_flags: tuple[str, ...] = ()
    # The command it starts may be another launcher.
    wraps: bool = False
    # The name means other programs too: what it runs must be Python.
    is_common: bool = False
    # How many ``--`` right behind the script do not reach it.
    dashes: int = 0

    @property
    def options(self) -> Options:
        """Its options; of a launcher whose releases differ those of all releases."""
        return tables.released(self.table) if isinstance(self.table, str) else self.table


ADAPTERS = (
    Adapter(
        "torchrun",
        ("torchrun",),
        "torchrun",
        counts.torchrun,
        ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.run"),
        module_flags=("-m", "--module"),
        dashes=1,
    ),
    Adapter(
        "deepspeed",
        ("deepspeed", "ds", "deepspeed.pt"),
        "deepspeed",
        counts.deepspeed,
        ("deepspeed.launcher.runner",),
        module_flags=("--module",),
        dashes=2,
    ),
    Adapter(
        "accelerate",
        ("accelerate",),
        "accelerate",
        counts.accelerate,
        ("accelerate.commands.accelerate_cli",),
        ("launch",),
        module_flags=("-m", "--module"),
        dashes=1,
    ),
    Adapter(
        "accelerate",
        ("accelerate-launch",),
        "accelerate",
        counts.accelerate,
        ("accelerate.commands.launch",),
        module_flags=("-m", "--module"),
        dashes=1,
    ),
    Adapter("srun", ("srun",), tables.SRUN, counts.srun, wraps=True),
    Adapter("mpirun", ("mpirun", "mpiexec", "mpiexec.hydra", "orterun"), tables.MPIRUN, counts.mpirun, wraps=True),
    Adapter("xtuner", ("xtuner",), tables.NONE, counts.xtuner, subcommands=("train",), has_script=False),
    Adapter(
        "swift",
        ("swift", "megatron"),
        tables.NONE,
        frameworks.swift,
        ("swift.cli.main",),
        ("sft", "pt", "rlhf"),
        has_script=False,
    ),
    Adapter(
        "llamafactory",
        ("llamafactory-cli", "lmf"),
        tables.NONE,
        frameworks.llamafactory,
        ("llamafactory.cli",),
        ("train",),
        has_script=False,
    ),
    Adapter(
        "axolotl",
        ("axolotl",),
        tables.NONE,
        frameworks.axolotl,
        ("axolotl.cli.main",),
        ("train",),
        has_script=False,
    ),
    Adapter("axolotl", (), tables.NONE, counts.undecided, ("axolotl.cli.train",), has_script=False),
    Adapter(
        "trl",
        ("trl",),
        tables.NONE,
        frameworks.trl,
        ("trl.cli",),
        ("sft", "dpo", "grpo", "kto", "reward", "rloo"),
        has_script=False,
    ),
    Adapter(
        "colossalai",
        ("colossalai",),
        tables.COLOSSALAI,
        frameworks.colossalai,
        ("colossalai.cli",),
        ("run",),
        module_flags=("-m",),
    ),
    Adapter(
        "composer",
        ("composer",),
        tables.COMPOSER,
        frameworks.composer,
        ("composer.cli.launcher", "composer"),
        module_flags=("-m", "--module_mode"),
        is_common=True,
    ),
    Adapter("horovodrun", ("horovodrun",), tables.HOROVODRUN, frameworks.horovodrun, wraps=True),
)
# The module that a tool runs with the words behind it, where that is its own project (XTuner ``entry_point.py``).
TOOLS = {"xtuner train": "xtuner.tools.train"}
# ``$(which torchrun)`` and its kin.
_WHICH = re.compile(r"""["']?(?:\$\(|`)\s*(?:which|command -v|type -p)\s+([\w-]+)\s*[)`]["']?""")
PLAIN = Adapter("python", (), tables.NONE, frameworks.plain)

BY_HEAD: dict[str, Adapter] = {head: adapter for adapter in ADAPTERS for head in adapter.heads}
BY_MODULE: dict[str, Adapter] = {module: adapter for adapter in ADAPTERS for module in adapter.modules}


def program_name(word: Word) -> str:
    """``/opt/venv/bin/torchrun`` and ``"$VENV"/bin/torchrun`` -> ``torchrun``."""
    if word.text is None and (found := _WHICH.fullmatch(word.raw)):
        return found[1]
    _, slash, name = (word.raw if word.text is None else word.text).rpartition("/")
    if word.text is None:
        name = name if slash and not set(name) & set("$\"'`{}()*") else ""
    return name
