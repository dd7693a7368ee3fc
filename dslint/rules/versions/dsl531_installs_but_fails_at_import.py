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

from collections.abc import Iterator, Mapping

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.standing.presence import first_missing
from dslint.model.surface import surface
from dslint.model.versions.environment import Environment, environment
from dslint.model.versions.importing import Failure, failures
from dslint.model.versions.project import Requirements
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
    bad("a library that no file names: a fresh install takes it", {
        "requirements.txt": "diffusers==0.25.1\ntorch==2.1.2\n", "train.py": "import diffusers\n",
    }, "requirements.txt:1 warning"),
    bad("what no name tells, as it was seen", {
        "requirements.txt": "deepspeed==0.8.3\npydantic==2.5.3\n", "train.py": "import deepspeed\n",
    }, "requirements.txt:2 error"),
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
    found = environment(doc.allowed)
    told = set()
    for failure in failures(found.pins):
        told.add(failure.library)
        if _are_beside(doc, failure, found):
            yield _finding(doc, failure, found.pins, None)
    for failure in failures(found.fresh):
        if failure.why and failure.lacking in found.implied:
            continue  # what nobody follows may hold the other one back
        if failure.library not in told and failure.library not in found.implied and _are_beside(doc, failure, found):
            yield _finding(doc, failure, found.fresh, Severity.WARNING)


def _are_beside(doc: Requirements, failure: Failure, found: Environment) -> bool:
    """One file names both, and pins what is pinned: what two files say may be meant for two environments."""
    names = [name for name in (failure.library, failure.lacking) if name not in found.implied]
    pinned = [name for name in names if doc.allowed.of(name).is_pin]
    return any(
        all(name in file.bounds for name in names)
        and all(any(bound.is_pin for bound in file.bounds[name]) for name in pinned)
        for file in doc.files
    )


def _finding(doc: Requirements, failure: Failure, releases: Mapping[str, str], severity: Severity | None) -> Finding:
    mine, theirs = doc.allowed.of(failure.library).foremost, doc.allowed.of(failure.lacking).foremost
    assert mine is not None
    # The line that says most is the one to change.
    first, other = (mine, theirs) if theirs is None or (mine.is_pin and not theirs.is_pin) else (theirs, mine)
    assert first.origin is not None
    library, lacking = failure.library, failure.lacking
    # What is pinned stands; the other one of the two is what a fresh install takes.
    is_theirs = severity is not None and doc.allowed.of(library).is_pin
    takes = "" if severity is None else "a fresh install takes " if is_theirs else "a fresh install takes it, and "
    comma, has_no = (",", "which has no") if is_theirs else ("", "has no")
    label = f"{library if other is mine else lacking} {releases[library if other is mine else lacking]}"
    beside = f"`{lacking}` {releases[lacking]}"
    lacks = f"cannot be imported: {takes}{beside}{comma} {has_no} `{_missing(failure, releases[lacking])}`"
    return META.finding(
        first.origin,
        f"`{library}` {releases[library]} " + (f"fails beside {beside}: {failure.why}" if failure.why else lacks),
        hint=f"Move the pin of `{library}` or of `{lacking}`; `dslint versions` names releases that go together"
        if other is not None
        else f"Pin an older `{lacking}` beside it, or take a newer `{library}`",
        related=(other.origin.labelled(label),) if other is not None and other.origin is not None else (),
        severity=severity,
    )


def _missing(failure: Failure, release: str) -> str:
    """The name alone where its module is there, else the module."""
    found = surface(failure.dotted.partition(".")[0])
    part = first_missing(found, failure.dotted, release) if found is not None else ""
    return part if part and part != failure.dotted else failure.dotted.rpartition(".")[2]
