"""The host that a member runs on, and its network device towards the others."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

_SIOCGIFADDR = 0x8915


def machine() -> str:
    """What only processes on the same host share: the boot of the kernel, and the network within it.

    Two hosts may have one name; two containers on one host have networks of their own.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"


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
