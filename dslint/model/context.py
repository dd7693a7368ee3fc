"""What a rule may know besides the document it judges: facts stated by the user, the project, or a run plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, absent
from dslint.core.source import Location
from dslint.model.versions.allowed import Allowed
from dslint.python.vocabulary import Vocabulary

if TYPE_CHECKING:
    from dslint.parse.data import DataDoc
    from dslint.python.launches import Launch


@dataclass(frozen=True, slots=True)
class VersionFact:
    """Which releases of a library may be installed.

    ``specifier`` is a PEP 440 set ("==0.12.6", ">=0.9,<0.13"), empty when nobody says.
    ``origin`` is where it is stated; ``None`` for ``--deepspeed-version`` and settings.
    """

    specifier: str = ""
    origin: Location | None = None
    stated_by: str = ""

    @property
    def is_known(self) -> bool:
        """Somebody states a version or range."""
        return bool(self.specifier)


@dataclass(frozen=True, slots=True)
class Locked:
    """What the nearest lock file installs: all distribution names, and those that other files install beside it.

    ``origin`` is the line of the lock that names DeepSpeed.
    """

    names: frozenset[str]
    origin: Location


@dataclass(frozen=True, slots=True)
class Context:
    """Facts around one file. All optional: a rule must be right without any of them.

    ``world_size``: processes in the job, from ``--world-size`` or from the plans that use the file.
    ``processes_per_node``, ``nodes`` and ``launcher``: for a script, how many processes its launch commands start on
    each machine, on how many machines, and by which launcher (``torchrun``, ``deepspeed``, ``accelerate`` ...); known
    where all commands agree. ``gpus_of_task``: how many GPUs of its machine Slurm shows each process, where told to.
    ``unset``: the variables of torchrun that ``srun`` and ``mpirun`` do not set, and nothing in the launch file sets.
    ``zero_stage``: ZeRO stage of the run(s) that use this script, from its configs.
    ``accumulation``: for a script, the micro batches that DeepSpeed accumulates for a step in its run(s).
    ``micro_batch``: for a script, the samples of a micro batch on each process that DeepSpeed is told in its run(s).
    ``deepspeed``: version of DeepSpeed; ``libraries`` of other packages by name.
    ``consumer``: who reads a config: ``deepspeed`` | ``hf`` | ``accelerate`` | ``lightning``; a known ``unknown`` where
    its users contradict each other, or a program fills it by rules of its own.
    ``arguments``: for a script, the arguments that a launch command passes, by destination name
    (``batch_size``); present only when every command of the project that names it agrees. For a config of ``accelerate
    launch``, the flags of that command (``num_processes``); the entry ``""`` stands for flags that cannot be read.
    ``client_optimizer``: for a config, the optimizer that the script hands to DeepSpeed beside it: a class; absent when
    none is handed over, or no script is known; unknown when one may be.
    ``config``: for a config of ``accelerate launch``, the DeepSpeed config that it names.
    ``locked``: for a run whose config needs a package of its own, what the lock of the project installs.
    ``vocabulary``: for a script, the names that the settings of the project add.
    ``launches``: for a script, what each of its launch commands gives to it.
    ``allowed``: for a script, which releases of each library the project allows, by distribution
    (``allowed.of("transformers")``).
    """

    world_size: Fact[int] = field(default_factory=absent)
    zero_stage: Fact[int] = field(default_factory=absent)
    accumulation: Fact[int] = field(default_factory=absent)
    micro_batch: Fact[int] = field(default_factory=absent)
    deepspeed: VersionFact = field(default_factory=VersionFact)
    libraries: Mapping[str, VersionFact] = field(default_factory=dict)
    consumer: Fact[str] = field(default_factory=absent)
    arguments: Mapping[str, Fact[str]] = field(default_factory=dict)
    config: DataDoc | None = None
    locked: Locked | None = None
    client_optimizer: Fact[str] = field(default_factory=absent)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    processes_per_node: Fact[int] = field(default_factory=absent)
    nodes: Fact[int] = field(default_factory=absent)
    launcher: Fact[str] = field(default_factory=absent)
    gpus_of_task: Fact[int] = field(default_factory=absent)
    unset: Fact[tuple[str, ...]] = field(default_factory=absent)
    launches: tuple[Launch, ...] = ()
    allowed: Allowed = field(default_factory=Allowed)

    @property
    def is_one_process(self) -> bool:
        """The commands of a script start it once, unless it starts more processes itself."""
        is_plain = self.launcher.get_or("") == "python"
        return self.world_size.get_or(1 if is_plain else 0) == 1

    @property
    def is_one_machine(self) -> bool:
        """The processes of the job are certainly all on one machine."""
        each = self.processes_per_node.get_or(None)
        return self.nodes.get_or(0) == 1 or (self.world_size.is_known and self.world_size.value == each)
