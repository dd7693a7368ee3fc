"""**What.** Two libraries whose releases install together, and of which one cannot be imported: while it is imported it
needs a name that the other lacks. peft 0.21 needs `transformers.EncoderDecoderCache`; the metadata of peft allow
transformers 4.37, which has none.

**Why it hurts.** pip says nothing. The job starts on every node and stops with `ImportError: cannot import name` before
the first step, and the message names a file that nobody of the project has written.

**Fix.** Move the pin of one of them; `dslint versions` names releases that go together.

**When it stays quiet.** No file names both; a release of one of the two is not known (a commit, a copy, a range without
a newest release for the Python); the import is tried, or a test of the release or of an installed package that cannot
be decided comes before it; the names of a release are not known. For two pins it is an error; where a fresh install
chooses one of them, a warning.

**Evidence.** The imports of the released sources (`schemas/surface`). 31 pairs of peft and transformers were installed
with `pip install --no-deps` and imported (`tests/fixtures/pairs.toml`): of the 3 that fail all are found, of the 28
others none is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.versions.allowed import STATED, Bound
from dslint.model.versions.importing import Failure, failures
from dslint.model.versions.known import release_of
from dslint.model.versions.project import Requirements
from dslint.model.versions.requirements import FOLLOWED
from dslint.model.versions.solve import choose
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL531",
    name="installs-but-fails-at-import",
    kind="versions",
    severity=Severity.ERROR,
    summary="Releases that install together, of which one fails when it is imported",
    references=("https://arxiv.org/abs/2512.20345",),
    depends_on_run=True,
    no_experiment="an import fails before any rank meets another; the pairs that were imported are in the tests",
)

_TRAIN = {"train.py": "import peft\n"}

EXAMPLES = (
    bad("two pins", {
        "requirements.txt": "transformers==4.37.2\npeft==0.21.2\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    bad("a fresh install takes the newest peft", {
        "requirements.txt": "transformers==4.37.2\npeft\n", **_TRAIN,
    }, "requirements.txt:1 warning"),
    good("releases of one time", {"requirements.txt": "transformers==4.37.2\npeft==0.10.0\n", **_TRAIN}),
    good("nothing is pinned", {"requirements.txt": "transformers\npeft\n", **_TRAIN}),
    good("two files for two environments", {
        "requirements.txt": "peft==0.21.2\n", "environment.yml": "dependencies:\n  - transformers=4.37.2\n", **_TRAIN,
    }),
    good("the pin of one is in another file", {
        "requirements.txt": "peft==0.21.2\n",
        "environment.yml": "dependencies:\n  - pip:\n    - transformers==4.37.2\n    - peft\n", **_TRAIN,
    }),
    good("a copy of transformers", {"requirements.txt": "-e ./transformers\npeft==0.21.2\n", **_TRAIN}),
)  # fmt: skip


def check(doc: Requirements, context: Context) -> Iterator[Finding]:
    """What is pinned, and beside it what a fresh install takes."""
    del context
    pins, domains = {}, {}
    for name in FOLLOWED:
        allowed = doc.allowed.of(name)
        if allowed.state != STATED or allowed.is_head or allowed.is_split:
            continue
        if allowed.is_pin:
            pins[name] = allowed.releases[0]
        fitting = [r for r in allowed.releases if (found := release_of(name, r)) and found.fits(allowed.python.version)]
        domains[name] = [pins[name]] if name in pins else fitting
    told = set()
    for failure in failures(pins):
        told.add(failure.library)
        if _are_beside(doc, failure):
            yield _finding(doc, failure, pins, None)
    fresh = choose({name: found for name, found in domains.items() if found}, doc.allowed.python.version)
    for failure in failures(fresh):
        if failure.library not in told and _are_beside(doc, failure):
            yield _finding(doc, failure, fresh, Severity.WARNING)


def _are_beside(doc: Requirements, failure: Failure) -> bool:
    """One file names both, and pins what is pinned: what two files say may be meant for two environments."""
    names = (failure.library, failure.lacking)
    pinned = [name for name in names if doc.allowed.of(name).is_pin]
    return any(
        all(name in file.bounds for name in names)
        and all(any(bound.is_pin for bound in file.bounds[name]) for name in pinned)
        for file in doc.files
    )


def _finding(doc: Requirements, failure: Failure, releases: dict[str, str], severity: Severity | None) -> Finding:
    mine, theirs = (_bound(doc, name) for name in (failure.library, failure.lacking))
    # The line that says most is the one to change.
    first, other = (theirs, mine) if theirs.is_pin or not mine.is_pin else (mine, theirs)
    assert first.origin is not None
    library, lacking = failure.library, failure.lacking
    takes = "" if severity is None else "a fresh install takes it, and "
    label = f"{library if other is mine else lacking} {releases[library if other is mine else lacking]}"
    return META.finding(
        first.origin,
        f"`{library}` {releases[library]} cannot be imported: {takes}`{lacking}` {releases[lacking]} has no"
        f" `{failure.dotted.rpartition('.')[2]}`",
        hint=f"Move the pin of `{library}` or of `{lacking}`; `dslint versions` names releases that go together",
        related=(other.origin.labelled(label),) if other.origin is not None else (),
        severity=severity,
    )


def _bound(doc: Requirements, name: str) -> Bound:
    allowed = doc.allowed.of(name)
    return allowed.pin or allowed.bounds[0]
