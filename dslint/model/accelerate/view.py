"""A config of ``accelerate launch`` as the command will understand it, three-valued.

The command reads its flags first, then the file (accelerate ``commands/launch.py: _validate_launch_command``): a flag
wins over the file, an entry of a section (``deepspeed_config``) over a key at the top level. Which flags a run passes
comes from the launch commands of the project that name the file; a flag that cannot be read makes its value unknown.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.finding import Severity
from dslint.core.source import Location
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.config import FALSE_WORDS, TRUE_WORDS, is_placeholder, top_of
from dslint.parse.data import DataDoc

SECTION = "/deepspeed_config"
# Flags that choose what starts the processes; one of them and the file's type is not asked.
_PARADIGMS = ("multi_gpu", "tpu", "tpu_cluster", "use_deepspeed", "use_fsdp", "use_megatron_lm")
TORCHRUN_TYPES = frozenset(
    (
        *("MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON"),
        *("FSDP", "MEGATRON_LM"),
    )
)
# Arguments that accelerate refuses beside a DeepSpeed config file (utils/dataclasses.py _deepspeed_config_checks).
REFUSED_BESIDE_FILE = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_param_nvme_path",
    "offload_optimizer_nvme_path",
    "zero3_save_16bit_model",
)
_TESTS = re.compile(r"(?:^|/)(?:tests?|testing|fixtures?|test_\w+)/")

_last: list[AccelerateView] = []


def view_of(doc: DataDoc, context: Context) -> AccelerateView:
    """The view of a file; made once for all rules."""
    if not (_last and _last[0].doc is doc and _last[0].context is context):
        _last[:] = [AccelerateView(doc, context)]
    return _last[0]


class AccelerateView:
    """The facts of one file. Names are those of the arguments of ``accelerate launch``, without dashes in front."""

    def __init__(self, doc: DataDoc, context: Context) -> None:
        self.doc = doc
        self.context = context

    @property
    def version(self) -> VersionFact:
        """Which releases of accelerate may read the file."""
        return self.context.libraries.get("accelerate", VersionFact())

    @property
    def is_launched(self) -> bool:
        """A launch command of the project names the file, so the flags that go with it are known."""
        return "config_file" in self.context.arguments

    def flag(self, name: str) -> Fact[str]:
        """A flag of the commands that name the file; absent when none of them passes it, or none is known."""
        arguments = self.context.arguments
        return arguments.get(name) or arguments.get("") or absent()

    def variable(self, name: str) -> Fact[str]:
        """An environment variable of the commands that name the file; absent when none of them sets it."""
        return self.context.arguments.get(f"${name}") or absent()

    def pointer(self, name: str) -> str:
        """Where the file says it; the section wins."""
        inner = f"{SECTION}/{name}"
        return inner if self.doc.has(inner) else f"/{name}"

    def fact(self, name: str) -> Fact[Any]:
        """What the command gets: a flag, else the file. ``null`` is absent, as it is for the command."""
        flag: Fact[Any] = self.flag(name)
        if not flag.is_absent:
            return flag
        fact = self.doc.fact(self.pointer(name))
        if not fact.is_known:
            return fact
        if fact.get() is None:
            return absent()
        return unknown("a placeholder", *fact.origins) if is_placeholder(fact.get()) else fact

    def stated(self, name: str) -> Fact[Any]:
        """The value where it stands in the file and no flag replaces it, or may do so; else absent."""
        return self.fact(name) if self.flag(name).is_absent and self.doc.has(self.pointer(name)) else absent()

    def count(self, name: str, default: int) -> Fact[int]:
        """A whole number, also as the text of a flag."""
        fact = self.fact(name)
        if fact.is_absent:
            return known(default)
        value = fact.value
        if fact.is_known and isinstance(value, str) and value.isdigit():
            value = int(value)
        if not fact.is_known or isinstance(value, bool) or not isinstance(value, int):
            return unknown(fact.reason or "no whole number", *fact.origins)
        return known(value, *fact.origins)

    @cached_property
    def kind(self) -> Fact[str]:
        """The distributed type by which processes start, flags considered. YAML reads a bare ``NO`` as false."""
        given = [name for name in _PARADIGMS if not self.flag(name).is_absent]
        if given:
            is_deepspeed = given == ["use_deepspeed"] and self.flag("use_deepspeed").is_known
            return known("DEEPSPEED") if is_deepspeed else unknown("flags of the command choose the type")
        if not self.flag("cpu").is_absent:
            return unknown("flags of the command choose the type")
        value = self.doc.get("/distributed_type")
        if value in (False, None):
            return known("NO")
        return known(value, self.doc.value("/distributed_type")) if isinstance(value, str) else unknown("no word")

    @property
    def is_deepspeed(self) -> bool:
        """The run certainly uses DeepSpeed."""
        return self.kind.get_or("") == "DEEPSPEED" and self.is_local

    @property
    def is_local(self) -> bool:
        """Processes start on machines of one's own, not on SageMaker."""
        return bool(self.doc.get("/compute_environment", "LOCAL_MACHINE") == "LOCAL_MACHINE")

    @cached_property
    def starter(self) -> Fact[str]:
        """What starts processes on several machines: ``torchrun``, or DeepSpeed's launcher by name (``pdsh``)."""
        if self.kind.get_or("") in TORCHRUN_TYPES:
            return known("torchrun")
        if not self.is_deepspeed:
            return unknown("not several machines")
        launcher = self.fact("deepspeed_multinode_launcher")
        if launcher.is_absent:
            return known("pdsh")
        return launcher.map(lambda word: "torchrun" if word == "standard" else str(word))

    @cached_property
    def stage(self) -> Fact[int]:
        """The ZeRO stage without a config file: accelerate's default is 2; unknown beside a config file."""
        if not self.is_deepspeed or not self.config_file.is_absent:
            return unknown("another file says it")
        stage = self.count("zero_stage", 2)
        return stage if stage.is_unknown or stage.get() in (0, 1, 2, 3) else unknown("no stage", *stage.origins)

    @cached_property
    def config_file(self) -> Fact[str]:
        """The DeepSpeed config that the file or a flag names; ``none`` is none."""
        fact = self.fact("deepspeed_config_file")
        return absent() if fact.is_known and str(fact.get()).lower() == "none" else fact

    @cached_property
    def config(self) -> DataDoc | None:
        """That config, where it is found and can be read."""
        return self.context.config if self.config_file.is_known else None

    def truth(self, name: str) -> Fact[bool]:
        """A switch as accelerate's ``str_to_bool`` reads it."""
        fact = self.fact(name)
        if not fact.is_known:
            return fact
        word = str(fact.get()).lower()
        is_switch = word in TRUE_WORDS | FALSE_WORDS
        return known(word in TRUE_WORDS, *fact.origins) if is_switch else unknown("no switch", *fact.origins)

    def severity(self, severity: Severity, seen: Severity | None = None) -> Severity:
        """The severity of a finding; ``seen`` where no command is known, information in the files of tests."""
        if _TESTS.search(self.doc.path):
            return Severity.INFO
        return severity if self.is_launched or seen is None else seen

    def key(self, pointer: str, label: str = "") -> Location:
        """The place of a key, else of its section, else the first character of the file."""
        while pointer:
            if self.doc.has(pointer):
                return self.doc.key(pointer, label)
            pointer = pointer.rpartition("/")[0]
        return top_of(self.doc)
