"""files -> documents -> plans -> rules -> findings -> suppressions -> sorted result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dslint.core.fact import known
from dslint.core.finding import Finding
from dslint.core.garbage import seldom_collected
from dslint.core.looked import Looked
from dslint.core.profile import stage_of
from dslint.core.progress import tell
from dslint.core.source import SourceFile
from dslint.core.suppressed import Suppressed
from dslint.engine.asides import lowered
from dslint.engine.discovery import discover, is_whole
from dslint.engine.inputs import Inputs, add_config, embedded_configs, sort_files
from dslint.engine.launchrules import LaunchJudge, run_rule
from dslint.engine.launchstage import LaunchReader, LaunchStage, cores
from dslint.engine.planning import excludes_of, files_around, naming_scripts, plans_of, workspace_of
from dslint.engine.planrules import PlanJudge
from dslint.engine.surroundings import Surroundings, vocabulary_of
from dslint.engine.told import most_informed, unique, with_run, writable
from dslint.engine.versionstage import version_findings
from dslint.model.context import Context
from dslint.python.vocabulary import Vocabulary
from dslint.rules.markers import rules_by_marker
from dslint.rules.own import SYNTAX_ERROR
from dslint.rules.registry import all_rules, load_rule

if TYPE_CHECKING:
    from dslint.core.profile import Profile
    from dslint.engine.cache import ResultCache, Results
    from dslint.engine.judge import Job
    from dslint.engine.launchstage import LaunchRead
    from dslint.model.plan.runplan import RunPlan
    from dslint.model.workspace import Workspace
    from dslint.parse.data import DataDoc
    from dslint.rules.info import RuleInfo
    from dslint.settings import Settings


@dataclass(slots=True)
class Result:
    """What a run found.

    ``problems`` are one-line errors (a missing path); with any of them the exit code is 2.
    """

    findings: list[Finding] = field(default_factory=list)
    suppressed: list[Suppressed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    files: int = 0
    # Entries of the baseline that no finding needs any more.
    gone: list[str] = field(default_factory=list)
    paths: frozenset[str] = frozenset()


def check_paths(
    paths: Sequence[str],
    settings: Settings,
    overrides: Mapping[str, str] | None = None,
    ignore_noqa: bool = False,
    profile: Profile | None = None,
    results: Results | None = None,
) -> Result:
    """Judge files and folders. ``overrides`` (path -> text) replace what stands on disk.

    ``profile`` takes the time of each stage and rule; such a run does not look at earlier results. ``results`` are
    those of earlier runs, if not the settings say where they are; who gives them saves them.
    """
    return Run(settings, overrides or {}, ignore_noqa, profile, results).check(paths)


def check_text(path: str, text: str, kind: str = "script", settings: Settings | None = None) -> list[Finding]:
    """The findings of the script rules in one text, without its project: for the flake8 plugin and editors."""
    if settings is not None:
        settings.use_project_rules()
    enabled = frozenset(r.code for r in all_rules() if settings is None or settings.enabled(r.code))
    raw = text.encode("utf-8", "surrogatepass")
    own = vocabulary_of(settings) if settings is not None else Vocabulary()
    codes = rules_by_marker(raw, enabled, own)
    from dslint.engine.judge import Job, check_script

    found = check_script(Job(path, raw, kind, codes, Context(vocabulary=own))) if codes else []
    return sorted((f for f in found if settings is None or settings.shows(f)), key=_order)


def list_files(paths: Sequence[str], settings: Settings, overrides: Mapping[str, str] | None = None) -> list[str]:
    """The files that a run would look at, for ``--show-files``."""
    return [c.path for c in discover(paths, excludes_of(settings), overrides or {}).candidates]


def results_of(settings: Settings) -> ResultCache | None:
    """The results of earlier runs, unless the settings want none."""
    if not settings.cache:
        return None
    from dslint.engine.cache import ResultCache, default_directory, digest, program_fingerprint

    directory = settings.cache_dir or default_directory()
    return ResultCache(directory, str(settings.root), digest(settings.fingerprint(), program_fingerprint()))


def _order(finding: Finding) -> tuple[Any, ...]:
    return finding.sort_key


@dataclass(frozen=True, slots=True)
class Joined:
    """What the files of a run are together: plans, their judge, and the context of each file.

    ``given`` are the files that are judged.
    """

    plans: list[RunPlan]
    judge: PlanJudge
    contexts: Mapping[str, Context]
    workspace: Workspace
    given: set[str]


class Run:
    """One run over some files. Never raises for what a file holds."""

    def __init__(
        self,
        settings: Settings,
        overrides: Mapping[str, str],
        ignore_noqa: bool = False,
        profile: Profile | None = None,
        results: Results | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.profile = profile
        self.results = results
        self.settings = settings
        self.ignore_noqa = ignore_noqa
        self.overrides = overrides
        # Nothing of the project is left out: what no file needs, nobody needs.
        self.is_whole = False
        # What the user named.
        self.asked: Sequence[str] = ()
        settings.use_project_rules()
        self.enabled = frozenset(r.code for r in all_rules() if settings.enabled(r.code))
        self.surroundings = surroundings or Surroundings(settings, overrides)
        # What was read and joined, for those who show more of a run than its findings.
        self.inputs = Inputs()
        self.joined: Joined | None = None
        self.embedded: Sequence[DataDoc] = ()
        self.looked = Looked()

    def check(self, paths: Sequence[str]) -> Result:
        """Judge files and folders."""
        self.asked = paths
        with seldom_collected():
            return self._check(paths)

    def _check(self, paths: Sequence[str]) -> Result:
        self.is_whole = is_whole(paths, self.settings.root if self.settings.source else None)
        with stage_of(self.profile, "find files"):
            found = discover(paths, excludes_of(self.settings), self.overrides)
        with stage_of(self.profile, "read files"):
            inputs, read_data = sort_files(found, self.overrides)
        given = {c.path for c in found.candidates}
        with self._launch(inputs) as launch:
            # Here, since workers are at the launch files meanwhile.
            with stage_of(self.profile, "data files"):
                read_data()
            judge = PlanJudge(self.rules_of("plan"), self.surroundings, self.profile)
            if self.profile is not None:
                # Else they would be read while the plans are made, which have a time of their own.
                list(launch)
            elif launch.is_parallel:
                self._load_config_rules(inputs)
            with stage_of(self.profile, "plans and contexts"):
                around = files_around(inputs, given, self.overrides)
                naming = naming_scripts(around) if inputs.configs else []
                workspace = workspace_of(self.overrides)
                # A profile keeps the time of plans and of their rules apart.
                built = judge.built if self.profile is None else lambda _: None
                tell("launch commands")
                plans = plans_of(around, naming, workspace, self.surroundings, built=built)
                self._add_used_configs(paths, inputs, plans, given)
                contexts = self.contexts(plans, naming, around.accelerate, inputs, workspace)
            reads = list(launch)
        self.inputs, self.joined = inputs, Joined(plans, judge, contexts, workspace, given)
        return self.judged(inputs, reads, self.joined, found.missing)

    def judged(self, inputs: Inputs, reads: Sequence[LaunchRead], joined: Joined, problems: list[str]) -> Result:
        """What the rules say, without what the user suppresses, in the order of files and lines."""
        contexts, plans, given = joined.contexts, joined.plans, joined.given
        of_accelerate = self._of_accelerate(inputs, plans, joined.workspace)
        with self._scripts(inputs, contexts) as of_scripts:
            # Here, since the workers are at the scripts meanwhile.
            self.embedded = embedded = self._embedded(inputs, reads)
            findings = [
                *inputs.findings,
                *self._document_rules("config", inputs.configs, contexts),
                *self._document_rules("config", embedded, contexts),
                *self._document_rules("accelerate", inputs.accelerate, of_accelerate),
                *(finding for read in reads for finding in read.findings),
                *joined.judge.findings(plans, given),
                *version_findings(self.rules_of("versions"), inputs, self.surroundings, given, self.profile),
                *of_scripts(),
            ]
        rewritten = {read.path for read in reads if read.is_rewritten}
        findings = [writable(f, rewritten) for f in findings if f.code in self.enabled]
        from dslint.suppress.run import suppress

        with stage_of(self.profile, "suppressions"):
            kept, suppressed = suppress(
                most_informed(unique(findings)),
                inputs,
                self.settings,
                self.overrides,
                ignore_noqa=self.ignore_noqa,
                is_whole=self.is_whole,
                looked=self.looked,
            )
            kept, known, gone = self._without_baseline(kept, given, problems)
            suppressed += known
        kept = sorted((self.settings.adjusted(f) for f in kept if self.settings.shows(f)), key=_order)
        if self.settings.lower_asides:
            kept = list(lowered(kept, self.asked, given, by_hook=self.settings.force_exclude))
        suppressed = [replace(s, finding=self.settings.adjusted(s.finding)) for s in suppressed]
        return Result(kept, suppressed, problems, inputs.files, gone, frozenset(given))

    def _without_baseline(
        self, found: list[Finding], given: set[str], problems: list[str]
    ) -> tuple[list[Finding], list[Suppressed], list[str]]:
        """What the baseline does not know; one that cannot be read is a problem, and knows nothing."""
        if self.settings.baseline is None or self.ignore_noqa:
            return found, [], []
        from dslint.suppress.baseline import BaselineError
        from dslint.suppress.run import without_baseline

        try:
            return without_baseline(found, self.settings, self.overrides, given)
        except BaselineError as error:
            problems.append(str(error))
            return found, [], []

    def _embedded(self, inputs: Inputs, reads: Sequence[LaunchRead]) -> Sequence[DataDoc]:
        return embedded_configs(inputs, reads)

    def _launch(self, inputs: Inputs) -> LaunchStage:
        """The launch stage begins its work."""
        files = list(inputs.launch_files.values())
        reader = LaunchReader(self.overrides, LaunchJudge(self.rules_of("launch"), self.surroundings))
        stage = LaunchStage(files, reader, self.settings.jobs or cores(), self.profile)
        inputs.launch = stage
        return stage

    def _load_config_rules(self, inputs: Inputs) -> None:
        """Before the plans are there, which say who reads a config."""
        for rule in self.rules_of("config"):
            if any(rule.may_concern(doc) for doc in inputs.configs):
                load_rule(rule.code)

    def _run(self, code: str, path: str, run: Callable[[], Iterable[Finding]]) -> list[Finding]:
        return run_rule(code, path, run, self.profile)

    def rules_of(self, kind: str) -> list[RuleInfo]:
        """The rules of a kind that are on."""
        return [rule for rule in all_rules() if rule.kind == kind and rule.code in self.enabled]

    def _document_rules(self, kind: str, docs: Sequence[Any], contexts: Mapping[str, Context]) -> Iterator[Finding]:
        if not docs:
            return
        rules = self.rules_of(kind)
        for doc in docs:
            path = doc.source.path
            context = self.surroundings.context(path, contexts.get(doc.name if kind == "config" else path))
            shown = doc.consumer if kind == "config" else ""
            if shown not in ("", "unknown") and self.surroundings.stated_consumer(path).is_absent:
                context = replace(context, consumer=known(shown))
            # A YAML file that cannot be read to its end says too little about what is missing in it.
            if kind == "accelerate" and doc.problems:
                continue
            yield from self._on_document(kind, doc, context, rules)

    def _on_document(self, kind: str, doc: Any, context: Context, rules: Sequence[RuleInfo]) -> Iterable[Finding]:
        for rule in rules:
            # Before the rule is loaded: most rules have nothing to say about most configs.
            if kind == "config" and not (rule.may_concern(doc) and _is_for_reader(rule, doc, context)):
                continue
            check = load_rule(rule.code).module.check
            for finding in self._run(rule.code, doc.source.path, partial(check, doc, context)):
                yield with_run(kind, finding, doc, context)

    def _add_used_configs(self, paths: Sequence[str], inputs: Inputs, plans: list[RunPlan], given: set[str]) -> None:
        """A config that a launch command of the given files uses is judged even where git ignores ``*.json``."""
        folders = [os.path.abspath(p) for p in paths if os.path.isdir(p)]
        for plan in plans:
            doc = plan.config
            if doc is None or doc.is_embedded or doc.path in given or plan.command.location.path not in given:
                continue
            if any(os.path.abspath(doc.path).startswith(folder + os.sep) for folder in folders):
                # Excludes are the user's word and hold.
                allowed = discover([doc.path], replace(excludes_of(self.settings), force_exclude=True)).candidates
                if allowed:
                    given.add(doc.path)
                    add_config(inputs, doc)

    def contexts(
        self,
        plans: list[RunPlan],
        naming: list[str],
        accelerate: list[DataDoc],
        inputs: Inputs,
        workspace: Workspace,
    ) -> Mapping[str, Context]:
        """The context of each script and config that the plans or other files name."""
        configs = [doc.source.path for doc in inputs.configs]
        if not (plans or (configs and (naming or accelerate))):
            return {}
        from dslint.model.plan.contexts import contexts_for
        from dslint.model.plan.users import config_users

        readers = config_users(naming, accelerate, configs, workspace)
        return contexts_for(plans, self.surroundings.stated_at, readers, inputs.configs)

    def _of_accelerate(self, inputs: Inputs, plans: list[RunPlan], workspace: Workspace) -> Mapping[str, Context]:
        if not inputs.accelerate:
            return {}
        from dslint.model.accelerate.contexts import accelerate_contexts

        return accelerate_contexts(inputs.accelerate, plans, self.surroundings.stated_at, workspace)

    @contextmanager
    def _scripts(self, inputs: Inputs, contexts: Mapping[str, Context]) -> Iterator[Callable[[], list[Finding]]]:
        """The script stage begins its work; what is yielded waits for the findings."""
        if not (inputs.scripts or inputs.notebooks):
            yield list
            return
        from dslint.engine.projectfiles import ProjectFiles
        from dslint.engine.scripts import ScriptStage

        results = self.results or (results_of(self.settings) if self.profile is None else None)
        jobs = self._jobs(inputs, contexts, results)
        files = ProjectFiles(self.overrides)
        workers, rules = self.settings.jobs or cores(), self.settings.rule_files
        with ScriptStage(jobs, results, workers, files, self.profile, rules, self.enabled) as stage:
            yield stage.findings
        if results and self.results is None:
            results.save()

    def _jobs(self, inputs: Inputs, contexts: Mapping[str, Context], results: Results | None) -> list[Job]:
        """The scripts that some rule could concern, as far as an earlier run knows it, and all others."""
        from dslint.engine.cache import digest
        from dslint.engine.judge import Job

        jobs = []
        for kind, group in (("script", inputs.scripts), ("notebook", inputs.notebooks)):
            for path, raw in group.items():
                content = digest(raw) if results else ""
                codes = results.marked(content) if results else None
                is_named = path in inputs.named and SYNTAX_ERROR.code in self.enabled
                if codes or codes is None or is_named:
                    context = self.surroundings.script_context(path, contexts.get(path))
                    jobs.append(Job(path, raw, kind, codes or (), context, content, codes is not None, is_named))
        return jobs


def _is_for_reader(rule: RuleInfo, doc: Any, context: Context) -> bool:
    """The rule speaks about the program that reads this config."""
    from dslint.model.deepspeed.view import view_of

    return not rule.consumers or view_of(doc, context).consumer in rule.consumers


def source_of(path: str, overrides: Mapping[str, str]) -> SourceFile | None:
    """The text of a file as the run saw it, ``None`` when it cannot be read (any more)."""
    from dslint.parse.reading import Unreadable, read_text

    text = overrides[path] if path in overrides else read_text(path)
    return None if isinstance(text, Unreadable) else SourceFile(path, text)
