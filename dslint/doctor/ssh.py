"""The hosts that the user named, asked by ssh within a time limit. No other host is ever contacted."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from dslint.doctor.machine import Machine

CONNECT_SECONDS = 5
SECONDS = 15.0
AT_ONCE = 16
# deepspeed/launcher/runner.py (_parse_hostfile)
_ENTRY = re.compile(r"^(\S+)\s+slots=(\d+)")


class Entry(NamedTuple):
    """A line of a DeepSpeed hostfile."""

    host: str
    slots: int


class Hostfile(NamedTuple):
    """A hostfile: its entries and, in ``wrong``, each line that the launcher refuses, with the reason."""

    entries: tuple[Entry, ...]
    wrong: tuple[str, ...]


class Answer(NamedTuple):
    """What a host said: its clock (seconds), how long the question took, whether it has the interpreter."""

    host: str
    trouble: str = ""
    clock: float | None = None
    asked_at: float = 0.0
    answered_at: float = 0.0
    has_python: bool | None = None


def read_hostfile(text: str) -> Hostfile:
    """Read a hostfile as the launcher does."""
    entries: list[Entry] = []
    wrong: list[str] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _ENTRY.match(line)
        if match is None:
            wrong.append(f"line {number} is not `HOST slots=N`: {line[:60]}")
        elif any(entry.host == match[1] for entry in entries):
            wrong.append(f"line {number} names `{match[1]}` again")
        else:
            entries.append(Entry(match[1], int(match[2])))
    if not entries and not wrong:
        wrong.append("it names no host")
    return Hostfile(tuple(entries), tuple(wrong))


def named_hosts(machine: Machine) -> list[str]:
    """The hosts of ``--host`` and ``--hostfile``, each once."""
    hosts = list(machine.hosts)
    if machine.hostfile:
        hosts += [entry.host for entry in read_hostfile(machine.read(machine.hostfile) or "").entries]
    # A leading dash would be an option of ssh.
    return list(dict.fromkeys(host for host in hosts if not host.startswith("-")))


def ask_all(machine: Machine) -> list[Answer]:
    """Ask every named host, several at a time; an answer is kept for the next check."""
    hosts = named_hosts(machine)
    if not hosts:
        return []
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(AT_ONCE, len(hosts))) as pool:
        return list(pool.map(lambda host: machine.once(("ssh", host), lambda: _ask(machine, host)), hosts))


def _ask(machine: Machine, host: str) -> Answer:
    question = f"date +%s.%N; test -x {shlex.quote(str(machine.python.executable))} && echo python"
    begin = machine.now()
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}", "-o", "NumberOfPasswordPrompts=0")
    ran = machine.run("ssh", *options, "--", host, question, seconds=SECONDS)
    end = machine.now()
    lines = ran.out.split()
    # The last command fails where there is no such interpreter: what counts is that the clock was told.
    if ran.code is None or ran.code == 255 or not lines:
        return Answer(host, ran.trouble or _last_line(ran.err) or f"ssh: exit status {ran.code}")
    clock = float(lines[0]) if re.fullmatch(r"\d+(\.\d+)?", lines[0]) else None
    return Answer(host, "", clock, begin, end, "python" in lines[1:])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
