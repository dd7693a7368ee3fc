"""JSON lines between the leader and the members.

Plain sockets of the standard library: a store of torch would need torch in the member, which the supervisor avoids. The
leader listens at the address by which the others look for it, not at every interface of its host, and both sides prove
that they know the secret of the run before anything else is read: somebody else's program on that port is left alone,
and a foreign process cannot tell a member what to run.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import ipaddress
import json
import secrets
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from dslint.probe.arms import ProbeError
from dslint.probe.cluster.launched import TRIES, Launched

Message = dict[str, Any]
# The account of a flight recorder is the longest of all lines.
LONGEST = 16 << 20
GREETING = "dslint-probe-1"


class Closed(Exception):  # noqa: N818 - an event, not a mistake
    """The other side is gone."""


class Line:
    """One connection. ``send`` may be called from several threads, ``receive`` from one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._buffer = bytearray()
        # A host that loses its power says nothing; the bytes to it stay unanswered.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(20.0)

    @property
    def own(self) -> str:
        """The address of this end."""
        return str(self._sock.getsockname()[0])

    def send(self, message: Message) -> None:
        """Send one message.

        Raises:
            Closed: the other side is gone.
        """
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                self._sock.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, patience: float) -> Message | None:
        """The next message; ``None``: nothing came within ``patience`` seconds.

        Raises:
            Closed: the other side is gone, or does not speak as it should.
        """
        deadline = time.monotonic() + patience
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LONGEST:
                raise Closed("it sent a line without an end")
            try:
                ready, _, _ = select.select([self._sock], [], [], max(0.0, deadline - time.monotonic()))
                part = self._sock.recv(65536) if ready else None
            except (OSError, ValueError) as error:
                raise Closed(str(error)) from error
            if part is None:
                return None
            if not part:
                raise Closed("it closed the connection")
            self._buffer += part
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            found = json.loads(line)
        except ValueError as error:
            raise Closed("it sent something else than JSON") from error
        if not isinstance(found, dict):
            raise Closed("it sent something else than an object")
        return found

    def close(self) -> None:
        """Close the connection; a thread that waits in ``receive`` gets :class:`Closed`."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def _proof(secret: str, *parts: str) -> str:
    return hmac.new(secret.encode(), "\0".join(parts).encode(), hashlib.sha256).hexdigest()


def listen(launched: Launched) -> socket.socket:
    """The socket at which the leader waits for members, on the first free port.

    Raises:
        ProbeError: the address is unknown, or all ports are taken.
    """
    try:
        found = socket.getaddrinfo(launched.address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ProbeError(f"the address of rank 0, `{launched.address}`, is unknown: {error.strerror}") from error
    family, host = found[0][0], str(found[0][4][0])
    # Debian writes the own name of a host as 127.0.1.1 into /etc/hosts, where other hosts read another address.
    if ipaddress.ip_address(host.partition("%")[0]).is_loopback and launched.local_world != launched.world:
        host = ""
    for port in range(launched.port, launched.port + TRIES):
        try:
            return socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                continue
        # The name stands for an address that this host does not have itself (a service of Kubernetes).
        host = ""
        with suppress(OSError):
            return socket.create_server((host, port), family=family, backlog=1024)
    last = launched.port + TRIES - 1
    raise ProbeError(f"the ports {launched.port} to {last} of {launched.address} are all taken")


def admit(line: Line, secret: str, world: int) -> int | None:
    """On the leader: greet; the rank of a member that proves itself, ``None`` for anybody else."""
    nonce = secrets.token_hex(16)
    line.send({"greeting": GREETING, "nonce": nonce})
    answer = line.receive(5.0)
    if answer is None:
        return None
    rank, other, proof = answer.get("rank"), str(answer.get("nonce")), str(answer.get("proof"))
    if not isinstance(rank, int) or not 0 <= rank < world:
        return None
    if not hmac.compare_digest(proof, _proof(secret, "member", nonce, str(rank), str(world))):
        return None
    line.send({"proof": _proof(secret, "leader", other, str(rank))})
    return rank


def join(launched: Launched, patience: float) -> Line:
    """On a member: find the leader among its ports.

    Raises:
        ProbeError: nobody who knows the secret answered within ``patience`` seconds.
    """
    deadline = time.monotonic() + patience
    pause = 0.05
    last = ""
    while time.monotonic() < deadline:
        for port in range(launched.port, launched.port + TRIES):
            try:
                line = Line(socket.create_connection((launched.address, port), timeout=2.0))
            except OSError as error:
                last = f"{error.strerror or error}"
                continue
            try:
                if _greet(line, launched):
                    return line
                last = "another program answers"
            except Closed as closed:
                last = str(closed)
            line.close()
        time.sleep(pause)
        pause = min(1.0, 1.5 * pause)
    raise ProbeError(
        f"rank {launched.rank} does not reach rank 0 at {launched.address}, ports {launched.port} to"
        f" {launched.port + TRIES - 1}, within {patience:.0f} s ({last})"
    )


def _greet(line: Line, launched: Launched) -> bool:
    # The leader speaks first, so that a foreign server never gets a byte of ours.
    greeting = line.receive(2.0)
    if greeting is None or greeting.get("greeting") != GREETING:
        return False
    nonce, rank = secrets.token_hex(16), str(launched.rank)
    proof = _proof(launched.secret, "member", str(greeting.get("nonce")), rank, str(launched.world))
    line.send({"rank": launched.rank, "nonce": nonce, "proof": proof})
    answer = line.receive(5.0)
    return answer is not None and hmac.compare_digest(
        str(answer.get("proof")), _proof(launched.secret, "leader", nonce, rank)
    )
