"""Releases of torch, DeepSpeed, transformers and accelerate that are known to be bad, alone or together.

**What.** The installed releases against a short table of releases that train wrongly without raising, and against what
the packages themselves ask of each other.

**Why it hurts.** The loss looks plausible, or turns to 0 or NaN after hours, and nothing raises.

**How it is known.** The metadata of the installed packages; nothing is imported. Every entry of the table has a report
and the release that ended it. Traps of rarely used features are only mentioned.

**Repair.** The upgrade that is printed.

**Evidence.** ZeRO-2 with gradient accumulation: measured on 0.17.6, gradient norm 0.0778 instead of 0.1453
(https://github.com/deepspeedai/DeepSpeed/issues/7718, https://github.com/huggingface/accelerate/issues/3877; 0.18.3 and
0.19.8 are right). `overlap_comm`: rule DSL160. ZeRO-3 with torch 2.10:
https://github.com/deepspeedai/DeepSpeed/pull/7898. Muon: https://github.com/deepspeedai/DeepSpeed/pull/8090.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, ok, unknown, warning
from dslint.doctor.results import PACKAGES, packages

META = CheckMeta("D5", "known-bad-versions", "Releases of torch, DeepSpeed and others that are known to be bad")


class Known(NamedTuple):
    """Releases that are bad together: package -> version range. ``common`` is False for rarely used features."""

    ranges: dict[str, str]
    what: str
    reference: str
    repair: str
    common: bool = True


_ISSUES = "https://github.com/deepspeedai/DeepSpeed"
TABLE = (
    Known(
        {"deepspeed": ">=0.17.6,<0.18.3"},
        "ZeRO-2 with gradient accumulation trains on wrong gradients",
        f"{_ISSUES}/issues/7718",
        "deepspeed>=0.18.3",
    ),
    Known(
        {"deepspeed": "<0.17.5"},
        "overlap_comm at ZeRO-1 and 2 can overwrite gradients while they are reduced (rule DSL160)",
        f"{_ISSUES}/pull/7371",
        "deepspeed>=0.17.5",
    ),
    Known(
        {"deepspeed": "<0.18.8", "torch": ">=2.10"},
        "ZeRO-3 with bf16 reads gradients before they are written: NaN in the weights",
        f"{_ISSUES}/pull/7898",
        "deepspeed>=0.18.8",
    ),
    Known(
        {"deepspeed": ">=0.17.6,<0.19.3"},
        "with the Muon optimizer and reduce_scatter at ZeRO-1 or 2 the updates are wrong",
        f"{_ISSUES}/pull/8090",
        "deepspeed>=0.19.3",
        common=False,
    ),
    Known(
        {"deepspeed": "<0.19.3"},
        "with torch.compile, overlap_comm at ZeRO-1 and 2 can read gradients too early",
        f"{_ISSUES}/pull/8080",
        "deepspeed>=0.19.3",
        common=False,
    ),
)


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each bad release or unmet requirement, one in all when there is none."""
    installed = {name: release for name, release in packages(machine).items() if release}
    if not installed:
        return [unknown("nothing to compare", f"none of {', '.join(PACKAGES)} is installed in this environment")]
    found = [known for known in TABLE if _applies(known, installed)]
    # The newest repair mends the older traps as well, so it is said once.
    outcomes = [_outcome(machine, known, installed) for known in found if known.common]
    outcomes += _unmet(machine, installed)
    if outcomes:
        return outcomes
    notes = "; ".join(f"{known.what} ({known.reference})" for known in found)
    return [ok(", ".join(f"{name} {release}" for name, release in installed.items()), notes)]


def _applies(known: Known, installed: dict[str, str]) -> bool:
    return all(name in installed and _within(installed[name], range_) for name, range_ in known.ranges.items())


def _within(release: str, range_: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(range_).contains(Version(release), prereleases=True)
    except InvalidVersion:
        return False


def _outcome(machine: Machine, known: Known, installed: dict[str, str]) -> Outcome:
    named = " with ".join(f"{name} {installed[name]}" for name in known.ranges)
    return warning(f"{named}: {known.what}", known.reference, _upgrade(machine, known.repair))


def _upgrade(machine: Machine, requirement: str) -> str:
    return f"{machine.python.executable} -m pip install -U '{requirement}'"


def _unmet(machine: Machine, installed: dict[str, str]) -> Iterator[Outcome]:
    """What an installed package asks of another installed one, in its own metadata."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    said = set()
    for name in installed:
        for line in machine.python.requirements(name):
            try:
                wanted = Requirement(line)
            except InvalidRequirement:
                continue
            other = canonicalize_name(wanted.name)
            # The extra of the same name states the range of an optional partner; test and dev extras state more.
            relevant = wanted.marker is None or wanted.marker.evaluate({"extra": other})
            pair = (name, other, str(wanted.specifier))
            if other not in installed or not relevant or pair in said:
                continue
            said.add(pair)
            if not _within(installed[other], str(wanted.specifier)):
                reason = f"{name} {installed[name]} asks for {other}{wanted.specifier}"
                repair = _upgrade(machine, f"{other}{wanted.specifier}")
                yield warning(f"{other} {installed[other]} does not fit {name} {installed[name]}", reason, repair)
