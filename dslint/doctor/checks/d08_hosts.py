"""Hostfile and the way to the other hosts.

**What.** The hostfile (`--hostfile`, or `/job/hostfile`, which the DeepSpeed launcher reads unasked), the lines of
`.deepspeed_env`, `pdsh`, and whether each named host answers ssh without a question and has the same interpreter.

**Why it hurts.** With a hostfile that does not exist the launcher trains on the local machine alone; a bad line or a
host that is named twice stops it. A host that asks for a password, or whose key is not known, makes it wait.

**How it is known.** The launcher's own pattern for a line. `ssh -o BatchMode=yes -o ConnectTimeout=5 HOST`, only to
hosts that you name with `--host` or `--hostfile`, at most 15 s each.

**Repair.** What is printed.

**Evidence.** `deepspeed/launcher/runner.py` (`fetch_hostfile`, `_parse_hostfile`); measured: a missing hostfile is only
a warning there.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from dslint.core.words import counted
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, unknown, warning
from dslint.doctor.ssh import Answer, ask_all, read_hostfile

META = CheckMeta("D8", "hosts", "Hostfile, and the way to the hosts that you name")

_DEFAULT_HOSTFILE = "job/hostfile"


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each fault, one in all when there is none."""
    outcomes = [*_hostfile(machine), *_environment_files(machine)]
    answers = ask_all(machine)
    for answer in answers:
        outcomes += _answer(machine, answer)
    if answers and machine.python.release("deepspeed") and machine.which("pdsh") is None:
        reason = "the deepspeed launcher starts other hosts by pdsh unless `--launcher` names another way"
        outcomes.append(warning("pdsh is not on PATH", reason, "apt-get install pdsh"))
    if outcomes:
        return outcomes
    if not answers:
        return [ok("no other host is named (--host, --hostfile)")]
    return [ok(f"{counted(len(answers), 'host')} reached by ssh, with {machine.python.executable}")]


def _hostfile(machine: Machine) -> Iterator[Outcome]:
    path = machine.hostfile or machine.system / _DEFAULT_HOSTFILE
    text = machine.read(path)
    if text is None:
        if machine.hostfile:
            yield error(f"{path} cannot be read", "the deepspeed launcher then trains on the local machine alone")
        return
    found = read_hostfile(text)
    for wrong in found.wrong:
        yield error(f"{path}: {wrong}", "the deepspeed launcher refuses the whole file")
    if machine.hostfile and any(entry.host.startswith("-") for entry in found.entries):
        yield error(f"{path} names a host with a leading dash", "ssh would read it as an option; it was not asked")


def _environment_files(machine: Machine) -> Iterator[Outcome]:
    name = machine.variable("DS_ENV_FILE") or ".deepspeed_env"
    for folder in dict.fromkeys((machine.home, machine.cwd)):
        path = folder / name
        text = machine.read(path) if os.path.isfile(path) else None
        for number, line in enumerate((text or "").splitlines(), 1):
            # The launcher strips nothing: an empty line is one without `=` as well.
            if "=" not in line:
                reason = "the deepspeed launcher splits every line at `=` and stops with a ValueError"
                yield warning(
                    f"{path}: line {number} is not NAME=VALUE", reason, f"sed -i {number}d {shlex.quote(str(path))}"
                )


def _answer(machine: Machine, answer: Answer) -> Iterator[Outcome]:
    host = shlex.quote(answer.host)
    if answer.trouble:
        if machine.which("ssh") is None:
            yield unknown(f"{answer.host} was not asked", answer.trouble)
            return
        repair = f"ssh -v {host} true"
        if "Permission denied" in answer.trouble:
            repair = f"ssh-copy-id {host}"
        elif "Host key verification failed" in answer.trouble:
            repair = f"ssh {host} true  # compare the key and answer yes, once"
        yield error(f"{answer.host} does not answer ssh", answer.trouble, repair)
    elif answer.has_python is False:
        reason = "launchers start the same path on every host"
        yield warning(f"{answer.host} has no {machine.python.executable}", reason)
