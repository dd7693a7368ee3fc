"""Hosts for tests: network namespaces on a bridge, each with a host name and a temporary file system of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def why_not() -> str:
    """Why no hosts can be made here, or empty."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "unshare", "hostname") if shutil.which(name) is None]
    if missing:
        return f"needs the program {missing[0]}"
    try:
        with hosts(1, Path("/tmp")) as made:
            done = made[0].start(["true"], dict(os.environ))
            return "" if done.wait(10) == 0 else "a namespace cannot run programs"
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces here: {error}"


class Host:
    """One simulated host."""

    def __init__(self, namespace: str, number: int, folder: Path) -> None:
        self.namespace = namespace
        self.number = number
        self.name = f"node{number}"
        self.address = f"10.77.0.{number + 1}"
        # The same path on every host, and on each another file system.
        self.folder = folder

    def start(self, argv: list[str], env: dict[str, str], **arguments: object) -> subprocess.Popen[str]:
        """Start a program there."""
        inside = f'hostname {self.name} && mount -t tmpfs none "{self.folder}" && exec "$@"'
        command = [
            "ip",
            "netns",
            "exec",
            self.namespace,
            "unshare",
            "--mount",
            "--uts",
            "sh",
            "-c",
            inside,
            "sh",
            *argv,
        ]
        return subprocess.Popen(
            command, env={**env, "TMPDIR": str(self.folder)}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **arguments,  # type: ignore[call-overload]
        )  # fmt: skip


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@contextmanager
def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """``count`` hosts with addresses 10.77.0.1, 10.77.0.2, ..."""
    # New names each time: the kernel takes a while to clear away the devices of a namespace that is gone.
    word = secrets.token_hex(3)
    bridge = f"dsb{word}"
    made = [Host(f"dslint-{word}-{number}", number, folder) for number in range(count)]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for host in made:
            port = f"dsv{word}.{host.number}"
            _ip("netns", "add", host.namespace)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
            _ip("link", "set", port, "master", bridge, "up")
            _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.namespace, "link", "set", "eth0", "up")
            _ip("-n", host.namespace, "link", "set", "lo", "up")
        yield made
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "delete", host.namespace], capture_output=True, timeout=20, check=False)
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True, timeout=20, check=False)
