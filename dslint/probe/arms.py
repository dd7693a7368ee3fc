"""What running an arm means, whoever does it: a supervisor on this machine, or the leader of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from dslint.probe.experiment import Case, Experiment
from dslint.probe.outcome import ArmOutcome


class ProbeError(Exception):
    """The probe cannot work here; one line for the user."""


class ServerDied(Exception):  # noqa: N818 - an event, not a mistake
    """The fork server went away in the middle of an arm."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm of a case; ``ranks`` 0 and ``backend`` "" leave the choice to the experiment and the machine."""

    experiment: Experiment
    module: str
    case: Case
    fixed: bool
    ranks: int = 0
    backend: str = ""
    explain: bool = False


class ArmRunner(ABC):
    """Runs arms one at a time in each thread that asks."""

    versions: dict[str, str]

    @abstractmethod
    def backend(self, experiment: Experiment, world: int = 0) -> str:
        """The backend of the process groups of an experiment."""

    @abstractmethod
    def warm(self, flavour: str) -> None:
        """Import what experiments of this flavour need.

        Raises:
            ProbeError: a library is missing.
        """

    def arm(
        self,
        experiment: Experiment,
        module: str,
        case: Case,
        *,
        fixed: bool,
        ranks: int = 0,
        backend: str = "",
        explain: bool = False,
    ) -> tuple[ArmOutcome, Path]:
        """Run one arm to its end; returns its outcome and its folder (kept until the run ends).

        Raises:
            ProbeError: a fork server cannot be started, or died twice; a member of a cluster is gone.
        """
        arm = Arm(experiment, module, case, fixed, ranks, backend, explain)
        for attempt in (1, 2):
            try:
                self.warm(experiment.flavour)
                return self._run(arm)
            except ServerDied as died:
                self._server_died()
                if attempt == 2:
                    raise ProbeError(f"the fork server died: {died}") from died
        raise AssertionError

    @abstractmethod
    def _run(self, arm: Arm) -> tuple[ArmOutcome, Path]:
        """One try at an arm; may raise ServerDied."""

    @abstractmethod
    def _server_died(self) -> None:
        """Clean up after a fork server, so that the next :meth:`warm` can have another."""
