"""The host that a member runs on, the GPUs that it may use, and its network device towards the others."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence

_SIOCGIFADDR = 0x8915


def machine() -> str:
    """What only processes on the same host share: the boot of the kernel, and the network within it.

    Two hosts may have one name; two containers on one host have networks of their own.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"


def visible_gpus(env: Mapping[str, str] = os.environ) -> list[str]:
    """UUIDs of the CUDA devices that a process with this environment sees, in the order of CUDA.

    Asked of the driver's own tool, which does not know CUDA_VISIBLE_DEVICES: that is applied here. UUIDs tell two
    processes that each see one GPU of their own (srun --gpus-per-task=1) from two that see the same.
    """
    tool = shutil.which("nvidia-smi", path=env.get("PATH"))
    if tool is None:
        return []
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = re.findall(r"^GPU \d+: .*\(UUID: (\S+)\)", done.stdout, re.MULTILINE) if done.returncode == 0 else []
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


def interface_of(address: str) -> str:
    """Name of the network device that has this IPv4 address; empty when none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asker.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""
