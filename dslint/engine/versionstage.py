"""The rules about versions: one document for each folder whose files say what is to be installed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.engine.launchrules import run_rule
from dslint.rules.registry import load_rule

if TYPE_CHECKING:
    from dslint.core.profile import Profile
    from dslint.engine.inputs import Inputs
    from dslint.engine.surroundings import Surroundings
    from dslint.model.versions.project import Requirements
    from dslint.rules.info import RuleInfo


def version_findings(
    rules: Sequence[RuleInfo],
    inputs: Inputs,
    surroundings: Surroundings,
    given: Collection[str],
    profile: Profile | None = None,
) -> Iterator[Finding]:
    """What the rules say of the requirement files among the inputs; a run without Python asks only for named ones."""
    if not rules:
        return
    is_python = bool(inputs.scripts or inputs.notebooks)
    asked = [path for path, is_named in inputs.manifests.items() if is_python or is_named]
    for doc in requirements_around(asked, surroundings) if asked else ():
        for rule in rules:
            check = load_rule(rule.code).module.check
            context = surroundings.stated
            first = (*doc.files, *doc.commands)[0].source.path
            for finding in run_rule(rule.code, first, partial(check, doc, context), profile):
                if finding.location.path in given or any(place.path in given for place in finding.related):
                    yield finding


def requirements_around(paths: Iterable[str], surroundings: Surroundings) -> Iterator[Requirements]:
    """The documents of the folders in which these requirement files count."""
    from dslint.model.versions.project import requirements_in
    from dslint.model.versions.resolve import home_of

    for folder in dict.fromkeys(home_of(os.path.abspath(path)) for path in sorted(paths)):
        found = requirements_in(
            folder,
            surroundings.files_in(folder),
            [*surroundings.files_in(folder, "ci"), *surroundings.files_in(folder, "told")],
            surroundings.allowed(os.path.join(folder, "any")),
        )
        if found is not None:
            yield found
