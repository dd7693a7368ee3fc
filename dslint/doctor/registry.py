"""All checks, in the order of their numbers, and how the command line names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome

MODULES = (
    "d01_stale_extension_lock",
    "d02_foreign_extension_build",
    "d03_cache_on_network_file_system",
    "d04_tool_chain",
    "d05_known_bad_versions",
    "d06_gpus",
    "d07_network_interface",
    "d08_hosts",
    "d09_limits",
    "d10_port_in_use",
    "d11_leftover_launch_variables",
    "d12_clock",
    "d13_slurm_context",
    "d14_accelerate_default_config",
)


class UnknownCheck(ValueError):  # noqa: N818 - the name says the mistake
    """No check has this number or name."""


class Check(NamedTuple):
    """A check with its name plate, its prose and its function."""

    meta: CheckMeta
    prose: str
    run: Callable[[Machine], list[Outcome]]


def all_checks() -> tuple[Check, ...]:
    """Every check."""
    found = []
    for name in MODULES:
        module = import_module(f"dslint.doctor.checks.{name}")
        found.append(Check(module.META, module.__doc__ or "", module.check))
    return tuple(found)


def select(names: Sequence[str]) -> tuple[Check, ...]:
    """The checks that are named by number (``D1``, ``d01``) or name; all when nothing is named.

    Raises:
        UnknownCheck: a name means no check.
    """
    checks = all_checks()
    if not names:
        return checks
    by_name = {check.meta.name: check for check in checks} | {check.meta.id.lower(): check for check in checks}
    wanted = []
    for name in names:
        key = name.strip().lower().replace("_", "-")
        if key.startswith("d0"):
            key = "d" + key[1:].lstrip("0")
        if key not in by_name:
            raise UnknownCheck(_complaint(name, list(by_name)))
        wanted.append(by_name[key])
    return tuple(check for check in checks if check in wanted)


def _complaint(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), known, n=1)
    hint = f", did you mean `{near[0]}`?" if near else "; `dslint doctor --list` lists all of them"
    return f"unknown check `{name}`{hint}"
