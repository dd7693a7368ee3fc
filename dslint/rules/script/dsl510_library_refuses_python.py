"""A function of a library refuses the Python that the project names, although the metadata of the release allow it.

**What.** `torch.compile(model)` with torch 2.2 or 2.3 on Python 3.12, with 2.4 or 2.5 on 3.13, with 2.6 to 2.9 on 3.14;
`load_dataset(...)` of datasets before 4.4 on Python 3.14, whose `pickle` calls a method with one argument more.

**Why it hurts.** pip installs the release, the import works, and the call raises on every rank: after the data are
loaded, or in the first step.

**Fix.** Take a release that knows the Python, or an older Python for the project.

**When it stays quiet.** No file names one Python for the project (`.python-version`, a base image, a lock, a conda
environment; a range is none); a handler of the error or a test of the Python is around the call; the allowed releases
are not known. A warning means that all allowed releases refuse it, or the one that a fresh install takes; that the
oldest allowed one does is not told.

**Evidence.** `schemas/python_limits.json`, each row with the files of the releases that say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from dslint.core.finding import Finding, Severity
from dslint.core.schemafiles import load_file
from dslint.model.versions.plain import triple
from dslint.model.versions.ranges import contains
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import LibraryUses
from dslint.rules.names.gonenames import who

META = RuleMeta(
    code="DSL510",
    name="library-refuses-python",
    kind="script",
    severity=Severity.WARNING,
    summary="a function of a library that refuses the Python which the project names",
    markers=(r"torch|datasets", r"compile|load_dataset|load_from_disk|from_dict|from_list|from_generator"),
    references=(
        "https://github.com/huggingface/datasets/issues/7839",
        "https://github.com/pytorch/pytorch/blob/main/RELEASE.md#release-compatibility-matrix",
    ),
    depends_on_run=True,
    no_experiment="the probe runs with one Python; the texts of the releases say what they refuse",
)
_CAUGHT = frozenset({"", "Exception", "BaseException"})


@cache
def _limits() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load_file("python_limits.json")["limits"]
    return rows


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire once a file on each function that a release in use refuses on the Python of the project."""
    python = view.context.allowed.python
    if not python.is_stated or python.origin is None:
        return
    rows = [row for row in _limits() if triple(python.version) >= triple(row["python"])]
    told = set()
    for use in view.found.uses if rows else ():
        meant = [row for row in rows if use.kind == "attribute" and use.name in row["names"]]
        if not meant or use.name in told or use.caught & (_CAUGHT | {meant[0]["error"].partition(":")[0]}):
            continue

        def fails(release: str, meant: list[dict[str, Any]] = meant) -> bool:
            return any(contains(row["releases"], release) for row in meant)

        standing = view.standing(meant[0]["library"], use.guards, fails)
        if standing is None or standing.reach == "oldest":
            continue
        told.add(use.name)
        row = next(row for row in meant if contains(row["releases"], standing.release))
        yield view.finding(
            META,
            use.node,
            f"{who(standing)} refuses `{use.name}` on Python {python.version}: `{row['error'].partition(':')[0]}`",
            hint=f"Take {row['library']} {_beyond(row)} or newer, or a Python before {row['python']}",
            related=(*standing.allowance.origins[:1], python.origin.labelled(f"Python {python.version}")),
            severity=Severity.WARNING,
            facts={"error": row["error"], "python": python.version},
        )


def _beyond(row: dict[str, Any]) -> str:
    """The first release that the Python does not trouble."""
    return str(row["releases"]).rpartition("<")[2]


_COMPILE = "import torch\n\n\ndef build(model):\n    return torch.compile(model)\n"
_LOAD = "from datasets import load_dataset\n\nrows = load_dataset('json', data_files='a.json')\n"
EXAMPLES = (
    bad(
        "Compiled on a Python that came later",
        {"requirements.txt": "torch==2.2.2\n", ".python-version": "3.12\n", "train.py": _COMPILE},
        "train.py:5 warning",
    ),
    bad(
        "The pickle of a new Python",
        {"requirements.txt": "datasets==4.3.0\n", ".python-version": "3.14\n", "train.py": _LOAD},
        "train.py:3 warning",
    ),
    bad(
        "As a decorator, in an image",
        {
            "requirements.txt": "torch==2.3.1\n",
            "Dockerfile": "FROM python:3.12\nRUN pip install -r requirements.txt\n",
            "train.py": "import torch\n\n\n@torch.compile\ndef step(values):\n    return values.sum()\n",
        },
        "train.py:4 warning",
    ),
    good(
        "A release that knows it",
        {"requirements.txt": "torch==2.4.1\n", ".python-version": "3.12\n", "train.py": _COMPILE},
    ),
    good(
        "A range of Pythons",
        {
            "pyproject.toml": '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.9"\n'
            'dependencies = ["torch==2.2.2"]\n',
            "train.py": _COMPILE,
        },
    ),
    good(
        "A test of the Python",
        {
            "requirements.txt": "torch==2.2.2\n",
            ".python-version": "3.12\n",
            "train.py": "import sys\n\nimport torch\n\n\ndef build(model):\n    if sys.version_info < (3, 12):\n"
            "        model = torch.compile(model)\n    return model\n",
        },
    ),
    good(
        "The error is handled",
        {
            "requirements.txt": "torch==2.2.2\n",
            ".python-version": "3.12\n",
            "train.py": "import torch\n\n\ndef build(model):\n    try:\n        return torch.compile(model)\n"
            "    except RuntimeError:\n        return model\n",
        },
    ),
)
