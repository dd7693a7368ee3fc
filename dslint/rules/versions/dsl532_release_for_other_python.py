"""**What.** A requirement whose releases do not install on the Python that the project names: by their
`Requires-Python`, or since their wheels (of torch) are built for other Pythons and nothing else can be installed.

**Why it hurts.** pip stops with `No matching distribution found` or `requires a different Python`, in an image after
everything before it was built. Where a range is stated, pip quietly takes a release that is years old.

**Fix.** Name a Python that the release installs on, or a release that installs on the Python.

**When it stays quiet.** When no file names one Python (a base image `python:3.8`, the
`python3` that `apt` installs on Ubuntu 20.04, `conda create ... python=3.10`,
`.python-version`, `python=3.9` of a conda environment, a closed `requires-python`); when some allowed release installs.
A Python that only a text or a workflow names makes it a warning; one that a folder further up names counts for nothing.

**Evidence.** `Requires-Python` and the wheel tags of every release on the index (`schemas/releases.json`);
`pip install --dry-run --no-deps --only-binary=:all: --python-version ...` of pip 23.2.1 refused every bad example.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.versions.allowed import STATED, AllowedReleases
from dslint.model.versions.known import release_of
from dslint.model.versions.project import Requirements
from dslint.model.versions.requirements import FOLLOWED
from dslint.model.versions.resolve import home_of
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL532",
    name="release-for-other-python",
    kind="versions",
    severity=Severity.ERROR,
    summary="No allowed release of a library installs on the Python that the project names",
    references=(
        "https://packaging.python.org/en/latest/specifications/core-metadata/#requires-python",
        "https://github.com/pytorch/pytorch/blob/main/RELEASE.md#release-compatibility-matrix",
    ),
    depends_on_run=True,
    no_experiment="no training begins: the installer refuses the requirement",
)

_TRAIN = {"train.py": "import transformers\n"}
_UBUNTU = "FROM %s\nRUN apt-get update && apt-get install -y \\\n    git %s\nRUN pip3 install -r requirements.txt\n"

EXAMPLES = (
    bad("the base image is too old", {
        "requirements.txt": "transformers==4.50.0\n", "Dockerfile": "FROM python:3.8\nCOPY . .\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    bad("the Python of the distribution below it", {
        "requirements.txt": "transformers>=4.47\n", **_TRAIN,
        "Dockerfile": _UBUNTU % ("nvidia/cuda:11.8.0-runtime-ubuntu20.04", "python3 python3-pip"),
    }, "requirements.txt:1 error"),
    good("another Python on that distribution", {
        "requirements.txt": "transformers>=4.47\n", **_TRAIN,
        "Dockerfile": _UBUNTU % ("ubuntu:20.04", "python3 python3-pip python3.10-venv"),
    }),
    good("a later distribution", {
        "requirements.txt": "transformers>=4.47\n", **_TRAIN,
        "Dockerfile": _UBUNTU % ("ubuntu:22.04", "python3 python3-pip"),
    }),
    bad("torch has no wheel for a Python that came later", {
        "requirements.txt": "torch==2.1.2\n", ".python-version": "3.12\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    bad("a conda environment", {
        "environment.yml": "dependencies:\n  - python=3.8\n  - pip:\n    - accelerate>=1.1\n", **_TRAIN,
    }, "environment.yml:4 error"),
    bad("a README", {
        "requirements.txt": "trl==0.15.2\n", "README.md": "    conda create -n rl python=3.8\n", **_TRAIN,
    }, "requirements.txt:1 warning"),
    bad("a workflow that installs the project", {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\n'
        'dependencies = ["torch==2.1.0"]\n',
        ".github/workflows/tests.yml": 'jobs:\n  smoke:\n    steps:\n      - with:\n          python-version: "3.12"\n'
        "      - run: pip install .\n", **_TRAIN,
    }, "pyproject.toml:5 warning"),
    good("a workflow for the style of the code", {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\n'
        'dependencies = ["torch==2.1.0"]\n',
        ".github/workflows/lint.yml": 'jobs:\n  lint:\n    steps:\n      - with:\n          python-version: "3.12"\n'
        "      - run: pip install ruff\n", **_TRAIN,
    }),
    good("the Python fits", {
        "requirements.txt": "transformers==4.50.0\ntorch==2.1.2\n", "Dockerfile": "FROM python:3.10\n", **_TRAIN,
    }),
    good("an older release of the range fits", {
        "requirements.txt": "transformers>=4.30\n", "Dockerfile": "FROM python:3.8\n", **_TRAIN,
    }),
    good("a range of Pythons", {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.8"\n'
        'dependencies = ["transformers==4.50.0"]\n', **_TRAIN,
    }),
)  # fmt: skip


def check(doc: Requirements, context: Context) -> Iterator[Finding]:
    """The libraries that the files of the folder name, on the one Python that is stated."""
    del context
    python = doc.allowed.python
    if not python.is_stated or python.origin is None:
        return
    own = {name for file in doc.files for name in file.bounds}
    for name in FOLLOWED:
        allowed = doc.allowed.of(name)
        if name not in own or allowed.state != STATED or allowed.fresh is not None or not allowed.releases:
            continue
        bound = allowed.pin or next((bound for bound in allowed.bounds if bound.specifier), None)
        if bound is None or bound.origin is None or bound.taken_from:
            continue
        if home_of(bound.origin.path) != home_of(python.origin.path):
            continue
        is_told = python.origin.path.endswith(".md") or ".github/" in python.origin.path
        yield META.finding(
            bound.origin,
            f"`{name}{bound.specifier}` does not install on Python {python.version}, which is stated: {_why(allowed)}",
            hint=f"Name a release of `{name}` for Python {python.version}, or another Python",
            related=(python.origin.labelled(f"Python {python.version}"),),
            severity=Severity.WARNING if is_told else None,
        )


def _why(allowed: AllowedReleases) -> str:
    release = release_of(allowed.library, allowed.releases[0])
    if release is None:
        return "no release fits"
    if release.built_for and allowed.python.version not in release.built_for:
        return f"its wheels are for {release.built_for[0]} to {release.built_for[-1]}"
    return f"it requires {release.requires_python}"
