"""A command that is about to be started -> its plans and what the rules say of it and of the files that it uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dslint.core.garbage import seldom_collected
from dslint.engine.inputs import Inputs, LaunchFile, add_config, not_followed, syntax_findings
from dslint.engine.installed import INSTALLED, installed_versions
from dslint.engine.launchrules import LaunchJudge
from dslint.engine.launchstage import LaunchRead
from dslint.engine.planning import Planned, plans_of
from dslint.engine.planrules import PlanJudge
from dslint.engine.run import Joined, Result, Run
from dslint.engine.surroundings import Surroundings
from dslint.model.firstlook import may_train
from dslint.model.launch.launchers.wrappers import is_isolated
from dslint.model.launch.started import COMMAND, command_text, environment_docs, read_started, started_words
from dslint.model.workspace import Workspace
from dslint.parse.reading import Unreadable, read_bytes
from dslint.rules.own import UNUSED_SUPPRESSION

if TYPE_CHECKING:
    from dslint.model.context import VersionFact
    from dslint.model.launch.command import LaunchCommand
    from dslint.model.launch.document import LaunchDoc
    from dslint.model.plan.runplan import RunPlan
    from dslint.settings import Settings

# Commands of a script that change which Python runs, in ways that only running them shows.
_CHOOSES_PYTHON = re.compile(
    r"^[^#\n]*?(?:\b(?:conda|mamba|micromamba|spack)[ \t]+(?:activate|load)|\bmodule[ \t]+(?:load|add|swap)"
    r"|\bml[ \t]+\w|(?:source|\.)[ \t]+\S*activate)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Checked:
    """What will run, what is wrong with it, and the texts that stand in no file, by the name of their place."""

    result: Result
    planned: Planned
    texts: Mapping[str, str]


class Preflight:
    """One command in the working directory, with the environment that it will find.

    ``stated``: libraries whose version the user states. ``ignore_noqa``: in spite of comments that suppress findings.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        settings: Settings,
        stated: Sequence[str] = (),
        ignore_noqa: bool = False,
    ) -> None:
        self._settings = settings
        self._ignore_noqa = ignore_noqa
        argv = started_words(argv)
        self._overrides = {COMMAND: command_text(argv)}
        self._environ = environ
        with seldom_collected():
            self._docs = read_started(argv, environ, Workspace(Path(), self._overrides, is_start=True))
            self._installed = self._versions(stated)

    @property
    def is_launch(self) -> bool:
        """The command starts something that can be judged."""
        return any(doc.commands for doc in self._docs)

    def check(self, *, scripts: bool) -> Checked:
        """Judge the command. Without ``scripts`` nothing is interpreted: it takes a fraction of the time."""
        with seldom_collected():
            return self._check(scripts)

    def _check(self, scripts: bool) -> Checked:
        workspace = Workspace(Path(), self._overrides, is_start=True)
        workspace.interprets = scripts
        surroundings = Surroundings(self._settings, self._overrides, self._installed)
        run = Run(self._settings, self._overrides, self._ignore_noqa, surroundings=surroundings)
        reads = self._reads(LaunchJudge(run.rules_of("launch"), surroundings))
        inputs = Inputs(launch_files={f.path: f for f in map(_launch_file, self._docs)}, launch=reads)
        judge = PlanJudge(run.rules_of("plan"), surroundings)
        plans = plans_of(inputs, [], workspace, surroundings, is_thorough=True, built=judge.built)
        given = {read.path for read in reads} | _files(plans, inputs, scripts)
        contexts = run.contexts(plans, [], inputs.accelerate, inputs, workspace)
        inputs.files = len(given - {COMMAND})
        texts = self._texts()
        joined = Joined(plans, judge, contexts, workspace, given.union(texts))
        result = run.judged(inputs, reads, joined, [])
        # Not all rules are asked about all files: what a comment suppresses may be none of today's business.
        result.findings = [finding for finding in result.findings if finding.code != UNUSED_SUPPRESSION.code]
        return Checked(result, Planned(plans, [], inputs.findings, inputs.files, surroundings, workspace), texts)

    def _reads(self, judge: LaunchJudge) -> list[LaunchRead]:
        reads: dict[str, LaunchRead] = {}
        for doc in self._docs:
            read = reads.setdefault(doc.source.path, LaunchRead(doc.source.path, is_document=True))
            read.commands += doc.commands
            read.written += doc.written
            read.is_rewritten |= doc.is_rewritten
            read.findings += judge.findings(doc)
            read.findings += [not_followed(doc.left_out)] if doc.left_out else []
            for written in doc.written:
                read.findings += syntax_findings(written.doc)
        for doc in environment_docs(self._docs):
            own = (finding for finding in judge.findings(doc) if finding.location.path == doc.source.path)
            reads[COMMAND].findings += [replace(finding, fix=None) for finding in own]
        return list(reads.values())

    def _versions(self, stated: Sequence[str]) -> dict[str, VersionFact] | None:
        """What is installed for the programs of the command; ``None`` where another environment may be used."""
        found: dict[str, VersionFact] | None = None
        for doc in self._docs:
            if doc.source.path != COMMAND and _CHOOSES_PYTHON.search(doc.source.text):
                return None
            for command in doc.commands:
                own = None if is_isolated(command.wrappers) else self._installed_for(command)
                if own is None or (found is not None and own != found):
                    return None
                found = own
        return None if found is None else {name: fact for name, fact in found.items() if name not in stated}

    def _installed_for(self, command: LaunchCommand) -> dict[str, VersionFact] | None:
        path = command.env.get("PATH")
        if path is not None and not path.is_known:
            return None
        environ = {**self._environ, **({"PATH": path.get()} if path is not None else {})}
        return installed_versions(command.argv[0].text or "", environ) if command.argv else None

    def _texts(self) -> dict[str, str]:
        """The texts behind places that stand in no file."""
        found = {COMMAND: self._overrides[COMMAND]}
        found |= {f"<${name}>": f"{name}={text}" for name, text in self._environ.items()}
        origin = next((fact.origin for fact in (self._installed or {}).values() if fact.origin is not None), None)
        if origin is not None and origin.counted_in is not None:
            found[INSTALLED] = origin.counted_in.text
        return found


def _launch_file(doc: LaunchDoc) -> LaunchFile:
    return LaunchFile(doc.source.path, "shell", doc.source.text.encode("utf-8", "surrogatepass"))


def _files(plans: Sequence[RunPlan], inputs: Inputs, scripts: bool) -> set[str]:
    """Put the files that the plans use into the inputs; their paths."""
    given: set[str] = set()
    for plan in plans:
        config, accelerate = plan.config, plan.accelerate
        if config is not None and not config.is_embedded and config.path not in given:
            given.add(config.path)
            add_config(inputs, config)
        if accelerate is not None and accelerate.source.path not in given:
            given.add(accelerate.source.path)
            inputs.accelerate.append(accelerate)
            inputs.findings += syntax_findings(accelerate)
        if plan.recipe is not None:
            given.add(plan.recipe.path)
        if plan.script is not None and plan.script not in given:
            given.add(plan.script)
            raw = read_bytes(plan.script) if scripts else Unreadable("")
            if not isinstance(raw, Unreadable):
                kind = inputs.notebooks if plan.script.endswith(".ipynb") else inputs.scripts
                kind[plan.script] = raw
                inputs.named |= {plan.script} if may_train(raw) else set()
    return given
