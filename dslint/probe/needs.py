"""What is there, and what an experiment lacks."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from dslint.probe import gpus
from dslint.probe.experiment import Needs


@dataclass(frozen=True, slots=True)
class Place:
    """What the machine offers.

    Attributes:
        gpus: number of CUDA devices that ranks may use (0: a CPU run).
        root: network namespaces can be made.
        versions: library versions of the interpreter that is probed.
    """

    gpus: int
    root: bool
    versions: Mapping[str, str]


def unmet(needs: Needs, place: Place) -> str:
    """What is missing, as a phrase after "needs"; empty when nothing is."""
    reason = f": {needs.why}" if needs.why else ""
    if needs.gpus > place.gpus:
        return f"{needs.gpus} GPU{'s' if needs.gpus > 1 else ''}, {place.gpus} here{reason}"
    if needs.root and not place.root:
        return f"the right to make network namespaces (root){reason}"
    for program in needs.programs:
        if shutil.which(program) is None:
            return f"the program `{program}`{reason}"
    for requirement in needs.versions:
        missing = _unmet_version(requirement, place.versions)
        if missing:
            return f"{missing}{reason}"
    return ""


def _unmet_version(text: str, versions: Mapping[str, str]) -> str:
    from packaging.requirements import Requirement

    requirement = Requirement(text)
    here = versions.get(requirement.name)
    if here is None:
        return f"{text}, which is not installed here"
    if not requirement.specifier.contains(here.partition("+")[0], prereleases=True):
        return f"{text}, {here} is installed"
    return ""


def hardware() -> list[str]:
    """Cores, processor and GPUs of this machine, as they are named in a report."""
    found = [f"{os.cpu_count() or 1} cores"]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            models = {line.partition(":")[2].strip() for line in file if line.startswith("model name")}
    except OSError:
        models = set()
    return [*found, *sorted(models), *(gpu.name for gpu in gpus.listed())]


@functools.cache
def can_make_namespaces() -> bool:
    """Whether this process may make network namespaces (several hosts on one machine)."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"dslint-try-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, timeout=10, check=False)
        if made.returncode == 0:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return made.returncode == 0
