"""**What.** Two libraries whose releases install together, and of which one cannot be imported: while it is imported it
needs a name that the other lacks. peft 0.21 needs `transformers.EncoderDecoderCache`; the metadata of peft allow
transformers 4.37, which has none.

mmdet 3.3.0 asserts on its import that mmcv is older than 2.2.0.

The same after several commands: a stage of a Dockerfile or a job of a workflow installs transformers 4.56 with its
requirements, and `pip install -U huggingface_hub` then replaces the release that transformers checks on import.

**Why it hurts.** pip says nothing, or prints an error and goes on. The job starts on every node and stops with
`ImportError: cannot import name` before the first step, and the message names a file that nobody of the project has
written.

**Fix.** Move the pin of one of them; `dslint versions` names releases that go together.

**When it stays quiet.** No file names both, and no chain of commands that is understood as a whole installs them; a
release of one of the two is not known (a commit, a copy, a range without a newest release for the Python); the import
is tried, or a test of the release or of an installed package that cannot be decided comes before it; the names of a
release are not known. For two pins it is an error; where a fresh install chooses one of them, a warning.

**Evidence.** The imports of the released sources (`schemas/surface`). 31 pairs of peft and transformers were installed
with `pip install --no-deps` and imported (`tests/fixtures/pairs.toml`): of the 3 that fail all are found, of the 28
others none is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.standing.allowance import HELD_BACK
from dslint.model.standing.presence import first_missing
from dslint.model.surface import surface
from dslint.model.versions.allowed import Bound
from dslint.model.versions.environment import Environment, environment
from dslint.model.versions.importing import Failure, broken_metadata, failures
from dslint.model.versions.project import Requirements, StatedFile
from dslint.model.versions.replay import Installed, replay
from dslint.model.versions.steps import courses
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
    bad("what the package itself asserts", {
        "requirements.txt": "torch==2.1.2\nmmengine==0.10.4\nmmcv==2.2.0\nmmdet==3.3.0\n",
        "train.py": "import mmdet\n",
    }, "requirements.txt:3 error"),
    bad("built for the numpy before", {
        "requirements.txt": "torch==2.1.2\nnumpy\ngradio==4.44.1\n", "train.py": "import torch\n",
    }, "requirements.txt:1 warning"),
    good("another library holds numpy", {
        "requirements.txt": "torch==2.1.2\nnumpy\ngradio==4.16.0\n", "train.py": "import torch\n",
    }),
    good("releases that the package takes", {
        "requirements.txt": "torch==2.1.2\nmmengine==0.10.4\nmmcv==2.1.0\nmmdet==3.3.0\n",
        "train.py": "import mmdet\n",
    }),
    bad("a later command replaces what the import checks", {
        "Dockerfile": "FROM python:3.11\nRUN pip install torch==2.8.0 transformers==4.56.1\n"
        "RUN pip install -U huggingface_hub\n", **_TRAIN,
    }, "Dockerfile:3 warning"),
    bad("a job with the oldest torch", {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = ["numpy", "torch>=2.2"]\n',
        ".github/workflows/test.yml": "jobs:\n  oldest:\n    steps:\n      - run: |\n"
        "          pip install torch==2.2.2\n          pip install -e .\n", **_TRAIN,
    }, ".github/workflows/test.yml:5 warning"),
    bad("a torch that comes after what is built for another one", {
        "Dockerfile": "FROM python:3.10\nRUN pip install torchvision==0.15.2\nRUN pip install torch==2.3.1\n", **_TRAIN,
    }, "Dockerfile:3 error"),
    good("the last command keeps the bound", {
        "Dockerfile": "FROM python:3.11\nRUN pip install torch==2.8.0 transformers==4.56.1\n"
        "RUN pip install -U 'huggingface_hub<1'\n", **_TRAIN,
    }),
    good("what is there fits, and stays", {
        "Dockerfile": "FROM python:3.11\nRUN pip install torch==2.8.0 transformers==4.56.1\n"
        "RUN pip install huggingface_hub\n", **_TRAIN,
    }),
    good("two jobs", {
        "requirements.txt": "transformers==4.56.1\n",
        ".github/workflows/test.yml": "jobs:\n  one:\n    steps:\n      - run: pip install -r requirements.txt\n"
        "  two:\n    steps:\n      - run: pip install -U huggingface_hub\n", **_TRAIN,
    }),
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
        if (failure.why and failure.lacking in found.implied) or (failure.lacking in HELD_BACK and not failure.why):
            continue  # what nobody follows may hold the other one back
        if failure.library not in told and failure.library not in found.implied and _are_beside(doc, failure, found):
            told.add(failure.library)
            yield _finding(doc, failure, found.fresh, Severity.WARNING)
    for file in (*doc.files, *doc.commands):
        yield from (each for failure, each in _after_commands(doc, file) if failure.library not in told)


def _after_commands(doc: Requirements, file: StatedFile) -> Iterator[tuple[Failure, Finding]]:
    """What the commands of one environment leave, each library once for a file."""
    python = doc.allowed.python.version
    told = set()
    for course in courses(file, doc.files, python):
        left = replay(course, python)
        broken = (*failures(left.releases), *broken_metadata(left.releases, course.python or python))
        for failure in broken:
            mine, theirs = left.asked.get(failure.library), left.asked.get(failure.lacking)
            if mine is None or theirs is None or failure.library in told:
                continue  # what nobody asked for, something that is not followed may hold back
            told.add(failure.library)
            yield (
                failure,
                _left_behind(failure, left, *((mine, theirs) if _ranks(mine, theirs, file) else (theirs, mine))),
            )


def _left_behind(failure: Failure, left: Installed, place: Bound, beside: Bound) -> Finding:
    """Tell at a line of the commands, the later one where both are there."""
    assert place.origin is not None
    assert beside.origin is not None
    library, lacking = (f"`{name}` {left.releases[name]}" for name in (failure.library, failure.lacking))
    why = failure.why or f"it has no `{_missing(failure, left.releases[failure.lacking])}`"
    return META.finding(
        place.origin,
        f"after these commands {library} fails beside {lacking}: {why}",
        hint=f"Install both in one command, or bound `{failure.lacking}` where it is installed",
        related=(beside.origin.labelled("the other one of the two"),),
        severity=None if {failure.library, failure.lacking} <= left.pinned else Severity.WARNING,
    )


def _ranks(first: Bound, second: Bound, file: StatedFile) -> bool:
    """The first one stands in the file with the commands, and later than the second."""
    path, places = file.source.path, (first.origin, second.origin)
    mine, theirs = (at.span.start if at is not None and at.path == path else -1 for at in places)
    return mine >= theirs


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
