"""A run over a folder of which most was read and judged before: only what a change concerns is done again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dslint.core.stopping import check_stop
from dslint.engine.cache import digest
from dslint.engine.inputs import embedded_configs
from dslint.engine.judge import Job
from dslint.engine.launchrules import LaunchJudge
from dslint.engine.launchstage import LaunchReader
from dslint.engine.memory import KeptScript, Memory
from dslint.engine.planning import files_around, naming_scripts, plans_of
from dslint.engine.planrules import PlanJudge
from dslint.engine.run import Joined, Result, Run
from dslint.engine.toldonce import own_first
from dslint.model.firstlook import may_hold_config
from dslint.rules.markers import rules_by_marker
from dslint.rules.own import SYNTAX_ERROR, UNUSED_SUPPRESSION

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.engine.cache import Results
    from dslint.engine.inputs import Inputs
    from dslint.engine.launchstage import LaunchRead
    from dslint.model.context import Context
    from dslint.model.plan.runplan import RunPlan
    from dslint.parse.data import DataDoc
    from dslint.rules.info import RuleInfo
    from dslint.settings import Settings


class KeptRun(Run):
    """Scripts that only import what has changed keep their findings for now, if they are not among the ``wanted``.

    ``is_quick``: so do plans where only scripts have changed, and launch files where only releases have. ``is_first``:
    changed scripts whose judgement takes long keep their findings for now, too, moved with their text. ``is_settled``
    says afterwards that nothing was left out, ``is_judged`` that no changed script was.
    """

    def __init__(
        self,
        settings: Settings,
        memory: Memory,
        results: Results,
        is_quick: bool,
        wanted: Collection[str] | None = None,
        is_first: bool = False,
    ) -> None:
        super().__init__(settings, memory.texts, results=results, surroundings=memory.surroundings)
        self._memory = memory
        self.looked = memory.looked
        self._is_quick = is_quick
        self._is_first = is_first
        self._wanted: Collection[str] | None = () if is_quick else wanted
        self._deferred: set[str] = set()
        self.is_settled = True

    @property
    def is_judged(self) -> bool:
        """Every script that has changed was judged."""
        return not self._deferred

    def _check(self, paths: Sequence[str]) -> Result:
        memory = self._memory
        inputs = memory.inputs()
        memory.move(inputs.scripts)
        check_stop()
        reader = LaunchReader(self.overrides, self._launch_judge())
        inputs.launch = reads = memory.reads(inputs.launch_files.values(), reader, self._is_quick)
        self.is_settled = not memory.old_reads
        check_stop()
        joined = self._joined(paths, inputs)
        self.inputs, self.joined, memory.joined = inputs, joined, joined
        check_stop()
        result = self._with_known_unused(self.judged(inputs, reads, joined, memory.found.missing))
        if self.is_settled:
            memory.fresh.clear()
        # Also while somebody types without a pause, when no look comes to its end.
        memory.forget_unused(inputs, joined.plans, (*inputs.configs, *self.embedded, *inputs.accelerate))
        return result

    def _with_known_unused(self, result: Result) -> Result:
        """Without new suppressions that nothing needs in a script of which not all is said yet."""
        unused = [finding for finding in result.findings if finding.code == UNUSED_SUPPRESSION.code]
        known = self._memory.unused
        if not self._deferred:
            self._memory.unused = {(finding.location.path, finding.message) for finding in unused}
            return result
        new = [f for f in unused if f.location.path in self._deferred and (f.location.path, f.message) not in known]
        return replace(result, findings=[finding for finding in result.findings if finding not in new])

    def _joined(self, paths: Sequence[str], inputs: Inputs) -> Joined:
        memory, given = self._memory, self._memory.given
        before = memory.joined
        if before is not None and self._is_quick and self._is_code(inputs):
            # The plans follow when somebody has time for them.
            self.is_settled = False
            self._add_used_configs(paths, inputs, before.plans, given)
            return replace(before, given=given)
        judge = PlanJudge(self.rules_of("plan"), self.surroundings, early=memory.judged)
        around = files_around(inputs, given, self.overrides)
        naming = naming_scripts(around, memory.looked) if inputs.configs else []
        plans = plans_of(around, naming, memory.workspace, self.surroundings, built=self._built(judge))
        self._add_used_configs(paths, inputs, plans, given)
        contexts = self.contexts(plans, naming, around.accelerate, inputs, memory.workspace)
        return Joined(plans, judge, contexts, memory.workspace, given)

    def _built(self, judge: PlanJudge) -> Callable[[RunPlan], None]:
        def built(plan: RunPlan) -> None:
            check_stop()
            judge.built(plan)

        return built

    def _is_code(self, inputs: Inputs) -> bool:
        """Only scripts have changed, of which none starts others or holds a config."""
        embedded = self._memory.embedded
        return all(
            path in inputs.scripts
            and path not in inputs.launch_files
            and not embedded.get(path, (b"", []))[1]
            and not may_hold_config(inputs.scripts[path])
            for path in self._memory.fresh
        )

    def _launch_judge(self) -> LaunchJudge:
        return LaunchJudge(self.rules_of("launch"), self.surroundings)

    def _embedded(self, inputs: Inputs, reads: Sequence[LaunchRead]) -> Sequence[DataDoc]:
        return embedded_configs(inputs, reads, self._memory.embedded)

    def _on_document(self, kind: str, doc: Any, context: Context, rules: Sequence[RuleInfo]) -> Iterable[Finding]:
        known = self._memory.documents.get((kind, id(doc)))
        if known is None or known[0] is not doc or known[1] != context:
            check_stop()
            found = list(super()._on_document(kind, doc, context, rules))
            known = self._memory.documents[(kind, id(doc))] = doc, context, found
        return known[2]

    @contextmanager
    def _scripts(self, inputs: Inputs, contexts: Mapping[str, Context]) -> Iterator[Callable[[], list[Finding]]]:
        from dslint.engine.scripts import ScriptStage

        memory = self._memory
        kept: list[tuple[str, Finding]] = []
        todo: dict[str, Job] = {}
        for job in self._all_jobs(inputs, contexts):
            known = memory.scripts.get(job.path)
            is_same = known is not None and known.holds_for(job)
            if known is not None and is_same and job.path not in memory.stale:
                kept += [(job.path, finding) for finding in known.findings]
            elif known is not None and not self._is_wanted(job.path):
                self.is_settled = False
                kept += [(job.path, finding) for finding in known.findings]
            elif (found := self._at_once(job)) is not None:
                self.is_settled = False
                self._deferred.add(job.path)
                kept += [(job.path, finding) for finding in found]
            else:
                todo[job.path] = job
        jobs = [self._marked(job) for job in todo.values()]
        files, rules = memory.files, self.settings.rule_files
        with ScriptStage(jobs, self.results, 1, files, None, rules, self.enabled, memory.judge) as stage:

            def findings() -> list[Finding]:
                found = stage.by_path()
                by_path: dict[str, list[Finding]] = {}
                for path, finding in found:
                    by_path.setdefault(path, []).append(finding)
                for path, job in todo.items():
                    row = KeptScript(job.raw, job.context, job.is_named, by_path.get(path, []))
                    memory.judged_now(path, row)
                return own_first([*kept, *found])

            yield findings

    def _at_once(self, job: Job) -> list[Finding] | None:
        """What can be said of a script for now, where its judgement has to wait."""
        memory = self._memory
        if not self._is_first or job.path not in memory.scripts or memory.judge.is_quick(job.path):
            return None
        if (said := memory.said(job)) is not None:
            return said
        content = digest(job.raw)
        codes = rules_by_marker(job.raw, self.enabled, job.context.vocabulary)
        if self.results is not None:
            self.results.mark(content, codes)
        if not codes:
            return None
        return memory.shown_at_once(replace(job, codes=codes, content=content))

    def _is_wanted(self, path: str) -> bool:
        return self._wanted is None or path in self._memory.fresh or path in self._wanted

    def _all_jobs(self, inputs: Inputs, contexts: Mapping[str, Context]) -> Iterator[Job]:
        says_syntax = SYNTAX_ERROR.code in self.enabled
        for kind, group in (("script", inputs.scripts), ("notebook", inputs.notebooks)):
            for path, raw in group.items():
                context = self.surroundings.script_context(path, contexts.get(path))
                yield Job(path, raw, kind, (), context, "", False, says_syntax and path in inputs.named)

    def _marked(self, job: Job) -> Job:
        content = digest(job.raw)
        codes = self.results.marked(content) if self.results is not None else None
        return replace(job, codes=codes or (), content=content, is_marked=codes is not None)
