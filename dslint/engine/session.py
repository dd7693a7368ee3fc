"""One folder looked at again and again while its texts change: for editors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dslint.core.stopping import Interrupted, stoppable
from dslint.engine.cache import RememberedResults
from dslint.engine.gitignore import forget_git
from dslint.engine.keptrun import KeptRun
from dslint.engine.memory import Memory
from dslint.engine.planning import Planned
from dslint.engine.run import Result, Run, list_files, results_of

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.engine.cache import ResultCache
    from dslint.parse.data import DataDoc
    from dslint.python.search import Question
    from dslint.settings import Settings


# Results of one script: texts are changed and changed back.
_KEPT = 3


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a folder has shown. ``configs`` are its DeepSpeed configs, ``texts`` what was given to it.

    ``is_whole``: all files of the folder were judged, else the given ones with what stands around them. ``is_settled``:
    what only imports the changed files was judged again, too. ``is_judged``: the changed files were, else what was
    found before in those that take long stands at its place in their new texts.
    """

    result: Result
    planned: Planned | None
    configs: Sequence[DataDoc]
    texts: Mapping[str, str]
    is_whole: bool
    is_settled: bool = True
    is_judged: bool = True


class _Stoppable(RememberedResults):
    """Results that are asked before each script, and end the look when nobody waits for it any more.

    ``asked`` takes the files that the findings of a script rest on, by the path of the script.
    """

    stop: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, cache: ResultCache | None) -> None:
        super().__init__(cache)
        self.asked: dict[str, frozenset[str]] = {}
        self._keys: dict[str, list[str]] = {}

    def get(self, key: str, path: str, answer: Callable[[Question], str]) -> list[Finding] | None:
        """As without a stop.

        Raises:
            Interrupted: nobody waits any more.
        """
        self.check()
        found = super().get(key, path, answer)
        if found is not None:
            self._note(key, path, self.rests_on(key))
        return found

    def put(self, key: str, path: str, findings: Sequence[Finding], asked: Sequence[tuple[Question, str]] = ()) -> None:
        """Keep the findings of a script that was just judged.

        Raises:
            Interrupted: nobody waits any more.
        """
        super().put(key, path, findings, asked)
        self._note(key, path, asked)
        self.check()

    def _note(self, key: str, path: str, asked: Sequence[tuple[Question, str]]) -> None:
        keys = self._keys.setdefault(path, [])
        if key in keys:
            keys.remove(key)
        keys.append(key)
        for old in keys[:-_KEPT]:
            self.forget(old)
        del keys[:-_KEPT]
        self.asked[path] = frozenset(question[1] for question, _ in asked if question[0] == "file")

    def check(self) -> None:
        """Go on, or not.

        Raises:
            Interrupted: nobody waits any more.
        """
        if self.stop():
            raise Interrupted


@dataclass
class Session:
    """The folder ``root`` as the user names it, with its settings; one thread asks."""

    root: str
    settings: Settings
    _results: _Stoppable = field(init=False)
    _memory: Memory | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # Workers would be forked beside the threads of an editor's server.
        self.settings = replace(self.settings, jobs=1, force_exclude=True)
        self._results = _Stoppable(results_of(self.settings))

    def glance(self, paths: Sequence[str], texts: Mapping[str, str], stop: Callable[[], bool]) -> Look:
        """Judge some files, with what stands around them.

        Raises:
            Interrupted: ``stop`` has said so.
        """
        self._results.stop = stop
        run = Run(self.settings, texts, results=self._results)
        with stoppable(self._results.check):
            result = run.check(paths)
        return _look_of(run, result, texts, is_whole=False)

    def look(
        self,
        texts: Mapping[str, str],
        stop: Callable[[], bool],
        is_quick: bool = False,
        wanted: Collection[str] | None = None,
        is_first: bool = False,
    ) -> Look:
        """Judge all files of the folder, and those whose text is given, as far as a change concerns them.

        ``is_quick``: what a change concerns only by imports may wait for the next look (``Look.is_settled``). Else
        ``wanted`` are the scripts that do not wait, if not all. ``is_first``: so may what takes long
        (``Look.is_judged``).

        Raises:
            Interrupted: ``stop`` has said so.
        """
        self._results.stop = stop
        changed = self._memory.takes(texts) if self._memory is not None else None
        if self._memory is None or changed is None:
            self._memory = Memory([self.root, *texts], self.settings, texts)
            self._memory.asked = self._results.asked
        else:
            self._memory.renew(texts, changed)
        run = KeptRun(self.settings, self._memory, self._results, is_quick, wanted, is_first)
        with stoppable(self._results.check):
            result = run.check([self.root])
        self._results.asks_cache = False
        look = _look_of(run, result, self._memory.texts, is_whole=True)
        return replace(look, is_settled=run.is_settled, is_judged=run.is_judged)

    def changed_on_disk(self, path: str) -> None:
        """The disk holds another text of a file, which was there before."""
        if self._memory is not None:
            self._memory.changed_on_disk(path)

    def forget(self) -> None:
        """Files have come or gone."""
        self._memory = None
        forget_git()

    def is_smaller_than(self, most: int) -> bool:
        """The folder has fewer files that may concern dslint."""
        return len(list_files([self.root], self.settings)) < most

    def read_results(self) -> None:
        """Take the results that another process has written since this session began."""
        self._results.use(results_of(self.settings))

    def save(self) -> None:
        """Write the results for later runs; from now on those of this process are enough."""
        self._results.save(is_last=True)


def _look_of(run: Run, result: Result, texts: Mapping[str, str], is_whole: bool) -> Look:
    inputs, joined = run.inputs, run.joined
    planned = None
    if joined is not None:
        unread = inputs.findings
        planned = Planned(joined.plans, [], unread, inputs.files, run.surroundings, joined.workspace)
    return Look(result, planned, [*inputs.configs, *run.embedded], texts, is_whole)
