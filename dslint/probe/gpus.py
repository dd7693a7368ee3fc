"""The GPUs of this machine, asked of the driver's own tool: torch is not imported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple


class Gpu(NamedTuple):
    """A line of ``nvidia-smi -L``: ``GPU 0: NVIDIA H200`` and its UUID."""

    name: str
    uuid: str


def listed(path: str | None = None) -> tuple[Gpu, ...]:
    """All GPUs that the tool on this search path (default: PATH) lists, in its order."""
    return _listed(os.environ.get("PATH", "") if path is None else path)


@cache
def _listed(path: str) -> tuple[Gpu, ...]:
    tool = shutil.which("nvidia-smi", path=path)
    if tool is None:
        return ()
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.findall(r"^(GPU \d+: .*?) \(UUID: (\S+)\)", done.stdout, re.MULTILINE) if done.returncode == 0 else []
    return tuple(Gpu(*line) for line in found)


def visible(env: Mapping[str, str] = os.environ) -> list[str]:
    """UUIDs of the CUDA devices that a process with this environment sees, in the order of CUDA.

    The driver's tool does not know CUDA_VISIBLE_DEVICES: that is applied here. UUIDs tell two processes that each see
    one GPU of their own (srun --gpus-per-task=1) from two that see the same.
    """
    found = [gpu.uuid for gpu in listed(env.get("PATH", ""))]
    chosen = env.get("CUDA_VISIBLE_DEVICES")
    return found if chosen is None else _chosen(found, chosen)


def _chosen(found: Sequence[str], chosen: str) -> list[str]:
    kept = []
    for word in (word.strip() for word in chosen.split(",")):
        same = [uuid for uuid in found if word and uuid.startswith(word)]
        if word.isdecimal() and int(word) < len(found):
            same = [found[int(word)]]
        if len(same) != 1:
            break  # CUDA ignores everything from the first entry on that names no device
        kept += same
    return kept
