"""An import of a script loads a module of a library that needs what the pinned release of another library lacks.

**What.** `from transformers import AutoModelForTokenClassification` with transformers 5.10 loads `modeling_utils`,
which reads `torch.float8_e8m0fnu`; torch 2.6 has none. `import transformers` alone works, and the metadata allow the
pair.

**Why it hurts.** pip installs both. The job starts on every rank and stops with `ModuleNotFoundError: Could not import
module ...`, which names neither of the two.

**Fix.** Move the pin of one of them; `dslint versions` names releases that go together.

**When it stays quiet.** No file names both; a release of one of the two is not known; the import is tried, or a test
is before it that cannot be decided. What fails with any import of the library is DSL531's. Two pins are an error;
where a fresh install chooses one of them, it is a warning.

**Evidence.** What the modules of each release import and read while they are imported (`schemas/surface`); pairs that
were installed and imported are in `tests/fixtures/pairs_installed.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.model.standing.presence import read_as
from dslint.model.versions.environment import Environment, environment
from dslint.model.versions.importing import Failure, failure_of
from dslint.model.versions.known import distribution_of
from dslint.model.versions.minimums import available_from
from dslint.model.versions.ranges import contains
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import MARKERS, LibraryUses
from dslint.rules.names.gonenames import CAUGHT
from dslint.rules.names.versionpairs import are_beside, stated_places

if TYPE_CHECKING:
    from dslint.python.uses.kinds import Use

META = RuleMeta(
    code="DSL509",
    name="import-fails-inside-library",
    kind="script",
    severity=Severity.ERROR,
    summary="an import that fails inside of a library, for what the release of another library lacks",
    markers=MARKERS,
    references=("https://arxiv.org/abs/2512.20345",),
    depends_on_run=True,
    no_experiment="an import fails before any rank meets another; the pairs that were imported stand in the tests",
)

# Modules of single models and pipelines load these, whatever else they do.
_LOADED = (
    (re.compile(r"transformers\.models\..*modeling_(?!tf_|flax_)"), "transformers.modeling_utils"),
    (re.compile(r"diffusers\.pipelines\."), "diffusers.pipelines.pipeline_utils"),
    (re.compile(r"diffusers\.models\."), "diffusers.models.modeling_utils"),
)


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire on the first import of each pair of libraries that fails."""
    found = environment(view.context.allowed)
    told: set[tuple[str, str]] = set()
    for use in view.found.uses:
        library = use.name.partition(".")[0]
        if use.kind != "name" or use.caught & CAUGHT["module"] or library not in view.libraries or len(use.dotted) != 1:
            continue
        for releases, severity in ((found.pins, None), (found.fresh, Severity.WARNING)):
            failure = _failure(view, use.name, releases, found)
            pair = (library, failure.lacking) if failure is not None else ("", "")
            if failure is None or pair in told or not are_beside(view, library, failure.lacking):
                continue
            if not view.runs(use.guards, library, releases[distribution_of(library)]):
                continue
            told.add(pair)
            yield _finding(view, use, failure, releases, severity)


def _failure(view: LibraryUses, name: str, releases: Mapping[str, str], found: Environment) -> Failure | None:
    """What is missing for the module that a name loads, and is not missing for the library itself."""
    library = name.partition(".")[0]
    distribution = distribution_of(library)
    surface = view.surface(library)
    release = releases.get(distribution)
    if surface is None or release is None:
        return None
    home = (surface.canonical(name, read_as(surface, release)) or "").rpartition(".")[0]
    module = next((loaded for pattern, loaded in _LOADED if pattern.match(home)), home)
    if not module or module == library:
        return None
    failure = failure_of(distribution, releases, module)
    if failure is None or failure.lacking in found.implied or failure_of(distribution, releases) is not None:
        return None
    # What the library takes for absent it does not load: the name is a stand-in, which raises where it is used.
    asked = available_from(library, release, failure.lacking)
    return failure if not asked or contains(asked, releases[failure.lacking]) else None


def _finding(
    view: LibraryUses, use: Use, failure: Failure, releases: Mapping[str, str], severity: Severity | None
) -> Finding:
    library, lacking = failure.library, failure.lacking
    takes = "" if severity is None else "a fresh install takes it, and "
    return view.finding(
        META,
        use.node,
        f"{library} {releases[library]} fails here: {takes}`{failure.module}` needs `{_short(failure.dotted)}`, which"
        f" {lacking} {releases[lacking]} lacks",
        hint=f"Move the pin of `{library}` or of `{lacking}`; `dslint versions` names releases that go together",
        related=stated_places(view, lacking, library),
        severity=severity,
        facts={"library": library, "lacking": lacking, "name": failure.dotted},
    )


def _short(dotted: str) -> str:
    return dotted if len(dotted) < 48 else dotted.rpartition(".")[2]


_MODEL = """\
from transformers import AutoModelForTokenClassification

model = AutoModelForTokenClassification.from_pretrained("m")
"""

EXAMPLES = (
    bad(
        "A dtype that came with torch 2.7",
        {"requirements.txt": "transformers==5.10.2\ntorch==2.6.0\n", "train.py": _MODEL},
        "train.py:1 error",
    ),
    good(
        "A torch that transformers takes for absent: the import gives a stand-in",
        {
            "requirements.txt": "torch==2.0.1\ntransformers==4.57.6\n",
            "train.py": "from transformers import Blip2ForConditionalGeneration\n",
        },
    ),
    good(
        "A torch that has it",
        {"requirements.txt": "transformers==5.10.2\ntorch==2.7.1\n", "train.py": _MODEL},
    ),
    good(
        "The import is tried",
        {
            "requirements.txt": "transformers==5.10.2\ntorch==2.6.0\n",
            "train.py": "try:\n    from transformers import AutoModelForTokenClassification\nexcept ImportError:\n"
            "    AutoModelForTokenClassification = None\n",
        },
    ),
    good(
        "Two files for two environments",
        {
            "requirements.txt": "transformers==5.10.2\n",
            "environment.yml": "dependencies:\n  - pytorch=2.6.0\n",
            "train.py": _MODEL,
        },
    ),
)
