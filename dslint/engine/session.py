"""One folder looked at again and again while its texts change: for editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dslint.engine.cache import RememberedResults
from dslint.engine.planning import Planned
from dslint.engine.run import Result, Run, list_files, results_of

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.parse.data import DataDoc
    from dslint.python.search import Question
    from dslint.settings import Settings


class Interrupted(Exception):  # noqa: N818 - no error: somebody has asked for something else meanwhile
    """A look was given up, since its texts have changed again."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a folder has shown. ``configs`` are its DeepSpeed configs, ``texts`` what was given to it.

    ``is_whole``: all files of the folder were judged, else the given ones with what stands around them.
    """

    result: Result
    planned: Planned | None
    configs: Sequence[DataDoc]
    texts: Mapping[str, str]
    is_whole: bool


class _Stoppable(RememberedResults):
    """Results that are asked before each script, and end the look when nobody waits for it any more."""

    stop: Callable[[], bool] = staticmethod(lambda: False)

    def get(self, key: str, path: str, answer: Callable[[Question], str]) -> list[Finding] | None:
        """As without a stop.

        Raises:
            Interrupted: nobody waits any more.
        """
        self._check()
        return super().get(key, path, answer)

    def put(self, key: str, path: str, findings: Sequence[Finding], asked: Sequence[tuple[Question, str]] = ()) -> None:
        """Keep the findings of a script that was just judged.

        Raises:
            Interrupted: nobody waits any more.
        """
        super().put(key, path, findings, asked)
        self._check()

    def _check(self) -> None:
        if self.stop():
            raise Interrupted


@dataclass
class Session:
    """The folder ``root`` as the user names it, with its settings; one thread asks."""

    root: str
    settings: Settings
    _results: _Stoppable = field(init=False)

    def __post_init__(self) -> None:
        # Workers would be forked beside the threads of an editor's server.
        self.settings = replace(self.settings, jobs=1, force_exclude=True)
        self._results = _Stoppable(results_of(self.settings))

    def glance(self, paths: Sequence[str], texts: Mapping[str, str], stop: Callable[[], bool]) -> Look:
        """Judge some files, with what stands around them.

        Raises:
            Interrupted: ``stop`` has said so.
        """
        return self._looked(paths, texts, stop, is_whole=False)

    def look(self, texts: Mapping[str, str], stop: Callable[[], bool]) -> Look:
        """Judge all files of the folder, and those whose text is given.

        Raises:
            Interrupted: ``stop`` has said so.
        """
        return self._looked([self.root, *texts], texts, stop, is_whole=True)

    def _looked(self, paths: Sequence[str], texts: Mapping[str, str], stop: Callable[[], bool], is_whole: bool) -> Look:
        self._results.stop = stop
        run = Run(self.settings, texts, results=self._results)
        result = run.check(paths)
        self._results.asks_cache = False
        inputs, joined = run.inputs, run.joined
        planned = None
        if joined is not None:
            unread = inputs.findings
            planned = Planned(joined.plans, [], unread, inputs.files, run.surroundings, joined.workspace)
        return Look(result, planned, [*inputs.configs, *run.embedded], texts, is_whole)

    def is_smaller_than(self, most: int) -> bool:
        """The folder has fewer files that may concern dslint."""
        return len(list_files([self.root], self.settings)) < most

    def save(self) -> None:
        """Write the results for later runs."""
        self._results.save()
