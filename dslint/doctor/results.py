"""What a run of the doctor leaves for its reports."""

from __future__ import annotations

from dataclasses import dataclass

from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, Status

PACKAGES = ("torch", "deepspeed", "transformers", "accelerate")


@dataclass(frozen=True)
class Checked:
    """A check that ran, with what it found."""

    meta: CheckMeta
    outcomes: tuple[Outcome, ...]

    @property
    def status(self) -> Status:
        """The worst of its outcomes."""
        order = list(Status)
        return max((outcome.status for outcome in self.outcomes), key=order.index, default=Status.OK)


def packages(machine: Machine) -> dict[str, str | None]:
    """The releases of the packages a job is made of; torch as its own version file states it."""
    torch = machine.python.torch
    found = {name: machine.python.release(name) for name in PACKAGES}
    return found | {"torch": torch.version} if torch else found
