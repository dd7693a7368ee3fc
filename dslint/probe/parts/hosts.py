"""Where the ranks of an arm meet, and how each becomes a host of its own."""

from __future__ import annotations

import os
import time

from dslint.probe.experiment import RankApi


def free_port() -> int:
    """A port that was free a moment ago."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def shared_port(rank: RankApi) -> int:
    """The same free port for all ranks of the arm."""
    return int(agree(rank, "port", str(free_port())))


def agree(rank: RankApi, what: str, value: str) -> str:
    """The value that rank 0 gives, for all ranks."""
    path = os.path.join(rank.folder, f"agreed-{what}")
    if rank.index == 0:
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(value)
        os.replace(path + ".part", path)
    return wait_for(path)


def wait_for(path: str, patience: float = 10.0) -> str:
    """The text of a file, once another rank has written it.

    Raises:
        TimeoutError: nobody did.
    """
    deadline = time.monotonic() + patience
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.01)
    with open(path, encoding="utf-8") as file:
        return file.read()


def own_host(rank: RankApi) -> str:
    """Make this rank, and all that it starts, a host with its own loopback and host name; returns its address.

    Ranks 0 and 1 are joined by a cable (a veth pair), which goes with its namespaces.
    """
    import socket

    own_network()
    socket.sethostname(f"node{rank.index}")
    address = f"10.77.0.{rank.index + 1}"
    path = os.path.join(rank.folder, "host-{}")
    if rank.index:
        with open(path.format(rank.index) + ".part", "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        os.replace(path.format(rank.index) + ".part", path.format(rank.index))
        wait_for(path.format("joined"))
    else:
        peer = wait_for(path.format(1))
        _ip("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", peer)
        agree(rank, "cable", "there")
        with open(path.format("joined"), "w", encoding="utf-8") as file:
            file.write("yes")
    _ip("addr", "add", f"{address}/24", "dev", "cable")
    _ip("link", "set", "cable", "up")
    rank.mark("host ready")
    return address


def own_network() -> None:
    """Give this process a loopback and a host name that only it and its children see; needs the right to.

    The namespace has no name and no mount: the kernel removes it when the last process in it ends, however it ends.
    """
    import ctypes

    new_network, new_name = 0x40000000, 0x04000000
    if ctypes.CDLL(None, use_errno=True).unshare(new_network | new_name):
        raise PermissionError(ctypes.get_errno(), "unshare")
    _ip("link", "set", "lo", "up")


def _ip(*words: str) -> None:
    import subprocess

    subprocess.run(["ip", *words], check=True, capture_output=True)
